"""A stream's end, whatever it is doing when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from minilog.errors import MinilogError
from minilog.net.payload_stream import OpenedStream, open_stream, opened_within
from minilog.net.stream import DuplexStream, Silence
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import FRAME_BYTES, FrameKind
from minilog.stream_messages import PRODUCE, StreamMessage
from minilog.v1 import data_pb2
from tests.unit.wires import Wire, connection, joined
from tests.world.loop import VirtualLoop, play

ONE, TWO = (StreamMessage(data_pb2.ProduceRequest(acks=acks)) for acks in (1, -1))
STEPS = 16  # of the event loop between the connection and the first message, and more


class Broker:
    """What is connected to when a test says so: it takes each stream, and no message but as `take` says."""

    def __init__(self) -> None:
        self.connects = asyncio.Event()
        self.welcomed: asyncio.Future[StreamConnection] = asyncio.get_running_loop().create_future()
        self.wire: Wire | None = None

    async def open(self, within_s: float) -> OpenedStream:
        return await opened_within(open_stream(self._connect, PRODUCE, "1"), within_s)

    def not_opened(self, error: TimeoutError) -> None:
        raise AssertionError(error)

    def failed(self, error: MinilogError | OSError) -> MinilogError | None:
        raise AssertionError(error)

    async def _connect(self) -> StreamConnection:
        await self.connects.wait()
        client, here = connection(), connection()
        self.wire, _ = joined(client, here)
        self._welcoming = asyncio.ensure_future(self._welcome(here))
        return client

    async def _welcome(self, here: StreamConnection) -> None:
        assert (await here.frame()).kind is FrameKind.HELLO
        here.send(FrameKind.WELCOME)
        self.welcomed.set_result(here)


def stream_to(
    broker: Broker, *, lost: list[bool], written: list[Any], keepalive_ms: float | Callable[[], float]
) -> DuplexStream:
    return DuplexStream(
        broker,
        "broker 1",
        data_pb2.ProduceRequest,
        keepalive_ms=keepalive_ms if callable(keepalive_ms) else lambda: keepalive_ms,
        opened=lambda: None,
        received=lambda message: None,
        lost=lambda refusal: lost.append(True),
        written=written.append,
    )


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_stream_closed_at_the_moment_it_connects_ends(steps: int) -> None:
    """Found by real brokers: close() hung for ever, since asyncio.wait_for of Python 3.11 may drop a cancellation."""

    async def close_while_connecting() -> Wire | None:
        broker = Broker()
        lost: list[bool] = []
        stream = stream_to(broker, lost=lost, written=[], keepalive_ms=1.0)
        await asyncio.sleep(0.001)
        broker.connects.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(1.0):
            await asyncio.shield(asyncio.ensure_future(stream.close()))
        assert lost == []
        for _ in range(4):
            await asyncio.sleep(0)
        return broker.wire

    wire = asyncio.run(close_while_connecting())
    assert wire is None or wire.is_closed


def test_a_task_that_is_cancelled_while_it_closes_a_stream_ends() -> None:
    """Found by the benchmark of groups: the driver of a member went on for ever, and the program did not end, where the
    consumer closed at the moment at which the driver closed the member's stream."""

    async def cancel_while_closing() -> bool:
        broker = Broker()
        broker.connects.set()
        stream = stream_to(broker, lost=[], written=[], keepalive_ms=60_000.0)
        await broker.welcomed

        async def close_and_go_on() -> None:
            await stream.close()
            await asyncio.Event().wait()

        closing = asyncio.ensure_future(close_and_go_on())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing], timeout=1.0)
        return closing.cancelled()

    assert asyncio.run(cancel_while_closing())


async def take(broker: Broker, messages: int) -> list[Any]:
    """What the broker takes. It ends the stream where that is all."""
    here, taken = await broker.welcomed, []
    for _ in range(messages):
        frame = await here.frame()
        assert frame.kind is FrameKind.MESSAGE
        taken.append(PRODUCE.request.decode(frame.body).message)
    if messages == 2:
        assert (await here.frame()).kind is FrameKind.DONE
        here.send(FrameKind.END)
    return taken


