"""Where records go: Kafka's partition by key, sticky without one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from minilog.producer.partitioner import StickyPartitioner, murmur2, partition_for_key, split_by_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # from Kafka's UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_sticky_goes_round_those_with_a_leader() -> None:
    sticky = StickyPartitioner(random.Random(1))
    assert sticky.current(b"t") is None
    first = sticky.advance(b"t", [0, 2, 5])
    assert sticky.current(b"t") == first
    seen = [first, *(sticky.advance(b"t", [0, 2, 5]) for _ in range(5))]
    assert sorted(seen[:3]) == [0, 2, 5]
    assert seen[:3] == seen[3:]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_are_split_as_single_records_would_be(kind: pa.DataType) -> None:
    keys = [f"key-{number % 7}" for number in range(50)] + [None]
    values = [b"%d" % number for number in range(51)]
    columns = pa.RecordBatch.from_arrays([pa.array(keys, pa.string()).cast(kind), pa.array(values)], ["key", "value"])
    parts, keyless = split_by_key(columns, 3)
    for partition, rows in parts.items():
        expected = [v for k, v in zip(keys, values, strict=True) if k and partition_for_key(k.encode(), 3) == partition]
        assert rows.column("value").to_pylist() == expected  # in order
    assert keyless.column("value").to_pylist() == [b"50"]
    assert sum(rows.num_rows for rows in parts.values()) == 50


def test_columns_of_null_keys_only() -> None:
    parts, keyless = split_by_key(
        pa.RecordBatch.from_pydict({"key": pa.nulls(2, pa.binary()), "value": [b"a", b"b"]}), 3
    )
    assert parts == {}
    assert keyless.num_rows == 2
