"""The epoch cache against a plain list with one epoch per offset."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minilog_broker.storage.epoch_cache import EpochCache


def cache_of(epochs: list[int]) -> EpochCache:
    cache = EpochCache()
    for offset, epoch in enumerate(epochs):
        cache.assign(epoch, offset)
    return cache


histories = st.lists(st.integers(0, 8), max_size=20).map(sorted)


@given(histories, st.integers(-1, 25))
def test_an_offset_has_the_epoch_it_was_written_in(epochs: list[int], offset: int) -> None:
    cache = cache_of(epochs)
    if 0 <= offset < len(epochs):
        assert cache.epoch_for_offset(offset) == epochs[offset]
    if offset < 0:
        assert cache.epoch_for_offset(offset) is None
    assert cache.latest_epoch == (epochs[-1] if epochs else None)


@given(histories, st.integers(0, 9))
def test_an_epoch_ends_where_the_next_one_starts(epochs: list[int], asked: int) -> None:
    below = [epoch for epoch in epochs if epoch <= asked]
    assert cache_of(epochs).end_offset_for(asked, len(epochs)) == (below[-1] if below else -1, len(below))


@given(histories, st.integers(0, 20))
def test_cutting_the_end_forgets_what_began_there(epochs: list[int], end: int) -> None:
    cache = cache_of(epochs)
    changed = cache.truncate_from_end(end)
    assert cache.entries == cache_of(epochs[:end]).entries
    assert changed == (cache.entries != cache_of(epochs).entries)


@given(histories, st.integers(0, 20))
def test_cutting_the_start_keeps_the_epoch_of_every_record_left(epochs: list[int], start: int) -> None:
    cache = cache_of(epochs)
    cache.truncate_from_start(start)
    for offset in range(start, len(epochs)):
        assert cache.epoch_for_offset(offset) == epochs[offset]
    if start < len(epochs):
        assert cache.entries[0] == (epochs[start], start)


@given(histories)
def test_both_columns_increase_and_survive_the_file(epochs: list[int]) -> None:
    entries = cache_of(epochs).entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
    assert EpochCache.decode(cache_of(epochs).encode()).entries == entries


def test_an_epoch_without_records_is_replaced_by_the_next_at_its_offset() -> None:
    cache = EpochCache([(1, 0), (5, 10)])
    assert cache.assign(6, 10)
    assert cache.entries == ((1, 0), (6, 10))
    assert cache.assign(3, 10), "a later leader may bring records of an epoch below one that wrote none"
    assert cache.entries == ((1, 0), (3, 10))
    assert not cache.assign(3, 15)


def test_an_epoch_below_one_with_records_is_refused() -> None:
    cache = EpochCache([(1, 0), (5, 10)])
    with pytest.raises(ValueError, match="has a later one"):
        cache.assign(4, 11)
    assert cache.entries == ((1, 0), (5, 10))


@pytest.mark.parametrize("content", [b"123", EpochCache([(1, 0)]).encode() * 2])
def test_a_file_that_cannot_be_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="epochs"):
        EpochCache.decode(content)
