"""Sessions between brokers and to consumers, over the fake wire. docs/spec/replication.md § Sessions."""

from __future__ import annotations

from typing import TypeAlias

from minilog.limits import MAX_POSITIONS
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.replication.effects import LeaderSessionReady, SessionReady
from minilog_broker.replication.session import MAX_RUNS
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.replication.state import PartitionKey
from tests.unit.replication.world import KEY, TOPIC_ID, Broker, Link, World, batch, count_effects, runs_of

Sent: TypeAlias = StreamMessage[peer_pb2.ReplicateResponse]


def last_link(world: World, follower_id: int = 2, leader_id: int = 1) -> Link:
    return world[follower_id].links[leader_id]


def settle_but(world: World, *quiet: int) -> None:
    """Let all brokers work but for their disks, except those named, which do nothing."""
    for broker_id in quiet:
        world[broker_id].alive = False
    world.settle()
    for broker_id in quiet:
        world[broker_id].alive = True


def follower_session(
    world: World, broker_id: int, *, credit: int, last_epoch: int | None = None, offset: int = 0
) -> int:
    """A session as follower `broker_id`, spoken by hand."""
    session_id = world.session_id()
    leader = world[1]
    leader.manager.open_follower_session(session_id, broker_id, world[broker_id].broker_epoch or -1, world.now_ms)
    request = peer_pb2.ReplicateRequest(credit_bytes=credit)
    position = request.positions.add(
        position_number=1, fetch_offset=offset, leader_epoch=0, last_fetched_epoch=last_epoch
    )
    position.partition_id.topic_id, position.partition_id.partition = KEY
    leader.manager.replicate_request(session_id, request, world.now_ms)
    leader.run()
    return session_id


def messages(world: World, session_id: int) -> list[Sent]:
    found: list[Sent] = []
    while (message := world[1].manager.next_message(session_id, world.now_ms)) is not None:
        assert isinstance(message.message, peer_pb2.ReplicateResponse)
        found.append(message)
        if not message.payloads:
            break
    return found


def data_bytes(sent: list[Sent]) -> list[int]:
    return [len(batches) for message in sent for batches in message.payloads if batches]


def lonely(*, credit: int, batches: int, size_bytes: int = 100) -> tuple[World, int]:
    """A leader with batches in its log, and a hand-made follower session of broker 2."""
    world = World(brokers=2)
    world[2].crash()
    for _ in range(batches):
        world.produce(1, batch(size_bytes=size_bytes), acks=1)
    world.settle()
    return world, follower_session(world, 2, credit=credit)


# -- credit, turns, size of messages


def test_with_any_credit_left_one_batch_of_any_size_may_go() -> None:
    world, session_id = lonely(credit=1, batches=2, size_bytes=5_000)
    sent = data_bytes(messages(world, session_id))
    assert len(sent) == 1
    assert sent[0] > 5_000


def test_without_credit_nothing_goes_until_more_is_granted() -> None:
    world, session_id = lonely(credit=1, batches=2, size_bytes=1_000)
    (first,) = data_bytes(messages(world, session_id))
    request = peer_pb2.ReplicateRequest(credit_bytes=first)  # absolute: just what was used
    world[1].manager.replicate_request(session_id, request, world.now_ms)
    assert data_bytes(messages(world, session_id)) == []
    world[1].manager.replicate_request(session_id, peer_pb2.ReplicateRequest(credit_bytes=first + 1), world.now_ms)
    assert len(data_bytes(messages(world, session_id))) == 1


def test_a_position_with_a_limit_gets_so_many_bytes_and_no_more_before_a_new_one() -> None:
    world, session_id = lonely(credit=1 << 20, batches=10, size_bytes=1_000)
    sent: list[int] = []
    for offset in (0, 3, 6):
        request = peer_pb2.ReplicateRequest(credit_bytes=1 << 20)
        position = request.positions.add(position_number=2 + offset, fetch_offset=offset, last_fetched_epoch=0)
        position.partition_id.topic_id, position.partition_id.partition = KEY
        position.limit_bytes = 3_000
        world[1].manager.replicate_request(session_id, request, world.now_ms)
        sent.append(sum(data_bytes(messages(world, session_id))))
    assert all(3_000 <= size_bytes < 5_000 for size_bytes in sent), sent


