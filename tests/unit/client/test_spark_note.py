"""The note of a Spark query beside its offsets: anybody may write one, so anything may stand there."""

from __future__ import annotations

import pytest

from minilog.groups.spark_note import MAX_HOST_CHARACTERS, spark_driver, spark_note


def test_a_note_names_the_host_of_the_driver() -> None:
    assert spark_driver(spark_note("driver-7.example")) == "driver-7.example"
    assert spark_driver(spark_note("<b>\x1b\"'")) == "<b>\x1b\"'"
    assert spark_driver(spark_note("x" * 5_000)) == "x" * MAX_HOST_CHARACTERS


@pytest.mark.parametrize(
    "metadata",
    ["", "spark", '{"spark"', '{"spark": 7}', '{"spark": {}}', '{"spark": {"driver": 7}}', '{"spark": ' + "[" * 4_000],
)
def test_another_text_is_no_note(metadata: str) -> None:
    assert spark_driver(metadata) is None
