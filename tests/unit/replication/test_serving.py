"""A leader that the controller does not hear any more: it goes on, and stops where another may be elected uncleanly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import LeaderNotAvailable, UnknownOutcome, error_from_wire
from minilog.v1 import metadata_pb2
from tests.unit.replication.world import KEY, World

SESSION_MS = 3_000.0


def heard(world: World, broker_id: int, sent_ms: float | None = None) -> None:
    """A heartbeat was answered."""
    sent_ms = world.now_ms if sent_ms is None else sent_ms
    world[broker_id].manager.session_lasts_until(sent_ms + SESSION_MS, world.now_ms)
    world[broker_id].run()


def led(*, unclean: bool = True) -> World:
    """Broker 1 leads, and was heard at the beginning of its time."""
    world = World()
    world.controller.alter(replace(world.config, unclean_leader_election=unclean))
    for broker_id in world.brokers:
        heard(world, broker_id)
    world.settle()
    return world


def latest(world: World, broker_id: int = 1) -> metadata_pb2.ListOffsetsResult:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    return world[broker_id].manager.list_offsets(entry, world.now_ms)


def written(world: World, acks: int = -1) -> Exception | None:
    ticket = world.produce(1, acks=acks)
    world.settle()
    return world[1].answers[ticket].error


def test_it_serves_while_heartbeats_are_answered() -> None:
    world = led()
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert written(world) is None
        heard(world, 1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_it_stops_a_session_after_the_sending_of_the_last_heartbeat_that_was_answered(acks: int) -> None:
    world = led()
    sent_ms = world.now_ms
    world.advance(1_000)
    heard(world, 1, sent_ms=sent_ms + 500)  # the answer took its time
    world.advance(SESSION_MS - 501)
    assert written(world, acks) is None
    world.advance(1)
    refused = written(world, acks)
    assert isinstance(refused, LeaderNotAvailable)
    assert refused.retriable
    assert "has not heard the controller for a session" in str(refused)
    assert "ask other brokers who leads" in str(refused)
    assert isinstance(error_from_wire(latest(world).error), LeaderNotAvailable)


def test_a_process_that_stood_still_knows_when_it_wakes_before_its_timer_has_fired() -> None:
    world = led()
    world.now_ms += SESSION_MS
    refused = world.produce(1)
    assert isinstance(world[1].answers[refused].error, LeaderNotAvailable)


def test_what_waits_is_unknown_and_nothing_is_acknowledged_or_committed_behind_the_end() -> None:
    world = led()
    parked, at_leader = world.produce(1, timeout_ms=60_000), world.produce(1, acks=1, timeout_ms=60_000)
    while world[1].disk:
        world[1].work()
    world.now_ms += SESSION_MS
    world.tick()
    for ticket in (parked, at_leader):
        assert isinstance(world[1].answers[ticket].error, UnknownOutcome)
    world.settle()
    assert world[1].ends()[0] == 0


def test_deleting_records_is_refused() -> None:
    world = led()
    assert written(world) is None
    world.advance(SESSION_MS)
    ticket = world.delete_records(1, 1)
    assert isinstance(world[1].deleted[ticket].error, LeaderNotAvailable)


def test_what_was_committed_is_read_on() -> None:
    world = led()
    assert written(world) is None
    world.advance(SESSION_MS)
    session = world.consume(1, 0)
    world.settle()
    assert [run.high_watermark for run, batches in world.pushed(1, session) if batches] == [1]


def test_heard_again_it_serves_again_and_what_was_appended_counts() -> None:
    world = led()
    world.produce(1)
    while world[1].disk:
        world[1].work()
    world.now_ms += SESSION_MS
    world.tick()
    world.settle()
    assert world[1].ends()[0] == 0
    heard(world, 1)
    world.settle()
    assert world[1].ends()[0] == 1
    assert written(world) is None
    assert latest(world).high_watermark == 2


def test_an_answer_that_came_late_does_not_shorten_a_session() -> None:
    world = led()
    heard(world, 1, sent_ms=world.now_ms - 1_000)
    world.advance(SESSION_MS - 1)
    assert written(world) is None


def test_without_unclean_election_it_goes_on() -> None:
    world = led(unclean=False)
    world.advance(10 * SESSION_MS)
    assert written(world) is None
    assert latest(world).high_watermark == 1


def test_before_the_first_answer_it_serves_nothing_that_could_be_elected_uncleanly() -> None:
    world = World()
    world.controller.alter(replace(world.config, unclean_leader_election=True))
    world.settle()
    assert isinstance(written(world), LeaderNotAvailable)
