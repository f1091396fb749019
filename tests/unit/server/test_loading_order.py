"""The order in which coordinators read their logs (shells/loading_order.py)."""

from __future__ import annotations

import asyncio

from minilog.partition_key import PartitionKey
from minilog_broker.server.shells.loading_order import LoadingTurns

KEYS = [PartitionKey(b"q" * 16, number) for number in range(4)]


async def load(turns: LoadingTurns, key: PartitionKey, pieces: int, read: list[int]) -> None:
    with turns.begun(key) as load:
        for _ in range(pieces):
            await turns.next(load)
            await asyncio.sleep(0)  # the disk
            read.append(key.partition)


def test_logs_are_read_one_after_another() -> None:
    async def scenario() -> list[int]:
        turns, read = LoadingTurns(), list[int]()
        await asyncio.gather(*(load(turns, key, 2, read) for key in KEYS))
        return read

    assert asyncio.run(scenario()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_log_that_somebody_asks_for_is_read_before_the_rest_of_the_others() -> None:
    async def scenario() -> list[int]:
        turns, read = LoadingTurns(), list[int]()
        loads = [asyncio.create_task(load(turns, key, 3, read)) for key in KEYS]
        while len(read) < 1:  # noqa: ASYNC110, one step of the loop at a time
            await asyncio.sleep(0)
        turns.want(KEYS[2])
        await asyncio.gather(*loads)
        return read

    read = asyncio.run(scenario())
    assert read[:2] in ([0, 2], [0, 0])  # the piece under way ends
    assert [number for number in read if number != 0] == [2, 2, 2, 1, 1, 1, 3, 3, 3]
    assert read.index(2) <= 2


def test_a_load_that_is_cancelled_gives_its_turn_away() -> None:
    async def scenario() -> list[int]:
        turns, read = LoadingTurns(), list[int]()
        first = asyncio.create_task(load(turns, KEYS[0], 100, read))
        await asyncio.sleep(0)
        second = asyncio.create_task(load(turns, KEYS[1], 1, read))
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(10):
            await second
        return read

    assert asyncio.run(scenario())[-1] == 1
