"""The builder: what columns it takes, what it refuses and with which words, and how large batches become."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage, InvalidArgument, InvalidRecord, MessageTooLarge
from minilog.record_batch.builder import (
    build_batch,
    build_control_batch,
    records_to_columns,
    set_producer,
    split_columns,
)
from minilog.record_batch.header import Attributes, check_crc, decode_header
from minilog.record_batch.reader import read_control, read_payload
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, full_batch, full_columns


def build(columns: pa.RecordBatch, **options: object) -> bytes:
    return build_batch(TOPIC_ID, PARTITION, columns, **{"timestamp_us": NOW_US, **options})  # type: ignore[arg-type]


def test_the_header_tells_of_the_records() -> None:
    columns = records_to_columns([b"a", b"b", b"c"], timestamps_us=[20, 30, 10])
    header = decode_header(build(columns, producer_id=5, producer_epoch=2, base_sequence=9))
    assert (header.base_offset, header.partition_leader_epoch, header.attributes) == (0, -1, 0)
    assert (header.record_count, header.last_offset_delta) == (3, 2)
    assert (header.base_timestamp_us, header.max_timestamp_us) == (20, 30)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 9)


@pytest.mark.parametrize(
    ("keys", "headers", "attributes"),
    [
        (None, None, 0),
        ([None, None], [None, []], 0),
        ([b"k", None], None, Attributes.HAS_KEY),
        (None, [None, [("h", b"1")]], Attributes.HAS_HEADERS),
    ],
)
def test_a_column_that_no_record_uses_is_left_out(
    keys: list[bytes | None] | None, headers: list[list[tuple[str, bytes]] | None] | None, attributes: int
) -> None:
    batch = build(records_to_columns([b"a", b"b"], keys, headers=headers))
    assert decode_header(batch).attributes == attributes


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.large_binary(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_text_becomes_utf_8(kind: pa.DataType) -> None:
    column = pa.array(["é", None, "z"], pa.string()).cast(kind)
    records = read_payload(build(pa.record_batch({"value": column, "key": column})))
    assert records.column("value").to_pylist() == records.column("key").to_pylist() == ["é".encode(), None, b"z"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_become_microseconds(unit: str) -> None:
    stamp = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    columns = pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([stamp], pa.timestamp(unit, "UTC"))})
    assert read_payload(build(columns)).column("timestamp").to_pylist() == [stamp]


def test_nanoseconds_are_cut() -> None:
    columns = pa.record_batch({"value": pa.array([b"a"]), "timestamp": pa.array([1999], pa.timestamp("ns", "UTC"))})
    assert decode_header(build(columns)).base_timestamp_us == 1


def test_a_record_without_a_timestamp_gets_the_one_given() -> None:
    columns = records_to_columns([b"a", b"b"], timestamps_us=[None, 7])
    assert decode_header(build(columns)).base_timestamp_us == NOW_US
    with pytest.raises(InvalidRecord, match="timestamp_us"):
        build(columns, timestamp_us=None)
    with pytest.raises(InvalidRecord, match="timestamp_us"):
        build(records_to_columns([b"a"]), timestamp_us=None)


def test_headers_of_spark_and_of_maps_are_taken() -> None:
    spark = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
    for kind in (spark, pa.map_(pa.string(), pa.binary())):
        columns = pa.record_batch({"value": pa.array([b"a"]), "headers": pa.array([[("k", b"v")]], kind)})
        assert read_payload(build(columns)).column("headers").to_pylist() == [[{"key": "k", "value": b"v"}]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"a"])}, "give value"),
        ({"value": pa.array([b"a"]), "topic": pa.array(["t"])}, "topic"),
        ({"value": pa.array([], pa.binary())}, "no rows"),
        ({"value": pa.array([1.5])}, "value is double"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([5])}, "timestamp is int64"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([2**62], pa.timestamp("s"))}, "cannot become"),
        ({"value": pa.array([b"a"]), "headers": pa.array(["x"])}, "headers is string"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        build(pa.record_batch(columns))


def test_a_header_needs_a_key() -> None:
    with pytest.raises(InvalidRecord, match="header without a key"):
        build(records_to_columns([b"a"], headers=[[(None, b"v")]]))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"values": [b"a", 5]}, "a value of a record"),
        ({"values": [b"a"], "keys": [b"a", b"b"]}, "differ in length"),
        ({"values": [b"a"], "timestamps_us": [2**70]}, "a timestamp of a record"),
        ({"values": [b"a"], "headers": [[("k",)]]}, "a headers of a record"),
        ({"values": [b"a"], "headers": [[(b"\xff", b"")]]}, "a headers of a record"),
    ],
)
def test_entries_that_do_not_fit_are_named(lists: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        records_to_columns(**lists)  # type: ignore[arg-type]


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(InvalidArgument, match="'gzip' is not known"):
        build(full_columns(), compression="gzip")


@pytest.mark.parametrize(("compression", "bit"), [("lz4", Attributes.LZ4), ("zstd", Attributes.ZSTD)])
def test_compression_is_used_only_where_it_helps(compression: str, bit: int) -> None:
    zeros = build(records_to_columns([bytes(1000)] * 10), compression=compression)
    noise = build(records_to_columns([os.urandom(50)]), compression=compression)
    assert (decode_header(zeros).attributes, decode_header(noise).attributes) == (bit, 0)
    assert len(zeros) < 1500


def test_a_batch_above_its_bound_is_refused() -> None:
    batch = full_batch()
    assert full_batch(max_bytes=len(batch)) == batch
    with pytest.raises(MessageTooLarge, match=f"has {len(batch)} bytes"):
        full_batch(max_bytes=len(batch) - 1)


def test_a_batch_that_a_leader_would_take_for_a_bomb_is_refused_when_it_is_built() -> None:
    with pytest.raises(MessageTooLarge, match="before compression"):
        build(records_to_columns([bytes(100_000)]), compression="zstd", max_bytes=4000)


def test_rows_of_one_size_fill_their_slices() -> None:
    columns = records_to_columns([bytes(100)] * 10_000)
    parts = split_columns(columns, 100_000)
    assert len(parts) <= 13
    assert max(len(build(part)) for part in parts) <= 100_000


def test_a_large_row_among_small_ones_is_cut_out() -> None:
    columns = records_to_columns([b"s"] * 50 + [bytes(5000)] + [b"s"] * 50)
    parts = split_columns(columns, 6000)
    assert sum(part.num_rows for part in parts) == 101
    assert split_columns(columns.slice(0, 0), 4000) == []


def test_a_row_above_where_to_cut_is_a_batch_of_its_own_and_not_refused() -> None:
    columns = records_to_columns([b"s"] * 50 + [bytes(5000)] + [b"s"] * 50)
    parts = split_columns(columns, 4000)
    assert [row for part in parts for row in part.to_pylist()] == columns.to_pylist()
    assert [part.num_rows for part in parts if len(build(part)) > 4000] == [1]


def test_a_restamped_batch_keeps_its_records_and_proves_its_place() -> None:
    stamped = set_producer(full_batch(), TOPIC_ID, PARTITION, 77, 3, 1000)
    header = decode_header(stamped)
    check_crc(TOPIC_ID, PARTITION, stamped, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 1000)
    assert read_payload(stamped).equals(read_payload(full_batch()))
    with pytest.raises(CorruptMessage, match="are there"):
        set_producer(stamped[:-8], TOPIC_ID, PARTITION, 77, 3, 1000)


@pytest.mark.parametrize("payload", [b"", b"1234", b"12345", bytes(1000)])
def test_a_control_batch_gives_back_its_record(payload: bytes) -> None:
    batch = build_control_batch(TOPIC_ID, PARTITION, payload, timestamp_us=NOW_US)
    header = decode_header(batch)
    check_crc(TOPIC_ID, PARTITION, batch, header)
    assert (header.is_control, header.record_count, len(batch) % 8) == (True, 1, 0)
    assert read_control(batch) == payload
