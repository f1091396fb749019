"""The look at Arrow's metadata by itself: what it says of honest messages, and the bounds that it keeps."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage
from minilog.record_batch.arrow_metadata import ArrowMessage, read_arrow_metadata

_MESSAGE = bytes(pa.record_batch({"value": pa.array([b"x" * 100] * 5)}).serialize())
_VALUES = (24, 500)  # offset and length of the third buffer: 6 int32 offsets lie before it


def with_pair(old: tuple[int, int], new: tuple[int, int]) -> bytes:
    """The message with one (offset, length) or (length, null_count) changed in its metadata."""
    assert _MESSAGE.count(struct.pack("<qq", *old)) == 1
    return _MESSAGE.replace(struct.pack("<qq", *old), struct.pack("<qq", *new))


def test_an_honest_message_is_told_of() -> None:
    body = _MESSAGE[-24 - 504 :]  # the last buffer is padded
    buffers = [(0, 0), (0, 24), _VALUES]
    assert read_arrow_metadata(_MESSAGE, max_buffers=3) == ArrowMessage(
        5, [(5, 0)], buffers, "none", 24 + 500, memoryview(body)
    )


@pytest.mark.parametrize("pair", [(24, 513), (536, 8), (-8, 8), (24, -1), (25, 8), (24, 2**63 - 1), (2**63 - 8, 8)])
def test_a_buffer_outside_the_body_or_not_aligned_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(CorruptMessage, match="not inside its body"):
        read_arrow_metadata(with_pair(_VALUES, pair), max_buffers=3)


@pytest.mark.parametrize("pair", [(-1, 0), (5, 6), (5, -1)])
def test_a_column_of_an_impossible_length_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(CorruptMessage, match="negative length"):
        read_arrow_metadata(with_pair((5, 0), pair), max_buffers=3)


def test_more_buffers_than_there_can_be_are_refused() -> None:
    with pytest.raises(CorruptMessage, match="at most 2"):
        read_arrow_metadata(_MESSAGE, max_buffers=2)


def test_a_message_that_is_cut_is_refused() -> None:
    for length in range(len(_MESSAGE)):
        with pytest.raises(CorruptMessage):
            read_arrow_metadata(_MESSAGE[:length], max_buffers=3)
