"""Snapshots: the log is trimmed behind them, and whoever is behind, or starts, goes on from one."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentClusterId, NotLeaderOrFollower, OffsetOutOfRange, StorageError
from minilog.v1 import peer_pb2
from minilog_broker.quorum.metadata_log import MetadataLog
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import FetchSnapshot, LoadSnapshot, QuorumEffect
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.storage.log import Log
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.snapshot_id import SnapshotId, snapshot_name
from tests.rules import proves
from tests.unit.quorum.cluster import QuorumCluster, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import DIRECTORY, SETTINGS, QuorumMachine
from tests.world.disk import MemoryDisk

pytestmark = proves("MD.31")

THREE = (1, 2, 3)


def trimming(voters: tuple[int, ...] = THREE, seed: int = 0) -> tuple[QuorumCluster, QuorumMachine]:
    cluster = QuorumCluster(seed, voters, snapshot_bytes=4_000)
    Judges(cluster)
    cluster.start(*voters)
    cluster.run(1_000)
    (leader,) = cluster.leaders()
    return cluster, leader


def write(leader: QuorumMachine, count: int, name: str = "topic") -> int:
    end = 0
    for index in range(count):
        end = leader.append(topic_record(f"{name}-{index}"))
        leader.cluster.run(5.0)
    leader.cluster.run(100.0)
    return end


def test_the_log_start_moves_up_to_the_snapshot_and_old_segments_and_snapshots_go() -> None:
    cluster, leader = trimming()
    write(leader, 100)
    for machine in cluster.running():
        assert machine.log.log_start_offset > 50
        assert len(machine.log._segments) <= 10
        (snapshot_id,) = machine.snapshots.list()
        assert snapshot_id.end_offset == machine.log.log_start_offset
        assert len(machine.image.topics) == 100


def test_a_start_goes_on_from_the_snapshot() -> None:
    cluster, leader = trimming()
    end = write(leader, 100)
    image = leader.image.copy()
    for machine in cluster.running():
        cluster.stop(machine.node_id, power_loss=True)
    cluster.start(*THREE)
    cluster.run(1_000)
    assert all(machine.image.end_offset > end for machine in cluster.running())
    assert all(machine.image == image for machine in cluster.running())
    assert all(len(machine.node.voters) == 3 for machine in cluster.running() if machine.node)


def test_the_single_voter_goes_on_from_the_snapshot() -> None:
    cluster, leader = trimming((1,))
    write(leader, 100)
    cluster.stop(1, power_loss=True)
    cluster.start(1)
    cluster.run(100)
    assert cluster.node(1).is_active
    assert len(cluster.machine(1).image.topics) == 100


def test_a_voter_far_behind_and_a_new_observer_catch_up_from_a_snapshot() -> None:
    cluster, leader = trimming()
    behind = next(machine for machine in cluster.running() if machine is not leader)
    cluster.stop(behind.node_id)
    write(leader, 100)
    cluster.start(behind.node_id, 9)
    cluster.run(2_000)
    end = write(leader, 3, "more")
    for machine in (behind, cluster.machine(9)):
        assert machine.log.log_start_offset > 50
        assert machine.image.end_offset == end
        assert machine.image == leader.image
    cluster.stop(behind.node_id, 9, power_loss=True)
    cluster.start(behind.node_id, 9)
    cluster.run(1_000)
    assert behind.image == cluster.machine(9).image == leader.image


@pytest.mark.parametrize("seed", range(12))
def test_a_loss_of_power_at_any_moment_of_catching_up(seed: int) -> None:
    cluster, leader = trimming(seed=seed)
    behind = next(machine for machine in cluster.running() if machine is not leader)
    cluster.stop(behind.node_id)
    write(leader, 60)
    for _ in range(8):
        cluster.start(behind.node_id)
        cluster.run(cluster.random.uniform(0.0, 120.0))
        assert behind.failure is None
        cluster.stop(behind.node_id, power_loss=True)
    cluster.start(behind.node_id)
    cluster.run(2_000)
    end = write(cluster.leader(), 3, "more")
    assert behind.image.end_offset == end


@pytest.mark.parametrize("seed", range(12))
def test_a_loss_of_power_at_any_moment_of_trimming(seed: int) -> None:
    cluster, leader = trimming((1,), seed)
    written = 0
    for life in range(6):
        for index in range(cluster.random.randrange(10, 40)):
            leader.append(topic_record(f"{life}-{index}"))
            cluster.run(cluster.random.uniform(0.0, 6.0))
        written = max(written, len(leader.image.topics))
        cluster.stop(1, power_loss=True)
        cluster.start(1)
        cluster.run(100)
        assert leader.failure is None
        assert len(leader.image.topics) >= written


def test_a_fork_that_ends_where_the_others_log_starts_is_cut_there() -> None:
    cluster, leader = trimming()
    write(leader, 60)
    others = [machine for machine in cluster.running() if machine is not leader]
    base = leader.log.log_start_offset
    cluster.cut_off(leader.node_id)
    leader.append(topic_record("forked"))
    cluster.run(3_000)
    write(cluster.leader() if cluster.leader() is not leader else others[0], 60, "other")
    cluster.cut.clear()
    cluster.run(3_000)
    end = write(cluster.leader(), 1, "last")
    assert "forked" not in leader.image.topic_ids
    assert leader.image.end_offset == end
    assert leader.log.log_start_offset >= base


def test_a_leader_sends_what_it_has_and_refuses_the_rest() -> None:
    cluster, leader = trimming()
    write(leader, 100)
    node = leader.node
    assert node is not None
    (snapshot_id,) = leader.snapshots.list()

    def request(**other: object) -> peer_pb2.FetchSnapshotRequest:
        fields = {"cluster_id": leader.cluster_id, "broker_id": 9, "epoch": node.epoch, **other}
        asked = peer_pb2.FetchSnapshotRequest(**fields)  # type: ignore[arg-type]
        asked.snapshot_id.end_offset, asked.snapshot_id.epoch = snapshot_id
        return asked

    assert node.snapshot_request(request()) == snapshot_id
    with pytest.raises(InconsistentClusterId):
        node.snapshot_request(request(cluster_id="another"))
    with pytest.raises(NotLeaderOrFollower):
        node.snapshot_request(request(epoch=99))
    gone = request()
    gone.snapshot_id.end_offset = 1
    with pytest.raises(OffsetOutOfRange):
        node.snapshot_request(gone)
    follower = next(machine for machine in cluster.running() if machine is not leader)
    assert follower.node is not None
    with pytest.raises(NotLeaderOrFollower):
        follower.node.snapshot_request(request())


def test_a_snapshot_that_cannot_be_fetched_is_asked_for_again_and_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, leader = trimming()
    write(leader, 100)
    cluster.start(9)
    machine = cluster.machine(9)
    asked: list[FetchSnapshot] = []
    carry_out = machine._carry_out_one

    def unfetched(node: QuorumNode) -> None:
        node.snapshot_unfetched(cluster.now_ms)

    def losing(effect: QuorumEffect) -> None:
        if isinstance(effect, FetchSnapshot) and len(asked) < 3:
            asked.append(effect)
            machine.later(30.0, lambda: machine.event(unfetched), machine.life)
        else:
            carry_out(effect)

    monkeypatch.setattr(machine, "_carry_out_one", losing)
    cluster.run(3_000)
    assert len(asked) == 3
    assert machine.image == leader.image


def test_metadata_that_is_missing_is_said_so() -> None:
    cluster, leader = trimming()
    write(leader, 100)
    cluster.stop(leader.node_id)
    (snapshot_id,) = leader.snapshots.list()
    leader.files.damage(f"{DIRECTORY}/{snapshot_name(snapshot_id)}", 200, b"?")
    cluster.start(leader.node_id)
    assert isinstance(leader.failure, StorageError)
    assert "no whole snapshot" in str(leader.failure)


@proves("MD.6")
def test_nothing_is_replayed_before_the_snapshot_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, leader = trimming()
    end = write(leader, 100)
    node_id, files = leader.node_id, leader.files
    for machine in cluster.running():
        cluster.stop(machine.node_id)
    held: list[object] = []
    monkeypatch.setattr(leader, "_carry_out_one", held.append)
    cluster.start(node_id)
    node = leader.node
    assert node is not None
    assert files is leader.files
    assert isinstance(held[0], LoadSnapshot)
    assert node.next_committed() is None
    assert node.replayed_end_offset == held[0].snapshot_id.end_offset <= end
    leader.replay.load(held[0].snapshot_id, leader.snapshots.read(held[0].snapshot_id))
    assert leader.image.end_offset == node.replayed_end_offset
    assert node.role.name != "LEADER"


def truncating(log: MetadataLog) -> bool:
    return log.truncating


def test_a_snapshot_that_comes_while_the_disk_truncates_is_the_one_that_counts() -> None:
    cluster, leader = trimming()
    write(leader, 10)
    cluster.stop(leader.node_id)
    log = Log.open(
        leader.files, DIRECTORY, METADATA_KEY, CLUSTER_METADATA_TOPIC_NAME, SETTINGS, unclean=True, create=False
    )
    metadata_log = MetadataLog(log, None)
    metadata_log.high_watermark = 5
    metadata_log.begin_truncation(8)
    metadata_log.begin_truncation(90)
    log.truncate_to(8)
    metadata_log.truncated()
    assert truncating(metadata_log)
    log.truncate_fully_and_start_at(90)
    metadata_log.add_snapshot(SnapshotId(90, 7))
    metadata_log.truncated()
    assert not truncating(metadata_log)
    assert metadata_log.last_entry == (7, 90)
    with pytest.raises(InconsistentClusterId, match="committed up to 90"):
        metadata_log.begin_truncation(89)


def test_files_are_written_aside_and_listed_newest_first() -> None:
    files = MemoryDisk()
    files.make_dir("/m")
    snapshots = SnapshotFiles(files, "/m")
    ids = [SnapshotId(7, 1), SnapshotId(300, 2)]
    for snapshot_id in ids:
        snapshots.write(snapshot_id, b"content")
    assert snapshots.list() == ids[::-1]
    assert snapshots.read_chunk(ids[0], 3, 2) == (b"te", 7)
    receiver = snapshots.receive(SnapshotId(400, 2))
    receiver.write(0, b"ab")
    with pytest.raises(ValueError, match="is not the next one"):
        receiver.write(5, b"cd")
    receiver.abandon()
    assert snapshots.list() == ids[::-1]
    snapshots.remove_before(ids[1])
    assert snapshots.list() == [ids[1]]
