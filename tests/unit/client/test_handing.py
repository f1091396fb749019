"""A position counts when the call has returned (consumer/handing.py; docs/spec/replication.md § Reading)."""

from __future__ import annotations

import asyncio

import pytest

from minilog.aio.consumer_shell import ConsumerShell
from minilog.consumer.decode import decode_all
from minilog.consumer.row_selection import AS_RECORDS
from minilog.errors import CorruptMessage
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.types import TopicPartition
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC
from tests.unit.client.consuming import Consuming, two_partitions
from tests.unit.client.producing import config_of

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def reading(*batches: int, **settings: object) -> Consuming:
    """A consumer of two partitions with these batches in each, all of them here."""
    cluster = two_partitions(*batches, **settings)
    cluster.push()
    return cluster


def credit(cluster: Consuming) -> list[int]:
    sessions = [cluster.core._sessions.get(broker) for broker in sorted({broker for broker, _ in cluster.requests})]
    return [session.given_back_bytes for session in sessions if session is not None]


ALL = [(partition, offset) for partition in (0, 1) for offset in range(5)]


def test_records_taken_and_given_back_come_again_without_a_request() -> None:
    cluster = reading(3, 2)
    before, asked = credit(cluster), len(cluster.requests)
    cluster.core.take(1 << 30)
    cluster.core.give_back()
    assert [cluster.core.position(each) for each in (P0, P1)] == [0, 0]
    assert credit(cluster) == before
    assert sorted(cluster.read()) == ALL
    cluster.run(100)
    assert not [each for _, request in cluster.requests[asked:] for each in request.positions]


def test_only_the_last_that_was_taken_is_given_back() -> None:
    cluster = reading(3)
    first = cluster.core.take(1)
    cluster.core.take(1)
    cluster.core.give_back()
    assert cluster.core.position(first[0].partition) == 3
    assert len(cluster.read()) == 3
    cluster.core.give_back()
    cluster.core.give_back()
    assert cluster.read() == [], "what a give-back found before is no news"


@pytest.mark.parametrize("max_bytes", [1, 400, 10_000])
def test_also_where_a_part_was_not_decoded(max_bytes: int) -> None:
    cluster = reading(3, 2)
    before = credit(cluster)
    outcome = decode_all(cluster.core.take(1 << 30), max_bytes, 100)
    cluster.core.put_back(outcome.rest)
    cluster.core.give_back()
    assert [cluster.core.position(each) for each in (P0, P1)] == [0, 0]
    assert credit(cluster) == before
    assert sorted(cluster.read()) == ALL


def test_also_where_a_run_was_broken() -> None:
    cluster = reading(3, 2)
    taken = cluster.core.take(1 << 30)
    cluster.core.runs_are_corrupt([(taken[0], CorruptMessage("as the test says"))], cluster.now)
    cluster.core.give_back()
    assert [cluster.core.position(each) for each in (P0, P1)] == [0, 0]
    cluster.run(2000)
    cluster.push()
    assert sorted(cluster.read()) == ALL


def test_a_partition_that_began_anew_meanwhile_is_read_from_where_the_program_is() -> None:
    cluster = reading(3, 2, auto_offset_reset="latest")
    cluster.core.take(1 << 30)
    run, _ = cluster.brokers.run(cluster.positions[1, 0])
    run.error.code = common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    cluster.receive(1, (run, b""))
    cluster.core.give_back()
    cluster.run(100)
    cluster.push()
    assert sorted(cluster.read()) == ALL


def test_a_consumer_that_has_gone_elsewhere_is_not_fetched_back() -> None:
    cluster = reading(3, 2)
    cluster.core.take(1 << 30)
    cluster.core.assign({P1: 4})
    cluster.core.give_back()
    assert cluster.core.position(P1) in (0, 4)
    assert cluster.core.assignment() == [P1]


class Polling:
    """The shell of a consumer whose records are all here, and nothing to ask the network for."""

    def __init__(self) -> None:
        cluster = reading(3, 2)
        self.shell = ConsumerShell(config_of(), SYSTEM_RUNTIME)
        self.shell.core, self.core = cluster.core, cluster.core
        self.shell._started = True

    async def poll(self, *, returns: bool) -> list[tuple[int, int]]:
        """The partitions and starts of what was taken."""
        number = self.shell.polls.begin()
        taken = await self.shell.take(0.0, 1 << 30, AS_RECORDS, number)
        if returns:
            self.shell.polls.returned = number
        return sorted((run.partition.partition, run.start_offset) for run in taken)

    def positions(self) -> list[int | None]:
        return [self.core.position(each) for each in (P0, P1)]


def test_a_poll_that_did_not_return_is_followed_by_one_with_the_same_records() -> None:
    async def run() -> None:
        polling = Polling()
        first = await polling.poll(returns=False)
        assert await polling.poll(returns=True) == first
        assert await polling.poll(returns=True) == []
        assert polling.positions() == [5, 5]

    asyncio.run(run())


def test_a_change_after_it_begins_where_the_program_is() -> None:
    async def run() -> None:
        polling = Polling()
        await polling.poll(returns=False)
        await polling.shell.change(lambda: polling.core.seek(P1, 3))
        assert polling.positions() == [0, 3]

    asyncio.run(run())


def test_the_number_of_a_poll_that_returned_stands_when_the_next_is_interrupted_before_it_has_taken() -> None:
    async def run() -> None:
        polling = Polling()
        await polling.poll(returns=True)
        polling.shell.polls.begin()
        polling.shell.settle()
        assert polling.positions() == [5, 5]

    asyncio.run(run())


def test_records_taken_by_a_poll_after_it_was_given_up_come_with_the_next() -> None:
    async def run() -> None:
        polling = Polling()
        given_up = polling.shell.polls.begin()
        await polling.poll(returns=True)
        polling.core.give_back()  # as if the brokers had sent them now
        await polling.shell.take(0.0, 1 << 30, AS_RECORDS, given_up)
        assert len(await polling.poll(returns=True)) > 0
        assert polling.positions() == [5, 5]

    asyncio.run(run())


def test_a_wait_for_records_disturbs_nobody() -> None:
    async def run() -> None:
        polling = Polling()
        await polling.poll(returns=True)
        await polling.poll(returns=False)
        polling.shell._wake.clear()
        await polling.poll(returns=False)
        assert not polling.shell._wake.is_set(), "nothing was taken, and nothing is to be given back"

    asyncio.run(run())
