"""Producer state: each verdict, the wrap of sequences, snapshots, bounds; and a model that remembers everything."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minilog.errors import DuplicateSequenceNumber, InvalidProducerEpoch, OutOfOrderSequenceNumber
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.producer_state import (
    SEQUENCES,
    Accept,
    Duplicate,
    ProducerState,
    recover_producer_state,
)
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.logs import batch, header, open_log, run_of
from tests.world.disk import MemoryDisk

PRODUCER = 42


def state_after(sequences: list[int], *, records: int = 1, epoch: int = 0) -> ProducerState:
    state = ProducerState()
    for number, sequence in enumerate(sequences):
        state.apply(header(number * records, records=records, producer=(PRODUCER, epoch, sequence)))
    return state


def verdict(state: ProducerState, sequence: int, *, epoch: int = 0, records: int = 1) -> object:
    found = state.check(header(0, records=records, producer=(PRODUCER, epoch, sequence)))
    return type(found) if isinstance(found, Exception | Accept) else found


def test_a_batch_without_a_producer_and_an_unknown_producer_are_accepted() -> None:
    assert isinstance(ProducerState().check(header(0, producer=(-1, -1, -1))), Accept)
    assert verdict(ProducerState(), 1234) is Accept


def test_the_next_sequence_is_accepted_and_a_gap_is_out_of_order() -> None:
    state = state_after([0, 3, 6], records=3)
    assert verdict(state, 9, records=3) is Accept
    assert verdict(state, 10) is OutOfOrderSequenceNumber


def test_the_last_five_are_duplicates_with_their_offsets_and_older_ones_without() -> None:
    state = state_after(list(range(8)))
    assert [verdict(state, sequence) for sequence in range(3, 8)] == [Duplicate(s, s) for s in range(3, 8)]
    assert verdict(state, 2) is DuplicateSequenceNumber
    assert verdict(state, 5, records=2) is DuplicateSequenceNumber, "not the batch that was written"


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    state = state_after([0, 1])
    assert verdict(state, 0, epoch=1) is Accept
    assert verdict(state, 2, epoch=1) is OutOfOrderSequenceNumber
    state.apply(header(2, producer=(PRODUCER, 1, 0)))
    assert verdict(state, 2) is InvalidProducerEpoch
    assert verdict(state, 0, epoch=1) == Duplicate(2, 2)


def test_sequences_wrap() -> None:
    state = state_after([SEQUENCES - 2], records=4)
    assert verdict(state, 2, records=4) is Accept
    assert verdict(state, SEQUENCES - 2, records=4) == Duplicate(0, 3)
    assert verdict(state, SEQUENCES - 9) is DuplicateSequenceNumber


def test_accepted_batches_on_their_way_count() -> None:
    state = state_after([0])
    on_their_way = [header(1, producer=(PRODUCER, 0, 1)), header(2, producer=(7, 0, 0))]
    assert isinstance(state.check(header(0, producer=(PRODUCER, 0, 2)), on_their_way), Accept)
    assert state.check(header(0, producer=(PRODUCER, 0, 1)), on_their_way) == Duplicate(1, 1)
    assert verdict(state, 1) is Accept, "and only there"


def test_batches_of_the_log_are_never_refused() -> None:
    state = state_after([0, 7, 3])
    assert verdict(state, 4) is Accept
    state.apply(header(9, producer=(-1, -1, -1)))
    assert len(state) == 1


def test_a_batch_that_is_known_from_another_copy_counts_once() -> None:
    state = state_after([0, 1])
    state.apply(header(1, producer=(PRODUCER, 0, 1)))
    assert state == state_after([0, 1])


def test_silent_producers_expire_and_the_most_silent_goes_when_there_are_too_many() -> None:
    state = ProducerState(max_producers=2)
    for producer in (1, 2):
        state.apply(header(producer, producer=(producer, 0, 0), timestamp_us=producer * 100))
    state.apply(header(3, producer=(1, 0, 1), timestamp_us=50))
    state.apply(header(4, producer=(3, 0, 0), timestamp_us=300))
    assert state.entry(2) is None
    assert state.expire(60) == 0, "the newest time counts, and not that of the last batch"
    assert state.expire(101) == 1
    assert [state.entry(producer) is not None for producer in (1, 3)] == [False, True]


written = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4)), max_size=40)


@given(written)
def test_a_snapshot_is_the_state(batches: list[tuple[int, int, int]]) -> None:
    state, offset = ProducerState(), 0
    for producer, epoch, records in batches:
        state.apply(header(offset, records=records, producer=(producer, epoch, offset)))
        offset += records
    copy = ProducerState()
    copy.restore(state.snapshot())
    assert copy == state


@given(st.integers(0, SEQUENCES - 1), st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_a_producer_that_resends_any_of_its_batches_never_writes_one_twice(
    first: int, sizes: list[int], data: st.DataObject
) -> None:
    state, sent, sequence, offset = ProducerState(), [], first, 0
    for records in sizes:
        one = header(offset, records=records, producer=(PRODUCER, 0, sequence))
        assert isinstance(state.check(one), Accept)
        state.apply(one)
        sent.append(one)
        sequence, offset = (sequence + records) % SEQUENCES, offset + records
    again = data.draw(st.integers(0, len(sent) - 1))
    found = state.check(sent[again])
    if again >= len(sent) - 5:
        assert found == Duplicate(sent[again].base_offset, sent[again].last_offset)
    else:
        assert isinstance(found, DuplicateSequenceNumber)


@given(st.binary(max_size=100), st.integers(0, 200))
def test_a_damaged_snapshot_is_refused_and_changes_nothing(junk: bytes, position: int) -> None:
    state = state_after([0, 1])
    snapshot = bytearray(state.snapshot())
    snapshot[position % len(snapshot)] ^= 0x41
    for damaged in (junk, bytes(snapshot), state.snapshot()[:-1]):
        with pytest.raises(CorruptFile):
            state.restore(damaged)
    assert state == state_after([0, 1])


def test_a_log_full_of_markers_is_read_once() -> None:
    """Found by the simulator (seed 1100301): each marker was looked up anew, from the last entry of the index on, and
    a broker read its transactional logs thirteen times when it started."""
    files = MemoryDisk()
    log = open_log(files, settings=LogSettings(index_interval_bytes=4096))
    for producer_id in range(100):
        begun = batch(log.log_end_offset, producer=(producer_id, 0, 0), transactional=True, payload=bytes(100))
        ended = batch(log.log_end_offset + 1, markers=[(producer_id, True)])
        log.append(run_of([begun, ended]))
    log.flush()
    before = files.read_bytes
    state = recover_producer_state(log)
    assert state.transactions.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert files.read_bytes - before <= log.size_bytes
