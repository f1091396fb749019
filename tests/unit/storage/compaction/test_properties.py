"""What is true of every cleaning of a log of keys and values, against a rule over a dict."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.record_batch.header import check_crc
from tests.unit.storage.compaction.keyed_logs import (
    KEY,
    KeyedLog,
    cleaned,
    cleanings,
    headers,
    keyed_logs,
    read,
    stored,
)

_many = settings(max_examples=40)


def drawn(data: st.DataObject) -> tuple[KeyedLog, int, int]:
    """A log, where it is cleaned to, and the offset below which deletions have expired."""
    log = data.draw(keyed_logs())
    clean_to = data.draw(st.sampled_from(log.boundaries()))
    return log, clean_to, data.draw(st.integers(log.start, log.end + 1))


def clean(log: KeyedLog, clean_to: int, deletes_before: int, **options: Any) -> list[bytes]:
    return cleaned(
        options.pop("batches", log.batches),
        clean_to,
        aborted=log.aborted,
        deletes_before=deletes_before,
        **{"dirty_from": log.start, **options},
    )


@_many
@given(st.data())
def test_the_newest_record_of_each_key_stays_with_all_that_it_has(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    batches = clean(log, clean_to, deletes_before, **data.draw(cleanings(log)))
    assert read(batches) == [record.content for record in log.survivors(clean_to, deletes_before)]


@_many
@given(st.data())
def test_each_offset_stays_in_one_batch_and_keeps_its_epoch(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    batches = clean(log, clean_to, deletes_before, **data.draw(cleanings(log)))
    after = headers(batches)
    assert (after[0].base_offset, after[-1].next_offset) == (log.start, log.end)
    assert all(left.next_offset == right.base_offset for left, right in pairwise(after))
    epochs = [
        [
            (offset, header.partition_leader_epoch)
            for header in of
            for offset in range(header.base_offset, header.next_offset)
        ]
        for of in (headers(log.batches), after)
    ]
    assert epochs[0] == epochs[1]


@_many
@given(st.data())
def test_batches_with_records_keep_their_place_producer_and_sequence(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    before = {header.base_offset: header for header in headers(log.batches)}
    batches = clean(log, clean_to, deletes_before, **data.draw(cleanings(log)))
    for header, batch in stored(batches):
        check_crc(*KEY, batch, header)
        original = before[header.base_offset]
        if header.record_count:
            kept = (header.last_offset_delta, header.producer_id, header.producer_epoch, header.base_sequence)
            assert kept == (
                original.last_offset_delta,
                original.producer_id,
                original.producer_epoch,
                original.base_sequence,
            )
            assert header.is_transactional == original.is_transactional
        else:
            assert not header.is_transactional
    assert [batch for batch in log.batches if headers([batch])[0].base_offset >= clean_to] == [
        batch for header, batch in stored(batches) if header.base_offset >= clean_to
    ]


@_many
@given(st.data())
def test_markers_go_when_nothing_of_their_producers_is_left(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    batches = clean(log, clean_to, deletes_before, **data.draw(cleanings(log)))
    left = [(header.base_offset, batch) for header, batch in stored(batches) if header.is_control]
    originals = {header.base_offset: batch for header, batch in stored(log.batches)}
    offsets = log.markers_left(clean_to, deletes_before)
    assert left == [(offset, originals[offset]) for offset in offsets]


@_many
@given(st.data())
def test_neighbouring_gap_batches_of_an_epoch_are_one(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    after = headers(clean(log, clean_to, deletes_before))
    for left, right in pairwise(after):
        if not left.record_count and not right.record_count:
            assert left.partition_leader_epoch < right.partition_leader_epoch


@_many
@given(st.data())
def test_the_same_cleaning_twice_changes_nothing(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    how = {**data.draw(cleanings(log)), "part_batches": 1_000}  # a gap batch joins none of another part
    once = clean(log, clean_to, deletes_before, **how)
    assert clean(log, clean_to, deletes_before, **how) == once
    for dirty_from in (log.start, clean_to):
        assert clean(log, clean_to, deletes_before, batches=once, **{**how, "dirty_from": dirty_from}) == once


@_many
@given(st.data())
def test_a_cleaning_after_another_leaves_the_records_that_it_alone_leaves(data: st.DataObject) -> None:
    log, clean_to, deletes_before = drawn(data)
    earlier = data.draw(st.sampled_from([offset for offset in log.boundaries() if offset <= clean_to]))
    first = clean(log, earlier, data.draw(st.integers(0, deletes_before)), **data.draw(cleanings(log)))
    both = clean(log, clean_to, deletes_before, batches=first, **{**data.draw(cleanings(log)), "dirty_from": earlier})
    assert read(both) == read(clean(log, clean_to, deletes_before))
