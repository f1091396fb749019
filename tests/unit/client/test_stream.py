"""A stream's end, whatever it is doing when it is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from minilog.config import Address
from minilog.net.payload_stream import OpenedStream
from minilog.net.stream import DuplexStream
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2

ONE, TWO = (StreamMessage(data_pb2.ProduceRequest(acks=acks)) for acks in (1, -1))
STEPS = 6  # of the event loop between "connected" and the first message, and more


class Line:
    """A gRPC channel and its one call: connected when told so, silent ever after."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.closed = self.cancelled = False

    async def channel_ready(self) -> None:
        await self.connected.wait()

    async def close(self, grace: float | None) -> None:
        self.closed = True

    async def read(self) -> Any:
        await asyncio.Event().wait()

    async def write(self, message: Any) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True


class Wired:
    """Every channel is this line."""

    def __init__(self, line: Any) -> None:
        self._line = line

    def open_channel(self, address: Address) -> grpc.aio.Channel:
        channel: grpc.aio.Channel = self._line
        return channel

    def stream_failed(self, address: Address, error: grpc.aio.AioRpcError) -> None:
        raise AssertionError(error)

    def connected(self, address: Address) -> None:
        pass

    async def not_connected(self, address: Address, within_s: float) -> None:
        raise AssertionError(within_s)


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_stream_closed_at_the_moment_it_connects_ends(steps: int) -> None:
    """Found by real brokers: close() hung for ever, since asyncio.wait_for of Python 3.11 may drop a cancellation."""

    async def close_while_connecting() -> Line:
        line, lost = Line(), []
        stream = DuplexStream(
            Wired(line),
            ("nowhere", 1),
            lambda channel: OpenedStream(line),
            data_pb2.ProduceRequest,
            keepalive_ms=1.0,
            opened=lambda: None,
            received=lambda message: None,
            lost=lambda: lost.append(True),
        )
        await asyncio.sleep(0.001)
        line.connected.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(1.0):
            await asyncio.shield(asyncio.ensure_future(stream.close()))
        assert lost == []
        return line

    assert asyncio.run(close_while_connecting()).closed


class Taker(Line):
    """A broker that takes messages one by one, as the test lets it, and ends the stream behind the last."""

    def __init__(self) -> None:
        super().__init__()
        self.connected.set()
        self.taken: list[Any] = []
        self.room = asyncio.Semaphore(0)
        self.half_closed = asyncio.Event()

    async def write(self, message: Any) -> None:
        await self.room.acquire()
        self.taken.append(message)

    async def done_writing(self) -> None:
        self.half_closed.set()

    async def read(self) -> Any:
        await self.half_closed.wait()
        return grpc.aio.EOF

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK


def finished(room: int, timeout_s: float) -> tuple[bool, list[Any], list[Any]]:
    """What `finish` says where the broker has room for so many of two messages, what came, and what was told as
    written."""

    async def finish() -> tuple[bool, list[Any], list[Any]]:
        line = Taker()
        written: list[Any] = []
        stream = DuplexStream(
            Wired(line),
            ("nowhere", 1),
            lambda channel: OpenedStream(line),
            data_pb2.ProduceRequest,
            keepalive_ms=60_000.0,
            opened=lambda: None,
            received=lambda message: None,
            lost=lambda: None,
            written=written.append,
        )
        stream.send(ONE)
        stream.send(TWO)
        for _ in range(room):
            line.room.release()
        all_taken = await stream.finish(timeout_s)
        await stream.close()
        return all_taken, line.taken, written

    return asyncio.run(finish())


def test_finishing_waits_until_all_is_taken() -> None:
    assert finished(room=2, timeout_s=5.0) == (True, [ONE, TWO], [ONE, TWO])


def test_finishing_says_when_time_was_too_short() -> None:
    assert finished(room=1, timeout_s=0.05) == (False, [ONE], [ONE])
