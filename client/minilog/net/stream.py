"""One bidirectional stream to a broker: messages out in order, messages in, signs of life both ways.

Each side sends at least one message every keep-alive period: session.keepalive.ms, or the heartbeat interval of a
group's member. If the other side is silent for two of these periods, a side doubts the stream. If it is silent for
five, the side drops the stream and its connection, because a cut link shows only as silence. If the side's own check is
late, its event loop stood still meanwhile: that time does not count, and after a long one it counts from zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from google.protobuf.message import Message

from minilog.errors import CorruptMessage, MinilogError
from minilog.net.payload_stream import OpenedStream
from minilog.net.runtime import now_ms
from minilog.stream_messages import StreamMessage

_SILENT_KEEPALIVES, _DOUBTED_KEEPALIVES = 5, 2
_OPENING_MS = 1_500.0  # the time to connect after the login, and then the least time until the first sign of life
_log = logging.getLogger(__name__)


class Silence:
    """The silence of the other side. Pure. Times are in milliseconds. The keep-alive period may change."""

    def __init__(self, keepalive_ms: float, now: float) -> None:
        self._heard_ms = self._looked_ms = now
        self._period_ms = keepalive_ms
        self._has_heard = False

    def period(self, keepalive_ms: float) -> None:
        """Change the keep-alive period, from now on."""
        self._period_ms = keepalive_ms

    def heard(self, now: float) -> None:
        self._heard_ms, self._has_heard = now, True

    def is_too_long(self, now: float) -> bool:
        """Whether the silence is too long. The caller asks this every keep-alive period."""
        limit_ms = _SILENT_KEEPALIVES * self._period_ms
        late_ms = now - self._looked_ms - self._period_ms
        late = late_ms > limit_ms / 4
        self._looked_ms = now
        self._heard_ms = now if late else self._heard_ms + max(0.0, late_ms)
        first_limit_ms = max(_OPENING_MS, _DOUBTED_KEEPALIVES * self._period_ms)
        return now - self._heard_ms > (limit_ms if self._has_heard else first_limit_ms)

    def is_doubtful(self, now: float) -> bool:
        """Whether the silence is longer than that of a healthy side."""
        return now - self._heard_ms > _DOUBTED_KEEPALIVES * self._period_ms


class Opener(Protocol):
    """Opens streams of one method to one broker."""

    async def open(self, within_s: float) -> OpenedStream:
        """Open a stream. A login that comes first has a bound of its own: a broker takes its time to refuse one.

        Raises MinilogError or OSError without a connection, or if the broker refuses the stream. Raises TimeoutError if
        the stream is neither open nor refused within `within_s`."""

    def not_opened(self, error: TimeoutError) -> None:
        """Note the TimeoutError of `open`."""

    def failed(self, error: MinilogError | OSError) -> MinilogError | None:
        """Note that the stream was refused or lost. Returns the error if the broker does not let this client in until
        somebody changes something."""


class DuplexStream:
    """A stream that runs until it is lost or closed.

    It calls `received` for each message that comes. It calls `written` for each message of `send` that the network has
    taken over (flow control has let it go). It calls `lost` once at the end, unless the caller closes it first, with
    the error of a broker that does not let this client in (AuthenticationFailed), else with None. It calls `doubted`
    while the other side is silent for too long, because another broker may have taken its place.
    `name` is the name of the other side in the log. `keepalive_ms` gives the period of signs of life, which may change
    while the stream is open."""

    def __init__(
        self,
        opener: Opener,
        name: str,
        keepalive: Callable[[], Message],
        *,
        keepalive_ms: Callable[[], float],
        opened: Callable[[], None],
        received: Callable[[StreamMessage[Any]], None],
        lost: Callable[[MinilogError | None], None],
        written: Callable[[StreamMessage[Any]], None] = lambda message: None,
        doubted: Callable[[], None] = lambda: None,
    ) -> None:
        self._opener, self._name, self._keepalive = opener, name, keepalive
        self._keepalive_ms = keepalive_ms
        self._opened, self._received, self._lost, self._written = opened, received, lost, written
        self._doubted = doubted
        # The messages in flight bound it: five batches for each partition, or positions.
        self._outgoing: deque[StreamMessage[Any]] = deque()
        self._wake = asyncio.Event()
        self._closed = self._finishing = self._taken = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, message: StreamMessage[Any]) -> None:
        """Queue a message with its payloads."""
        self._outgoing.append(message)
        self._wake.set()

    async def finish(self, timeout_s: float) -> bool:
        """Write all messages of `send`, end this side (half-close), and wait until the other side ends the stream.

        Then the other side has taken all of them. False if the stream was lost, or if `timeout_s` was too short. The
        caller closes the stream afterwards."""
        self._finishing = True
        self._wake.set()
        await asyncio.wait([self._task], timeout=max(0.0, timeout_s))
        return self._taken

    async def close(self) -> None:
        """End the stream and its connection. `lost` is not called."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task])  # raises the caller's cancellation, but not the cancellation of that task

    async def _run(self) -> None:
        refusal: MinilogError | None = None
        try:
            await self._talk(await self._opener.open(_OPENING_MS / 1000.0))
        except TimeoutError as error:
            self._opener.not_opened(error)
            _log.debug("no stream to %s could be opened in time, and the client tries again", self._name)
        except CorruptMessage as error:
            self._opener.failed(error)
            _log.warning("a message from %s is not understood: %s", self._name, error)
        except (MinilogError, OSError) as error:
            refusal = self._opener.failed(error)
            _log.debug("the stream to %s is lost, and the client opens it again: %r", self._name, error)
        except Exception:  # a bug of minilog: log it, and open the stream again
            _log.exception("the stream to %s met an unexpected error", self._name)
        finally:
            if not self._closed:
                self._lost(refusal)

    async def _talk(self, stream: OpenedStream) -> None:
        silence = Silence(self._keepalive_ms(), now_ms())
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
                await asyncio.Event().wait()  # wait until the other side ends the stream
            self._wake.clear()
            try:
                async with asyncio.timeout(self._keepalive_ms() / 1000.0):
                    await self._wake.wait()
            except TimeoutError:
                if not self._outgoing:  # what the owner sends at this moment is a sign of life, too
                    await stream.write(StreamMessage(self._keepalive()))

    async def _read(self, stream: OpenedStream) -> None:
        async for message in stream.received():
            self._received(message)
            del message  # it may be large, and the next one may come much later
        self._taken = self._finishing
        _log.debug("%s ended the stream", self._name)

    async def _watch(self, stream: OpenedStream, silence: Silence) -> None:
        heard_ms = stream.heard_ms  # the time of the welcome
        while True:
            silence.period(self._keepalive_ms())
            if stream.heard_ms > heard_ms:  # only new bytes count: until then the zero of a late check stays
                heard_ms = stream.heard_ms
                silence.heard(heard_ms)
            if silence.is_too_long(now_ms()):
                break
            if silence.is_doubtful(now_ms()):
                self._doubted()
            await asyncio.sleep(self._keepalive_ms() / 1000.0)
        _log.debug("%s has been silent for too long", self._name)
