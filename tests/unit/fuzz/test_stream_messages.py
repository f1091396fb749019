"""Frames of the long-lived streams as no peer of ours would send them: taken as they are, or refused with words."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage
from minilog.limits import MAX_PAYLOADS
from minilog.stream_messages import STREAM_METHODS, Framing, StreamMessage, split
from minilog.v1 import data_pb2
from tests.unit.fuzz.messages import fuzzing, messages

FRAMINGS = [framing for method in STREAM_METHODS.values() for framing in (method.request, method.response)]
PRODUCE = STREAM_METHODS["/minilog.v1.DataService/Produce"].request
_payload = st.one_of(st.binary(max_size=40), st.sampled_from([b"", bytes(72), bytes(8), bytes(4096)]))


def owners(framing: Framing[Any]) -> str | None:
    return {"ProduceRequest": "entries", "FetchResponse": "runs", "ReplicateResponse": "runs"}.get(
        framing.kind.DESCRIPTOR.name
    )


@st.composite
def sent(draw: st.DrawFn, framing: Framing[Any]) -> StreamMessage[Any]:
    message = draw(messages(framing.kind, {}))
    count = 0 if (name := owners(framing)) is None else len(getattr(message, name))
    return StreamMessage(message, draw(st.lists(_payload, min_size=count, max_size=count)))


def produced(*payloads: bytes) -> StreamMessage[data_pb2.ProduceRequest]:
    entries = [data_pb2.ProduceEntry(correlation_id=number) for number in range(len(payloads))]
    return StreamMessage(data_pb2.ProduceRequest(acks=-1, entries=entries), payloads)


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.kind.__name__)
@fuzzing(60)
@given(st.data())
def test_sent_messages_come_as_they_were(framing: Framing[Any], data: st.DataObject) -> None:
    given_message = data.draw(sent(framing))
    came = framing.decode(b"".join(framing.parts(given_message)))
    assert came.message == given_message.message
    assert [bytes(payload) for payload in came.payloads] == list(given_message.payloads)


@fuzzing(400)
@given(st.binary(max_size=200))
def test_noise_is_taken_or_refused(frame: bytes) -> None:
    for framing in FRAMINGS:
        try:
            came = framing.decode(frame)
        except CorruptMessage:
            continue
        assert sum(map(len, came.payloads)) <= len(frame)


@fuzzing(300)
@given(st.lists(_payload, max_size=4), st.data())
def test_a_frame_with_other_bytes_is_taken_or_refused(payloads: list[bytes], data: st.DataObject) -> None:
    """Any of its lengths may be wrong: nothing that is taken reaches beyond the frame."""
    frame = bytearray(b"".join(PRODUCE.parts(produced(*payloads))))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, min(40, len(frame) - 1)))] = data.draw(st.integers(0, 255))
    try:
        came = PRODUCE.decode(bytes(frame))
    except CorruptMessage:
        return
    assert len(came.payloads) == len(came.message.entries)
    assert sum(map(len, came.payloads)) <= len(frame)


@fuzzing(100)
@given(st.lists(_payload, max_size=4), st.data())
def test_a_frame_that_is_cut_or_too_long_is_refused(payloads: list[bytes], data: st.DataObject) -> None:
    frame = b"".join(PRODUCE.parts(produced(*payloads)))
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    for wrong in (cut, frame + bytes(data.draw(st.integers(1, 64)))):
        with pytest.raises(CorruptMessage, match="of a stream"):
            split(wrong)


def test_payloads_are_views_where_numbers_can_be_read() -> None:
    """Each begins at a multiple of 8 in the frame, whatever is before it, and none is a copy."""
    for size in range(20):
        frame = b"".join(PRODUCE.parts(produced(bytes(size), b"batch", bytes(size))))
        _, payloads = split(frame)
        starts = [_address(payload) - _address(memoryview(frame)) for payload in payloads if len(payload)]
        assert all(start % 8 == 0 and 0 < start < len(frame) for start in starts)


def _address(view: memoryview) -> int:
    return int(pa.py_buffer(view).address)


def test_payloads_without_an_owner_are_refused() -> None:
    message = data_pb2.ProduceRequest(entries=[data_pb2.ProduceEntry()])
    for payloads in ((), (b"a", b"b")):
        with pytest.raises(CorruptMessage, match=rf"ProduceRequest came with {len(payloads)} payloads, .* names 1"):
            PRODUCE.decode(b"".join(PRODUCE.parts(StreamMessage(message, payloads))))


def test_more_payloads_than_may_be_are_refused_before_their_lengths_are_read() -> None:
    with pytest.raises(CorruptMessage, match=rf"names {MAX_PAYLOADS + 1} payloads, at most {MAX_PAYLOADS}"):
        split(struct.pack("<II", 0, MAX_PAYLOADS + 1))
    frame = struct.pack(f"<II{MAX_PAYLOADS}I", 0, MAX_PAYLOADS, *[0] * MAX_PAYLOADS)
    assert len(split(frame)[1]) == MAX_PAYLOADS


def test_lengths_that_promise_more_than_came_take_no_memory() -> None:
    with pytest.raises(CorruptMessage, match=r"names \d+ bytes in all, 40 came"):
        split(struct.pack("<II3I", 2**32 - 1, 3, *[2**32 - 1] * 3) + bytes(20))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(CorruptMessage, match="is no ProduceRequest"):
        PRODUCE.decode(struct.pack("<II", 8, 0) + b"\xff" * 8)
