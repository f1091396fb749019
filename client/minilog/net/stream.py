"""One bidirectional stream to a broker: messages out in order, messages in, signs of life both ways.

Each side sends something every session.keepalive.ms. A stream that is silent for two of them is doubted. A stream that
is silent for five is dropped with its connection, because a cut link shows only as silence. Before a side judges the
other late, it checks itself: if its own check was late, it counts the silence from zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.message import Message

from minilog.errors import CorruptMessage, MinilogError
from minilog.net.payload_stream import OpenedStream, opened_within
from minilog.net.runtime import now_ms
from minilog.stream_messages import StreamMessage

_SILENT_KEEPALIVES, _DOUBTED_KEEPALIVES = 5, 2
_OPENING_MS = 1_500.0  # to connect; and to hear the first sign of life, which comes within a keep-alive
_log = logging.getLogger(__name__)


class Silence:
    """Has the other side been silent for too long? Pure; times in milliseconds."""

    def __init__(self, keepalive_ms: float, now: float) -> None:
        self._limit_ms = _SILENT_KEEPALIVES * keepalive_ms
        self._allowed_ms = max(_OPENING_MS, _DOUBTED_KEEPALIVES * keepalive_ms)
        self._heard_ms = self._looked_ms = now
        self._period_ms = keepalive_ms

    def heard(self, now: float) -> None:
        self._heard_ms, self._allowed_ms = now, self._limit_ms

    def is_too_long(self, now: float) -> bool:
        """To be asked every keep-alive period."""
        late = now - self._looked_ms > self._period_ms + self._limit_ms / 4
        self._looked_ms = now
        if late:
            self._heard_ms = now
        return now - self._heard_ms > self._allowed_ms

    def is_doubtful(self, now: float) -> bool:
        """Has it been silent for longer than one who is well?"""
        return now - self._heard_ms > _DOUBTED_KEEPALIVES * self._period_ms


class Opener(Protocol):
    """Opens streams of one method to one broker."""

    async def open(self) -> OpenedStream:
        """Raises MinilogError or OSError where there is no connection, or the broker does not take the stream."""

    async def not_opened(self, within_s: float) -> None:
        """After so long it was neither open nor refused."""

    def failed(self, error: MinilogError | OSError) -> None:
        """It was refused, or lost."""


class DuplexStream:
    """Runs until lost or closed. `received` is called for each message that comes, `written` for each message of `send`
    that the network has taken over (its flow control lets it go), `lost` once at the end unless closed first; `doubted`
    while the other side is silent for longer than it should be: another broker may have taken its place. `name`: what
    the stream is opened to, for the log."""

    def __init__(
        self,
        opener: Opener,
        name: str,
        keepalive: Callable[[], Message],
        *,
        keepalive_ms: float,
        opened: Callable[[], None],
        received: Callable[[StreamMessage[Any]], None],
        lost: Callable[[], None],
        written: Callable[[StreamMessage[Any]], None] = lambda message: None,
        doubted: Callable[[], None] = lambda: None,
    ) -> None:
        self._opener, self._name, self._keepalive = opener, name, keepalive
        self._keepalive_ms = keepalive_ms
        self._opened, self._received, self._lost, self._written = opened, received, lost, written
        self._doubted = doubted
        # Bounded by what is in flight: five batches per partition, or positions.
        self._outgoing: deque[StreamMessage[Any]] = deque()
        self._wake = asyncio.Event()
        self._closed = self._finishing = self._taken = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, message: StreamMessage[Any]) -> None:
        """Queue a message with its payloads."""
        self._outgoing.append(message)
        self._wake.set()

    async def finish(self, timeout_s: float) -> bool:
        """Write what was sent, say that nothing more comes (half-close), and wait until the other side has taken it all
        and ends the stream. False where it was lost, or `timeout_s` was too short. To be closed afterwards."""
        self._finishing = True
        self._wake.set()
        await asyncio.wait([self._task], timeout=max(0.0, timeout_s))
        return self._taken

    async def close(self) -> None:
        """End the stream and its connection; `lost` is not called."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task])  # the end of that task is not raised, and the end of the caller's is

    async def _run(self) -> None:
        try:
            await self._talk(await opened_within(self._opener.open(), _OPENING_MS / 1000.0))
        except TimeoutError:
            await self._opener.not_opened(_OPENING_MS / 1000.0)
            _log.debug("no stream to %s could be opened in time, and the client tries again", self._name)
        except CorruptMessage as error:
            self._opener.failed(error)
            _log.warning("a message from %s is not understood: %s", self._name, error)
        except (MinilogError, OSError) as error:
            self._opener.failed(error)
            _log.debug("the stream to %s is lost, and the client opens it again: %r", self._name, error)
        except Exception:  # a bug of ours: say so, and open it anew
            _log.exception("the stream to %s met an unexpected error", self._name)
        finally:
            if not self._closed:
                self._lost()

    async def _talk(self, stream: OpenedStream) -> None:
        silence = Silence(self._keepalive_ms, now_ms())
        self._opened()
        parts = [self._write(stream), self._read(stream), self._watch(stream, silence)]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task in done:
                    task.result()
        finally:
            stream.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, stream: OpenedStream) -> None:
        while True:
            while self._outgoing:
                message = self._outgoing.popleft()
                await stream.write(message)
                self._written(message)
                del message
            if self._finishing:
                stream.done_writing()
                await asyncio.Event().wait()  # the other side ends the stream now
            self._wake.clear()
            try:
                async with asyncio.timeout(self._keepalive_ms / 1000.0):
                    await self._wake.wait()
            except TimeoutError:
                await stream.write(StreamMessage(self._keepalive()))

    async def _read(self, stream: OpenedStream) -> None:
        async for message in stream.received():
            self._received(message)
            del message  # it may be large, and the next one may be long in coming
        self._taken = self._finishing
        _log.debug("%s ended the stream", self._name)

    async def _watch(self, stream: OpenedStream, silence: Silence) -> None:
        heard_ms = stream.heard_ms  # the welcome
        while True:
            if stream.heard_ms > heard_ms:  # only what is new: the excuse of a late look counts until then
                heard_ms = stream.heard_ms
                silence.heard(heard_ms)
            if silence.is_too_long(now_ms()):
                break
            if silence.is_doubtful(now_ms()):
                self._doubted()
            await asyncio.sleep(self._keepalive_ms / 1000.0)
        _log.debug("%s has been silent for too long", self._name)
