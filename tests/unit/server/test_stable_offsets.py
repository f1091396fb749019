"""Questions for stable offsets: gathered by leader, asked again without news, and answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from minilog.errors import BrokerNotAvailable, LeaderNotAvailable, MinilogError, NotLeaderOrFollower, UnknownServerError
from minilog_broker.replication.stable_offsets import KnownPartition, Question, StableOffset
from minilog_broker.server.clients.stable_offsets import MAX_CALLS, StableOffsets
from minilog_broker.server.runtime.timer import now_ms
from tests.rules import proves
from tests.unit.server.stable_offset_world import NOTHING, PARTITIONS, LeadersOfCores
from tests.world.loop import play


class Coordinators:
    """Coordinators that ask; `news` has what they were answered, in order."""

    def __init__(self, world: LeadersOfCores) -> None:
        self.world = world
        self.news: list[tuple[int, StableOffset | MinilogError]] = []
        self.offsets = StableOffsets(world, asyncio.get_running_loop().create_task)

    def ask(self, number: int, known: KnownPartition | None = None) -> Callable[[], None]:
        """Ask for a partition, with all that can be known of it where nothing else is given."""
        known = self.world.known(number) if known is None else known
        return self.offsets.ask(Question(PARTITIONS[number], known), lambda news: self.news.append((number, news)))

    @property
    def stable(self) -> list[tuple[int, int]]:
        return [(number, news.last_stable_offset) for number, news in self.news if isinstance(news, StableOffset)]

    @property
    def errors(self) -> list[tuple[int, type[MinilogError]]]:
        return [(number, type(news)) for number, news in self.news if isinstance(news, MinilogError)]

    async def rest(self) -> None:
        """Long enough to be gathered and called."""
        await asyncio.sleep(0.01)


@proves("SO.6")
def test_questions_of_one_pass_go_in_one_call() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.produce(0, 1, 2)
        coordinators = Coordinators(world)
        for number in (0, 1, 2):
            coordinators.ask(number, NOTHING)
        assert coordinators.news == []
        await coordinators.rest()
        assert coordinators.stable == [(0, 1), (1, 1), (2, 1)]
        assert world.requests == [(1, [0, 1, 2])]

    play(scenario())


def test_a_new_question_does_not_wait_for_the_call_under_way() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.produce(1)
        coordinators = Coordinators(world)
        coordinators.ask(0)
        await coordinators.rest()
        coordinators.ask(1, NOTHING)
        await coordinators.rest()
        assert coordinators.stable == [(1, 1)]
        assert world.requests == [(1, [0]), (1, [1])]
        coordinators.offsets.stop()

    play(scenario())


@proves("SO.6")
def test_questions_without_news_are_asked_again_until_there_is_some() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        for number in (0, 1, 2):
            coordinators.ask(number)
        await coordinators.rest()
        world.produce(1)
        await coordinators.rest()
        assert coordinators.stable == [(1, 1)]
        assert world.requests == [(1, [0, 1, 2]), (1, [0, 2])]
        await asyncio.sleep(5.0)
        assert world.requests[2:] == [(1, [0, 2])] * 2, "each call waits for two seconds"
        world.produce(0, 2)
        await coordinators.rest()
        assert sorted(coordinators.stable) == [(0, 1), (1, 1), (2, 1)]
        assert world.waiting_partitions == 0

    play(scenario())


def test_two_coordinators_that_ask_the_same_get_an_answer_each() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        coordinators.ask(0)
        await coordinators.rest()
        coordinators.ask(0)
        await coordinators.rest()
        assert world.requests == [(1, [0])], "the call under way serves both"
        world.produce(0)
        await coordinators.rest()
        assert coordinators.stable == [(0, 1), (0, 1)]

    play(scenario())


def test_two_coordinators_that_know_otherwise_of_a_partition_are_answered_apart() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.produce(0)
        coordinators = Coordinators(world)
        coordinators.ask(0)
        coordinators.ask(0, NOTHING)
        await coordinators.rest()
        assert coordinators.stable == [(0, 1)]
        assert world.requests == [(1, [0]), (1, [0])]
        world.produce(0)
        await coordinators.rest()
        assert coordinators.stable == [(0, 1), (0, 2)]

    play(scenario())


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.move(1, 2)
        coordinators = Coordinators(world)
        for number in (0, 1, 2):
            coordinators.ask(number, NOTHING)
        await coordinators.rest()
        assert world.requests == [(1, [0, 2]), (2, [1])]
        assert len(coordinators.stable) == 3

    play(scenario())


def test_a_leader_has_a_few_calls_at_a_time_and_no_question_is_lost() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        numbers = range(len(PARTITIONS))
        for number in numbers:
            coordinators.ask(number)
            await coordinators.rest()
        assert len(PARTITIONS) > MAX_CALLS == world.under_way == world.most_under_way
        assert world.waiting_partitions == len(PARTITIONS)
        world.produce(*numbers)
        await coordinators.rest()
        assert sorted(coordinators.stable) == [(number, 1) for number in numbers]

    play(scenario())


def test_many_coordinators_that_know_otherwise_of_a_partition_are_all_answered() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.hangs.add(1)
        coordinators = Coordinators(world)
        for offset in range(2 * MAX_CALLS):
            coordinators.ask(0, KnownPartition(0, 100 + offset, 0))
            await coordinators.rest()
        world.hangs.clear()
        await asyncio.sleep(5.0)
        assert len(coordinators.news) == 2 * MAX_CALLS

    play(scenario())


# -- errors


def test_a_partition_without_a_leader_is_an_error_at_once() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        del world.leaders[PARTITIONS[0]]
        coordinators = Coordinators(world)
        coordinators.ask(0)
        coordinators.ask(1, NOTHING)
        await coordinators.rest()
        assert coordinators.errors == [(0, LeaderNotAvailable)]
        assert coordinators.stable == [(1, 0)]

    play(scenario())


def test_a_broker_that_does_not_lead_by_now_is_an_error_of_that_partition() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        coordinators.ask(0)
        coordinators.ask(1)
        await coordinators.rest()
        world.move(0, 2, replayed=False)
        await coordinators.rest()
        assert coordinators.errors == [(0, NotLeaderOrFollower)]
        world.produce(1)
        await coordinators.rest()
        assert coordinators.stable == [(1, 1)]

    play(scenario())


@pytest.mark.parametrize("is_gone", [True, False])
def test_an_error_of_the_call_is_the_answer_of_all_its_questions(is_gone: bool) -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        if is_gone:
            world.gone.add(1)
        else:
            world.refusal = UnknownServerError("an error of the broker")
        coordinators = Coordinators(world)
        coordinators.ask(0)
        coordinators.ask(1)
        await coordinators.rest()
        expected = BrokerNotAvailable if is_gone else UnknownServerError
        assert coordinators.errors == [(0, expected), (1, expected)]
        assert len(world.requests) == 1

    play(scenario())


@proves("SO.6")
def test_a_leader_that_hangs_holds_no_question_up_once_another_leads() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        world.hangs.add(1)
        coordinators = Coordinators(world)
        coordinators.ask(0)
        coordinators.ask(1)
        await asyncio.sleep(1.0)
        world.move(0, 2)
        moved_ms = now_ms()
        while not coordinators.news:
            await coordinators.rest()
        assert now_ms() - moved_ms < 600
        assert coordinators.stable == [(0, 0)]
        await asyncio.sleep(5.0)
        assert coordinators.errors == [(1, BrokerNotAvailable)]

    play(scenario())


# -- ends


def test_a_withdrawn_question_is_not_answered_and_not_asked_again() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        withdraw = coordinators.ask(0)
        coordinators.ask(1)
        await coordinators.rest()
        withdraw()
        withdraw()
        await asyncio.sleep(2.1)
        assert world.requests == [(1, [0, 1]), (1, [1])]
        world.produce(0, 1)
        await coordinators.rest()
        assert coordinators.stable == [(1, 1)]

    play(scenario())


def test_after_the_stop_nothing_is_asked_or_answered() -> None:
    async def scenario() -> None:
        world = LeadersOfCores()
        coordinators = Coordinators(world)
        coordinators.ask(0)
        await coordinators.rest()
        coordinators.ask(1)
        coordinators.offsets.stop()
        coordinators.ask(2)
        await coordinators.rest()
        world.produce(0, 1, 2)
        await coordinators.rest()
        assert coordinators.news == []
        assert len(world.requests) == 1
        assert world.waiting_partitions == 0

    play(scenario())
