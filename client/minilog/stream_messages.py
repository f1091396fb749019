"""The messages of the long-lived streams: a small message, with its payloads beside it. Pure.

    produce     ProduceRequest, one payload for each entry             ──►  ◄──  ProduceResponse
    fetch       FetchRequest                                           ──►  ◄──  FetchResponse, one for each run
    replicate   ReplicateRequest                                       ──►  ◄──  ReplicateResponse, one for each run
    heartbeat   HeartbeatRequest                                       ──►  ◄──  HeartbeatResponse
    member      MemberRequest                                          ──►  ◄──  MemberResponse, whenever there is one

Payloads are record batches. They are in no protobuf message, because protobuf copies a field of bytes at each setting,
nesting and reading. Here they are sent as the buffers that they are, and read as views of the received frame.
docs/spec/formats.md § Streams has the layout of a message with its payloads. A reader checks it as a whole before it
uses any part of it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from minilog.errors import CorruptMessage
from minilog.limits import MAX_PAYLOADS
from minilog.record_batch.header import Buffer
from minilog.v1 import coordinator_pb2, data_pb2, peer_pb2

_HEAD = struct.Struct("<II")  # bytes of the message, number of payloads; behind it the bytes of each payload, u32
_LENGTH_BYTES = 4
_ALIGNMENT = 8  # of payloads: Arrow reads numbers where they are
_PADDING = tuple(bytes(-count % _ALIGNMENT) for count in range(_ALIGNMENT))

_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True, slots=True)
class StreamMessage(Generic[_Message]):
    """A message and its payloads, in the order in which the message names what they belong to. Payloads that were
    received are views of all that came with them, and keep it in memory."""

    message: _Message
    payloads: Sequence[Buffer] = ()


class Framing(Generic[_Message]):
    """How messages of one kind are laid out with their payloads: one for each of `owners`, a repeated field; None: this
    kind has no payloads."""

    def __init__(self, kind: type[_Message], owners: str | None = None) -> None:
        self.kind = kind
        self._owners = owners

    def parts(self, sent: StreamMessage[_Message]) -> list[Buffer]:
        """What is sent, as the buffers that it is written from. No payload is copied."""
        message = sent.message.SerializeToString()
        if not sent.payloads:
            return [_HEAD.pack(len(message), 0) + message + _PADDING[len(message) % _ALIGNMENT]]
        lengths = [len(payload) for payload in sent.payloads]
        head = _HEAD.pack(len(message), len(lengths)) + _lengths_of(len(lengths)).pack(*lengths)
        parts: list[Buffer] = [head + message + _PADDING[(len(head) + len(message)) % _ALIGNMENT]]
        for payload, length in zip(sent.payloads, lengths, strict=True):
            parts.append(payload)
            if padding := _PADDING[length % _ALIGNMENT]:
                parts.append(padding)
        return parts

    def decode(self, frame: Buffer) -> StreamMessage[_Message]:
        """What `encode` was given, the payloads as views of `frame`. Raises CorruptMessage."""
        content, payloads = split(frame)
        try:
            message = self.kind.FromString(bytes(content))
        except DecodeError as error:
            raise CorruptMessage(f"a message on a stream is no {self.kind.DESCRIPTOR.name}: {error}") from error
        return self.join(message, payloads)

    def join(self, message: _Message, payloads: Sequence[Buffer]) -> StreamMessage[_Message]:
        """What `split` has parted, the message parsed. Raises CorruptMessage unless each owner has its payload."""
        owners = 0 if self._owners is None else len(getattr(message, self._owners))
        if owners != len(payloads):
            raise CorruptMessage(
                f"a {self.kind.DESCRIPTOR.name} came with {len(payloads)} payloads, its message names {owners}: the "
                "other side does not speak this version"
            )
        return StreamMessage(message, payloads)


def split(frame: Buffer) -> tuple[memoryview, list[memoryview]]:
    """The serialized message and the payloads of a frame, as views of it. Raises CorruptMessage where the lengths that
    it names are not those it has; nothing is taken by a length that was not checked."""
    if len(frame) < _HEAD.size:
        raise CorruptMessage(f"a frame of a stream has a head of {_HEAD.size} bytes, {len(frame)} came")
    message_bytes, count = _HEAD.unpack_from(frame)
    if count > MAX_PAYLOADS:
        raise CorruptMessage(f"a frame of a stream names {count} payloads, at most {MAX_PAYLOADS} may be in one")
    start = _HEAD.size + count * _LENGTH_BYTES
    if start > len(frame):
        raise CorruptMessage(f"a frame of a stream names {count} payloads, and is cut after {len(frame)} bytes")
    lengths = _lengths_of(count).unpack_from(frame, _HEAD.size) if count else ()
    position = _aligned(start + message_bytes)
    named = position + sum(map(_aligned, lengths))
    if named != len(frame):
        raise CorruptMessage(f"a frame of a stream names {named} bytes in all, {len(frame)} came")
    view, payloads = memoryview(frame), []
    for length in lengths:
        payloads.append(view[position : position + length])
        position += _aligned(length)
    return view[start : start + message_bytes], payloads


@functools.cache
def _lengths_of(count: int) -> struct.Struct:
    """Of at most MAX_PAYLOADS; made once, since most frames have few."""
    return struct.Struct(f"<{count}I")


def _aligned(position: int) -> int:
    return position + -position % _ALIGNMENT


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """One of the long-lived streams, by its path."""

    path: str
    request: Framing[Any]
    response: Framing[Any]


PRODUCE = StreamMethod(
    "/minilog.v1.DataService/Produce",
    Framing(data_pb2.ProduceRequest, "entries"),
    Framing(data_pb2.ProduceResponse),
)
FETCH = StreamMethod(
    "/minilog.v1.DataService/Fetch",
    Framing(data_pb2.FetchRequest),
    Framing(data_pb2.FetchResponse, "runs"),
)
REPLICATE = StreamMethod(
    "/minilog.v1.PeerService/Replicate",
    Framing(peer_pb2.ReplicateRequest),
    Framing(peer_pb2.ReplicateResponse, "runs"),
)
HEARTBEAT = StreamMethod(
    "/minilog.v1.PeerService/Heartbeat",
    Framing(peer_pb2.HeartbeatRequest),
    Framing(peer_pb2.HeartbeatResponse),
)
MEMBER = StreamMethod(
    "/minilog.v1.GroupService/Member",
    Framing(coordinator_pb2.MemberRequest),
    Framing(coordinator_pb2.MemberResponse),
)
STREAM_METHODS = {method.path: method for method in (PRODUCE, FETCH, REPLICATE, HEARTBEAT, MEMBER)}
"""By path. All other calls are the generated stubs'."""
