"""The number by which the sink knows rows again, in whatever order and batches they come."""

from __future__ import annotations

import datetime
import decimal
import random

import pyarrow as pa
import pytest

from pyspark_minilog.writing.row_sums import sum_of_rows

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
VALUES = {
    pa.binary(): (b"a", b"b"),
    pa.string(): ("a", "ä"),
    pa.bool_(): (True, False),
    pa.int32(): (1, 2),
    pa.float64(): (1.5, 1.25),
    pa.decimal128(9, 2): (decimal.Decimal("1.00"), decimal.Decimal("1.01")),
    pa.date32(): (NOON.date(), datetime.date(2024, 5, 2)),
    pa.timestamp("us", "UTC"): (NOON, NOON + datetime.timedelta(microseconds=1)),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])): ([{"key": "a", "value": b"1"}], []),
    pa.map_(pa.string(), pa.int64()): ([("a", 1)], [("a", 2)]),
}


def rows_of(kind: pa.DataType, values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_value_and_a_null_of_each_type_count(kind: pa.DataType) -> None:
    first, second = VALUES[kind]
    sums = [sum_of_rows(rows_of(kind, [first, other])) for other in (first, second, None)]
    assert len(set(sums)) == 3
    assert sum_of_rows(rows_of(kind, [second, first])) == sums[1]


def test_order_and_batches_do_not_count_and_neither_do_large_types_time_zones_and_the_order_of_columns() -> None:
    count, dice = 5_000, random.Random(7)
    places = list(range(count))
    whole = pa.table({"key": [str(n % 7) for n in places], "at": pa.array(places, pa.timestamp("us", "UTC"))})
    mixed = whole.take(dice.sample(places, count))
    mixed = mixed.cast(pa.schema([("key", pa.large_string()), ("at", pa.timestamp("us", "Europe/Berlin"))]))
    pieces = [batch.select(["at", "key"]) for batch in mixed.to_batches(max_chunksize=777)]
    assert sum(map(sum_of_rows, pieces)) % 2**64 == sum_of_rows(whole.combine_chunks().to_batches()[0])


def test_values_of_one_row_belong_together() -> None:
    first = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["1", "2"]})
    second = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["2", "1"]})
    assert sum_of_rows(first) != sum_of_rows(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([b"a\x1fb", b"c"], [b"a", b"b\x1fc"]),
        ([b"a1:b", b"c"], [b"a", b"b1:c"]),
        ([b"\x00null", b"c"], [None, b"c"]),
        ([b"-", b""], [None, b""]),
    ],
)
def test_no_bytes_of_a_value_look_like_the_end_of_it_or_like_a_null(
    first: list[bytes | None], second: list[bytes | None]
) -> None:
    rows = [pa.RecordBatch.from_pydict({"key": values[:1], "value": values[1:]}) for values in (first, second)]
    rows = [each.cast(pa.schema([("key", pa.binary()), ("value", pa.binary())])) for each in rows]
    assert sum_of_rows(rows[0]) != sum_of_rows(rows[1])


def test_values_that_change_places_between_two_rows_count_whatever_they_are() -> None:
    """Once: checksums of rows were added, and with these values the sums were the same."""
    first = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": ["7106085", "2500735"]})
    second = pa.RecordBatch.from_pydict({"key": ["b", "a"], "value": ["7106085", "2500735"]})
    assert sum_of_rows(first) != sum_of_rows(second)


def test_the_last_digits_of_a_sum_of_floats_do_not_count() -> None:
    assert sum_of_rows(rows_of(pa.float64(), [0.1 + 0.2])) == sum_of_rows(rows_of(pa.float64(), [0.3]))


def test_no_rows_count_nothing() -> None:
    assert sum_of_rows(rows_of(pa.string(), [])) == 0
