"""A `where` means to readers and brokers what it means to Spark; conditions.py runs more of them, with other seeds."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark.conditions import compare

CONDITIONS = 800


@pytest.mark.long
@pytest.mark.timeout(290)
def test_conditions_by_chance_choose_the_rows_that_spark_chooses(spark: SparkSession) -> None:
    figures = compare(spark, seed=1, count=CONDITIONS)
    assert figures.wrong == []
    # Else the comparison says little: what is refused, and what all rows or none answer to, is never wrong.
    assert figures.equal > 0.6 * CONDITIONS
    assert figures.telling > 0.4 * CONDITIONS
    assert figures.left_out > CONDITIONS
