"""The demonstration from beginning to end.

The main thread produces. Two scenarios run beside it, each on a thread of its own. The first kills a leader, starts it
again, and waits until it is in every ISR. Then it does the same with the controller. The second scenario stops the
query, and starts it again from its checkpoint. It waits for the first one, so that their effects do not mix. At the end
the demonstration reads everything back, and counts.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from minilog_broker.failure import CommandFailed
from minilog_tools.demo import data, expected, topics
from minilog_tools.demo.patience import SILENCE_S, Patience, Signs, limit_on_this_machine_s
from minilog_tools.demo.publishing import Publisher
from minilog_tools.demo.report import DemoReport, Times, show, write_report
from minilog_tools.demo.spark_job import SparkJob, check_spark_can_run, job_file
from minilog_tools.local_cluster import START_WITHIN_S, LocalCluster
from minilog_tools.local_ports import free_ports

_PARTS = 200
# A year takes a minute, and a quick run less.
_LONGEST_S, _SHORTEST_S, _RECORDS_PER_S = 60.0, 20.0, 5_600
_KILL_LEADER_AT, _KILL_CONTROLLER_AT, _RESTART_QUERY_AT = 0.15, 0.35, 0.50
_DEAD_FOR = 0.10  # of all records. That many are written before the broker starts again
_BROKERS_TO_KILL_A_CONTROLLER = 3  # with fewer, the metadata quorum has one voter
# From this fraction on, parts go slowly until the scenarios are through, so that these happen while records come.
_HOLD_FROM = 0.85
_HELD_PART_S = 2.0
_BATCHES_BEFORE_RESTART = 2


@dataclass(frozen=True, slots=True)
class Year:
    """All records that the demonstration produces, as tables."""

    flights: pa.Table
    weather: pa.Table

    @property
    def records(self) -> int:
        return int(self.flights.num_rows + self.weather.num_rows)


@dataclass(frozen=True, slots=True)
class CrashTimes:
    """The seconds that the kill of a broker took. None and zeros where no broker was killed."""

    broker_id: int | None = None
    failover_s: float = 0.0
    back_in_sync_s: float = 0.0


Crashes: TypeAlias = tuple[CrashTimes, CrashTimes]  # of a leader, of the controller


def run_demo(*, brokers: int, flights_limit: int | None, report_file: pathlib.Path | None) -> int:
    """Run the whole demonstration. Returns 0 where nothing is lost, duplicated or different, else 1."""
    check_spark_can_run()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="minilog-demo-"))
    try:
        report = Demo(directory, brokers, console).run(load_year(flights_limit))
    except CommandFailed as failure:
        raise CommandFailed(f"{failure} (the logs are kept in {directory})") from None
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    if report_file is not None:
        write_report(report, report_file)
    show(report, console)
    if report.passed:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        console.print(f"The data and the logs are kept in {directory}")
    return 0 if report.passed else 1


def load_year(flights_limit: int | None) -> Year:
    """All flights, or the first `flights_limit`, and the weather up to the last flight."""
    flights = data.load_flights(flights_limit)
    until = None if flights_limit is None else flights["time"][-1].as_py()
    return Year(flights, data.load_weather(until))


class Demo:
    """One run of the demonstration, with its files in one directory. Call `run` once."""

    def __init__(self, directory: pathlib.Path, brokers: int, console: Console) -> None:
        self._console = console
        self._brokers = brokers
        self._cluster = LocalCluster(directory, free_ports(brokers), {})
        self._servers = self._cluster.bootstrap_servers
        self._job = SparkJob(directory, job_file(), ["--bootstrap-servers", self._servers])
        self._stop = threading.Event()
        self._began_s = time.monotonic()

    def run(self, year: Year) -> DemoReport:
        """Produce, crash, restart, count. All processes have ended afterwards, also after a failure."""
        try:
            self._cluster.start_all()
            self._cluster.wait_running(self._stop, limit_on_this_machine_s(START_WITHIN_S))
            cluster_start_s = self._elapsed_s()
            self._say(f"{self._brokers} brokers are running: {self._servers}")
            topics.create_topics(self._servers, self._brokers)
            self._job.start()
            producing_s, crashes, query_restart_s = self._produce(year)
            delays = expected.expected_delays(year.flights, year.weather)
            last_window_s = self._wait_for_delays(len(delays))
            self._job.stop()
            return self._count(
                year,
                delays,
                crashes,
                Times(
                    cluster_start_s=cluster_start_s,
                    producing_s=producing_s,
                    failover_s=crashes[0].failover_s,
                    back_in_sync_s=crashes[0].back_in_sync_s,
                    controller_failover_s=crashes[1].failover_s,
                    controller_back_in_sync_s=crashes[1].back_in_sync_s,
                    query_restart_s=query_restart_s,
                    last_window_s=last_window_s,
                    total_s=0.0,
                ),
            )
        finally:
            self._stop.set()
            self._job.end()
            self._cluster.end()

    def _produce(self, year: Year) -> tuple[float, Crashes, float]:
        """Produce all events, with both scenarios beside. Returns the seconds, and the results of the scenarios."""
        began_s = time.monotonic()
        with self._publisher(year) as publisher, concurrent.futures.ThreadPoolExecutor(2) as threads:
            try:
                crashes = threads.submit(self._crash_brokers, publisher)
                restart = threads.submit(self._restart_the_query, publisher, crashes)
                self._publish_year(year, publisher, [crashes, restart])
                crash_times, producing_s = crashes.result(), time.monotonic() - began_s
                self._close_all_windows(publisher)  # a query that has read all else has one more micro-batch by it
                concurrent.futures.wait([restart], limit_on_this_machine_s(SILENCE_S))
            finally:
                self._stop.set()
            query_restart_s = restart.result()
            self._stop.clear()
        return producing_s, crash_times, query_restart_s

    def _publish_year(
        self, year: Year, publisher: Publisher, scenarios: Sequence[concurrent.futures.Future[Any]]
    ) -> None:
        """Publish all parts at an even pace. Raises the failure of a scenario as soon as it sees one."""
        pause_s = min(_LONGEST_S, max(_SHORTEST_S, year.records / _RECORDS_PER_S)) / _PARTS
        due_s = time.monotonic()
        for number, part in enumerate(data.parts(year.flights, year.weather, _PARTS)):
            held = number >= _HOLD_FROM * _PARTS and not all(scenario.done() for scenario in scenarios)
            due_s = max(due_s + pause_s, time.monotonic())
            until_s = due_s + (_HELD_PART_S if held else 0.0)
            concurrent.futures.wait(scenarios, max(0.0, until_s - time.monotonic()), concurrent.futures.FIRST_EXCEPTION)
            time.sleep(max(0.0, due_s - time.monotonic()))
            for scenario in scenarios:
                if scenario.done():
                    scenario.result()
            publisher.publish(part)
        publisher.settle_all()

    @contextlib.contextmanager
    def _publisher(self, year: Year) -> Iterator[Publisher]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task("records acknowledged", total=year.records + len(data.closing_events()))
            publisher = Publisher(self._servers, year.records, lambda done: progress.update(task, completed=done))
            try:
                yield publisher
            except BaseException:
                publisher.close(deliver=False)
                raise
            publisher.close(deliver=True)

    def _close_all_windows(self, publisher: Publisher) -> None:
        """Send the events that close the windows. All others are acknowledged by now, so none comes behind them."""
        flight, weather = data.closing_events()
        publisher.send(topics.FLIGHTS, flight)
        publisher.send(topics.WEATHER, weather)
        publisher.settle_all()

    def _crash_brokers(self, publisher: Publisher) -> Crashes:
        """Kill a broker that leads a partition and is not the controller. Then kill the controller."""
        leader = self._crash(publisher, _KILL_LEADER_AT, "a leader", topics.find_victim)
        if self._brokers < _BROKERS_TO_KILL_A_CONTROLLER:
            return leader, CrashTimes()
        return leader, self._crash(publisher, _KILL_CONTROLLER_AT, "the controller", topics.find_controller)

    def _crash(self, publisher: Publisher, share: float, role: str, choose: Callable[[str], int]) -> CrashTimes:
        publisher.wait_for(share, self._stop)
        if self._stop.is_set():
            return CrashTimes()
        victim = choose(self._servers)
        self._cluster.kill(victim)
        self._say(f"broker {victim}, {role}, was killed with SIGKILL")
        failover_s = topics.wait_led_by_others(self._servers, victim, self._stop)
        self._say(f"its partitions have other leaders after {failover_s:.1f} s")
        publisher.wait_for(share + _DEAD_FOR, self._stop)
        if not self._stop.is_set():
            self._cluster.start(victim)
        back_in_sync_s = topics.wait_in_sync(self._servers, victim, self._stop)
        self._say(f"broker {victim} was started again, and is in every ISR after {back_in_sync_s:.1f} s")
        return CrashTimes(victim, failover_s, back_in_sync_s)

    def _restart_the_query(self, publisher: Publisher, crashes: concurrent.futures.Future[Crashes]) -> float:
        crashes.result()
        publisher.wait_for(_RESTART_QUERY_AT, self._stop)
        self._job.wait_for_batches(_BATCHES_BEFORE_RESTART, self._stop)
        if self._stop.is_set():
            return 0.0
        began_s = time.monotonic()
        self._job.stop()
        finished = self._job.finished_batches
        self._job.start()
        self._say(f"the query was stopped after {finished} micro-batches, and starts again from its checkpoint")
        self._job.wait_for_batches(finished + 1, self._stop)
        return time.monotonic() - began_s

    def _wait_for_delays(self, keys: int) -> float:
        """Wait until the job has written as many records as there are keys. Returns the seconds that it took."""
        began_s = time.monotonic()
        written = topics.record_count(self._servers, topics.DELAYS)
        patience = Patience(self._signs(written), began_s)
        with self._console.status("waiting for the last windows"):
            while (written := topics.record_count(self._servers, topics.DELAYS)) < keys:
                if (silence := patience.look(self._signs(written), time.monotonic())) is not None:
                    raise CommandFailed(
                        f"the Spark job wrote {written:,} of {keys:,} windows and then {silence}: "
                        f"see {self._job.log_file}"
                    )
                self._job.check_alive()
                self._stop.wait(0.5)
        return time.monotonic() - began_s

    def _signs(self, windows: int) -> Signs:
        # In this order: a micro-batch that ends between the two looks must not count as under way.
        begun, finished = self._job.begun_batches, self._job.finished_batches
        return Signs(windows, begun, finished, self._job.cpu_s)

    def _count(self, year: Year, delays: expected.Delays, crashes: Crashes, times: Times) -> DemoReport:
        closing = [pa.Table.from_batches([event]) for event in data.closing_events()]
        names, written = (topics.FLIGHTS, topics.WEATHER), (year.flights, year.weather)
        flights, weather = (
            expected.take_census(pa.concat_tables([rows, closed]), topics.read_topic(self._servers, name, rows.schema))
            for name, rows, closed in zip(names, written, closing, strict=True)
        )
        delay_records = topics.read_topic(self._servers, topics.DELAYS, topics.RECORDS)
        return DemoReport(
            brokers=self._brokers,
            killed_broker=crashes[0].broker_id,
            killed_controller=crashes[1].broker_id,
            acknowledged=year.records + len(closing),
            flights=flights,
            weather=weather,
            delays=expected.compare_delays(delays, expected.last_values(delay_records)),
            delays_records=delay_records.num_rows,
            times=dataclasses.replace(times, total_s=self._elapsed_s()),
        )

    def _say(self, line: str) -> None:
        self._console.print(f"[dim]{self._elapsed_s():5.1f} s[/]  {line}", highlight=False)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s
