"""A program that holds its event loop is not told of brokers that cannot be reached."""

from __future__ import annotations

import asyncio

import pytest

from minilog.net.running_time import RunningTime, running_within
from minilog.net.stream import Silence
from tests.world.loop import VirtualLoop, play


def test_time_in_which_the_loop_runs_counts() -> None:
    left = RunningTime(1.5, 10.0)
    assert [left.look(now_s) for now_s in (10.5, 11.0, 11.5)] == [False, False, True]
    assert str(left) == "within 1.5 s"


def test_time_in_which_the_loop_stood_still_does_not_and_is_told() -> None:
    left = RunningTime(1.5, 10.0)
    assert [left.look(now_s) for now_s in (12.5, 13.0, 13.5)] == [False, False, True]
    assert left.held_s == pytest.approx(1.9)
    assert str(left).startswith("within 1.5 s, beside 1.9 s in which this program held its event loop")


def test_a_program_that_holds_the_loop_again_and_again_meets_the_bound_all_the_same() -> None:
    left, now_s, looks = RunningTime(1.5, 0.0), 0.0, 0
    while not left.look(now_s):
        now_s, looks = now_s + 2.0, looks + 1
    assert looks <= 4


async def _work(steps: int, *, held_s: float) -> str:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    try:
        async with running_within(1.5):
            await asyncio.sleep(0.1)
            loop.now_s += held_s
            for _ in range(steps):
                await asyncio.sleep(0.2)
        return "done"
    except TimeoutError:
        return f"over at {loop.time():.1f}"


@pytest.mark.parametrize(
    ("steps", "held_s", "end"), [(4, 0.0, "done"), (10, 0.0, "over at 1.5"), (4, 2.0, "done"), (10, 2.0, "over at 3.0")]
)
def test_a_block_is_bounded_by_the_time_in_which_the_loop_ran(steps: int, held_s: float, end: str) -> None:
    assert play(_work(steps, held_s=held_s)) == end


def test_a_hold_behind_the_welcome_does_not_end_a_stream() -> None:
    """The other side has 2 s for its first sign of life, and 2.2 s were this program's own."""
    silence = Silence(1_000.0, 0.0)
    assert not silence.is_too_long(0.0)
    assert not silence.is_too_long(2_200.0)
    assert [silence.is_too_long(at) for at in (3_200.0, 4_200.0)] == [False, True]
