"""Costly work takes turns: one piece per turn of the loop, and the loop is everybody's for as long after each."""

from __future__ import annotations

import asyncio
import itertools
import time

from minilog_broker.server.runtime.turns import SLICE_S, Turns


def busy(seconds: float) -> None:
    """Hold the loop."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass


async def heartbeats(beats: list[float]) -> None:
    while True:
        beats.append(time.monotonic())
        await asyncio.sleep(0)


def test_however_many_ask_one_piece_runs_per_turn_of_the_loop_in_the_order_asked() -> None:
    async def scenario() -> None:
        turns, done, beats = Turns(), list[int](), list[float]()

        async def work(number: int) -> None:
            await turns.take()
            done.append(number)
            beats_before.append(len(beats))
            busy(0.002)

        beats_before: list[int] = []
        beating = asyncio.ensure_future(heartbeats(beats))
        await asyncio.gather(*(work(number) for number in range(10)))
        beating.cancel()
        assert done == list(range(10))
        between = [after - before for before, after in itertools.pairwise(beats_before)]
        assert all(count >= 1 for count in between), "everybody else has the loop between two pieces"

    asyncio.run(scenario())


def test_pieces_have_half_of_the_time_at_most() -> None:
    async def scenario() -> None:
        turns = Turns()
        began_s = time.monotonic()
        for _ in range(5):
            await turns.take()
            busy(0.004)
        await turns.take()
        assert time.monotonic() - began_s >= 2 * 5 * 0.004

    asyncio.run(scenario())


def test_short_work_needs_no_turn_and_long_work_takes_one_when_its_slice_is_over() -> None:
    async def scenario() -> None:
        turns = Turns()
        piece = turns.piece()
        assert not piece.is_over()
        busy(SLICE_S * 1.1)
        assert piece.is_over()
        piece = await piece.next()
        assert not piece.is_over()

    asyncio.run(scenario())
