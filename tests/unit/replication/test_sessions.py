"""Sessions between brokers and to consumers, over the fake wire. docs/spec/replication.md § Sessions."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from minilog.limits import MAX_POSITIONS
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.replication.replica_effects import FetcherStreamReady, SessionReady
from minilog_broker.replication.sessions.session import MAX_RUNS
from minilog_broker.replication.settings import ReplicationSettings
from tests.rules import proves
from tests.unit.replication.cluster import (
    KEY,
    TOPIC_ID,
    BrokerOfCores,
    Link,
    ReplicaCluster,
    batch,
    count_effects,
    quick_settings,
    runs_of,
)

Sent: TypeAlias = StreamMessage[peer_pb2.ReplicateResponse]


def last_link(cluster: ReplicaCluster, follower_id: int = 2, leader_id: int = 1) -> Link:
    return cluster[follower_id].links[leader_id]


def settle_but(cluster: ReplicaCluster, *quiet: int) -> None:
    """Let all brokers work but for their disks, except those named, which do nothing."""
    for broker_id in quiet:
        cluster[broker_id].alive = False
    cluster.settle()
    for broker_id in quiet:
        cluster[broker_id].alive = True


def follower_session(
    cluster: ReplicaCluster, broker_id: int, *, credit: int, last_epoch: int | None = None, offset: int = 0
) -> int:
    """A session as follower `broker_id`, spoken by hand."""
    session_id = cluster.session_id()
    leader = cluster[1]
    leader.manager.open_follower_session(session_id, broker_id, cluster[broker_id].broker_epoch or -1, cluster.now_ms)
    request = peer_pb2.ReplicateRequest(credit_bytes=credit)
    position = request.positions.add(
        position_number=1, fetch_offset=offset, leader_epoch=0, last_fetched_epoch=last_epoch
    )
    position.partition_id.topic_id, position.partition_id.partition = KEY
    leader.manager.replicate_request(session_id, request, cluster.now_ms)
    leader.run()
    return session_id


def messages(cluster: ReplicaCluster, session_id: int) -> list[Sent]:
    found: list[Sent] = []
    while (message := cluster[1].next_message(session_id)) is not None:
        assert isinstance(message.message, peer_pb2.ReplicateResponse)
        found.append(message)
        if not message.payloads:
            break
    return found


def data_bytes(sent: list[Sent]) -> list[int]:
    return [len(batches) for message in sent for batches in message.payloads if batches]


def lonely(*, credit: int, batches: int, size_bytes: int = 100) -> tuple[ReplicaCluster, int]:
    """A leader with batches in its log, and a hand-made follower session of broker 2."""
    cluster = ReplicaCluster(brokers=2)
    cluster[2].crash()
    for _ in range(batches):
        cluster.produce(1, batch(size_bytes=size_bytes), acks=1)
    cluster.settle()
    return cluster, follower_session(cluster, 2, credit=credit)


# -- credit, turns, size of messages


@proves("SE.13")
def test_with_any_credit_left_one_batch_of_any_size_may_go() -> None:
    cluster, session_id = lonely(credit=1, batches=2, size_bytes=5_000)
    sent = data_bytes(messages(cluster, session_id))
    assert len(sent) == 1
    assert sent[0] > 5_000


@proves("SE.13")
def test_without_credit_nothing_goes_until_more_is_granted() -> None:
    cluster, session_id = lonely(credit=1, batches=2, size_bytes=1_000)
    (first,) = data_bytes(messages(cluster, session_id))
    request = peer_pb2.ReplicateRequest(credit_bytes=first)  # absolute: just what was used
    cluster[1].manager.replicate_request(session_id, request, cluster.now_ms)
    assert data_bytes(messages(cluster, session_id)) == []
    cluster[1].manager.replicate_request(session_id, peer_pb2.ReplicateRequest(credit_bytes=first + 1), cluster.now_ms)
    assert len(data_bytes(messages(cluster, session_id))) == 1


@proves("ISR.8")
def test_a_position_with_a_limit_gets_so_many_bytes_and_no_more_before_a_new_one() -> None:
    cluster, session_id = lonely(credit=1 << 20, batches=10, size_bytes=1_000)
    sent: list[int] = []
    for offset in (0, 3, 6):
        request = peer_pb2.ReplicateRequest(credit_bytes=1 << 20)
        position = request.positions.add(position_number=2 + offset, fetch_offset=offset, last_fetched_epoch=0)
        position.partition_id.topic_id, position.partition_id.partition = KEY
        position.limit_bytes = 3_000
        cluster[1].manager.replicate_request(session_id, request, cluster.now_ms)
        sent.append(sum(data_bytes(messages(cluster, session_id))))
    assert all(3_000 <= size_bytes < 5_000 for size_bytes in sent), sent


@proves("SE.13")
def test_credit_never_goes_back() -> None:
    cluster, session_id = lonely(credit=10_000, batches=1)
    cluster[1].manager.replicate_request(session_id, peer_pb2.ReplicateRequest(credit_bytes=0), cluster.now_ms)
    assert len(data_bytes(messages(cluster, session_id))) == 1


@proves("SE.14")
def test_news_needs_no_credit() -> None:
    cluster, session_id = lonely(credit=0, batches=1)
    (message,) = messages(cluster, session_id)
    assert message.message.runs[0].log_end_offset == 1
    assert message.payloads == [b""]


@proves("SE.13")
def test_every_byte_received_is_given_back() -> None:
    settings = quick_settings(replica_fetch_max_bytes=3_000)
    cluster = ReplicaCluster(settings=settings)
    for _ in range(60):
        cluster.produce(1, batch(size_bytes=500))
        cluster.settle()
    assert cluster[2].ends()[2] == cluster[3].ends()[2] == 60


@proves("SE.13")
def test_dropped_bytes_are_given_back_too() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=2_000))
    for times in range(20):
        cluster.produce(1, batch(size_bytes=700))
        while not last_link(cluster).down:
            next(step for step in cluster.steps() if step.__name__ != "flush")()
        for message in last_link(cluster).down:
            for run in message.message.runs:
                run.first_offset += 1  # does not fit: dropped
        cluster.settle()
        assert cluster[2].ends()[2] == times + 1


@proves("SE.15")
def test_a_message_carries_about_four_mebibytes() -> None:
    cluster, session_id = lonely(credit=1 << 30, batches=16, size_bytes=700_000)
    sent = data_bytes(messages(cluster, session_id))
    assert len(sent) > 1
    assert all(size <= (4 << 20) for size in sent)
    assert sent[0] > (3 << 20), "all that waits goes together"


@proves("SE.15")
def test_ready_partitions_take_turns() -> None:
    cluster = ReplicaCluster(brokers=1)
    keys = [KEY, PartitionKey(TOPIC_ID, 1)]
    cluster.controller.create(keys[1], (1,), 1)
    cluster.settle()
    for key in keys:
        for _ in range(8):
            cluster.produce(1, batch(key=key, size_bytes=300_000), key=key)
            cluster.settle()
    session_id = cluster.session_id()
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    for key in keys:
        position = request.positions.add(position_number=1, leader_epoch=-1)
        position.partition_id.topic_id, position.partition_id.partition = key
    cluster[1].manager.open_consumer_session(session_id, request, cluster.now_ms)
    cluster[1].manager.fetch_request(session_id, request, cluster.now_ms)
    turns: list[int] = []
    while (message := cluster[1].next_message(session_id)) is not None and message.payloads:
        turns.extend(run.partition_id.partition for run, batches in runs_of(message) if batches)
    assert set(turns[:2]) == {0, 1}


@proves("SE.15")
def test_a_message_carries_all_that_is_ready() -> None:
    cluster = ReplicaCluster(brokers=1)
    keys = [PartitionKey(TOPIC_ID, number) for number in range(5)]
    for key in keys[1:]:
        cluster.controller.create(key, (1,), 1)
    cluster.settle()
    for key in keys:
        cluster.produce(1, batch(key=key), key=key)
    cluster.settle()
    session_id = cluster.session_id()
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    for key in keys:
        position = request.positions.add(position_number=1, leader_epoch=-1)
        position.partition_id.topic_id, position.partition_id.partition = key
    cluster[1].manager.open_consumer_session(session_id, request, cluster.now_ms)
    cluster[1].manager.fetch_request(session_id, request, cluster.now_ms)
    message = cluster[1].next_message(session_id)
    assert message is not None
    assert len(message.payloads) == 5


def test_news_of_before_is_no_answer_to_a_position_that_waits() -> None:
    """A run without an error says that the position was accepted: the follower adopts the high watermark then."""
    cluster, session_id = lonely(credit=1 << 20, batches=1)
    messages(cluster, session_id)
    leader = cluster[1]
    cluster.produce(1, acks=1)  # its disk does not answer: it leads in no new epoch before
    cluster.controller.move(KEY, 1)
    cluster.replay_slice(leader, 10)
    leader_partition = leader.leader()
    assert leader_partition is not None
    assert not leader_partition.leading
    request = peer_pb2.ReplicateRequest(credit_bytes=1 << 20)
    position = request.positions.add(position_number=2, fetch_offset=1, leader_epoch=leader_partition.leader_epoch)
    position.partition_id.topic_id, position.partition_id.partition = KEY
    leader.manager.replicate_request(session_id, request, cluster.now_ms)
    cluster.now_ms += 50
    assert [run for sent in messages(cluster, session_id) for run in sent.message.runs] == []


# -- waking, news, signs of life


def ready_count(broker: BrokerOfCores, kind: type) -> int:
    return sum(isinstance(effect, kind) for effect in broker.history)


@proves("SE.18")
def test_a_session_that_waits_is_woken_once_for_what_comes_meanwhile() -> None:
    cluster, session_id = lonely(credit=1 << 20, batches=0)
    messages(cluster, session_id)
    before = ready_count(cluster[1], SessionReady)
    for _ in range(5):
        cluster.produce(1, acks=1)
        cluster.settle()
    assert ready_count(cluster[1], SessionReady) == before + 1


@proves("SE.14")
def test_news_wakes_a_session_that_waits_at_most_every_5_ms() -> None:
    cluster = ReplicaCluster()
    for _ in range(40):
        cluster.produce(1)
        cluster.advance(1)
    link = last_link(cluster)
    leader = cluster[1]
    assert link.session_id is not None
    before = sum(isinstance(e, SessionReady) and e.session_id == link.session_id for e in leader.history)
    leader_partition = leader.leader()
    assert leader_partition is not None
    for _ in range(50):  # 50 moves of the log start in 10 ms
        cluster.now_ms += 0.2
        leader_partition.log_start_moved(cluster.now_ms)
        cluster.tick()
        leader.run()
        cluster.settle()
    after = sum(isinstance(e, SessionReady) and e.session_id == link.session_id for e in leader.history)
    assert after - before <= 3


def written_and_heard(cluster: ReplicaCluster) -> tuple[int, int]:
    """Write one batch and wait 30 ms: (messages of the leader to broker 2, high watermark there)."""
    link = last_link(cluster)
    before = ready_count_of(cluster[1], link)
    cluster.produce(1)
    cluster.settle()
    cluster.advance(30)
    return ready_count_of(cluster[1], link) - before, cluster[2].ends()[0]


def ready_count_of(broker: BrokerOfCores, link: Link) -> int:
    return sum(isinstance(each, SessionReady) and each.session_id == link.session_id for each in broker.history)


def test_a_high_watermark_that_moved_wakes_no_session_of_a_follower_without_readers_and_rides_along() -> None:
    cluster = ReplicaCluster()
    cluster.advance(250)
    assert written_and_heard(cluster) == (1, 0), "the batch alone"
    cluster.produce(1)
    cluster.settle()
    assert cluster[2].ends()[0] == 1, "with the next batch"
    cluster.advance(110)
    assert cluster[2].ends()[0] == 2, "with the next sign of life"


def test_a_follower_that_somebody_reads_from_hears_at_once_that_the_high_watermark_moved() -> None:
    cluster = ReplicaCluster()
    cluster.consume(2, 0, leader_epoch=0)
    cluster.advance(250)
    assert written_and_heard(cluster) == (2, 1)
    for session_id in list(cluster[2].consumers):
        cluster[2].manager.close_session(session_id, cluster.now_ms)
    cluster.advance(30)
    written_and_heard(cluster)  # with this progress the leader is told that nobody reads there any more
    cluster.advance(250)
    assert written_and_heard(cluster)[0] == 1


def test_a_position_that_waits_has_no_riders() -> None:
    cluster = ReplicaCluster()
    cluster.advance(250)
    written_and_heard(cluster)
    link, leader = last_link(cluster), cluster[1]
    assert link.session_id is not None
    cluster.produce(1, acks=1)
    cluster.controller.move(KEY, 1)
    cluster.replay_slice(leader, 10)
    leader_partition = leader.leader()
    assert leader_partition is not None
    assert not leader_partition.leading
    request = peer_pb2.ReplicateRequest(credit_bytes=1 << 20)
    position = request.positions.add(position_number=99, fetch_offset=1, leader_epoch=leader_partition.leader_epoch)
    position.partition_id.topic_id, position.partition_id.partition = KEY
    leader.manager.replicate_request(link.session_id, request, cluster.now_ms)
    cluster.now_ms += 100
    (sign_of_life,) = messages(cluster, link.session_id)
    assert not sign_of_life.message.runs


@proves("SE.16")
def test_both_sides_give_a_sign_of_life_every_keepalive() -> None:
    cluster = ReplicaCluster()
    up = ready_count(cluster[2], FetcherStreamReady)
    down = ready_count(cluster[1], SessionReady)
    cluster.advance(1_000)
    assert 9 <= ready_count(cluster[2], FetcherStreamReady) - up <= 11
    assert 18 <= ready_count(cluster[1], SessionReady) - down <= 22, "two followers"
    assert not cluster[1].refused


def test_a_consumer_says_how_often_signs_of_life_are_due() -> None:
    cluster = ReplicaCluster(brokers=1)
    sessions = {}
    for keepalive_ms in (0, 1, 1_000, 60_000):
        session_id = sessions[keepalive_ms] = cluster.session_id()
        cluster[1].consumers[session_id] = []
        first = data_pb2.FetchRequest(credit_bytes=1, keepalive_ms=keepalive_ms)
        cluster[1].manager.open_consumer_session(session_id, first, cluster.now_ms)
    cluster.advance(12_500)
    told = {keepalive_ms: len(cluster[1].consumers[session_id]) for keepalive_ms, session_id in sessions.items()}
    assert told == {0: 125, 1: 125, 1_000: 12, 60_000: 2}


@proves("SE.18")
def test_nothing_else_happens_on_an_idle_cluster() -> None:
    cluster = ReplicaCluster()
    cluster.advance(500)
    before = {b: len(cluster[b].history) for b in cluster.brokers}
    cluster.advance(1_000)
    assert all(len(cluster[b].history) - before[b] <= 25 for b in cluster.brokers)


@proves("SE.16")
def test_a_follower_silent_for_five_keepalives_is_dropped() -> None:
    cluster, session_id = lonely(credit=1, batches=0)
    cluster.advance(499)
    assert session_id not in cluster[1].refused
    cluster.advance(60)
    assert session_id in cluster[1].refused


@proves("SE.16")
def test_a_leader_silent_for_five_keepalives_is_dropped_and_opened_anew() -> None:
    cluster = ReplicaCluster()
    link = last_link(cluster)
    for _ in range(60):
        cluster.advance(10, settle=False)
        link.down.clear()
        link.down_ready = False
        if 1 in cluster[2].links and cluster[2].links[1] is not link:
            break
    assert cluster[2].links.get(1) is not link
    cluster.advance(600)
    cluster.produce(1)
    cluster.settle()
    assert cluster[2].ends()[2] == 1


@proves("SE.17")
def test_a_refused_connection_is_tried_again_with_a_pause_of_at_most_500_ms() -> None:
    cluster = ReplicaCluster()
    cluster[1].crash()
    cluster.advance(10_000)
    opened = count_effects(cluster[2])["OpenFetcherStream"]
    assert 20 <= opened <= 60


@proves("SE.17")
def test_a_follower_has_one_stream_to_a_leader_however_many_partitions() -> None:
    cluster = ReplicaCluster()
    for number in range(1, 20):
        cluster.controller.create(PartitionKey(TOPIC_ID, number), (1, 2, 3), 1)
    cluster.settle()
    assert count_effects(cluster[2])["OpenFetcherStream"] == 1


def test_a_newer_session_of_a_follower_replaces_the_older() -> None:
    cluster, session_id = lonely(credit=1, batches=0)
    follower_session(cluster, 2, credit=1)
    assert session_id in cluster[1].refused


def test_a_session_of_an_earlier_life_is_refused() -> None:
    cluster = ReplicaCluster()
    cluster.controller.register(2)
    settle_but(cluster, 2, 3)
    session_id = follower_session(cluster, 2, credit=1)
    assert session_id in cluster[1].refused


# -- many partitions


@proves("SE.19")
def test_a_session_of_many_partitions_says_all_in_messages_of_no_more_than_one_may_name() -> None:
    cluster = ReplicaCluster(brokers=2)
    count = MAX_POSITIONS + 100
    for number in range(1, count):
        cluster.controller.create(PartitionKey(TOPIC_ID, number), (1, 2), 1)
        cluster.settle()
    follower, leader = cluster[2].manager, cluster[1].manager
    follower.fetcher_stream_closed(1, cluster.now_ms)
    cluster.now_ms += 1_000.0
    follower.tick(cluster.now_ms)
    follower.fetcher_stream_opened(1, cluster.now_ms)  # opened anew, it tells all positions at once
    session_id = cluster.session_id()
    asked: list[peer_pb2.ReplicateRequest] = []
    while (request := follower.next_request(1, cluster.now_ms)) is not None and len(asked) < 5:
        asked.append(request)
    assert [len(each.positions) for each in asked if each.positions] == [MAX_POSITIONS, 100]
    assert all(len(each.progress) <= MAX_POSITIONS for each in asked)
    told: list[int] = []
    leader.open_follower_session(session_id, 2, asked[0].broker_epoch, cluster.now_ms)
    for request in asked:
        leader.replicate_request(session_id, request, cluster.now_ms)
    while (message := cluster[1].next_message(session_id)) is not None and message.payloads:
        told.append(len(message.payloads))
    assert told == [MAX_RUNS, MAX_RUNS, 100]


@pytest.mark.parametrize(
    ("asked_ms", "client_ms", "peer_ms"), [(0, 1000, 100), (50, 100, 100), (200, 200, 200), (5000, 5000, 1000)]
)
def test_a_stream_says_something_as_often_as_the_other_side_expects(
    asked_ms: int, client_ms: float, peer_ms: float
) -> None:
    """Who asked for 200 ms was given the broker's 1,000, and dropped each idle stream after five times its own."""
    settings = ReplicationSettings()
    assert (settings.client_keepalive_ms(asked_ms), settings.peer_keepalive_ms(asked_ms)) == (client_ms, peer_ms)
