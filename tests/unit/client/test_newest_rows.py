"""Which rows are the newest ones of their keys (client/minilog/scanning/newest_rows.py), against a dict. Pure."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.scanning.newest_rows import ChosenOffsets, KeyPass, chosen, deletion_count

_NONE = b"", b"a", b"b", b"\xff"
_key = st.none() | st.sampled_from(_NONE) | st.binary(max_size=3)
_row = st.tuples(st.integers(0, 2), _key, st.booleans())  # partition, key, whether it deletes
_batches = st.lists(st.lists(_row, min_size=1, max_size=8), max_size=8)
Rows = list[tuple[int, int, Any, bool]]  # partition, offset, key, whether it deletes

DAY, NOON = datetime.date(2013, 1, 1), datetime.datetime(2013, 1, 1, 12)
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [False, True]),
    (pa.int8(), [-1, 0, 5]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.string(), ["", "a", "é", "\U0010ffff"]),
    (pa.binary(), [b"", b"\0", b"\xff"]),
    (pa.date32(), [DAY, DAY + datetime.timedelta(1)]),
    (pa.timestamp("us"), [NOON, NOON + datetime.timedelta(1)]),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=datetime.UTC)]),
    (pa.decimal128(10, 2), [decimal.Decimal("-1.10"), decimal.Decimal("2.20")]),
]


def newest(rows: Rows) -> dict[int, list[int]]:
    """The offsets of the newest rows by partition, without deleted keys."""
    last: dict[tuple[int, Any], tuple[int, bool]] = {}
    for partition, offset, key, deletes in rows:
        if key is not None:
            last[partition, key] = offset, deletes
    offsets: dict[int, list[int]] = {}
    for (partition, _), (offset, deletes) in last.items():
        offsets.setdefault(partition, [])
        if not deletes:
            offsets[partition].append(offset)
    return {partition: sorted(found) for partition, found in offsets.items()}


def passes(batches: list[Rows], key_type: pa.DataType, memory_bytes: int) -> tuple[dict[int, list[int]], int]:
    """The same by passes over these batches, each of one partition, and how many passes there were."""
    offsets: dict[int, list[int]] = {}
    first_key, count = None, 0
    while count == 0 or first_key is not None:
        keys = KeyPass(key_type, memory_bytes, first_key)
        for rows in batches:
            keys.add(
                rows[0][0],
                pa.array([key for _, _, key, _ in rows], key_type),
                pa.array([offset for _, offset, _, _ in rows], pa.int64()),
                pa.array([deletes for _, _, _, deletes in rows]) if any(row[3] for row in rows) else None,
            )
        for partition, numbers in keys.end().items():
            offsets.setdefault(partition, []).extend(chosen(numbers).to_pylist())
            assert len(numbers) - len(chosen(numbers)) == deletion_count(numbers)
        assert keys.keyless == sum(key is None for rows in batches for _, _, key, _ in rows)
        first_key, count = keys.next_key, count + 1
        assert count < 100
    return {partition: sorted(found) for partition, found in offsets.items()}, count


def placed(batches: list[list[tuple[int, Any, bool]]]) -> list[Rows]:
    """Rows with offsets, in batches of one partition."""
    ends, parts = dict[int, int](), list[Rows]()
    for batch in batches:
        for partition in sorted({row[0] for row in batch}):
            keyed = [(key, deletes) for other, key, deletes in batch if other == partition]
            start = ends.get(partition, 0)
            parts.append([(partition, start + place, *row) for place, row in enumerate(keyed)])
            ends[partition] = start + len(keyed) + 1  # a marker between two batches
    return parts


@given(_batches, st.sampled_from([1, 20, 60, 200, 1 << 20]))
@settings(max_examples=100, deadline=None)
def test_the_newest_rows_are_those_of_a_dict_whatever_the_memory(
    batches: list[list[tuple[int, Any, bool]]], memory_bytes: int
) -> None:
    parts = placed(batches)
    found, _ = passes(parts, pa.binary(), memory_bytes)
    assert found == newest([row for rows in parts for row in rows])


@pytest.mark.parametrize(
    ("key_type", "values"), KEYS, ids=lambda given: str(given) if isinstance(given, pa.DataType) else ""
)
def test_keys_of_each_type_fit_into_parts(key_type: pa.DataType, values: list[Any]) -> None:
    batch = [(0, key, False) for key in [*values, None, *values]]
    parts = placed([batch, [(0, values[0], True)]])
    found, count = passes(parts, key_type, 1)
    assert found == newest([row for rows in parts for row in rows])
    assert count == len(values)


@pytest.mark.parametrize("order", [1, -1, 7])
def test_the_number_of_passes_is_in_proportion_to_the_keys(order: int) -> None:
    """Also where the keys come in their order, as numbers from a sequence do."""
    keys = [number * order % 10_007 for number in range(10_000)]
    parts = [
        [(0, start + place, key, False) for place, key in enumerate(keys[start : start + 100])]
        for start in range(0, 10_000, 100)
    ]
    memory_bytes = 16 * 2_000  # of 10,000 keys
    found, count = passes(parts, pa.int64(), memory_bytes)
    assert found == {0: list(range(10_000))}
    assert 5 <= count <= 16


def test_keys_that_a_batch_holds_are_not_views_of_it() -> None:
    """Else a table of some keys would keep all that came with them."""
    whole = pa.array([b"k" * 10] * 1_000)
    keys = KeyPass(pa.binary(), 1 << 20)
    keys.add(0, whole.slice(0, 1), pa.array([5], pa.int64()))
    waiting = keys._tables[0]._waiting_keys[0]
    assert waiting.buffers()[2].size < 100


@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)), st.integers(1, 10))
@settings(max_examples=100, deadline=None)
def test_rows_are_chosen_and_missed_by_their_offsets(wanted: set[int], there: set[int], size: int) -> None:
    offsets = pa.array(sorted(wanted), pa.int64())
    rows = sorted(there)
    choosing, looking = ChosenOffsets(offsets), ChosenOffsets(offsets.slice(0))
    assert (choosing.first, choosing.end) == (min(wanted), max(wanted) + 1)
    found, missing = list[int](), list[int]()
    for start in range(0, len(rows), size):
        batch = pa.array(rows[start : start + size], pa.int64())
        are_chosen = choosing.are_chosen(batch)
        found += [] if are_chosen is None else batch.filter(are_chosen).to_pylist()
        if not missing and (gone := looking.missing(batch)) is not None:
            missing.append(gone)
    assert found == sorted(wanted & there)
    if not missing and (gone := looking.missing_at_end()) is not None:
        missing.append(gone)
    assert missing == sorted(wanted - there)[:1]