def test_credit_never_goes_back() -> None:
    world, session_id = lonely(credit=10_000, batches=1)
    world[1].manager.replicate_request(session_id, peer_pb2.ReplicateRequest(credit_bytes=0), world.now_ms)
    assert len(data_bytes(messages(world, session_id))) == 1


def test_news_needs_no_credit() -> None:
    world, session_id = lonely(credit=0, batches=1)
    (message,) = messages(world, session_id)
    assert message.message.runs[0].log_end_offset == 1
    assert message.payloads == [b""]


def test_every_byte_received_is_given_back() -> None:
    settings = ReplicationSettings(replica_fetch_max_bytes=3_000)
    world = World(settings=settings)
    for _ in range(60):
        world.produce(1, batch(size_bytes=500))
        world.settle()
    assert world[2].ends()[2] == world[3].ends()[2] == 60


def test_dropped_bytes_are_given_back_too() -> None:
    world = World(settings=ReplicationSettings(replica_fetch_max_bytes=2_000))
    for times in range(20):
        world.produce(1, batch(size_bytes=700))
        while not last_link(world).down:
            next(step for step in world.steps() if step.__name__ != "flush")()
        for message in last_link(world).down:
            for run in message.message.runs:
                run.first_offset += 1  # does not fit: dropped
        world.settle()
        assert world[2].ends()[2] == times + 1


def test_a_message_carries_about_a_mebibyte() -> None:
    world, session_id = lonely(credit=1 << 30, batches=12, size_bytes=300_000)
    sent = data_bytes(messages(world, session_id))
    assert len(sent) > 1
    assert all(size <= (1 << 20) for size in sent)


def test_ready_partitions_take_turns() -> None:
    world = World(brokers=1)
    keys = [KEY, PartitionKey(TOPIC_ID, 1)]
    world.controller.create(keys[1], (1,), 1)
    world.settle()
    for key in keys:
        for _ in range(8):
            world.produce(1, batch(key=key, size_bytes=300_000), key=key)
            world.settle()
    session_id = world.session_id()
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    for key in keys:
        position = request.positions.add(position_number=1, leader_epoch=-1)
        position.partition_id.topic_id, position.partition_id.partition = key
    world[1].manager.open_consumer_session(session_id, 1, world.now_ms)
    world[1].manager.fetch_request(session_id, request, world.now_ms)
    turns: list[int] = []
    while (message := world[1].manager.next_message(session_id, world.now_ms)) is not None and message.payloads:
        turns.extend(run.partition_id.partition for run, batches in runs_of(message) if batches)
    assert set(turns[:2]) == {0, 1}


def test_a_message_carries_all_that_is_ready() -> None:
    world = World(brokers=1)
    keys = [PartitionKey(TOPIC_ID, number) for number in range(5)]
    for key in keys[1:]:
        world.controller.create(key, (1,), 1)
    world.settle()
    for key in keys:
        world.produce(1, batch(key=key), key=key)
    world.settle()
    session_id = world.session_id()
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    for key in keys:
        position = request.positions.add(position_number=1, leader_epoch=-1)
        position.partition_id.topic_id, position.partition_id.partition = key
    world[1].manager.open_consumer_session(session_id, 1, world.now_ms)
    world[1].manager.fetch_request(session_id, request, world.now_ms)
    message = world[1].manager.next_message(session_id, world.now_ms)
    assert message is not None
    assert len(message.payloads) == 5


# -- waking, news, signs of life


def ready_count(broker: Broker, kind: type) -> int:
    return sum(isinstance(effect, kind) for effect in broker.history)


def test_a_parked_session_is_woken_once_for_what_comes_meanwhile() -> None:
    world, session_id = lonely(credit=1 << 20, batches=0)
    messages(world, session_id)
    before = ready_count(world[1], SessionReady)
    for _ in range(5):
        world.produce(1, acks=1)
        world.settle()
    assert ready_count(world[1], SessionReady) == before + 1


