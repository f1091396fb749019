"""A table as of now beside a stream: which task reads what, and what compaction does to a read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from minilog.errors import OffsetOutOfRange
from pyspark_minilog.options.offsets import Partition, parse_offset_spec
from pyspark_minilog.options.places import ends_now, parse_timestamp
from pyspark_minilog.reading.batch_plan import BatchPlan
from pyspark_minilog.reading.newest_task import MOST_LOOKS, SPOOL_BYTES, newest_tasks, settled
from pyspark_minilog.reading.planning import PlannedRange
from tests.rules import proves

pytestmark = proves("SPT.5")

SCHEMA = pa.schema({"id": pa.int64()})
A0, A1, A2, B0 = Partition("a", 0), Partition("a", 1), Partition("a", 2), Partition("b", 0)


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids)}, schema=SCHEMA)


class Log:
    """A log whose reads meet a cleaning: the first `overtaken` of them, after their first batch."""

    def __init__(self, overtaken: int, rows: int = 1) -> None:
        self.overtaken, self.rows, self.looks = overtaken, rows, 0

    def read(self) -> Iterator[pa.RecordBatch]:
        self.looks += 1
        yield batch(*[self.looks] * self.rows)
        if self.looks <= self.overtaken:
            raise OffsetOutOfRange("compaction has removed the row")
        yield batch(*[self.looks] * self.rows)


class TestTasks:
    PLAN = BatchPlan([PlannedRange(A1, 0, 9)], frozenset({A0, A1}), None)

    def test_each_partition_has_a_task_also_without_records(self) -> None:
        tasks = newest_tasks(self.PLAN, None)
        assert [task.partition for task in tasks] == [A0, A1]
        assert [task.ranges for task in tasks] == [(), (PlannedRange(A1, 0, 9),)]

    def test_a_partition_that_comes_later_is_read_by_one_task(self) -> None:
        tasks = [pickle.loads(pickle.dumps(task)) for task in newest_tasks(self.PLAN, None)]
        for partition in (A0, A1, A2, B0):
            assert [task.reads(partition) for task in tasks].count(True) == 1

    def test_a_query_without_partitions_has_a_task_for_those_to_come(self) -> None:
        [task] = newest_tasks(BatchPlan([], frozenset(), None), None)
        assert task.reads(A0)
        assert not task.ranges


class TestOvertakenReads:
    def test_rows_of_an_overtaken_read_are_not_given(self) -> None:
        log = Log(overtaken=2)
        assert [rows.to_pydict() for rows in settled(log.read, SCHEMA)] == [{"id": [3]}, {"id": [3]}]

    def test_a_table_larger_than_the_memory_for_it_comes_whole(self) -> None:
        log = Log(overtaken=1, rows=SPOOL_BYTES // 8 + 1)
        assert pa.Table.from_batches(settled(log.read, SCHEMA)).column("id").to_pylist() == [2] * (2 * log.rows)

    def test_a_read_that_is_always_overtaken_ends(self) -> None:
        log = Log(overtaken=1_000)
        with pytest.raises(OffsetOutOfRange):
            list(settled(log.read, SCHEMA))
        assert log.looks == MOST_LOOKS

    def test_another_error_is_not_tried_again(self) -> None:
        def read() -> Iterator[pa.RecordBatch]:
            yield batch(1)
            raise ValueError("no number")

        with pytest.raises(ValueError, match="no number"):
            list(settled(read, SCHEMA))


@pytest.mark.parametrize(
    ("ending", "is_now"),
    [("latest", True), ('{"a":{"0":-1,"1":7}}', True), ('{"a":"latest"}', True), ('{"a":{"0":5,"1":7}}', False)],
)
def test_only_an_end_of_latest_is_now(ending: str, is_now: bool) -> None:
    assert ends_now(parse_offset_spec("endingOffsets", ending)) is is_now


def test_an_end_of_a_time_is_fixed() -> None:
    assert not ends_now(parse_timestamp("endingTimestamp", "5", or_latest=True))
