"""Streaming queries that write with the Spark sink: one driver each, tasks on executors, and how Spark fails.

    the query      a checkpoint: which micro-batch is next, and what it holds; it survives everything
    a driver       one run of the query: plans attempts, starts tasks, names the winners as sink_protocol.py decides,
                   writes the checkpoint. Killed at any time, in the midst of a commit with preference; or it stands
                   still, is given up for dead while another one runs, and wakes up
    a task         one attempt at some rows, in a process of its own: enlists, writes, reports. Killed; or it stands
                   still, is given up, and wakes up as a zombie; speculation runs two of the same
    a failed query starts again as another run, with the same micro-batch; or as another attempt of the same run
    a query        that lost its driver may be forsaken: nobody continues it, and another query begins
    a checkpoint   may be set back by one batch, whose input has grown; it is put back after one run, which fails

When the faults are over nobody is killed any more, and a query ends when it has committed what it had begun. What is
seen of it is judged by transaction_history.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilog.aio import Producer
from minilog.aio.participation import Participation
from minilog.config import parse_config
from minilog.errors import MinilogError
from minilog.net.network_client import NetworkClient
from minilog.partition_key import PartitionKey
from minilog.transactions.client import Transactions
from minilog.transactions.messages import AlreadyCommitted, Attempt, Enlistment, TransactionOutcome, Winner
from pyspark_minilog.errors import InconsistentWrite, NotAReplay
from pyspark_minilog.writing.sink_protocol import (
    Abort,
    End,
    TaskReport,
    abort_decision,
    commit_decision,
    stream_attempt,
)
from tests.judges.violation import Violation
from tests.simulation.clients.transaction_history import Generation, TransactionHistory

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine
    from tests.world.loop import Process

TOPIC = "s0"
MAX_FAILURES = 4  # of a task: spark.task.maxFailures
LOST_AFTER_S = 0.3  # an executor that is not heard of is given up
LONGEST_SLEEP_S = 6.0  # of a zombie
RESTART_S = 0.2
GROWN_ROWS = 2  # of a batch that is planned anew, from a checkpoint that was set back
MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often what befalls a query, each a probability."""

    task_killed: float
    task_sleeps: float
    speculation: float
    driver_killed: float  # at some time in its run
    commit_killed: float  # around one commit
    driver_sleeps: float
    set_back: float
    forsaken: float  # when its driver was killed

    @classmethod
    def draw(cls, chance: random.Random) -> Troubles:
        return cls(
            task_killed=chance.choice((0.0, 0.1, 0.2)),
            task_sleeps=chance.choice((0.0, 0.1, 0.2)),
            speculation=chance.choice((0.0, 0.2)),
            driver_killed=chance.choice((0.0, 0.3)),
            commit_killed=chance.choice((0.0, 0.2, 0.4)),
            driver_sleeps=chance.choice((0.0, 0.2)),
            set_back=chance.choice((0.0, 0.15)),
            forsaken=chance.choice((0.0, 0.2)),
        )


