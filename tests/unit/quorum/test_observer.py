"""Observers: every image is the replay of a committed prefix of the one log (V13)."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentClusterId, NotController, NotLeaderOrFollower
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2
from minilog_broker.quorum.quorum_effects import MetadataSessionRefused
from minilog_broker.quorum.records import encode_records, place
from tests.rules import proves
from tests.unit.quorum.cluster import FOUNDED, TIMESTAMP_US, QuorumCluster, topic_record


def pair() -> QuorumCluster:
    cluster = QuorumCluster()
    cluster.start(1, 2)
    cluster.run(700)
    return cluster


def contents(cluster: QuorumCluster) -> list[bytes]:
    return [machine.log.read(machine.log.log_start_offset, 1 << 20) for machine in cluster.running()]


def test_an_observer_adopts_the_epoch_and_replays_what_is_committed() -> None:
    cluster = pair()
    cluster.machine(1).append(topic_record("a"))
    cluster.run(50)
    assert cluster.node(2).epoch == 1
    assert cluster.machine(2).image == cluster.machine(1).image
    assert cluster.machine(2).image.end_offset == FOUNDED + 1


@proves("MD.6")
def test_an_observer_has_what_is_not_committed_and_does_not_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = pair()
    leader = cluster.machine(1)
    monkeypatch.setattr(leader.log, "flush", lambda: None)  # its disk is written, and never synced
    leader.append(topic_record("a"))
    cluster.run(200)
    assert cluster.node(2).log_end_offset == FOUNDED + 1
    assert cluster.node(1).committed_end_offset == FOUNDED
    assert "a" not in cluster.machine(2).image.topic_ids


def test_an_observer_that_has_what_the_leader_lost_truncates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = pair()
    leader = cluster.machine(1)
    monkeypatch.setattr(leader.log, "flush", lambda: None)
    leader.append(topic_record("lost"))
    cluster.run(50)
    assert cluster.node(2).log_end_offset == FOUNDED + 1
    leader.log.close(clean=False)
    monkeypatch.setattr(leader.files, "lose_power", leader.files.lose_unsynced)
    cluster.stop(1, power_loss=True)
    cluster.start(1)
    cluster.run(700)
    cluster.machine(1).append(topic_record("kept"))
    cluster.run(50)
    assert "lost" not in cluster.machine(2).image.topic_ids
    assert cluster.machine(2).image == cluster.machine(1).image
    assert cluster.node(2).epoch == 2
    assert len(set(contents(cluster))) == 1


@proves("MD.6")
@pytest.mark.parametrize("seed", range(15))
def test_after_any_history_of_crashes_all_have_the_same_log(seed: int) -> None:
    cluster = QuorumCluster(seed)
    cluster.start(1, 2, 3)
    cluster.run(700)
    for step in range(12):
        victim = cluster.random.choice((1, 2, 3))
        if cluster.node(1).is_active:
            cluster.machine(1).append(topic_record(f"t{step}"))
        cluster.run(cluster.random.uniform(0.0, 4.0))
        if cluster.random.random() < 0.5:
            cluster.stop(victim, power_loss=cluster.random.random() < 0.5)
            cluster.start(victim)
        elif victim in cluster.streams:
            cluster.break_stream(cluster.streams[victim])
        cluster.run(cluster.random.choice((10.0, 50.0, 700.0)))
    cluster.run(2_000)
    assert len(set(contents(cluster))) == 1
    assert cluster.machine(1).image == cluster.machine(2).image == cluster.machine(3).image


@proves("MD.34")
def test_replayed_entries_are_never_truncated() -> None:
    cluster = pair()
    cluster.machine(1).append(topic_record("a"))
    cluster.run(50)
    cluster.stop(1)
    cluster.machine(1).new_disk()  # all that was committed is gone, and another cluster begins at the same address
    for _ in range(3):
        cluster.start(1)
        cluster.run(50)
        cluster.stop(1)
    cluster.start(1)
    cluster.run(2_000)
    assert cluster.machine(2).node is None or cluster.machine(2).image.end_offset == FOUNDED + 1
    assert "a" in cluster.machine(2).image.topic_ids


def test_an_observer_of_another_cluster_is_told_so() -> None:
    cluster = QuorumCluster()
    cluster.start(1)
    cluster.machine(2).cluster_id = "another"
    cluster.start(2)
    cluster.run(700)
    assert isinstance(cluster.machine(2).failure, InconsistentClusterId)
    assert "belongs to cluster another" in str(cluster.machine(2).failure)


def test_an_observer_decides_nothing_and_serves_nobody() -> None:
    cluster = pair()
    node = cluster.node(2)
    assert not node.is_active
    assert node.leader_id == 1
    with pytest.raises(NotController, match="broker 1 is"):
        node.append_records([topic_record("a")], TIMESTAMP_US)
    node.open_session(7, peer_pb2.ReplicateRequest(broker_id=3, broker_epoch=-1), cluster.now_ms)
    (refusal,) = [effect for effect in node.take_effects() if isinstance(effect, MetadataSessionRefused)]
    assert isinstance(refusal.error, NotLeaderOrFollower)
    assert (refusal.quorum_epoch, refusal.quorum_leader_id) == (1, 1)
    assert refusal.response.HasField("quorum_leader_id")


def test_a_session_says_at_first_that_it_is_the_metadata_logs_and_whose() -> None:
    cluster = QuorumCluster()
    cluster.start(1)
    cluster.run(50)
    cluster.start(2)
    node = cluster.node(2)
    node.tick(cluster.now_ms)
    node.fetcher_stream_opened(cluster.now_ms)
    request = node.next_request(cluster.now_ms)
    assert request is not None
    assert (request.cluster_metadata, request.broker_id, request.broker_epoch) == (True, 2, -1)
    assert request.directory_id == cluster.machine(2).directory_id


@proves("MD.35")
def test_a_silent_stream_is_dropped_on_both_sides_and_opened_anew() -> None:
    cluster = pair()
    before = cluster.streams[2]
    cluster.cut_off(2)
    cluster.run(700)
    assert cluster.streams.get(2) is not before
    cluster.cut.clear()
    cluster.run(2_000)
    cluster.machine(1).append(topic_record("a"))
    cluster.run(50)
    assert "a" in cluster.machine(2).image.topic_ids


@proves("MD.35")
def test_a_node_that_stood_still_blames_nobody() -> None:
    cluster = pair()
    before = cluster.streams[2]
    for machine in cluster.running():
        machine.paused_until_ms = cluster.now_ms + 60_000.0
    cluster.run(60_200)
    assert cluster.streams[2] is before


def test_a_replica_that_lost_its_directory_starts_anew_from_the_beginning() -> None:
    cluster = pair()
    cluster.machine(1).append(topic_record("a"))
    cluster.run(50)
    cluster.stop(2)
    cluster.machine(2).new_disk()
    cluster.start(2)
    cluster.run(700)
    assert cluster.machine(2).image == cluster.machine(1).image


def test_a_damaged_batch_is_not_appended() -> None:
    cluster = pair()
    batch = bytearray(place(encode_records([topic_record("a")], TIMESTAMP_US), 2, 1).buffers[0])
    batch[-12] ^= 1
    node, fetcher = cluster.node(2), cluster.node(2)._transitions.fetcher
    assert fetcher is not None
    assert fetcher._follower is not None
    end = node.log_end_offset
    message = peer_pb2.ReplicateResponse()
    run = message.runs.add(leader_epoch=1, first_offset=2, previous_epoch=1, high_watermark=3)
    run.partition_id.topic_id = bytes(15) + b"\x01"
    run.position_number = fetcher._follower.position_number
    node.leader_message(StreamMessage(message, [bytes(batch)]), cluster.now_ms)
    cluster.run(5)
    assert node.log_end_offset == end
