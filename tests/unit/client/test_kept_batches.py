"""The batches that a worker of a queue keeps for its next leases."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from minilog.consumer.decode import decode, records
from minilog.consumer.partition import ConsumerSession, FetchedRun
from minilog.partition_key import PartitionKey
from minilog.queues.kept_batches import KeptBatches
from minilog.queues.leases import HeldRange, Lease
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import placement
from minilog.types import Record, TopicPartition
from tests.unit.client.queueing import TOPIC, TOPIC_ID, leased_range

EPOCH = 1
WHOLE = 1 << 30


def run_of(*counts: int, end: int, partition: int = 0, value: str = "v") -> FetchedRun:
    """Batches with so many records each. A bounded read up to `end` has brought them."""
    placed, offset = b"", 0
    for count in counts:
        values = [f"{value}{offset + at}".encode() for at in range(count)]
        batch = build_batch(
            TOPIC_ID, partition, records_to_columns(values, [None] * count, [0] * count, [None] * count)
        )
        placed += placement(batch, offset, 0) + batch[24:]
        offset += count
    key = PartitionKey(TOPIC_ID, partition)
    session = ConsumerSession(1, 1)
    return FetchedRun(TopicPartition(TOPIC, partition), key, 1, 0, end, 0, placed, frozenset(), session)


def held(first: int, last: int, *, partition: int = 0, epoch: int = EPOCH) -> HeldRange:
    leased = leased_range(first, last, partition=partition)
    leased.leader_epoch = epoch
    return HeldRange.of(Lease(1), leased, TOPIC)


def as_records(run: FetchedRun, every: list[pa.RecordBatch]) -> list[Record]:
    return [record for rows in every for record in records(run, rows)]


def taken(kept: KeptBatches, of: HeldRange) -> list[bytes | None] | None:
    """The values that the worker has without a read."""
    found = kept.rows(of)
    return None if found is None else [record.value for record in as_records(found.run, found.rows)]


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    read=st.integers(1, 30),
    first=st.integers(0, 30),
    count=st.integers(1, 9),
)
def test_a_range_from_a_kept_batch_has_the_records_of_a_read(
    counts: list[int], read: int, first: int, count: int
) -> None:
    end = sum(counts)
    run, kept = run_of(*counts, end=min(read, end)), KeptBatches()
    kept.keep(run, EPOCH)
    found = kept.rows(held(first, first + count - 1))
    is_kept = read < end and end - counts[-1] <= first < end
    assert (found is not None) == is_kept
    if found is not None:
        assert found.end == min(first + count, end)
        read_again = replace(run, start_offset=first, end_offset=found.end)
        assert as_records(found.run, found.rows) == as_records(read_again, decode(read_again, WHOLE).rows)


def test_a_range_that_is_longer_than_the_kept_batch_is_taken_up_to_its_end() -> None:
    kept = KeptBatches()
    kept.keep(run_of(4, end=2), EPOCH)
    found = kept.rows(held(2, 9))
    assert found is not None
    assert found.end == 4


def test_a_batch_of_another_leader_epoch_may_have_other_records() -> None:
    kept = KeptBatches()
    kept.keep(run_of(4, end=2), EPOCH)
    assert taken(kept, held(2, 3, epoch=EPOCH + 1)) is None
    kept.keep(run_of(4, end=2, value="w"), EPOCH + 1)
    assert taken(kept, held(2, 3, epoch=EPOCH + 1)) == [b"w2", b"w3"]
    assert taken(kept, held(2, 3)) is None


def test_a_batch_of_another_topic_of_the_name_is_not_taken() -> None:
    kept = KeptBatches()
    kept.keep(run_of(4, end=2), EPOCH)
    other = held(2, 3)
    other.key = PartitionKey(b"\x02" * 16, 0)
    assert taken(kept, other) is None


def test_a_damaged_batch_is_read_again() -> None:
    kept, run = KeptBatches(), run_of(4, end=2)
    kept.keep(replace(run, batches=bytes([*run.batches[:-1], run.batches[-1] ^ 1])), EPOCH)
    assert taken(kept, held(2, 3)) is None
    kept.keep(run, EPOCH)
    assert taken(kept, held(2, 3)) == [b"v2", b"v3"]


def test_a_run_whose_last_batch_is_decoded_in_part_has_no_batch_left() -> None:
    kept, run = KeptBatches(), run_of(4, end=3)
    rest = decode(run, 1, record_bytes=1).rest
    assert rest is not None
    assert len(rest.batches) == 0
    kept.keep(run, EPOCH)
    kept.keep(rest, EPOCH)
    assert taken(kept, held(3, 3)) == [b"v3"]


def test_the_oldest_kept_batch_goes_where_there_is_no_room() -> None:
    runs = [run_of(4, end=2, partition=partition) for partition in range(3)]
    kept = KeptBatches(max_bytes=5 * len(runs[0].batches) // 2)
    for run in runs:
        kept.keep(run, EPOCH)
    found = [taken(kept, held(2, 3, partition=partition)) is not None for partition in range(3)]
    assert found == [False, True, True]
