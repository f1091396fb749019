"""T13, T14, T15: rows of 20 columns as columns of a typed topic, and as JSON in `value`: written, and queried.

The query takes two of the columns and a hundredth of the rows. The bytes on the wire are counted while contestants warm
up, since counting takes CPU time, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.systems.minilog import MinilogCluster
from benchmarks.wire import bytes_sent
from benchmarks.workloads import Detail, Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS
from benchmarks.workloads.spark import Frame, Side, kafka_side, minilog_side

COLUMNS = (
    {f"i{number}": "int" for number in range(6)}
    | {f"d{number}": "double" for number in range(6)}
    | {f"s{number}": "string" for number in range(6)}
    | {"t0": "timestamp", "b0": "boolean"}
)
DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
_ARROW = {
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])
_KINDS_OF_I0 = 1_000
WANTED = "i0 < 10"
ASKED = "i0,s0"


def _rows(spark: Any, count: int) -> Frame:
    """So many rows, made of their numbers by a hash: nothing is sorted, and no two texts of a batch need be alike."""
    from pyspark.sql import functions as f

    def hashed(name: str, kinds: int) -> Any:
        return f.pmod(f.xxhash64(f.col("id"), f.lit(name)), f.lit(kinds))

    made: dict[str, Callable[[str], Any]] = {
        "int": lambda name: hashed(name, _KINDS_OF_I0).cast("int"),
        "double": lambda name: (hashed(name, 100_000) / 1_000).cast("double"),
        "string": lambda name: f.concat(f.lit("v"), f.lpad(hashed(name, 500).cast("string"), 4, "0")),
        "timestamp": lambda name: f.timestamp_micros(hashed(name, 10**15) + 10**15),
        "boolean": lambda name: hashed(name, 2) == 0,
    }
    columns = [made[kind](name).alias(name) for name, kind in COLUMNS.items()]
    return spark.range(0, count, 1, 2).select(*columns)


def _as_json(frame: Frame) -> Frame:
    from pyspark.sql import functions as f

    return frame.select(f.to_json(f.struct("*")).alias("value"))


@dataclass(frozen=True)
class Kind:
    """How a contestant keeps its rows, and how it reads them: `options` of its source; without a schema, JSON."""

    side: Callable[[Arena], Side]
    is_typed: bool
    options: dict[str, str] = field(default_factory=dict)

    def query(self, reader: Frame) -> Frame:
        """What a user would write."""
        from pyspark.sql import functions as f

        frame = reader.options(**self.options).load()
        if not self.is_typed:
            frame = frame.select(f.from_json(f.col("value").cast("string"), DDL).alias("row")).select("row.*")
        return frame.select("i0", "s0").where(WANTED)


def _ours(arena: Arena) -> Side:
    return minilog_side(arena)


ALL = Kind(_ours, is_typed=True)
PRUNED = Kind(_ours, is_typed=True, options={"columns": ASKED})
FILTERED = Kind(_ours, is_typed=True, options={"columns": ASKED, "where": WANTED})
OUR_JSON = Kind(_ours, is_typed=False)
THEIR_JSON = Kind(kafka_side, is_typed=False)


def create(arena: Arena, kind: Kind, topic: str, *, is_synced: bool) -> None:
    system = kind.side(arena).system
    assert system is not None
    if kind.is_typed:
        assert isinstance(system, MinilogCluster)
        system.create(topic, PARTITIONS, is_synced=is_synced, schema=SCHEMA)
    else:
        system.create(topic, PARTITIONS, is_synced=is_synced)


def save(arena: Arena, kind: Kind, topic: str, frame: Frame) -> None:
    written = frame if kind.is_typed else _as_json(frame)
    kind.side(arena).writer(written.write.mode("append"), topic).save()


@dataclass(frozen=True, eq=False)
class Rows:
    """So many rows, in a file that Spark reads quickly, and in a topic of each kind, written when it is first asked."""

    count: int
    _topics: dict[str, str] = field(default_factory=dict)

    def frame(self, arena: Arena) -> Frame:
        path = arena.directory / f"rows-{self.count}.parquet"
        if not path.exists():
            _rows(arena.spark, self.count).write.parquet(str(path))
        return arena.spark.read.parquet(str(path))

    def wanted(self, arena: Arena) -> int:
        """How many of them the query takes."""
        return int(self.frame(arena).where(WANTED).count())

    def topic(self, arena: Arena, kind: Kind) -> str:
        """A topic that holds them all."""
        place = f"{kind.side(arena).format}, {'typed' if kind.is_typed else 'JSON'}"
        if place not in self._topics:
            self._topics[place] = arena.name("rows")
            create(arena, kind, self._topics[place], is_synced=False)
            save(arena, kind, self._topics[place], self.frame(arena))
        return self._topics[place]


def _counted(arena: Arena, side: Side, rows: int, work: Callable[[], None], sent: dict[str, float]) -> Run:
    """The figure is rows in the topic per second of wall time; `sent`: what the warming up found."""
    cost = arena.measure(side.system, work)
    cpu = cost.total_cpu_s / (rows / 1e6)
    return Run(rows / cost.wall_s, cost, details={"cpu_s_per_million_rows": cpu, **sent})


def _with_wire(side: Side, rows: int, work: Callable[[], None]) -> dict[str, float]:
    system = side.system
    assert system is not None
    byte_count = bytes_sent(system.client_ports, work)
    return {} if byte_count is None else {"wire_bytes_per_row": byte_count / rows}


def _batch(rows: Rows, kind: Kind) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side, topic, wanted = kind.side(arena), rows.topic(arena, kind), rows.wanted(arena)
        sent: dict[str, float] = {}

        def work() -> None:
            from pyspark.sql import functions as f

            found = kind.query(side.reader(arena.spark.read, topic)).agg(f.count("*"), f.max("s0"), f.sum("i0"))
            check_records(found.collect()[0][0], wanted, topic)

        def turn(number: int) -> Run:
            if number < 0:
                sent.update(_with_wire(side, rows.count, work))
            return _counted(arena, side, rows.count, work, sent)

        return turn

    return prepare


def _stream(rows: Rows, kind: Kind) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side, topic, wanted = kind.side(arena), rows.topic(arena, kind), rows.wanted(arena)
        sent: dict[str, float] = {}

        def work() -> None:
            from pyspark.sql import functions as f

            reader = side.reader(arena.spark.readStream, topic).option("startingOffsets", "earliest")
            taken = kind.query(reader).observe("taken", f.count("*").alias("rows"))
            checkpoint = str(arena.directory / arena.name("checkpoint"))
            writer = taken.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seen = [each.observedMetrics.get("taken") for each in query.recentProgress]
            check_records(sum(each["rows"] for each in seen if each is not None), wanted, topic)

        def turn(number: int) -> Run:
            if number < 0:
                sent.update(_with_wire(side, rows.count, work))
            return _counted(arena, side, rows.count, work, sent)

        return turn

    return prepare


def _write(rows: Rows, kind: Kind) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side, frame = kind.side(arena), rows.frame(arena)

        def turn(_: int) -> Run:
            topic = arena.name("written")
            create(arena, kind, topic, is_synced=True)
            found = _counted(arena, side, rows.count, functools.partial(save, arena, kind, topic, frame), {})
            check_records(side.reader(arena.spark.read, topic).load().count(), rows.count, topic)
            assert side.system is not None
            side.system.delete(topic)
            return found

        return turn

    return prepare


def _details(name: str, *, with_wire: bool) -> tuple[Detail, ...]:
    cpu = Target(f"{name}-cpu", "the same, CPU of a million rows", "s", Better.LOWER, None)
    wire = Target(f"{name}-wire", "the same, bytes that brokers send for a row", "B", Better.LOWER, None)
    found = (Detail(cpu, "cpu_s_per_million_rows"), Detail(wire, "wire_bytes_per_row"))
    return found if with_wire else found[:1]


def typed(count: int) -> list[Workload]:
    """T13, T14, T15, on the same rows."""
    rows = Rows(count)
    kinds = {
        "minilog typed, columns and where": FILTERED,
        "minilog typed, columns": PRUNED,
        "minilog typed, all columns": ALL,
        "minilog JSON": OUR_JSON,
        "kafka JSON": THEIR_JSON,
    }
    ours, theirs = "minilog typed, columns and where", "kafka JSON"
    batch = Target("T13", "Spark: 2 of 20 columns and 1 % of the rows, batch", "rows/s", Better.HIGHER, 8.0)
    stream = Target("T14", "Spark: 2 of 20 columns and 1 % of the rows, stream", "rows/s", Better.HIGHER, 8.0)
    write = Target("T15", "Spark: write rows of 20 columns, against JSON", "rows/s", Better.HIGHER, 1.0)
    writers = {"minilog typed": ALL, "minilog JSON": OUR_JSON, "kafka JSON": THEIR_JSON}
    return [
        Workload(
            batch,
            ours,
            theirs,
            {name: _batch(rows, kind) for name, kind in kinds.items()},
            runs=3,
            details=_details("T13", with_wire=True),
        ),
        Workload(
            stream,
            ours,
            theirs,
            {name: _stream(rows, kind) for name, kind in kinds.items()},
            runs=3,
            details=_details("T14", with_wire=True),
        ),
        Workload(
            write,
            "minilog typed",
            "minilog JSON",
            {name: _write(rows, kind) for name, kind in writers.items()},
            runs=3,
            details=_details("T15", with_wire=False),
        ),
    ]