def test_news_wakes_a_parked_session_at_most_every_5_ms() -> None:
    world = World()
    for _ in range(40):
        world.produce(1)
        world.advance(1)
    link = last_link(world)
    leader = world[1]
    assert link.session_id is not None
    before = sum(isinstance(e, SessionReady) and e.session_id == link.session_id for e in leader.history)
    leader_partition = leader.leader()
    assert leader_partition is not None
    for _ in range(50):  # 50 moves of the log start in 10 ms
        world.now_ms += 0.2
        leader_partition.log_start_moved(world.now_ms)
        world.tick()
        leader.run()
        world.settle()
    after = sum(isinstance(e, SessionReady) and e.session_id == link.session_id for e in leader.history)
    assert after - before <= 3


def test_both_sides_give_a_sign_of_life_every_keepalive() -> None:
    world = World()
    up = ready_count(world[2], LeaderSessionReady)
    down = ready_count(world[1], SessionReady)
    world.advance(1_000)
    assert 9 <= ready_count(world[2], LeaderSessionReady) - up <= 11
    assert 18 <= ready_count(world[1], SessionReady) - down <= 22, "two followers"
    assert not world[1].refused


def test_nothing_else_happens_on_an_idle_cluster() -> None:
    world = World()
    world.advance(500)
    before = {b: len(world[b].history) for b in world.brokers}
    world.advance(1_000)
    assert all(len(world[b].history) - before[b] <= 25 for b in world.brokers)


def test_a_follower_silent_for_five_keepalives_is_dropped() -> None:
    world, session_id = lonely(credit=1, batches=0)
    world.advance(499)
    assert session_id not in world[1].refused
    world.advance(60)
    assert session_id in world[1].refused


def test_a_leader_silent_for_five_keepalives_is_dropped_and_opened_anew() -> None:
    world = World()
    link = last_link(world)
    for _ in range(60):
        world.advance(10, settle=False)
        link.down.clear()
        link.down_ready = False
        if 1 in world[2].links and world[2].links[1] is not link:
            break
    assert world[2].links.get(1) is not link
    world.advance(600)
    world.produce(1)
    world.settle()
    assert world[2].ends()[2] == 1


def test_a_refused_connection_is_tried_again_with_a_pause_of_at_most_500_ms() -> None:
    world = World()
    world[1].crash()
    world.advance(10_000)
    opened = count_effects(world[2])["OpenLeaderSession"]
    assert 20 <= opened <= 60


def test_one_stream_per_follower_and_leader_however_many_partitions() -> None:
    world = World()
    for number in range(1, 20):
        world.controller.create(PartitionKey(TOPIC_ID, number), (1, 2, 3), 1)
    world.settle()
    assert count_effects(world[2])["OpenLeaderSession"] == 1


def test_a_newer_session_of_a_follower_replaces_the_older() -> None:
    world, session_id = lonely(credit=1, batches=0)
    follower_session(world, 2, credit=1)
    assert session_id in world[1].refused


def test_a_session_of_an_earlier_life_is_refused() -> None:
    world = World()
    world.controller.register(2)
    settle_but(world, 2, 3)
    session_id = follower_session(world, 2, credit=1)
    assert session_id in world[1].refused


# -- many partitions


def test_a_session_of_many_partitions_says_all_in_messages_of_no_more_than_one_may_name() -> None:
    world = World(brokers=2)
    count = MAX_POSITIONS + 100
    for number in range(1, count):
        world.controller.create(PartitionKey(TOPIC_ID, number), (1, 2), 1)
        world.settle()
    follower, leader = world[2].manager, world[1].manager
    follower.leader_session_closed(1, world.now_ms)
    world.now_ms += 1_000.0
    follower.tick(world.now_ms)
    follower.leader_session_opened(1, world.now_ms)  # opened anew, it tells all positions at once
    session_id = world.session_id()
    asked: list[peer_pb2.ReplicateRequest] = []
    while (request := follower.next_request(1, world.now_ms)) is not None and len(asked) < 5:
        asked.append(request)
    assert [len(each.positions) for each in asked if each.positions] == [MAX_POSITIONS, 100]
    assert all(len(each.progress) <= MAX_POSITIONS for each in asked)
    told: list[int] = []
    leader.open_follower_session(session_id, 2, asked[0].broker_epoch, world.now_ms)
    for request in asked:
        leader.replicate_request(session_id, request, world.now_ms)
    while (message := leader.next_message(session_id, world.now_ms)) is not None and message.payloads:
        told.append(len(message.payloads))
    assert told == [MAX_RUNS, MAX_RUNS, 100]
