"""Tables of values that others choose (client/minilog/steady_tables.py): what they give, and that no value is dear."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.newest_by_key import NewestByKey
from minilog.producer.partitioner import places_by_key
from minilog.steady_tables import PIECE, are_in, encode, sort
from minilog_broker.storage.compaction.newest_offsets import NewestOffsets
from tests.unit.client.colliding import keys_of_one_group_hash, keys_of_one_memo_hash

_COUNT = 30_000  # Arrow's tables take 1.5 to 8 CPU seconds for as many keys of one hash, and 20 ms for others
_values = st.lists(st.none() | st.sampled_from([b"", b"a", b"b", b"ab"]))


@given(_values)
def test_encoded_values_are_the_values(values: list[bytes | None]) -> None:
    codes, different = encode(pa.array(values, pa.binary()))
    assert [None if code is None else different[code] for code in codes.to_pylist()] == values
    assert different == list(dict.fromkeys(value for value in values if value is not None))


def test_pieces_have_one_list_of_different_values() -> None:
    values = [b"%d" % (row % 3_000) for row in range(3 * PIECE)]
    codes, different = encode(pa.array(values))
    assert len(different) == 3_000
    assert [different[code] for code in codes.to_pylist()] == values


@given(_values)
def test_sorted_values_know_the_first_and_the_last_of_their_equals(values: list[bytes | None]) -> None:
    table = sort(pa.array(values, pa.binary()))
    firsts = table.spread(pa.array(range(len(values)), pa.int64())).to_pylist()
    assert firsts == [row if value is None else values.index(value) for row, value in enumerate(values)]
    last = {value: row for row, value in enumerate(values) if value is not None}
    rows_of_null = [row for row, value in enumerate(values) if value is None]
    assert sorted(table.last_of_equals().to_pylist()) == sorted([*last.values(), *rows_of_null])


@given(_values, st.integers(0, 200))
def test_values_are_in_a_set_of_any_size(values: list[bytes | None], size: int) -> None:
    constants = [b"a", *(b"constant %03d" % number for number in range(size))]
    found = are_in(pa.array(values, pa.binary()), pa.array(constants)).to_pylist()
    assert found == [value in constants for value in values]


def _newest(keys: pa.BinaryArray) -> None:
    table = NewestByKey(keys.type)
    table.add(keys, pa.array(range(len(keys)), pa.int64()))
    table.group()
    assert len(table) == len(keys)


def _superseded(keys: pa.BinaryArray) -> None:
    offsets = pa.array(range(len(keys)), pa.int64())
    assert not NewestOffsets(len(keys), keys, offsets, frozenset()).are_superseded(keys, offsets).true_count


def _partitioned(keys: pa.BinaryArray) -> None:
    assert sum(len(places) for _, places in places_by_key(keys, 4)) == len(keys)


@pytest.mark.parametrize("keys_of_one_hash", [keys_of_one_memo_hash, keys_of_one_group_hash])
@pytest.mark.parametrize(
    "work",
    [_newest, _superseded, _partitioned, encode, lambda keys: are_in(keys, keys)],
    ids=lambda work: work.__name__,
)
def test_keys_of_one_hash_cost_what_other_keys_cost(
    keys_of_one_hash: Callable[[int], list[bytes]], work: Callable[[pa.BinaryArray], object]
) -> None:
    chosen = keys_of_one_hash(_COUNT)
    assert len(set(chosen)) == _COUNT
    chance = random.Random(1)
    usual_s = _cpu_s(work, pa.array([chance.randbytes(16) for _ in range(_COUNT)]))
    assert _cpu_s(work, pa.array(chosen)) < 0.2 + 8 * usual_s


def _cpu_s(work: Callable[[pa.BinaryArray], object], keys: pa.BinaryArray) -> float:
    begun_s = time.thread_time()
    work(keys)
    return time.thread_time() - begun_s
