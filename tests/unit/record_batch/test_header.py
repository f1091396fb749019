"""The header: its bytes, its sums, and that no damage to it goes unseen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage, LevelNotReached, UnsupportedVersion
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.header import (
    HEADER_BYTES,
    Attributes,
    BatchHeader,
    batch_crc,
    check_attributes_of_level,
    check_crc,
    crc_of_parts,
    decode_header,
    encode_header,
    iterate_headers,
)
from tests.rules import proves
from tests.unit.record_batch.batches import PARTITION, TOPIC_ID, at_offset, full_batch, patched, sealed

pytestmark = proves("DK.2")

GOLDEN_HEADER = BatchHeader(
    length=0x1000,
    base_offset=0x0102030405060708,
    partition_leader_epoch=0x11121314,
    crc=0x21222324,
    attributes=0x17,
    record_count=0x31323334,
    last_offset_delta=0x31323333,
    base_timestamp_us=0x4142434445464748,
    max_timestamp_us=0x5152535455565758,
    producer_id=0x6162636465666768,
    base_sequence=0x71727374,
    producer_epoch=0x0A0B,
)
GOLDEN_HEADER_BYTES = bytes.fromhex(
    "4d4c423100100000080706050403020114131211c683e223"
    "242322211700000034333231333332314847464544434241"
    "58575655545352516867666564636261747372710b0a0000"
)
GOLDEN_CONTROL_BATCH = bytes.fromhex(
    "4d4c4231580000000000000000000000ffffffffa30f3f7a"
    "bb39738020000000010000000000000000401e18240a0600"
    "00401e18240a0600ffffffffffffffffffffffffffff0000"
    "07000000636f6e74726f6c0000000000"
)


def test_a_header_has_the_bytes_it_always_had() -> None:
    assert encode_header(GOLDEN_HEADER).hex() == GOLDEN_HEADER_BYTES.hex()
    assert decode_header(GOLDEN_HEADER_BYTES) == GOLDEN_HEADER


def test_a_control_batch_has_the_bytes_it_always_had() -> None:
    batch = build_control_batch(TOPIC_ID, PARTITION, b"control", timestamp_us=1_700_000_000_000_000)
    assert batch.hex() == GOLDEN_CONTROL_BATCH.hex()


_i64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def _header(
    words: tuple[int, int, int], longs: tuple[int, int, int], offset: int, count: int, sequence: int, epoch: int
) -> BatchHeader:
    return BatchHeader(words[0] * 8, offset, sequence, words[1], words[2], count, count - 1, *longs, sequence, epoch)


@given(
    st.builds(
        _header,
        st.tuples(st.integers(9, 2**29 - 1), st.integers(0, 2**32 - 1), st.integers(0, 63)),
        st.tuples(_i64, _i64, _i64),
        st.integers(0, 2**62),
        st.integers(1, 2**32 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**15), 2**15 - 1),
    )
)
def test_a_header_comes_back_as_it_was(header: BatchHeader) -> None:
    encoded = encode_header(header)
    assert len(encoded) == HEADER_BYTES
    assert decode_header(encoded) == header
    assert decode_header(memoryview(b"\xff" * 8 + encoded), 8) == header


def test_the_place_a_leader_gives_leaves_the_crc_right() -> None:
    batch = at_offset(full_batch(), 41)
    header = decode_header(batch)
    check_crc(TOPIC_ID, PARTITION, batch, header)
    assert (header.base_offset, header.last_offset, header.next_offset) == (41, 50, 51)


def test_the_crc_is_for_one_topic_id_and_one_partition() -> None:
    batch = full_batch()
    header = decode_header(batch)
    with pytest.raises(CorruptMessage, match="not meant for partition 4"):
        check_crc(TOPIC_ID, PARTITION + 1, batch, header)
    with pytest.raises(CorruptMessage, match="crc"):
        check_crc(bytes(16), PARTITION, batch, header)


def test_the_crc_of_the_parts_is_the_crc_of_the_whole() -> None:
    batch = full_batch()
    parts = crc_of_parts(TOPIC_ID, PARTITION, batch[:HEADER_BYTES], memoryview(batch)[HEADER_BYTES:])
    assert parts == batch_crc(TOPIC_ID, PARTITION, batch)


@pytest.mark.parametrize("bit", range(HEADER_BYTES * 8))
def test_a_flipped_bit_in_the_header_is_seen_without_the_crc(bit: int) -> None:
    with pytest.raises(CorruptMessage):
        decode_header(flipped(encode_header(GOLDEN_HEADER), bit))


@pytest.mark.parametrize("length", [0, 1, 24, HEADER_BYTES - 1])
def test_a_cut_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptMessage, match="only"):
        decode_header(GOLDEN_HEADER_BYTES[:length])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 64}, "length of 64"),
        ({"length": 4097}, "length of 4097"),
        ({"base_offset": -1}, "offset -1"),
        ({"base_offset": 2**63 - 1}, "cannot have offset"),
        ({"record_count": 0, "last_offset_delta": 0}, "0 records"),
        ({"record_count": 9, "last_offset_delta": 7}, "9 records"),
        ({"record_count": 5, "last_offset_delta": 7}, "not compacted"),
        ({"attributes": Attributes.GAPS}, "do not go together"),
        ({"attributes": Attributes.COMPACTED}, "do not go together"),
        ({"attributes": Attributes.DELETES}, "a topic with a schema"),
    ],
)
def test_headers_that_no_batch_can_have_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(CorruptMessage, match=message):
        decode_header(encode_header(replace(GOLDEN_HEADER, **change)))


LATER_FORMS = {
    "an attribute": patched(full_batch(), 28, "I", 2048 | decode_header(full_batch()).attributes),
    "the highest attribute": patched(full_batch(), 28, "I", 1 << 31),
    "an extension of what is not typed": patched(full_batch(), 70, "H", 1),
    "the magic": patched(full_batch(), 3, "B", ord("2")),
    "a length that is none here": patched(full_batch(), 28, "I", 2048)[:-3],
}


@pytest.mark.parametrize("form", LATER_FORMS.values(), ids=LATER_FORMS)
def test_a_whole_header_of_a_later_version_is_not_called_damage(form: bytes) -> None:
    with pytest.raises(UnsupportedVersion, match="was written by a later version"):
        decode_header(sealed(form))


@pytest.mark.parametrize("form", LATER_FORMS.values(), ids=LATER_FORMS)
def test_a_later_version_that_is_not_whole_is_damage(form: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_header(form)


@pytest.mark.parametrize("bit", range(32))
def test_a_flipped_bit_in_a_later_version_is_damage(bit: int) -> None:
    later = sealed(LATER_FORMS["an attribute"])
    with pytest.raises(CorruptMessage):
        decode_header(flipped(later, 28 * 8 + bit))


def test_a_batch_may_have_the_attributes_of_its_clusters_level_only() -> None:
    header = decode_header(full_batch())
    check_attributes_of_level(header, 1)
    check_attributes_of_level(header, 2)
    with pytest.raises(LevelNotReached, match=r"level 0.*minilog cluster upgrade"):
        check_attributes_of_level(header, 0)


def test_deletions_are_written_from_level_6_on() -> None:
    header = replace(decode_header(full_batch()), attributes=Attributes.TYPED | Attributes.DELETES)
    check_attributes_of_level(header, 6)
    with pytest.raises(LevelNotReached, match=r"attributes 0x280.*level 5"):
        check_attributes_of_level(header, 5)


def test_batches_back_to_back_are_walked_and_a_cut_one_is_seen() -> None:
    first, second = at_offset(full_batch(3), 10), at_offset(full_batch(2), 13)
    run = first + second
    assert [(position, header.base_offset) for position, header in iterate_headers(run)] == [(0, 10), (len(first), 13)]
    assert list(iterate_headers(b"")) == []
    with pytest.raises(CorruptMessage, match="8 bytes short"):
        list(iterate_headers(run[:-8]))


def flipped(data: bytes, bit: int) -> bytes:
    forged = bytearray(data)
    forged[bit // 8] ^= 1 << bit % 8
    return bytes(forged)
