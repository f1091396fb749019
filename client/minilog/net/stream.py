"""One bidirectional stream to a broker: messages out in order, messages in, signs of life both ways.

Each side sends something every session.keepalive.ms; a stream silent for two of them is doubted, one silent for five is
dropped, and with it its connection, for a link that was cut shows only as silence. Who judges the other late looks at
himself first: after a late look of our own the silence is counted anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from minilog.config import Address
from minilog.errors import CorruptMessage
from minilog.net.payload_stream import OpenedStream
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


class Channels(Protocol):
    """Who opens a channel of its own to a broker."""

    def open_channel(self, address: Address) -> grpc.aio.Channel:
        """Raises InvalidConfig where it cannot be secured."""

    def stream_failed(self, address: Address, error: grpc.aio.AioRpcError) -> None:
        """A stream on such a channel was refused or lost."""

    def connected(self, address: Address) -> None:
        """Such a channel has a connection."""

    async def not_connected(self, address: Address, within_s: float) -> None:
        """Such a channel had no connection after so long: find out why."""


class DuplexStream:
    """Runs until lost or closed. `received` is called for each message that comes, `written` for each message of `send`
    that gRPC has taken over (its flow control lets it go), `lost` once at the end unless closed first; `doubted` while
    the other side is silent for longer than it should be: somebody else may have taken its place."""

    def __init__(
        self,
        channels: Channels,
        address: Address,
        method: Callable[[grpc.aio.Channel], OpenedStream],
        keepalive: Callable[[], Message],
        *,
        keepalive_ms: float,
        opened: Callable[[], None],
        received: Callable[[StreamMessage[Any]], None],
        lost: Callable[[], None],
        written: Callable[[StreamMessage[Any]], None] = lambda message: None,
        doubted: Callable[[], None] = lambda: None,
    ) -> None:
        self._channels = channels
        self._address, self._method, self._keepalive = address, method, keepalive
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
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        channel = self._channels.open_channel(self._address)
        try:
            if await self._is_connected(channel):
                await self._talk(self._method(channel))
            else:
                _log.debug("%s:%s cannot be connected to; the stream will be opened anew", *self._address)
        except CorruptMessage as error:
            _log.warning("what came from the broker at %s:%s is not understood: %s", *self._address, error)
        except grpc.aio.AioRpcError as error:
            self._channels.stream_failed(self._address, error)
            _log.debug("the stream to %s:%s is lost and will be opened anew: %r", *self._address, error)
        except (asyncio.InvalidStateError, TimeoutError) as error:
            _log.debug("the stream to %s:%s is lost and will be opened anew: %r", *self._address, error)
        except Exception:  # a bug of ours: say so, and open it anew
            _log.exception("the stream to %s:%s met an error it has no name for", *self._address)
        finally:
            with contextlib.suppress(Exception):
                await channel.close(None)
            if not self._closed:
                self._lost()

    async def _is_connected(self, channel: grpc.aio.Channel) -> bool:
        try:
            async with asyncio.timeout(_OPENING_MS / 1000.0):  # wait_for may drop a cancellation (Python 3.11)
                await channel.channel_ready()
        except TimeoutError:
            await self._channels.not_connected(self._address, _OPENING_MS / 1000.0)
            return False
        self._channels.connected(self._address)
        return True

    async def _talk(self, stream: OpenedStream) -> None:
        silence = Silence(self._keepalive_ms, now_ms())
        self._opened()
        parts = [self._write(stream), self._read(stream, silence), self._watch(silence)]
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
                await stream.done_writing()
                await asyncio.Event().wait()  # the other side ends the stream now
            self._wake.clear()
            try:
                async with asyncio.timeout(self._keepalive_ms / 1000.0):
                    await self._wake.wait()
            except TimeoutError:
                await stream.write(StreamMessage(self._keepalive()))

    async def _read(self, stream: OpenedStream, silence: Silence) -> None:
        async for message in stream.received():
            silence.heard(now_ms())
            self._received(message)
            del message  # it may be large, and the next one may be long in coming
        status = await stream.status()
        self._taken = self._finishing and status is grpc.StatusCode.OK
        _log.debug("%s:%s ended the stream: %s", *self._address, status)

    async def _watch(self, silence: Silence) -> None:
        while not silence.is_too_long(now_ms()):
            if silence.is_doubtful(now_ms()):
                self._doubted()
            await asyncio.sleep(self._keepalive_ms / 1000.0)
        _log.debug("%s:%s has been silent for too long", *self._address)
