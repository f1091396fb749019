"""Frames on a connection: whatever the pieces that bytes come in, the same frames; and what is no frame."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage
from minilog.net.stream_frames import (
    HEAD,
    PREAMBLE,
    SHARED_BYTES,
    SMALL_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    SharedMemory,
    frame_buffers,
)

MOST_BYTES = 1 << 20
KIB = 1 << 10
SHARED = SharedMemory()


def read(reader: FrameReader, content: bytes) -> list[Frame]:
    """What comes of these bytes, which come as fast as the reader has room."""
    frames, view = [], memoryview(content)
    while view:
        room = reader.buffer()
        count = min(len(room), len(view))
        room[:count] = view[:count]
        view = view[count:]
        frames += reader.filled(count)
        if reader.failure is not None:
            raise reader.failure
    return frames


def a_reader() -> FrameReader:
    return FrameReader(SHARED, MOST_BYTES)


def on_the_wire(*frames: tuple[FrameKind, bytes]) -> bytes:
    return PREAMBLE + b"".join(b"".join(frame_buffers(kind, [body])) for kind, body in frames)


def refusal_of(pieces: Iterable[bytes]) -> str:
    reader = a_reader()
    try:
        for piece in pieces:
            read(reader, piece)
    except CorruptMessage as error:
        return str(error)
    raise AssertionError("it was taken")


def as_sent(frames: list[Frame]) -> list[tuple[FrameKind, bytes]]:
    return [(frame.kind, bytes(frame.body)) for frame in frames]


bodies = st.one_of(st.binary(max_size=40), st.integers(0, 3 * SMALL_BYTES).map(lambda size: bytes(size)))
sent = st.lists(st.tuples(st.sampled_from(FrameKind), bodies), max_size=6)


@given(frames=sent, cuts=st.lists(st.integers(0, 1 << 18), max_size=12))
def test_frames_are_the_same_in_whatever_pieces_they_come(
    frames: list[tuple[FrameKind, bytes]], cuts: list[int]
) -> None:
    content, reader, came = on_the_wire(*frames), a_reader(), list[Frame]()
    places = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    for start, stop in itertools.pairwise(places):
        came += read(reader, content[start:stop])
    assert as_sent(came) == frames
    assert reader.partial_bytes == 0


def test_frames_cut_at_every_byte_are_whole_at_the_last() -> None:
    frames = [(FrameKind.HELLO, b"hello"), (FrameKind.MESSAGE, bytes(range(256)) * 80), (FrameKind.DONE, b"")]
    content, reader, came = on_the_wire(*frames), a_reader(), list[Frame]()
    for position in range(len(content)):
        came += read(reader, content[position : position + 1])
    assert as_sent(came) == frames


def test_connections_that_share_memory_do_not_mix() -> None:
    contents = [on_the_wire((FrameKind.MESSAGE, bytes([number]) * 1000)) for number in range(3)]
    readers = [a_reader() for _ in contents]
    came: list[list[Frame]] = [[] for _ in contents]
    for start in range(0, max(map(len, contents)), 7):
        for reader, content, frames in zip(readers, contents, came, strict=True):
            frames += read(reader, content[start : start + 7])
    assert [as_sent(each) for each in came] == [[(FrameKind.MESSAGE, bytes([n]) * 1000)] for n in range(3)]


def test_a_large_body_has_memory_of_its_own() -> None:
    reader = a_reader()
    (first,) = read(reader, on_the_wire((FrameKind.MESSAGE, b"a" * MOST_BYTES)))
    (second,) = read(reader, b"".join(frame_buffers(FrameKind.MESSAGE, [b"b" * MOST_BYTES])))
    assert bytes(first.body) == b"a" * MOST_BYTES
    assert bytes(second.body) == b"b" * MOST_BYTES


@pytest.mark.parametrize("length", [MOST_BYTES + 1, (1 << 32) - 1])
def test_a_longer_frame_is_refused_by_its_head(length: int) -> None:
    with pytest.raises(CorruptMessage, match=f"a frame of {length} bytes came, at most {MOST_BYTES}"):
        read(a_reader(), PREAMBLE + HEAD.pack(length, FrameKind.MESSAGE))


@pytest.mark.parametrize("most_bytes", [0, 1, SMALL_BYTES, SMALL_BYTES + 1, SHARED_BYTES - 8, SHARED_BYTES + 1])
def test_a_frame_of_just_the_longest_is_taken_and_an_empty_one(most_bytes: int) -> None:
    frames = [(FrameKind.MESSAGE, bytes(most_bytes)), (FrameKind.DONE, b"")]
    assert as_sent(read(FrameReader(SHARED, most_bytes), on_the_wire(*frames))) == frames
    with pytest.raises(CorruptMessage, match=f"a frame of {most_bytes + 1} bytes came, at most {most_bytes} "):
        read(FrameReader(SHARED, most_bytes), PREAMBLE + HEAD.pack(most_bytes + 1, FrameKind.MESSAGE))


def test_a_claim_of_4_gib_costs_no_memory_where_it_is_allowed() -> None:
    """A client takes frames of any length: a head must cost nothing before the bytes come."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    readers = [FrameReader(SHARED, (1 << 32) - 1) for _ in range(20)]
    for reader in readers:
        read(reader, PREAMBLE + HEAD.pack((1 << 32) - 1, FrameKind.MESSAGE) + bytes(1000))
        assert reader.partial_bytes == 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 32 * KIB


@pytest.mark.parametrize("number", [0, 6, 77, 255])
def test_a_kind_that_is_not_known_is_refused(number: int) -> None:
    with pytest.raises(CorruptMessage, match=f"kind {number} came"):
        read(a_reader(), PREAMBLE + HEAD.pack(0, number))


@given(came=st.binary(min_size=8, max_size=64).filter(lambda came: not came.startswith(b"minilog")))
def test_random_bytes_are_refused_by_one_sentence(came: bytes) -> None:
    said = refusal_of([came])
    assert said.startswith("the other side speaks ")
    assert "\n" not in said
    assert len(said) < 200


@pytest.mark.parametrize(
    ("begins", "sentence"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2, as gRPC speaks it"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00", "port of calls"),
        (b"GET / HTTP/1.1\r\n", "no web server"),
        (b"POST /x HTTP/1.1\r\n", "no web server"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS: this listener is in the clear"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "TLS"),
        (b"minilog\x02", "by version 2, this one by 1"),
        (b"minilog\x00", "by version 0, this one by 1"),
        (b"SSH-2.0-x", "neither minilog's streams nor HTTP nor TLS"),
        (b"PUSH everything", "neither minilog's streams nor HTTP nor TLS"),
        (b"\xff" * 8, "neither minilog's streams nor HTTP nor TLS"),
    ],
)
def test_another_protocol_is_named(begins: bytes, sentence: str) -> None:
    with pytest.raises(CorruptMessage, match=sentence):
        read(a_reader(), begins)
    assert sentence in refusal_of(bytes([byte]) for byte in begins), "however the network cuts it"


def test_another_protocol_is_named_before_eight_bytes_have_come() -> None:
    with pytest.raises(CorruptMessage, match="TLS"):
        read(a_reader(), b"\x16\x03\x01")
