"""A `where` against Spark's own: random conditions over rows of all types, read as readers and brokers read them.

    python -m tests.spark.conditions --conditions 20000 --seed 1

A condition that minilog takes has to be true for the same rows as in Spark in ANSI mode, and must not be one that Spark
refuses or fails on. No cluster is needed: stored batches are cut by what brokers call, and read by what readers call.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import iterate_headers, placement
from minilog.typed.conditions.predicate import Predicate
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from pyspark_minilog.spark_types import spark_schema
from tests.spark.conftest import JVM_OPTIONS
from tests.spark.drawn_conditions import NAMES, SCHEMA, Drawing, drawn_rows

ROWS = 60
_KEY = PartitionKey(bytes(range(16)), 3)
_ZONES = ("UTC", "America/New_York", "Asia/Kolkata")  # of a session: no condition may depend on it
_UNLIMITED = 1 << 30


@dataclass
class Figures:
    """What came of the conditions. `wrong`: each with what is wrong of it. `telling`: of the equal ones, those that
    are true for some rows and not for all. `left_out`: batches that brokers did not send."""

    equal: int = 0
    refused: int = 0
    telling: int = 0
    left_out: int = 0
    wrong: list[str] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        count = self.equal + self.refused + len(self.wrong)
        return (
            f"{count} conditions: {self.equal} equal, {self.refused} refused, {len(self.wrong)} wrong; {self.telling} "
            f"true for some rows alone; {self.left_out} batches left out"
        )


class Ours:
    """What readers and brokers make of a condition, over one run of stored batches that tell of all their columns."""

    def __init__(self, rows: pa.RecordBatch, chance: random.Random) -> None:
        self._schemas = TopicSchemas((SCHEMA,))
        self._chance = chance
        stored, first = list[bytes](), 0
        while first < len(rows):
            batch = rows.slice(first, chance.choice((1, 2, 3, 8)))
            built = build_typed_batch(
                _KEY.topic_id,
                _KEY.partition,
                TypedRows(SCHEMA, batch, statistics=SCHEMA.names),
                compression=chance.choice(("none", "lz4")),
                timestamp_us=0,
            )
            placed = placement(built, first, 1)
            stored.append(placed + built[len(placed) :])
            first += len(batch)
        self._run = b"".join(stored)

    def chosen(self, predicate: Predicate) -> tuple[set[int], set[int], int]:
        """The rows that a reader keeps of all, those that it keeps of what a broker sends, and how many batches that
        has left out."""
        selection = TypedSelection(SCHEMA, (self._chance.choice(NAMES),), predicate)
        asked = typed_pb2.Selection.FromString(selection.to_wire().SerializeToString())
        sent = Scanner(asked, self._schemas).scan(_KEY, self._run, _UNLIMITED).batches
        reader = TypedReader(self._schemas, selection)
        left_out = sum(not header.record_count for _, header in iterate_headers(sent))
        return _read(reader, self._run), _read(reader, sent), left_out


def _read(reader: TypedReader, run: bytes) -> set[int]:
    found = set[int]()
    for position, header in iterate_headers(run):
        batch = memoryview(run)[position : position + header.length]
        rows = reader.rows(batch, header, header.base_offset, header.next_offset)
        if rows is not None:
            found.update(rows.column("_offset").to_pylist())
    return found


def compare(spark: SparkSession, seed: int, count: int, together: int = 25) -> Figures:
    """`count` conditions, `together` of them in one query of Spark, whose optimizer answers it from the few rows."""
    rows, drawing, figures = drawn_rows(seed, ROWS), Drawing(seed), Figures()
    ours = Ours(rows, random.Random(seed))
    taken = list[tuple[str, Predicate]]()
    for _ in range(count):
        words = drawing.condition()
        try:
            taken.append((words, parse_where(words, SCHEMA)))
        except InvalidArgument as error:
            figures.refused += 1
            figures.why[str(error)[:60]] += 1
    zone = "spark.sql.session.timeZone"
    usual = spark.conf.get(zone) or "UTC"
    spark.conf.set(zone, _ZONES[seed % len(_ZONES)])
    try:
        frame = spark.createDataFrame(pa.Table.from_batches([rows]), spark_schema(SCHEMA))
        for first in range(0, len(taken), together):
            _compare(frame, ours, taken[first : first + together], figures)
    finally:
        spark.conf.set(zone, usual)
    return figures


def _compare(frame: DataFrame, ours: Ours, taken: Sequence[tuple[str, Predicate]], figures: Figures) -> None:
    for (words, predicate), theirs in zip(taken, _of_spark(frame, [words for words, _ in taken]), strict=True):
        kept, sent, left_out = ours.chosen(predicate)
        if isinstance(theirs, str):
            figures.wrong.append(f"{words}: Spark fails with {theirs}")
        elif kept != theirs:
            figures.wrong.append(
                f"{words}: readers keep {sorted(kept - theirs)} too much, {sorted(theirs - kept)} lack"
            )
        elif sent != theirs:
            figures.wrong.append(f"{words}: brokers leave out {sorted(theirs - sent)}")
        else:
            figures.equal += 1
            figures.telling += 0 < len(theirs) < ROWS
            figures.left_out += left_out


def _of_spark(frame: DataFrame, conditions: list[str]) -> list[set[int] | str]:
    """The rows for which each is true, or Spark's error: all in one query, or, where that fails, by halves."""
    try:
        found = frame.select(*(sf.expr(each).alias(f"c{place}") for place, each in enumerate(conditions))).toArrow()
        return [_true_rows(each) for each in found.columns]
    except PySparkException as error:
        if len(conditions) == 1:
            return [" ".join(str(error).split())[:200]]
    half = len(conditions) // 2
    return _of_spark(frame, conditions[:half]) + _of_spark(frame, conditions[half:])


def _true_rows(column: pa.ChunkedArray) -> set[int] | str:
    if not (pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
        return f"a column of {column.type}, which is no condition"
    return {row for row, true in enumerate(column.to_pylist()) if true}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conditions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_TOOL_OPTIONS"] = JVM_OPTIONS
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    figures = compare(spark, asked.seed, asked.conditions)
    print(figures, *figures.wrong[:60], *figures.why.most_common(40), sep="\n")
    spark.stop()
    raise SystemExit(bool(figures.wrong))


if __name__ == "__main__":
    main()
