"""A decoder of bytes from a peer: whatever they are, a batch, CorruptMessage or MessageTooLarge; never anything else.

Damage with wrong sums must be refused. Damage with sums made right again may happen to be a batch: then every value of
it must be safe to touch, which `touched` does (a bad offset would crash the test run, not fail it).
"""

from __future__ import annotations

import contextlib
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.errors import CorruptMessage, MessageTooLarge, UnsupportedVersion
from minilog.record_batch.arrow_metadata import read_arrow_metadata
from minilog.record_batch.builder import build_batch
from minilog.record_batch.header import HEADER_BYTES, iterate_headers
from minilog.record_batch.reader import read_control, read_payload, read_records
from minilog.record_batch.validation import validate_batch
from tests.rules import proves
from tests.unit.record_batch.batches import PARTITION, TOPIC_ID, columns, counted_memory, full_batch, sealed

pytestmark = proves("DK.21")

_compressions = ["none", "lz4", "zstd"]
_bounded = settings(max_examples=150, deadline=None)
_ALLOCATION_LIMIT = 64 << 20  # far above any batch here, at 16 times max_message_bytes far below a bomb


def touched(batch: bytes) -> int:
    """The number of bytes of all values, each one looked at."""
    records = read_payload(batch)
    copied = records.take(pa.arange(0, records.num_rows))
    copied.validate(full=True)
    return int(copied.nbytes)


def survives(batch: bytes, *, may_be_valid: bool) -> None:
    try:
        validate_batch(TOPIC_ID, PARTITION, batch, max_message_bytes=1 << 20)
    except (CorruptMessage, MessageTooLarge, UnsupportedVersion):
        pass
    else:
        assert may_be_valid, "damage was taken for a batch"
        assert touched(batch) < _ALLOCATION_LIMIT
    for read in (read_control, lambda forged: read_records(forged, TOPIC_ID, PARTITION)):
        with contextlib.suppress(CorruptMessage, UnsupportedVersion):
            read(batch)


@pytest.mark.parametrize("compression", _compressions)
def test_a_flipped_bit_anywhere_is_seen(compression: str) -> None:
    batch = full_batch(3, compression=compression)
    for bit in range(len(batch) * 8):
        forged = bytearray(batch)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMessage):
            validate_batch(TOPIC_ID, PARTITION, bytes(forged), max_message_bytes=1 << 20)


@pytest.mark.parametrize("compression", _compressions)
def test_a_flipped_bit_under_right_sums_is_harmless(compression: str) -> None:
    batch = full_batch(3, compression=compression)
    for bit in range(24 * 8, len(batch) * 8):
        forged = bytearray(batch)
        forged[bit // 8] ^= 1 << bit % 8
        survives(sealed(bytes(forged)), may_be_valid=True)


@pytest.mark.parametrize("compression", _compressions)
def test_a_batch_cut_anywhere_is_refused(compression: str) -> None:
    batch = full_batch(3, compression=compression)
    for length in range(len(batch)):
        with pytest.raises(CorruptMessage):
            validate_batch(TOPIC_ID, PARTITION, batch[:length], max_message_bytes=1 << 20)
        if length:
            with pytest.raises(CorruptMessage):
                list(iterate_headers(batch[:length]))


@pytest.mark.parametrize("compression", _compressions)
def test_a_payload_cut_under_right_sums_is_refused(compression: str) -> None:
    batch = full_batch(3, compression=compression)
    for length in range(HEADER_BYTES, len(batch), 8):
        with pytest.raises(CorruptMessage):
            validate_batch(TOPIC_ID, PARTITION, sealed(batch[:length]), max_message_bytes=1 << 20)


@_bounded
@given(st.binary(max_size=400))
def test_random_bytes_are_no_batch(data: bytes) -> None:
    survives(data, may_be_valid=False)
    survives(sealed(full_batch(1)[:HEADER_BYTES] + data.ljust(-(-len(data) // 8) * 8, b"\0")), may_be_valid=True)
    with pytest.raises(CorruptMessage):
        read_arrow_metadata(b"\xff\xff\xff\xff" + data, max_buffers=17)


_EDGES = [0, 1, 4, 8, 16, 2**16, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1]
_numbers = st.sampled_from(_EDGES) | st.integers(0, 2**32 - 1)


@_bounded
@given(columns(max_rows=5), st.sampled_from(_compressions), st.lists(st.tuples(st.integers(0), _numbers), max_size=4))
def test_overwritten_words_under_right_sums_are_harmless(
    records: pa.RecordBatch, compression: str, words: list[tuple[int, int]]
) -> None:
    batch = build_batch(TOPIC_ID, PARTITION, records, compression=compression, timestamp_us=0)
    forged = bytearray(batch)
    for position, number in words:
        start = 28 + position % (len(batch) - 31)
        forged[start : start + 4] = number.to_bytes(4, "little")
    survives(sealed(bytes(forged)), may_be_valid=True)


@pytest.mark.parametrize("compression", _compressions)
def test_many_forged_metadata_words_never_make_arrow_allocate_or_crash(compression: str) -> None:
    """As the test above, in numbers that hypothesis has no time for; a seed makes it the same every time."""
    rolls = random.Random(20_261_121)
    batch = full_batch(20, compression=compression)
    with counted_memory() as memory:
        for _ in range(4000):
            forged = bytearray(batch)
            for _ in range(rolls.randint(1, 3)):
                start = rolls.randrange(HEADER_BYTES, HEADER_BYTES + 600, 2)
                forged[start : start + 4] = rolls.choice([*_EDGES, rolls.getrandbits(32)]).to_bytes(4, "little")
            with contextlib.suppress(CorruptMessage):
                validate_batch(TOPIC_ID, PARTITION, sealed(bytes(forged)), max_message_bytes=1 << 20)
    assert memory.max_memory() < _ALLOCATION_LIMIT
