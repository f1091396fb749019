"""The long-lived streams over blocking sockets, for tests that say what no client of ours would."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from minilog.errors import MinilogError, error_from_wire
from minilog.net.stream_frames import HEAD, PREAMBLE, FrameKind, frame_buffers
from minilog.stream_messages import StreamMessage, StreamMethod
from minilog.v1 import common_pb2, stream_pb2
from minilog.versions import PROTOCOL

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """A port of streams. `context`: TLS; None: in the clear. `name`: what the certificate must have."""

    port: int
    context: ssl.SSLContext | None = None
    name: str = HOST

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        plain = socket.create_connection((HOST, self.port), timeout=timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname=self.name)


class StreamEnded(Exception):
    """The broker has ended the stream, or the connection is gone. `error` is what the broker said, None: nothing."""

    def __init__(self, error: MinilogError | None, reason: str = "the connection is gone") -> None:
        super().__init__(reason if error is None else f"{type(error).__name__}: {error}")
        self.error = error


def hello_frame(method: StreamMethod, session: bytes = b"") -> bytes:
    """The preamble and the hello."""
    hello = stream_pb2.StreamHello(
        protocol=PROTOCOL.to_wire(), client_version="by hand", method=method.path, session=session
    )
    return PREAMBLE + b"".join(frame_buffers(FrameKind.HELLO, [hello.SerializeToString()]))


class HandStream:
    """One stream. The broker has answered its hello when it is made: what the answer was, the first `next` tells.
    Iterating gives what comes, until the broker ends the stream without an error. `begins`: what is sent in the place
    of a hello, and nothing is waited for."""

    def __init__(
        self,
        place: Place,
        method: StreamMethod,
        session: bytes = b"",
        timeout_s: float = 60.0,
        begins: bytes | None = None,
    ) -> None:
        self._method = method
        self._ends_s = time.monotonic() + timeout_s
        self._socket = place.connect()
        self._socket.sendall(hello_frame(method, session) if begins is None else begins)
        self._lock = threading.Lock()
        self._has_begun = False
        self._answer: tuple[FrameKind, bytes] | Exception | None = None
        if begins is None:
            self._answer = self._answered()

    def write(self, message: StreamMessage[Any]) -> None:
        self.send(FrameKind.MESSAGE, b"".join(self._method.request.parts(message)))

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        with self._lock:
            self._socket.sendall(b"".join(frame_buffers(kind, [body])))

    def claim(self, kind: FrameKind, length: int) -> None:
        """Send the head of a frame, and nothing of its body."""
        with self._lock:
            self._socket.sendall(HEAD.pack(length, kind))

    def __iter__(self) -> HandStream:
        return self

    def __next__(self) -> StreamMessage[Any]:
        """Raises StreamEnded. A stream that has ended is closed."""
        try:
            kind, body = self._frame()
            while kind is FrameKind.WELCOME:
                kind, body = self._frame()
        except (OSError, EOFError) as error:
            self.close()
            raise StreamEnded(None, str(error)) from error
        if kind is FrameKind.MESSAGE:
            return self._method.response.decode(body)
        self.close()
        said = error_from_wire(common_pb2.Error.FromString(body))
        if said is None:
            raise StopIteration
        raise StreamEnded(said)

    def close(self) -> None:
        """The same as `cancel`."""
        self.cancel()

    def cancel(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _answered(self) -> tuple[FrameKind, bytes] | Exception:
        """No client sends anything before the answer: until then the broker takes no long frames."""
        try:
            return self._frame()
        except (OSError, EOFError) as error:
            return error

    def _frame(self) -> tuple[FrameKind, bytes]:
        answer, self._answer = self._answer, None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if not self._has_begun:
            assert self._read(len(PREAMBLE)) == PREAMBLE
            self._has_begun = True
        length, number = HEAD.unpack(self._read(HEAD.size))
        return FrameKind(number), self._read(length)

    def _read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            self._socket.settimeout(max(0.001, self._ends_s - time.monotonic()))
            piece = self._socket.recv(size - len(content))
            if not piece:
                raise EOFError("the broker has closed the connection")
            content += piece
        return content


def call_of(place: Place, method: StreamMethod) -> Callable[..., HandStream]:
    """Takes an iterator of StreamMessages, which a thread sends, and gives the stream."""

    def begin(requests: Iterator[StreamMessage[Any]], timeout: float = 60.0, session: bytes = b"") -> HandStream:
        stream = HandStream(place, method, session, timeout)

        def send() -> None:
            with contextlib.suppress(OSError):
                for request in requests:
                    stream.write(request)
                stream.send(FrameKind.DONE)

        threading.Thread(target=send, daemon=True).start()
        return stream

    return begin
