"""The frames on a connection of a port of streams (docs/spec/formats.md § Streams). Pure.

    preamble   "minilog" and the version of this layout, 8 bytes, once, from each side
    frame      bytes of the body, u32  |  kind, u8  |  3 zero bytes  |  the body

    the side that opened it     the broker
    HELLO                  ──►
                           ◄──  WELCOME, or END
    MESSAGE, ...           ──►  any order
                           ◄──  MESSAGE, ...
    DONE: no more messages ──►
                           ◄──  END: an Error; without a code all is well

The reader provides the memory for the next bytes. Small frames come into memory that all connections of an owner share,
and the reader copies them out of it. A large body has its own memory as soon as its length is known. So its bytes are
moved once, and its payloads are views of it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.record_batch.header import Buffer

LAYOUT_VERSION = 1
PREAMBLE = b"minilog" + bytes([LAYOUT_VERSION])
HEAD = struct.Struct("<IB3x")
SMALL_BYTES = 16 << 10  # a body up to this size is copied, because a buffer of its own would cost more
FRAME_BYTES = 200  # what a frame takes beside its body: the objects, and its head
MOST_FRAMES = 256  # cut at once: an arrival has up to 32,768 empty ones
SHARED_BYTES = 256 << 10  # the most bytes of one arrival; as a rule a socket's buffer has less
STRANGERS_BYTES = 64 << 10  # the longest frame before the hello is answered

_FOREIGN = (
    (b"PRI * HT", "HTTP/2, as gRPC speaks it: this is the port of streams, and calls have another one"),
    (b"GET ", "HTTP: this is the port of streams of a minilog broker, which is no web server"),
    (b"POST ", "HTTP: this is the port of streams of a minilog broker, which is no web server"),
    (b"\x16\x03", "TLS: this listener is in the clear (security.protocol)"),
    (b"\x00\x00", "HTTP/2, as a port of calls does: the port of streams is another one (stream.port.offset)"),
    (b"\x15\x03", "TLS: see security.protocol"),
)


class FrameKind(enum.IntEnum):
    """The kinds of frames, by their bodies."""

    HELLO = 1  # a StreamHello
    WELCOME = 2  # a StreamWelcome
    MESSAGE = 3  # a message and its payloads (stream_messages.py)
    DONE = 4  # nothing
    END = 5  # an Error


class Frame(NamedTuple):
    """One whole frame. A large `body` is a view of memory that no other frame uses."""

    kind: FrameKind
    body: Buffer


def frame_buffers(kind: FrameKind, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """The buffers of a frame, in order, for a write without a copy."""
    return [HEAD.pack(sum(map(len, body)), kind), *body]


class SharedMemory:
    """The memory for the small frames of many connections. Each frame is copied out before the next one comes in."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SHARED_BYTES))


