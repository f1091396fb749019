"""The story: changes of a table travel through a topic and `jobs/cdc.py` into a typed topic, while things are killed.

The job is killed twice with SIGKILL, each time in a micro-batch, and a broker once. At the end the typed topic with
`view=latest` is compared with the table, as Postgres printed it.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import minilog
from minilog import Admin, NewTopic, Producer, schema_from_ddl
from minilog_broker.failure import CommandFailed
from minilog_tools.demo.spark_job import SparkJob
from minilog_tools.local_cluster import LocalCluster
from minilog_tools.local_ports import free_ports

SOURCE, TARGET, BAD = "bank.public.accounts", "accounts", "accounts-bad"
DDL = (
    "id long NOT NULL, owner string NOT NULL, balance decimal(12,2), active boolean, opened date, seen timestamp_ntz, "
    "changed timestamp_ntz, at timestamp, photo binary, score double, tags array<int>, branch short"
)
_JOB = pathlib.Path(__file__).parents[2] / "jobs" / "cdc.py"
_BROKERS = 3
_SOURCE_PARTITIONS, _TARGET_PARTITIONS = 2, 3
# Of all changes: so many are there before the job begins, and after each life of the job.
_BEFORE, _AFTER_FIRST, _AFTER_SECOND = 0.3, 0.5, 0.8
_PAUSE_S = 0.05
_JOB_WITHIN_S = 300.0  # a start of Spark takes ten seconds of CPU, and other programs may want them, too
# They are written among the changes. Their keys are in no row.
BAD_RECORDS: tuple[tuple[bytes | None, str], ...] = (
    (b'{"id": 9001}', '{"before": null, "after": {"id": 9001, "owner": "Ann", "balance": "12.34 EUR"}, "op": "c"}'),
    (b'{"id": 9002}', '{"before": null, "after": {"id": 9002, "owner": "Ann", "colour": "red"}, "op": "c"}'),
    (b'{"id": 9003}', '{"before": null, "after": {"id": 9003}, "op": "u"}'),
    (None, '{"source": {"table": "accounts"}, "op": "t"}'),
    (b'{"id": 9004}', "{"),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a connector wrote (records with `key` and `value`), and the table at the end (rows as Postgres's JSON)."""

    records: Sequence[dict[str, Any]]
    rows: Sequence[str]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The rows with the values that pyarrow gives."""
        return [_as_python(json.loads(line, parse_float=Decimal)) for line in self.rows]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the typed topic and the bad topic have at the end."""

    table: list[dict[str, Any]]
    latest: list[dict[str, Any]]
    changes: int  # the records that fit
    stored: int  # rows and deletions of the typed topic
    bad: list[tuple[str, str]]  # reason and place
    killed_in: list[int]  # micro-batches

    @property
    def is_equal(self) -> bool:
        """Whether the topic is the table, and has each change once."""
        return self.latest == self.table and self.stored == self.changes and len(self.bad) == len(BAD_RECORDS)


def load_changes(directory: pathlib.Path) -> Changes:
    """Those that are kept in the repository."""
    records = [json.loads(line) for line in (directory / "changes.jsonl").read_text().splitlines()]
    return Changes(records, (directory / "table.jsonl").read_text().splitlines())


def tell(changes: Changes, directory: pathlib.Path, say: Callable[[str], None]) -> Outcome:
    """The whole story. All its processes have ended afterwards, also after a failure. Raises CommandFailed."""
    story = _Story(changes, directory, say)
    try:
        return story.run()
    finally:
        story.end()


