"""How far a query has got, stored beside it: no failure of that is the query's."""

from __future__ import annotations

import pickle

import pytest

from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.options.table import parse_stream_options
from pyspark_minilog.reading.group import GroupProgress
from pyspark_minilog.reading.schema import arrow_source_schema
from pyspark_minilog.reading.stream_reader import StreamReader

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "100"}
A0 = Partition("a", 0)


def test_where_nobody_answers_a_warning_is_all_there_is(caplog: pytest.LogCaptureFixture) -> None:
    progress = GroupProgress(NOBODY, "report")
    progress.store({A0: 7})
    progress.settle(5.0)
    [warning] = [each for each in caplog.records if each.name.startswith("pyspark_minilog")]
    assert "not stored for group 'report'" in warning.getMessage()


def test_offsets_handed_over_before_are_not_stored_again(caplog: pytest.LogCaptureFixture) -> None:
    progress = GroupProgress(NOBODY, "report")
    for _ in range(3):
        progress.store({A0: 7})
        progress.settle(5.0)
    assert len([each for each in caplog.records if each.name.startswith("pyspark_minilog")]) == 1
    progress.store({A0: 8})
    progress.settle(5.0)
    assert len([each for each in caplog.records if each.name.startswith("pyspark_minilog")]) == 2


def test_a_reader_with_a_group_travels_to_its_tasks() -> None:
    options = parse_stream_options({"bootstrap.servers": "h:1", "subscribe": "a", "minilog.group.id": "report"})
    pickle.loads(pickle.dumps(StreamReader(options, arrow_source_schema(False))))
