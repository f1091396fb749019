"""What Spark says of the recorded conditions (tests/conditions), in ANSI mode as readers of minilog have it.

python -m tests.spark.answers --rewrite
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from minilog.errors import InvalidArgument
from minilog.typed.conditions.where import parse_where
from pyspark_minilog.spark_types import spark_schema
from tests.conditions.recorded import REFUSED, SIGNS, Case, read_cases, write_cases
from tests.conditions.rows import ROWS, SCHEMA

_ZONE = "spark.sql.session.timeZone"


def answers(spark: SparkSession, conditions: Sequence[str], zone: str) -> list[str]:
    """Of each condition, all in one query; the session has this time zone, on which no condition may depend. Of one
    that Spark fails on, its error."""
    usual = spark.conf.get(_ZONE) or "UTC"
    spark.conf.set(_ZONE, zone)
    try:
        frame = spark.createDataFrame(pa.Table.from_batches([ROWS]), spark_schema(SCHEMA))
        columns = [sf.expr(each).alias(f"c{place}") for place, each in enumerate(conditions)]
        found = frame.select(*columns).toArrow()
    except PySparkException as error:
        if len(conditions) == 1:
            return [" ".join(str(error).split())[:200]]
        half = len(conditions) // 2
        return answers(spark, conditions[:half], zone) + answers(spark, conditions[half:], zone)
    finally:
        spark.conf.set(_ZONE, usual)
    return [_signs(each) for each in found.columns]


def _signs(column: pa.ChunkedArray) -> str:
    if not (pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
        return f"a column of {column.type}, which is no condition"
    return "".join(SIGNS[each] for each in column.to_pylist())


def is_taken(words: str) -> bool:
    """By minilog."""
    try:
        parse_where(words, SCHEMA)
    except InvalidArgument:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewrite", action="store_true", required=True)
    parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    taken = [case.words for case in read_cases() if is_taken(case.words)]
    found = dict(zip(taken, answers(spark, taken, "America/New_York"), strict=True))
    write_cases(Case(case.words, found.get(case.words, REFUSED)) for case in read_cases())
    spark.stop()


if __name__ == "__main__":
    main()