class FrameReader:
    """Cuts the bytes of one connection into frames. `most_bytes` is the longest body that it accepts."""

    def __init__(self, shared: SharedMemory, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.failure: CorruptMessage | None = None
        self._shared = shared.view
        self._rest = b""  # the received part of a head or a small frame
        self._kind = FrameKind.MESSAGE  # the kind of the large body that is coming in
        self._body: memoryview | None = None
        self._body_bytes = 0  # the received bytes of that body
        self._has_begun = False
        self._uncut = b""  # whole frames among them: an arrival had more than MOST_FRAMES

    @property
    def partial_bytes(self) -> int:
        """The received bytes of a frame that is not whole yet."""
        return len(self._uncut) + (len(self._rest) if self._body is None else self._body_bytes)

    @property
    def has_more(self) -> bool:
        """Whether `more` has frames. The caller must not read any more until it has none."""
        return bool(self._uncut)

    def more(self) -> list[Frame]:
        """The next frames of an arrival that had more than MOST_FRAMES."""
        came, self._uncut = self._uncut, b""
        return self._frames_in(memoryview(came))

    def buffer(self) -> memoryview:
        """The memory for the next bytes. The caller calls `filled` before another connection asks for its buffer."""
        if self._body is not None:
            return self._body[self._body_bytes :]
        rest = len(self._rest)
        if rest:
            self._shared[:rest] = self._rest
        return self._shared[rest:]

    def filled(self, count: int) -> list[Frame]:
        """Take in `count` bytes that came into `buffer`. Returns the frames that are whole by now.

        If the bytes behind them are no frame, `failure` has the reason, and the caller must not read any more."""
        if self._body is not None:
            self._body_bytes += count
            if self._body_bytes < len(self._body):
                return []
            body, self._body = self._body, None
            return [Frame(self._kind, body)]
        end, self._rest = len(self._rest) + count, b""
        return self._frames_in(self._shared[:end])

    def _frames_in(self, came: memoryview) -> list[Frame]:
        frames = list[Frame]()
        try:
            self._cut(came, frames)
        except CorruptMessage as error:
            self.failure = error
        return frames

    def _cut(self, came: memoryview, frames: list[Frame]) -> None:
        """Add the frames in `came` to `frames`, and keep the rest. Raises CorruptMessage."""
        position, end = 0, len(came)
        if not self._has_begun:
            if end < len(PREAMBLE):
                _check_preamble(bytes(came), is_whole=False)
                self._rest = bytes(came)
                return
            _check_preamble(bytes(came[: len(PREAMBLE)]), is_whole=True)
            self._has_begun, position = True, len(PREAMBLE)
        while end - position >= HEAD.size:
            length, number = HEAD.unpack_from(came, position)
            kind = self._kind_of(number, length)
            start, stop = position + HEAD.size, position + HEAD.size + length
            if len(frames) == MOST_FRAMES:
                self._uncut = bytes(came[position:end])
                return
            if stop <= end:
                frames.append(Frame(kind, _own(came[start:stop])))
                position = stop
            elif length > SMALL_BYTES:
                self._begin_body(kind, length, came[start:end])
                return
            else:
                break
        self._rest = bytes(came[position:end])

    def _kind_of(self, number: int, length: int) -> FrameKind:
        if length > self.most_bytes:
            raise CorruptMessage(f"a frame of {length} bytes came, at most {self.most_bytes} are taken here")
        try:
            return FrameKind(number)
        except ValueError:
            raise CorruptMessage(f"a frame of kind {number} came, which this version does not know") from None

    def _begin_body(self, kind: FrameKind, length: int, came: memoryview) -> None:
        self._kind = kind
        self._body = _memory(length)
        self._body_bytes = len(came)
        self._body[: len(came)] = came


def _own(body: memoryview) -> Buffer:
    """A copy of the bytes, in memory that is not shared."""
    if len(body) <= SMALL_BYTES:
        return bytes(body)
    copy = _memory(len(body))
    copy[:] = body
    return copy


def _memory(length: int) -> memoryview:
    """New memory that is not cleared. A page costs nothing before bytes come into it, even if a head gives a false
    length."""
    return memoryview(pa.allocate_buffer(length, memory_pool=pa.system_memory_pool())).cast("B")


def _check_preamble(came: bytes, *, is_whole: bool) -> None:
    """Raises CorruptMessage if the other side speaks another protocol. The error names the protocol if it is known."""
    if came == PREAMBLE[: len(came)]:
        return
    for beginning, sentence in _FOREIGN:
        if came.startswith(beginning):
            raise CorruptMessage(f"the other side speaks {sentence}")
    if not is_whole and any(beginning.startswith(came) for beginning, _ in _FOREIGN):
        return  # several protocols begin alike: the next bytes show which one it is
    if came[:7] == PREAMBLE[: len(came[:7])]:
        raise CorruptMessage(
            f"the other side lays its frames out by version {came[7]}, this one by {LAYOUT_VERSION}: upgrade the older"
        )
    raise CorruptMessage(f"the other side speaks neither minilog's streams nor HTTP nor TLS: it began with {came!r}")
