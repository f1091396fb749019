"""What a leader refuses, each for its own reason: every batch here has sums that are right."""

from __future__ import annotations

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage, InvalidTimestamp, MessageTooLarge
from minilog.record_batch.builder import build_batch, build_control_batch
from minilog.record_batch.header import HEADER_BYTES, Attributes, BatchHeader, decode_header
from minilog.record_batch.reader import read_payload
from minilog.record_batch.schema import MAX_EXPANSION
from minilog.record_batch.validation import TimestampBounds, validate_batch
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, counted_memory, full_batch, patched, sealed

ATTRIBUTES, COUNT, TIMESTAMPS, PRODUCER = 28, 32, 40, 56


def validate(batch: bytes, max_message_bytes: int = 1 << 20) -> BatchHeader:
    return validate_batch(TOPIC_ID, PARTITION, batch, max_message_bytes=max_message_bytes)


def forged(position: int, form: str, *numbers: int) -> bytes:
    return sealed(patched(full_batch(), position, form, *numbers))


def with_payload(payload: bytes) -> bytes:
    return sealed(full_batch()[:HEADER_BYTES] + payload)


def with_columns(columns: dict[str, pa.Array]) -> bytes:
    """A batch of ten records whose payload no builder makes."""
    return with_payload(bytes(pa.record_batch(columns).serialize()))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_an_honest_batch_is_taken(compression: str) -> None:
    batch = full_batch(compression=compression)
    assert validate(batch) == decode_header(batch)
    assert validate(full_batch(producer_id=1, producer_epoch=0, base_sequence=0)).producer_id == 1


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    batch = full_batch()
    assert validate(batch, len(batch))
    with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
        validate(batch, len(batch) - 1)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (TimestampBounds(NOW_US - 5_000, newest_us=NOW_US + 8), " 5 ms ahead .*message.timestamp.after.max.ms=5:"),
        (TimestampBounds(NOW_US + 7_000, oldest_us=NOW_US + 1), "7 ms behind .*message.timestamp.before.max.ms=6:"),
    ],
)
def test_a_time_stamp_out_of_the_topics_bounds_is_refused(bounds: TimestampBounds, said: str) -> None:
    """KIP-937: one record of ten is out of them."""
    with pytest.raises(InvalidTimestamp, match=said):
        validate_batch(TOPIC_ID, PARTITION, full_batch(), max_message_bytes=1 << 20, bounds=bounds)


def test_bounds_of_time_stamps_are_included() -> None:
    bounds = TimestampBounds(NOW_US, NOW_US, NOW_US + 9)
    assert validate_batch(TOPIC_ID, PARTITION, full_batch(), max_message_bytes=1 << 20, bounds=bounds)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (full_batch() + bytes(8), "came"),
        (forged(ATTRIBUTES, "I", 3 | Attributes.CONTROL), "a client cannot send"),
        (forged(ATTRIBUTES, "I", 3 | Attributes.COMPACTED | Attributes.GAPS), "a client cannot send"),
        (forged(ATTRIBUTES, "I", 3 | Attributes.LZ4 | Attributes.ZSTD), "a client cannot send"),
        (forged(ATTRIBUTES, "I", 3 | Attributes.TRANSACTIONAL), "no producer id"),
        (forged(ATTRIBUTES, "I", 3 | Attributes.LZ4), "compression none"),
        (forged(ATTRIBUTES, "I", 1), "columns and buffers"),
        (forged(COUNT, "II", 9, 8), "9 records, its payload has 10"),
        (forged(COUNT, "II", 2**32 - 1, 2**32 - 2), "its payload has 10"),
        (forged(TIMESTAMPS, "q", NOW_US + 1), "first and highest timestamp"),
        (forged(TIMESTAMPS + 8, "q", NOW_US + 10), "first and highest timestamp"),
        (forged(PRODUCER, "q", 5), "give all three or none"),
        (forged(PRODUCER, "qih", 5, -1, 0), "give all three or none"),
        (forged(PRODUCER, "qih", -2, 0, 0), "give all three or none"),
        (with_payload(b""), "does not start as an Arrow message"),
        (with_payload(bytes(64)), "does not start as an Arrow message"),
        (with_payload(bytes(pa.schema([("value", pa.binary())]).serialize())), "not an Arrow RecordBatch"),
        (with_payload(full_batch()[HEADER_BYTES:] + bytes(8)), "body of"),
    ],
)
def test_a_dishonest_batch_is_refused_with_its_reason(batch: bytes, message: str) -> None:
    with pytest.raises(CorruptMessage, match=message):
        validate(batch)


def test_a_control_batch_of_a_client_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="a client cannot send"):
        validate(build_control_batch(TOPIC_ID, PARTITION, b"x", timestamp_us=NOW_US))


_blob = pa.array([b"x"] * 10)
_stamps = pa.array([NOW_US] * 9 + [None], pa.timestamp("us", "UTC"))
_whole_stamps = pa.array([NOW_US + row for row in range(10)], pa.timestamp("us", "UTC"))
_same_rows = pa.record_batch({"value": pa.array([bytes(100)] * 20_000)})
_entry = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"timestamp": _stamps, "headers": pa.nulls(10, pa.list_(_entry))}, "1 records without a timestamp"),
        ({"timestamp": _whole_stamps, "headers": pa.array([[(None, b"")]] * 10, pa.list_(_entry))}, "without a key"),
        ({"timestamp": _whole_stamps, "headers": pa.array([[None]] * 10, pa.list_(_entry))}, "without a key"),
        (
            {
                "timestamp": _whole_stamps,
                "headers": pa.array(
                    [[(b"\xff", b"")]] * 10, pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
                ),
            },
            "UTF",
        ),
    ],
)
def test_a_payload_that_no_reader_could_rely_on_is_refused(columns: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(CorruptMessage, match=message):
        validate(with_columns({"key": _blob, "value": _blob, **columns}))


@pytest.mark.parametrize("claimed", [2**40, 2**62, 2**31, 17 * (1 << 20), 1 << 20, -2, -(2**63)])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_anything_is_allocated(compression: str, claimed: int) -> None:
    batch = full_batch(1000, compression=compression)
    body = HEADER_BYTES + 8 + int.from_bytes(batch[HEADER_BYTES + 4 : HEADER_BYTES + 8], "little")
    bomb = sealed(patched(batch, body, "q", claimed))
    with counted_memory() as memory, pytest.raises(CorruptMessage, match="bytes"):
        validate(bomb)
    assert memory.max_memory() == 0


def test_a_small_batch_may_become_what_the_topic_takes_and_no_more() -> None:
    """Once: 8 KiB that become 128 MiB were taken, as 16 times the largest batch, and one poll decoded a hundred."""
    batch = build_batch(TOPIC_ID, PARTITION, _same_rows, compression="zstd", timestamp_us=NOW_US)
    size = read_payload(batch).nbytes
    assert len(batch) * MAX_EXPANSION < size // 2
    assert validate(batch, size).record_count == 20_000
    with pytest.raises(CorruptMessage, match="when decompressed"):
        validate(batch, size // 2)


def test_a_buffer_that_does_not_become_what_it_claims_is_refused() -> None:
    batch = full_batch(1000, compression="zstd")
    body = HEADER_BYTES + 8 + int.from_bytes(batch[HEADER_BYTES + 4 : HEADER_BYTES + 8], "little")
    for claimed in (8, 100_000):
        with pytest.raises(CorruptMessage, match="not valid"):
            validate(sealed(patched(batch, body, "q", claimed)))