class SparkSink:
    """One query. `idle`: all that it had begun is committed, or nobody continues it; nothing more is to be written.
    `is_marked`: whether the end of a producer stands in a partition. `succeed`: another query begins in its place."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        workload: Workload,
        history: TransactionHistory,
        is_marked: Callable[[PartitionKey, int], bool],
        succeed: Callable[[], None],
        name: str,
    ) -> None:
        self.cluster, self.workload, self.history, self.name = cluster, workload, history, name
        self.is_marked, self._succeed = is_marked, succeed
        self.chance = random.Random(f"sink {name} {cluster.seed}")
        self.idle = False
        self.troubles = Troubles.draw(self.chance)
        self.transactional_id = stream_attempt(name, 0, "", b"").transactional_id
        self.batch_id = 0
        self._rows: dict[int, int] = {}  # of each micro-batch: what the checkpoint holds
        self._before_set_back: int | None = None  # the rows of the last batch as it was committed
        self._processes = self._runs = 0
        self._driver: Driver | None = None
        cluster.loop.after(self.chance.uniform(0.2, 1.5), self.start_driver)

    # -- the checkpoint

    def rows(self, batch_id: int) -> int:
        """The input of a micro-batch: fixed when it is asked for first."""
        if batch_id not in self._rows:
            self._rows[batch_id] = self.chance.randint(1, MOST_ROWS)
            self.history.planned(self.generation(batch_id), self._rows[batch_id])
        return self._rows[batch_id]

    def generation(self, batch_id: int) -> Generation:
        return Generation(self.transactional_id, batch_id)

    @property
    def goes_on(self) -> bool:
        """Whether there is a micro-batch to write."""
        return self.workload.writing or self.batch_id in self._rows

    def finished(self, driver: Driver, batch_id: int) -> None:
        """A driver writes its commit log; one that was given up for dead may come too late."""
        if driver is self._driver and batch_id == self.batch_id:
            self.batch_id += 1

    def _set_back(self) -> None:
        """Somebody restores the checkpoint of one batch before, and there is more to read by now."""
        self.cluster.count("spark: checkpoint set back")
        self.batch_id -= 1
        self._before_set_back = self._rows[self.batch_id]
        self._rows[self.batch_id] += GROWN_ROWS

    def _put_back(self) -> None:
        if self._before_set_back is not None:
            self._rows[self.batch_id], self._before_set_back = self._before_set_back, None
            self.batch_id += 1

    # -- processes

    def happens(self, probability: float) -> bool:
        return self.cluster.rages and self.chance.random() < probability

    def new_process(self, kind: str) -> tuple[Process, ClientMachine]:
        self._processes += 1
        return self.cluster.client(f"{self.name}-{kind}{self._processes}")

    def settings(self, **given: object) -> dict[str, object]:
        # The time-out is below the time that an open transaction may hold up readers after the faults.
        chosen = {"transaction_timeout_ms": self.chance.choice((500, 2_000, 4_000)), "request_timeout_ms": 3_000}
        return self.workload.settings(delivery_timeout_ms=5_000, max_block_ms=5_000, **chosen, **given)

    def start_driver(self) -> None:
        """Another run of the query."""
        self._put_back()
        if not self.goes_on:
            self.idle = True
            return
        if self.batch_id and self.happens(self.troubles.set_back):
            self._set_back()
        self._runs += 1
        self._driver = driver = Driver(self, f"run-{self._runs}")
        if self.happens(self.troubles.driver_killed):
            self.cluster.loop.after(self.chance.expovariate(1.0 / 1.5), driver.kill)
        if self.happens(self.troubles.driver_sleeps):
            self.cluster.loop.after(self.chance.expovariate(1.0 / 1.5), driver.fall_asleep)

    def is_the_driver(self, driver: Driver) -> bool:
        """Whether it was not given up for dead."""
        return driver is self._driver

    def driver_is_killed(self, driver: Driver) -> None:
        """What it left open is ended by the next one; or by nobody, but a time-out."""
        if driver is self._driver and self.happens(self.troubles.forsaken):
            self.cluster.count("spark: query forsaken")
            self._driver, self.idle = None, True
            self._succeed()
        self.driver_is_gone(driver)

    def driver_is_gone(self, driver: Driver) -> None:
        if driver is self._driver:
            self._driver = None
            self.cluster.loop.after(RESTART_S * (0.5 + self.chance.random()), self.start_driver)


class Driver:
    """One run of the query."""

    def __init__(self, sink: SparkSink, run_id: str) -> None:
        self.sink, self.run_id = sink, run_id
        self._process, machine = sink.new_process("driver")
        self._tasks: list[Process] = []
        self._client = NetworkClient(parse_config(sink.settings()), machine)
        self._transactions = Transactions(self._client)
        sink.cluster.run_client(self._process, self._run())

    # -- its end

    def kill(self) -> None:
        """SIGKILL; executors end with it, or later."""
        sink = self.sink
        if not sink.cluster.rages or self._process.name not in sink.cluster.clients:
            return
        sink.cluster.count("spark: driver killed")
        sink.cluster.kill_client(self._process.name)
        for each in self._tasks:
            if each.name in sink.cluster.clients and sink.chance.random() < 0.5:
                sink.cluster.kill_client(each.name)
        sink.driver_is_killed(self)

    def fall_asleep(self) -> None:
        """It stands still; somebody starts the query anew, and then it goes on."""
        sink = self.sink
        if not sink.cluster.rages or self._process.name not in sink.cluster.clients:
            return
        sink.cluster.count("spark: driver stands still")
        sink.cluster.loop.stand_still(self._process)
        sink.driver_is_gone(self)
        sink.cluster.loop.after(sink.chance.uniform(0.3, LONGEST_SLEEP_S), sink.cluster.loop.go_on, self._process)

    # -- micro-batches

    async def _run(self) -> None:
        sink = self.sink
        while sink.goes_on:
            batch_id = sink.batch_id
            done = await self._attempt(batch_id)
            if not done and sink.chance.random() < 0.3:
                done = await self._attempt(batch_id)  # another attempt of the same run
            if not done:
                break  # the query fails
            if not sink.is_the_driver(self):
                break
            sink.finished(self, batch_id)
            await asyncio.sleep(sink.chance.expovariate(1.0 / 0.2))
        sink.driver_is_gone(self)
        await self._client.close()

    async def _attempt(self, batch_id: int) -> bool:
        """One try at a micro-batch; whether it is committed."""
        sink = self.sink
        generation, rows = sink.generation(batch_id), sink.rows(batch_id)
        attempt = stream_attempt(sink.name, batch_id, self.run_id, sink.chance.randbytes(16))
        tasks: list[list[int]] = [[] for _ in range(sink.chance.randint(1, 3))]
        for row in range(rows):
            sink.chance.choice(tasks).append(row)
        running = [self._task(attempt, number, given) for number, given in enumerate(tasks)]
        reports: list[TaskReport | None] = list(await asyncio.gather(*running))
        try:
            return await self._commit(generation, reports, rows)
        except (MinilogError, InconsistentWrite, NotAReplay) as error:
            sink.cluster.note(f"{sink.name} {self.run_id} batch {batch_id} fails: {type(error).__name__}: {error}")
            sink.cluster.count(f"spark: commit refused, {type(error).__name__}")
            await self._give_up(generation, abort_decision(reports))
            return False

    async def _commit(self, generation: Generation, reports: list[TaskReport | None], rows: int) -> bool:
        sink, history = self.sink, self.sink.history
        decision = commit_decision(reports, batch_id=generation.number)
        if decision is None:
            history.replayed(generation, rows)
            history.committed(generation, None)
            return True
        assert isinstance(decision, End)
        if sink.happens(sink.troubles.commit_killed):
            sink.cluster.loop.after(sink.chance.expovariate(1.0 / 0.02), self.kill)
        winners = [winner.producer_id for winner in decision.winners]
        outcome = await self._transactions.commit(
            decision.attempt, decision.winners, decision.contents, coordinator_epoch=decision.coordinator_epoch
        )
        # A run that was taken for dead is told that the generation is committed, whoever did it: not of whom.
        history.committed(generation, winners if sink.is_the_driver(self) else None)
        sink.cluster.note(f"{sink.name} {self.run_id} {generation} is {outcome.value}, of {winners}")
        sink.cluster.count(f"spark: {outcome.value}")
        if outcome is TransactionOutcome.COMMITTED and sink.is_the_driver(self):
            self._check_visible(generation, decision.winners)
        return True

    def _check_visible(self, generation: Generation, winners: Sequence[Winner]) -> None:
        """A commit was answered: each winner's end stands in each partition that it wrote to."""
        for winner in winners:
            for written in winner.partitions:
                key = PartitionKey(written.topic_id, written.partition)
                if not self.sink.is_marked(key, winner.producer_id):
                    text = f"{generation} is answered as visible, and producer {winner.producer_id} has no marker there"
                    raise Violation("V15", text)

    async def _give_up(self, generation: Generation, decision: Abort | None) -> None:
        if decision is None:
            return
        try:
            outcome = await self._transactions.abort(decision.attempt, coordinator_epoch=decision.coordinator_epoch)
        except MinilogError:
            return
        if outcome is TransactionOutcome.COMMITTED:
            self.sink.history.committed(generation, None)

    # -- tasks

    async def _task(self, attempt: Attempt, number: int, rows: list[int]) -> TaskReport | None:
        """The first report of any attempt at a task; None where all have failed."""
        sink = self.sink
        for _ in range(MAX_FAILURES):
            racing = {self._begin_task(attempt, number, rows)}
            if sink.happens(sink.troubles.speculation):
                await asyncio.wait(racing, timeout=sink.chance.uniform(0.0, 0.1))
                racing.add(self._begin_task(attempt, number, rows))
            while racing:
                done, racing = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if (report := each.result()) is not None:
                        return report
        return None

    def _begin_task(self, attempt: Attempt, number: int, rows: list[int]) -> asyncio.Future[TaskReport | None]:
        """In a process of its own, with its fate."""
        sink, cluster = self.sink, self.sink.cluster
        process, machine = sink.new_process("task")
        self._tasks.append(process)
        reported: asyncio.Future[TaskReport | None] = asyncio.get_running_loop().create_future()
        work = TaskAttempt(sink, machine).run(attempt, number, rows)
        cluster.run_client(process, _report(work, reported))
        after_s = sink.chance.expovariate(1.0 / 0.05)
        if sink.happens(sink.troubles.task_killed):
            cluster.count("spark: task killed")
            cluster.loop.after(after_s, self._kill_task, process)
        elif sink.happens(sink.troubles.task_sleeps):
            cluster.count("spark: task stands still")
            cluster.loop.after(after_s, cluster.loop.stand_still, process)
            awake_s = after_s + sink.chance.uniform(LOST_AFTER_S, LONGEST_SLEEP_S)
            cluster.loop.after(awake_s, cluster.loop.go_on, process)
        else:
            return reported
        cluster.loop.after(after_s + LOST_AFTER_S, _settle, reported, None, process=self._process)
        return reported

    def _kill_task(self, process: Process) -> None:
        if process.name in self.sink.cluster.clients:
            self.sink.cluster.kill_client(process.name)


