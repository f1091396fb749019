"""AwaitStableOffsets at a leader: answered at once, at the first news, or without any when its time is over."""

from __future__ import annotations

import asyncio

import pytest

from minilog.errors import InvalidArgument, error_from_wire
from minilog.v1 import peer_pb2
from minilog_broker.replication.stable_offsets import KnownPartition
from minilog_broker.server.runtime.timer import now_ms
from tests.rules import proves
from tests.unit.replication.transacting import begin, commit
from tests.unit.server.stable_offset_world import NOTHING, PARTITIONS, LeadersOfCores, request_of
from tests.world.loop import play

pytestmark = proves("SO.1")

Call = asyncio.Task[peer_pb2.AwaitStableOffsetsResponse]


async def call(world: LeadersOfCores, *numbers: int, max_wait_ms: int = 2_000, at: int = 1) -> Call:
    """A call that waits, about partitions of which its coordinator has heard all."""
    request = request_of(*((PARTITIONS[number], world.known(number)) for number in numbers), max_wait_ms=max_wait_ms)
    task = asyncio.create_task(world.answers[at].answer(request))
    await asyncio.sleep(0)
    return task


def news_of(response: peer_pb2.AwaitStableOffsetsResponse) -> dict[int, int]:
    assert not response.HasField("error")
    return {news.partition_id.partition: news.last_stable_offset for news in response.partitions}


def test_news_is_answered_at_once_and_only_the_partitions_that_have_some() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.produce(0, 1)
        questions = [(PARTITIONS[0], NOTHING), (PARTITIONS[1], world.known(1))]
        response = await world.answers[1].answer(request_of(*questions))
        assert news_of(response) == {0: 1}
        assert now_ms() == 0
        assert world.waiting_partitions == 0

    play(scenario())


def test_a_call_waits_until_the_high_watermark_of_any_partition_moves() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        task = await call(world, 0, 1, 2)
        assert world.waiting_partitions == 3
        await asyncio.sleep(0.5)
        assert not task.done()
        world.produce(0, 2)
        assert news_of(await task) == {0: 1, 2: 1}
        assert now_ms() == 500
        assert world.waiting_partitions == 0

    play(scenario())


def test_a_record_of_an_open_transaction_is_no_news_and_its_marker_is() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        task = await call(world, 0)
        begin(world.cluster, 7)
        world.settle()
        await asyncio.sleep(0.1)
        assert not task.done()
        world.cluster.write_markers(1, commit(7))
        world.settle()
        assert news_of(await task) == {0: 2}

    play(scenario())


def test_a_moved_log_start_is_news() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.produce(0, 0, 0)
        task = await call(world, 0)
        world.cluster.delete_records(1, 2)
        world.settle()
        world.cluster.advance(50)
        world.settle()
        (news,) = (await task).partitions
        assert (news.log_start_offset, news.last_stable_offset) == (2, 3)

    play(scenario())


@pytest.mark.parametrize(("max_wait_ms", "ends_ms"), [(700, 700), (60_000, 2_000), (0, 0)])
def test_without_news_a_call_ends_empty_when_its_time_is_over(max_wait_ms: int, ends_ms: int) -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        task = await call(world, 0, 1, max_wait_ms=max_wait_ms)
        assert news_of(await task) == {}
        assert now_ms() == pytest.approx(ends_ms, abs=1)
        assert world.waiting_partitions == 0

    play(scenario())


@proves("SO.5")
def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        task, stays = await call(world, 0, 1), await call(world, 1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert world.waiting_partitions == 1, "that of the other call"
        world.produce(0, 1)
        assert news_of(await stays) == {1: 1}
        assert world.waiting_partitions == 0

    play(scenario())


def test_the_end_of_the_leadership_ends_the_wait_with_an_error() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        task = await call(world, 0, 1)
        world.move(0, 2)
        (news,) = (await task).partitions
        error = error_from_wire(news.error)
        assert error is not None
        assert (news.partition_id.partition, error.code) == (0, "NOT_LEADER_OR_FOLLOWER")
        assert (news.leader_epoch, news.last_stable_offset) == (0, 0)

    play(scenario())


def test_a_partition_that_is_not_led_here_is_answered_with_its_error_at_once() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        response = await world.answers[2].answer(request_of((PARTITIONS[0], NOTHING)))
        assert [error.code for news in response.partitions if (error := error_from_wire(news.error))] == [
            "NOT_LEADER_OR_FOLLOWER"
        ]

    play(scenario())


def test_a_request_that_names_a_partition_twice_is_refused() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        request = request_of((PARTITIONS[0], NOTHING), (PARTITIONS[0], KnownPartition(0, 0, 0)))
        error = error_from_wire((await world.answers[1].answer(request)).error)
        assert error is not None
        assert error.code == InvalidArgument.code

    play(scenario())
