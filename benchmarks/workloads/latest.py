"""T19-latest: the newest row of each of a million keys in Spark: `view=latest`, beside Spark's own window by key.

The rows have a key, two texts and two numbers. Kafka has the key as the record's key, and the row as JSON. Each query
gives all columns of the newest rows, and sums them up. Each key has as many rows as there are rounds, and the rows of
one round come in the order of a hash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.systems.minilog import MinilogCluster
from benchmarks.workloads import Detail, Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS
from benchmarks.workloads.spark import Frame, Side, kafka_side, minilog_side
from minilog import schema_from_ddl

DDL = "id long, round int, balance double, name string, city string"
SCHEMA = schema_from_ddl(DDL, ["id"])
_VIEW, _WINDOW, _KAFKA = "minilog, view=latest", "minilog, Spark's window", "kafka, Spark's window"


def _newest(frame: Frame, key: str, place: str) -> Frame:
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    by_key = Window.partitionBy(key).orderBy(f.desc(place))
    return frame.withColumn("rank", f.row_number().over(by_key)).where("rank = 1")


def _by_view(reader: Frame) -> Frame:
    return reader.option("view", "latest").load()


def _by_window(reader: Frame) -> Frame:
    return _newest(reader.option("metadata", "true").load(), "id", "_offset")


def _by_window_of_json(reader: Frame) -> Frame:
    from pyspark.sql import functions as f

    newest = _newest(reader.load(), "key", "offset")
    return newest.select(f.from_json(f.col("value").cast("string"), DDL).alias("row")).select("row.*")


@dataclass(frozen=True, eq=False)
class Accounts:
    """So many rows of so many keys, in a topic of each side, written when it is first asked for."""

    count: int
    keys: int
    _topics: dict[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return self.count // self.keys

    def frame(self, spark: Any, round_number: int) -> Frame:
        """One row of each key."""
        from pyspark.sql import functions as f

        number = f.xxhash64(f.col("id"))
        return (
            spark.range(0, self.keys, 1, 2)
            .withColumn("round", f.lit(round_number))
            .withColumn("balance", (f.pmod(number, f.lit(100_000)) / 1_000).cast("double"))
            .withColumn("name", f.concat(f.lit("customer "), f.col("id").cast("string")))
            .withColumn("city", f.concat(f.lit("city "), f.pmod(number, f.lit(500)).cast("string")))
            .orderBy(number)
        )

    def topic(self, arena: Arena, side: Side) -> str:
        """A topic that holds them all."""
        from pyspark.sql import functions as f

        if side.format not in self._topics:
            topic = self._topics[side.format] = arena.name("accounts")
            system = side.system
            assert system is not None
            if isinstance(system, MinilogCluster):
                system.create(topic, PARTITIONS, is_synced=False, schema=SCHEMA)
            else:
                system.create(topic, PARTITIONS, is_synced=False)
            for number in range(self.rounds):
                rows = self.frame(arena.spark, number)
                if side.format == "kafka":
                    rows = rows.select(f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))
                side.writer(rows.write.mode("append"), topic).save()
        return self._topics[side.format]

    def check(self, newest: Frame, where: str) -> None:
        """Raises WrongRecords unless it has the last round of each key."""
        from pyspark.sql import functions as f

        keys, rounds, _ = newest.agg(f.count("*"), f.sum("round"), f.max("city")).collect()[0]
        check_records(keys, self.keys, where)
        check_records(rounds, self.keys * (self.rounds - 1), f"the rounds of {where}")


def _query(
    accounts: Accounts, make: Callable[[Arena], Side], query: Callable[[Frame], Frame]
) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side = make(arena)
        topic = accounts.topic(arena, side)

        def work() -> None:
            accounts.check(query(side.reader(arena.spark.read, topic)), topic)

        def turn(_: int) -> Run:
            cost = arena.measure(side.system, work)
            cpu_s = cost.total_cpu_s / (accounts.count / 1e6)
            return Run(accounts.count / cost.wall_s, cost, details={"cpu_s_per_million_rows": cpu_s})

        return turn

    return prepare


def latest(count: int, keys: int) -> Workload:
    """T19 of the reader of tables."""
    accounts = Accounts(count, keys)
    contestants = {
        _VIEW: _query(accounts, lambda arena: minilog_side(arena), _by_view),
        _WINDOW: _query(accounts, lambda arena: minilog_side(arena), _by_window),
        _KAFKA: _query(accounts, lambda arena: kafka_side(arena), _by_window_of_json),
    }
    title = f"the newest row of each of {keys:,} keys in Spark, against a window"
    detail = Target("T19-latest-cpu", "the same, CPU of a million rows", "s", Better.LOWER, None)
    return Workload(
        Target("T19-latest", title, "rows/s", Better.HIGHER, 5.0),
        _VIEW,
        _KAFKA,
        contestants,
        details=(Detail(detail, "cpu_s_per_million_rows"),),
    )