def finished(messages: int, timeout_s: float) -> tuple[bool, list[Any], list[Any]]:
    """What `finish` says where the broker takes so many of two messages and then ends the stream, what came, and what
    was told as written."""

    async def finish() -> tuple[bool, list[Any], list[Any]]:
        broker, written = Broker(), list[Any]()
        broker.connects.set()
        stream = stream_to(broker, lost=[], written=written, keepalive_ms=60_000.0)
        stream.send(ONE)
        stream.send(TWO)
        taking = asyncio.ensure_future(take(broker, messages))
        all_taken = await stream.finish(timeout_s)
        await stream.close()
        return all_taken, await taking, written

    return asyncio.run(finish())


def test_finishing_waits_until_all_is_taken() -> None:
    assert finished(2, timeout_s=5.0) == (True, [ONE.message, TWO.message], [ONE, TWO])


def test_finishing_says_when_time_was_too_short() -> None:
    all_taken, taken, _ = finished(1, timeout_s=0.05)
    assert (all_taken, taken) == (False, [ONE.message])


def test_a_message_before_a_late_look_counts_once() -> None:
    """A side that said something once, and nothing for five seconds in which this process stood still: the excuse of
    the late look holds at the looks behind it too."""

    async def watch() -> list[bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        broker, lost = Broker(), list[bool]()
        broker.connects.set()
        stream = stream_to(broker, lost=lost, written=[], keepalive_ms=100.0)
        here = await broker.welcomed
        await asyncio.sleep(0.15)
        here.send(FrameKind.MESSAGE, PRODUCE.response.parts(StreamMessage(data_pb2.ProduceResponse())))
        await asyncio.sleep(0.15)
        loop.now_s += 5.0
        await asyncio.sleep(0.4)
        lost_behind_the_look = list(lost)
        await asyncio.sleep(0.4)
        await stream.close()
        return [*lost_behind_the_look, bool(lost)]

    assert play(watch()) == [True], "not at once, and then it is"


def test_the_period_of_signs_of_life_may_change_while_the_stream_is_open() -> None:
    async def count() -> tuple[int, int, bool]:
        broker, lost, period_ms = Broker(), list[bool](), [100.0]
        broker.connects.set()
        stream = stream_to(broker, lost=lost, written=[], keepalive_ms=lambda: period_ms[0])
        here = await broker.welcomed
        taken: list[FrameKind] = []

        async def take_all() -> None:
            while True:
                taken.append((await here.frame()).kind)
                here.send(FrameKind.MESSAGE, PRODUCE.response.parts(StreamMessage(data_pb2.ProduceResponse())))

        taking = asyncio.ensure_future(take_all())
        await asyncio.sleep(1.05)
        before, period_ms[0] = len(taken), 1_000.0
        await asyncio.sleep(5.0)
        is_lost = bool(lost)
        taking.cancel()
        await stream.close()
        return before, len(taken) - before, is_lost

    assert play(count()) == (10, 5, False)


def test_a_message_sent_when_a_sign_of_life_is_due_takes_its_place() -> None:
    async def count() -> int:
        broker = Broker()
        broker.connects.set()
        stream = stream_to(broker, lost=[], written=[], keepalive_ms=100.0)
        here = await broker.welcomed
        asyncio.get_running_loop().call_later(0.1, stream.send, ONE)
        await asyncio.sleep(0.15)
        await stream.close()
        return here.held_bytes

    assert play(count()) == FRAME_BYTES + len(b"".join(map(bytes, PRODUCE.request.parts(ONE))))


def test_a_side_that_sends_is_not_silent() -> None:
    """A long message on a slow link: each part of it counts."""
    silence = Silence(100.0, 0.0)
    for now in range(100, 3_000, 100):
        silence.heard(now - 50.0)
        assert not silence.is_too_long(now)
    assert [now for now in range(3_000, 3_700, 100) if silence.is_too_long(now)] == [3_400, 3_500, 3_600]