class TaskAttempt:
    """What write_task.write_part does, on an event loop."""

    def __init__(self, sink: SparkSink, machine: ClientMachine) -> None:
        self._sink, self._machine = sink, machine

    async def run(self, attempt: Attempt, number: int, rows: list[int]) -> TaskReport | None:
        """Its report; None where it failed."""
        sink = self._sink
        if not rows:
            return TaskReport(0)
        settings = sink.settings(acks="all", transactional_id=attempt.transactional_id)
        try:
            async with Producer(settings, self._machine) as producer:
                participation = Participation(producer._shell)
                part = await participation.begin(attempt, task=number)
                if isinstance(part, AlreadyCommitted):
                    return TaskReport(len(rows), part)
                try:
                    return await self._write(producer, participation, part, rows)
                except MinilogError:
                    await self._abort(participation, part)
                    raise
                finally:
                    participation.leave()
        except MinilogError as error:
            sink.cluster.count(f"spark: task failed, {type(error).__name__}")
            return None

    async def _write(
        self, producer: Producer, participation: Participation, part: Enlistment, rows: list[int]
    ) -> TaskReport:
        sink, chance = self._sink, self._machine.chance()
        generation, waiting = _generation(part.attempt), []
        sink.history.enlisted(generation, part.producer_id)
        for row in rows:
            value = f"{generation.transactional_id}/{generation.number}/{row}/{part.producer_id}".encode()
            partition = chance.randrange(sink.cluster.plan.partitions)
            waiting.append(await producer.send(TOPIC, value, partition=partition))
            await asyncio.sleep(chance.expovariate(1.0 / 0.01))
        await producer.flush()
        for each in waiting:
            await each
        return TaskReport(len(rows), part, await participation.finish())

    async def _abort(self, participation: Participation, part: Enlistment) -> None:
        """What the sink does; and asked once more, for what the coordinator says of it."""
        await participation.abort()
        with contextlib.suppress(MinilogError):  # a commit that does not name it, a take-over or the time-out will
            outcome = await participation.transactions.abort(
                part.attempt, [part.producer_id], coordinator_epoch=part.coordinator_epoch
            )
            if outcome is TransactionOutcome.ABORTED:
                self._sink.history.aborted(_generation(part.attempt), [part.producer_id], "aborted by its task")


def _generation(attempt: Attempt) -> Generation:
    assert attempt.generation is not None
    return Generation(attempt.transactional_id, attempt.generation)


async def _report(work: Coroutine[Any, Any, TaskReport | None], reported: asyncio.Future[TaskReport | None]) -> None:
    _settle(reported, await work)


def _settle(reported: asyncio.Future[TaskReport | None], report: TaskReport | None) -> None:
    """The first word about it counts."""
    if not reported.done():
        reported.set_result(report)
