"""One connection of a port of streams: nothing is held without a bound, and everybody hears of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from minilog.errors import CorruptMessage
from minilog.net.stream_connection import FRAMES_AT_ONCE, ConnectionEnded
from minilog.net.stream_frames import FRAME_BYTES, MOST_FRAMES, FrameKind
from tests.unit.wires import connection, joined

KIB = 1 << 10
Work = Callable[[], Coroutine[Any, Any, None]]


def run(work: Work) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(5.0):
            await work()

    asyncio.run(bounded())


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_side_that_takes_nothing_is_sent_no_more_than_its_window() -> None:
    async def work() -> None:
        taker, sender = connection(window_bytes=100 * KIB), connection()
        joined(sender, taker, window_bytes=50 * KIB)
        for _ in range(100):
            sender.send(FrameKind.MESSAGE, [bytes(10 * KIB)])
        writing = asyncio.ensure_future(sender.drained())
        await turns(200)
        assert not writing.done()
        assert 100 * KIB < taker.held_bytes <= 150 * KIB + 16 * FRAME_BYTES
        assert sender.unsent_bytes > 700 * KIB
        for _ in range(100):
            assert len((await taker.frame()).body) == 10 * KIB
        await writing
        assert (taker.held_bytes, sender.unsent_bytes) == (0, 0)

    run(work)


def test_a_part_of_a_frame_is_counted_and_reported() -> None:
    async def work() -> None:
        told: list[bool] = []
        taker, sender = connection(partly=lambda: told.append(True)), connection()
        joined(sender, taker, piece_bytes=8 * KIB, window_bytes=40 * KIB)
        sender.send(FrameKind.MESSAGE, [bytes(100 * KIB)])
        await turns(4)
        assert taker.partial_bytes >= 8 * KIB
        assert told
        assert len((await taker.frame()).body) == 100 * KIB
        assert taker.partial_bytes == 0

    run(work)


@pytest.mark.parametrize("is_aborted", [False, True])
def test_everybody_hears_of_the_end(is_aborted: bool) -> None:
    async def work() -> None:
        ended: list[object] = []
        one, other = connection(ended=ended.append), connection(ended=ended.append)
        joined(one, other)
        reading = [asyncio.ensure_future(each.frame()) for each in (one, other)]
        await turns()
        if is_aborted:
            one.abort()
        else:
            one.close()
        for each in reading:
            with pytest.raises(ConnectionEnded):
                await each
        await turns()
        assert set(ended) == {one, other}
        for end in (one, other):
            assert not end.is_open
            with pytest.raises(ConnectionEnded):
                end.send(FrameKind.DONE)
            with pytest.raises(ConnectionEnded):
                await end.drained()

    run(work)


def test_bytes_sent_before_a_close_arrive() -> None:
    async def work() -> None:
        one, other = connection(), connection()
        joined(one, other, piece_bytes=5)
        one.send(FrameKind.MESSAGE, [b"the last words"])
        one.close()
        assert (await other.frame()).body == b"the last words"
        with pytest.raises(ConnectionEnded):
            await other.frame()

    run(work)


def test_bytes_that_are_no_frame_end_the_reading_and_not_the_writing() -> None:
    async def work() -> None:
        one, other = connection(), connection(most_frame_bytes=10)
        joined(one, other)
        one.send(FrameKind.MESSAGE, [b"short"])
        one.send(FrameKind.MESSAGE, [bytes(11)])
        assert (await other.frame()).body == b"short"
        with pytest.raises(CorruptMessage, match="11 bytes"):
            await other.frame()
        other.send(FrameKind.END, [b"why"])
        assert (await one.frame()).body == b"why"

    run(work)


def test_a_side_that_reads_no_more_throws_away_what_comes() -> None:
    async def work() -> None:
        one, other = connection(), connection(window_bytes=10)
        joined(one, other, window_bytes=100)
        for _ in range(50):
            one.send(FrameKind.MESSAGE, [bytes(90)])
        await turns()
        other.read_no_more()
        await turns(400)
        assert (one.unsent_bytes, other.held_bytes) == (0, 0)
        with pytest.raises(ConnectionEnded):
            await other.frame()

    run(work)


def test_frames_without_bodies_count_and_come_in_pieces() -> None:
    async def work() -> None:
        taker, sender = connection(window_bytes=100 * KIB), connection()
        joined(sender, taker, window_bytes=1 << 20, piece_bytes=160 * KIB)
        for _ in range(20_000):
            sender.send(FrameKind.MESSAGE)
        await turns(200)
        assert len(taker._frames) <= 2 * MOST_FRAMES
        assert taker.held_bytes >= MOST_FRAMES * FRAME_BYTES
        for _ in range(20_000):
            assert not (await taker.frame()).body
        assert taker.held_bytes == 0

    run(work)


def test_others_have_their_turn_between_a_few_frames_however_many_wait() -> None:
    async def work() -> None:
        taker, sender = connection(window_bytes=1 << 20), connection()
        joined(sender, taker, window_bytes=1 << 20)
        for _ in range(4_000):
            sender.send(FrameKind.MESSAGE, [bytes(8)])
        await turns(200)
        most = taken = 0

        async def bystander() -> None:
            nonlocal most, taken
            while True:
                most, taken = max(most, taken), 0
                await asyncio.sleep(0)

        other = asyncio.ensure_future(bystander())
        for _ in range(4_000):
            await taker.frame()
            taken += 1
        other.cancel()
        assert most <= FRAMES_AT_ONCE

    run(work)