class _Story:
    def __init__(self, changes: Changes, directory: pathlib.Path, say: Callable[[str], None]) -> None:
        self._changes = changes
        self._say = say
        self._cluster = LocalCluster(directory, free_ports(_BROKERS), {"retention.ms": "-1"})
        self._config = {"bootstrap.servers": self._cluster.bootstrap_servers}
        options = ["--bootstrap-servers", self._cluster.bootstrap_servers, "--topic", SOURCE, "--to-topic", TARGET]
        options += ["--bad-topic", BAD, "--milliseconds", "seen"]
        self._job = SparkJob(directory, _JOB, options)
        self._records = list(with_bad_ones(changes.records))
        self._sent = 0
        self._killed_in: list[int] = []

    def run(self) -> Outcome:
        self._start_cluster()
        with Producer(self._config) as producer:
            self._send(producer, _BEFORE)
            self._say(f"{self._sent} records are in topic {SOURCE}")
            self._job.start("--trigger", "0 seconds")
            self._kill_the_job(producer, _AFTER_FIRST)
            self._job.start("--trigger", "0 seconds")
            victim = self._kill_a_broker(producer)
            self._kill_the_job(producer, _AFTER_SECOND)
            self._cluster.start(victim)
            self._send(producer, 1.0)
        self._say(f"broker {victim} is started again, and all {self._sent} records are in the topic")
        self._job.start("--trigger", "available-now")
        self._job.wait_ended(_JOB_WITHIN_S)
        self._say("the job has ended by itself: it has read all records")
        return self._outcome()

    def end(self) -> None:
        self._job.end()
        self._cluster.end()

    def _start_cluster(self) -> None:
        self._cluster.start_all()
        self._cluster.wait_running(threading.Event())
        schema = schema_from_ddl(DDL, ["id"])
        with Admin(self._config) as admin:
            admin.create_topics(
                [
                    NewTopic(SOURCE, _SOURCE_PARTITIONS, _BROKERS),
                    NewTopic(TARGET, _TARGET_PARTITIONS, _BROKERS, {"cleanup.policy": "compact"}, schema),
                    NewTopic(BAD, 1, _BROKERS),
                ]
            )
        self._say(f"{_BROKERS} brokers are running: {self._cluster.bootstrap_servers}")

    def _send(self, producer: Producer, share: float) -> None:
        """Send records up to this share of all, and wait until they are acknowledged."""
        end = round(share * len(self._records))
        futures = [producer.send(SOURCE, value, key=key) for key, value in self._records[self._sent : end]]
        for future in futures:
            future.result(timeout=_JOB_WITHIN_S)
        self._sent = max(end, self._sent)

    def _send_until(self, producer: Producer, share: float, is_so: Callable[[], bool], what: str) -> None:
        """Send one record after another, up to this share, until `is_so`."""
        deadline = time.monotonic() + _JOB_WITHIN_S
        while not is_so():
            self._job.check_alive()
            if time.monotonic() > deadline:
                raise CommandFailed(f"{what} after {_JOB_WITHIN_S:.0f} s: see {self._job.log_file}")
            self._send(producer, min(share, (self._sent + 1) / len(self._records)))
            time.sleep(_PAUSE_S)

    def _kill_the_job(self, producer: Producer, share: float) -> None:
        """In a micro-batch whose transaction is open."""
        with Admin(self._config) as admin:
            self._send_until(producer, share, lambda: self._is_writing(admin), "the job writes nothing")
        self._killed_in.append(self._job.begun_batches - 1)
        self._job.end()
        self._say(f"the job is killed while it writes micro-batch {self._killed_in[-1]}, and is started again")

    def _is_writing(self, admin: Admin) -> bool:
        """Whether the typed topic has rows that are written and not committed yet."""
        if self._job.begun_batches == self._job.finished_batches:
            return False
        partitions = admin.describe_topics([TARGET])[0].partitions
        return any(partition.last_stable_offset != partition.high_watermark for partition in partitions)

    def _kill_a_broker(self, producer: Producer) -> int:
        """One that leads a partition of the typed topic, while the job writes."""
        finished = self._job.finished_batches
        self._send_until(
            producer, _AFTER_SECOND, lambda: self._job.finished_batches > finished, "the job finishes no micro-batch"
        )
        with Admin(self._config) as admin:
            controller = admin.describe_cluster().controller
            leaders = {partition.leader for partition in admin.describe_topics([TARGET])[0].partitions}
        victim = min(leader for leader in leaders if leader not in (None, controller))
        assert victim is not None
        self._cluster.kill(victim)
        self._say(f"broker {victim} is killed with SIGKILL")
        return victim

    def _outcome(self) -> Outcome:
        table = self._changes.table
        latest = minilog.scan(TARGET, view="latest", config=self._config).to_arrow().sort_by("id").to_pylist()
        stored = minilog.scan(TARGET, deletes=True, config=self._config).count()
        bad = minilog.scan(BAD, ["_headers"], config=self._config).to_arrow().to_pylist()
        headers = [{header["key"]: header["value"].decode() for header in record["_headers"]} for record in bad]
        reasons = [(record["reason"], record["from"]) for record in headers]
        return Outcome(table, latest, len(self._changes.records), stored, reasons, self._killed_in)


def with_bad_ones(records: Sequence[dict[str, Any]]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """As bytes, with the bad records among them."""
    step = len(records) // len(BAD_RECORDS)
    for number, record in enumerate(records):
        value = record["value"]
        yield json.dumps(record["key"]).encode(), None if value is None else json.dumps(value).encode()
        if number % step == step // 2 and number // step < len(BAD_RECORDS):
            key, text = BAD_RECORDS[number // step]
            yield key, text.encode()


def _as_python(row: dict[str, Any]) -> dict[str, Any]:
    """A row of Postgres's row_to_json with the values that pyarrow gives."""
    readers: dict[str, Callable[[Any], Any]] = {
        "balance": Decimal,
        "opened": datetime.date.fromisoformat,
        "seen": datetime.datetime.fromisoformat,
        "changed": datetime.datetime.fromisoformat,
        "at": datetime.datetime.fromisoformat,
        "photo": lambda text: bytes.fromhex(text.removeprefix(r"\x")),
        "score": float,
    }
    return {
        name: value if value is None or name not in readers else readers[name](value) for name, value in row.items()
    }
