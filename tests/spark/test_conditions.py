"""The recorded answers of Spark (tests/conditions), with which units compare what a `where` means, are Spark's."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.conditions.recorded import REFUSED, read_cases
from tests.rules import proves
from tests.spark.answers import answers


@proves("SPT.6")
def test_spark_answers_as_is_recorded_in_whatever_time_zone(spark: SparkSession) -> None:
    recorded = {case.words: case.answer for case in read_cases() if case.answer != REFUSED}
    found = answers(spark, list(recorded), "Asia/Kolkata")
    assert dict(zip(recorded, found, strict=True)) == recorded
