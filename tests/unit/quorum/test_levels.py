"""Voters of several versions: at which level a cluster is founded, and what becomes of who meets a later one."""

from __future__ import annotations

import pytest

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.record_batch.builder import build_batch, build_control_batch, records_to_columns
from minilog.record_batch.header import decode_header
from minilog.v1 import records_pb2
from minilog.versions import VersionRange
from minilog_broker.controller.snapshot import encode_snapshot
from minilog_broker.quorum.cluster import level_record
from minilog_broker.quorum.records import METADATA_KEY, decode_leader_change, decode_run, place
from minilog_broker.server.clients.snapshot_transfer import newest_snapshot
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.quorum.cluster import TIMESTAMP_US, QuorumCluster, topic_record
from tests.unit.quorum.machine import DIRECTORY, QuorumMachine

pytestmark = proves("MD.30")

THREE = (1, 2, 3)
OLD, BOTH = VersionRange(1, 1), VersionRange(1, 2)
OF_LATER = b"\xfa\x01\x02hi"  # field 31


def cluster_of(*levels: VersionRange) -> QuorumCluster:
    cluster = QuorumCluster(0, THREE)
    for node_id, supported in zip(THREE, levels, strict=True):
        cluster.machine(node_id).levels = supported
    cluster.start(*THREE)
    cluster.run(1_000)
    return cluster


def metadata_run(*values: bytes) -> bytes:
    batch = build_batch(*METADATA_KEY, records_to_columns(list(values)), timestamp_us=TIMESTAMP_US)
    return b"".join(bytes(each) for each in place(batch, 0, 1).buffers)


@proves("MD.22")
@pytest.mark.parametrize(
    ("levels", "level"),
    [
        ((OLD, OLD, OLD), 1),
        ((BOTH, BOTH, BOTH), 2),
        ((BOTH, OLD, BOTH), 1),
        ((VersionRange(2, 5), VersionRange(1, 4), VersionRange(3, 9)), 4),
    ],
)
def test_a_cluster_is_founded_at_the_highest_level_of_all_voters(levels: tuple[VersionRange, ...], level: int) -> None:
    cluster = cluster_of(*levels)
    assert [machine.image.level for machine in cluster.running()] == [level] * 3


@proves("MD.22")
def test_voters_without_a_level_in_common_found_nothing() -> None:
    cluster = cluster_of(OLD, VersionRange(2, 2), BOTH)
    failures = [machine.failure for machine in cluster.machines.values() if machine.failure is not None]
    assert failures
    for failure in failures:
        assert isinstance(failure, UnsupportedVersion)
        assert "broker 1 supports 1, broker 2 supports 2, broker 3 supports 1 to 2" in str(failure)
    assert all(machine.image.cluster_id is None for machine in cluster.machines.values())


def upgraded_around_an_old_one() -> tuple[QuorumCluster, QuorumMachine]:
    """Three of both levels; one of them is replaced by an old version and misses the upgrade."""
    cluster = cluster_of(OLD, OLD, OLD)
    old = next(machine for machine in cluster.running() if machine is not cluster.leader())
    for machine in cluster.machines.values():
        cluster.stop(machine.node_id)
        machine.levels = OLD if machine is old else BOTH
    others = [node_id for node_id in THREE if node_id != old.node_id]
    cluster.start(*others)
    cluster.run(2_000)
    cluster.leader().append(level_record(2))
    cluster.leader().append(topic_record("behind"))
    cluster.run(500)
    return cluster, old


def test_an_older_voter_ends_where_it_meets_the_level_and_never_decides() -> None:
    cluster, old = upgraded_around_an_old_one()
    for _ in range(3):  # whoever starts it again
        cluster.start(old.node_id)
        cluster.run(1_000)
        assert isinstance(old.failure, UnsupportedVersion)
        assert "is at level 2" in str(old.failure)
        assert "later version" in str(old.failure)
        assert "behind" not in {topic.name for topic in old.image.topics.values()}
        assert not old.snapshots.list()
    assert [machine.image.level for machine in cluster.running()] == [2, 2]


def test_an_older_voter_that_has_all_of_the_log_ends_before_it_decides() -> None:
    """It may even be elected: it replays before it is active."""
    cluster, old = upgraded_around_an_old_one()
    cluster.start(old.node_id)
    cluster.run(1_000)
    written = old.log.log_end_offset
    assert written == cluster.leader().log.log_end_offset, "it is a voter, and its disk has what it was sent"
    cluster.stop(cluster.leader().node_id)
    cluster.start(old.node_id)
    cluster.run(3_000)
    assert isinstance(old.failure, UnsupportedVersion)
    assert old.log.log_end_offset >= written, "nothing of it is cut"


def test_a_newer_one_goes_on_where_the_older_one_ended() -> None:
    cluster, old = upgraded_around_an_old_one()
    cluster.start(old.node_id)
    cluster.run(1_000)
    old.levels = BOTH
    cluster.start(old.node_id)
    cluster.run(1_000)
    assert (old.failure, old.image.level) == (None, 2)
    assert "behind" in {topic.name for topic in old.image.topics.values()}


def test_a_snapshot_at_a_level_above_ours_ends_the_start() -> None:
    cluster = cluster_of(BOTH, BOTH, BOTH)
    machine = cluster.machine(1)
    cluster.stop(1)
    snapshot_id = SnapshotId(machine.image.end_offset, 1)
    machine.snapshots.write(snapshot_id, encode_snapshot(machine.image, 1))
    machine.levels = OLD
    cluster.start(1)
    assert isinstance(machine.failure, UnsupportedVersion)
    assert machine.snapshots.list() == [snapshot_id]


def test_a_snapshot_with_a_record_of_a_later_version_is_not_passed_over_as_damage() -> None:
    cluster = cluster_of(OLD, OLD, OLD)
    machine = cluster.machine(1)
    cluster.stop(1)
    snapshot_id = SnapshotId(machine.image.end_offset, 1)
    content = encode_snapshot(machine.image, 1)
    header_end = decode_header(content).length
    machine.snapshots.write(snapshot_id, content[:header_end] + metadata_run(OF_LATER) + content[header_end:])
    with pytest.raises(UnsupportedVersion, match="was written by a later version"):
        newest_snapshot(machine.snapshots)
    assert f"{DIRECTORY}/{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.snapshot" in machine.files.names


@pytest.mark.parametrize(
    "value",
    [
        OF_LATER,
        topic_record("t").SerializeToString() + OF_LATER,
        records_pb2.MetadataRecord(
            topic=records_pb2.TopicRecord.FromString(b"\x0a\x01t" + OF_LATER)
        ).SerializeToString(),
        records_pb2.MetadataRecord(
            topic=records_pb2.TopicRecord(defaults=[records_pb2.TopicDefault.FromString(OF_LATER)])
        ).SerializeToString(),
    ],
    ids=["a kind", "beside the record", "in the record", "deeper"],
)
def test_a_record_of_a_later_version_is_not_replayed(value: bytes) -> None:
    run = metadata_run(topic_record("a").SerializeToString(), value)
    with pytest.raises(UnsupportedVersion, match="offset 0 was written by a later version"):
        list(decode_run(run))


def test_a_record_without_content_is_damage() -> None:
    with pytest.raises(CorruptMessage, match="is empty"):
        list(decode_run(metadata_run(b"")))


def test_a_control_record_of_a_later_version_is_not_taken_for_a_leader_change() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_leader_change(build_control_batch(*METADATA_KEY, OF_LATER, timestamp_us=TIMESTAMP_US))
