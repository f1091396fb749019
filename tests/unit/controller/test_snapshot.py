"""Snapshots: the image as records and back, whole or refused; and when the next one is due."""

from __future__ import annotations

import contextlib
import random

import pytest

from minilog.errors import CorruptMessage
from minilog.record_batch.header import iterate_headers
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller import snapshot as snapshot_module
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision, apply_record
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import PROVEN_PRODUCERS_LEVEL, SECURITY_LEVEL
from minilog_broker.server.clients.snapshot_transfer import newest_snapshot
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster
from tests.world.disk import MemoryDisk

pytestmark = proves("MD.31")


def history() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.created("a", partitions=3, retention_ms="5")
    cluster.created("b", partitions=2)
    cluster.created("gone")
    cluster.fence(2)
    cluster.delete("gone")
    return cluster


def test_where_a_broker_stands_comes_back() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(SECURITY_LEVEL)
    cluster.restart(1, domain="rack-a", host_label="machine-1")
    image = cluster.image
    loaded = decode_snapshot(snapshot_of(image)[1], snapshot_of(image)[0])
    told = {each.broker_id: (each.failure_domain, each.host_label) for each in loaded.brokers.values()}
    assert told == {1: ("rack-a", "machine-1"), 2: ("host2", None), 3: ("host3", None)}
    assert loaded == image


@proves("PR.8")
def test_the_key_of_proofs_comes_back() -> None:
    """A broker that begins with a snapshot judges producer ids as those that replayed the log."""
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(PROVEN_PRODUCERS_LEVEL)
    for _ in range(2):
        request = peer_pb2.AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epoch(1))
        cluster.controller.allocate_producer_ids(ticket := cluster.ticket(), request)
        cluster.answer(ticket, peer_pb2.AllocateProducerIdsResponse)
    loaded = decode_snapshot(snapshot_of(cluster.image)[1], snapshot_of(cluster.image)[0])
    assert (loaded.producer_key, loaded.next_producer_id) == (cluster.image.producer_key, 2_000)
    assert loaded.producer_key is not None
    assert loaded == cluster.image == cluster.image.copy()
    other = MetadataImage()
    assert other != loaded
    other.become(loaded)
    assert other.producer_key == cluster.image.producer_key


def snapshot_of(image: MetadataImage, epoch: int = 4) -> tuple[SnapshotId, bytes]:
    return SnapshotId(image.end_offset, epoch), encode_snapshot(image, epoch)


def test_an_image_comes_back_from_its_snapshot_broker_epochs_and_all() -> None:
    image = history().image
    loaded = decode_snapshot(snapshot_of(image)[1], snapshot_of(image)[0])
    assert loaded == image
    assert loaded.end_offset == image.end_offset
    assert {b.broker_id: b.broker_epoch for b in loaded.brokers.values()} == {
        b.broker_id: b.broker_epoch for b in image.brokers.values()
    }
    assert loaded.take_changes().brokers == set()


def test_the_replay_goes_on_behind_a_snapshot_as_without_one() -> None:
    cluster = history()
    for cut in range(1, len(cluster.records)):
        image = MetadataImage()
        apply_decision(image, 0, cut, cluster.records[:cut])
        loaded = decode_snapshot(snapshot_of(image)[1], snapshot_of(image)[0])
        apply_decision(loaded, cut, len(cluster.records), cluster.records[cut:])
        assert loaded == cluster.image


def test_an_empty_image_has_a_snapshot_too() -> None:
    snapshot_id, content = snapshot_of(MetadataImage())
    assert decode_snapshot(content, snapshot_id) == MetadataImage()


def test_a_large_image_is_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "RECORDS_PER_BATCH", 3)
    image = history().image
    snapshot_id, content = snapshot_of(image)
    assert len(list(iterate_headers(content))) > 4
    assert decode_snapshot(content, snapshot_id) == image


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    snapshot_id, content = snapshot_of(history().image)
    ends = [position for position, _ in iterate_headers(content)]
    for end in (*ends, len(content) - 1, 17):
        with pytest.raises(CorruptMessage):
            decode_snapshot(content[:end], snapshot_id)
    header_end = ends[1]
    for wrong in (content + content[:header_end], content[header_end:], content[:header_end] + content):
        with pytest.raises(CorruptMessage):
            decode_snapshot(wrong, snapshot_id)


def test_a_flipped_bit_is_refused() -> None:
    image = history().image
    snapshot_id, content = snapshot_of(image)
    rng = random.Random(3)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(CorruptMessage):
            assert decode_snapshot(bytes(damaged), snapshot_id) == image  # a bit that nothing rests on


def test_another_snapshot_than_its_name_says_is_refused() -> None:
    snapshot_id, content = snapshot_of(history().image)
    for other in (snapshot_id._replace(end_offset=3), snapshot_id._replace(epoch=3)):
        with pytest.raises(CorruptMessage, match="has the header of one at"):
            decode_snapshot(content, other)


def test_the_newest_whole_one_is_found_and_a_damaged_one_passed_over() -> None:
    files = MemoryDisk()
    files.make_dir("/m")
    snapshots = SnapshotFiles(files, "/m")
    assert newest_snapshot(snapshots) is None
    old, new = MetadataImage(), history().image
    apply_decision(old, 0, 1, [records_pb2.MetadataRecord(cluster=records_pb2.ClusterRecord(cluster_id="c"))])
    for image in (old, new):
        snapshots.write(*snapshot_of(image))
    assert newest_snapshot(snapshots) == SnapshotId(new.end_offset, 4)
    files.damage(f"/m/{new.end_offset:020d}-0000000004.snapshot", 300, b"?")
    assert newest_snapshot(snapshots) == SnapshotId(1, 4)


def test_becoming_another_image_names_whatever_may_be_different() -> None:
    cluster = history()
    image = MetadataImage()
    cut = len(cluster.records) - 2
    apply_decision(image, 0, cut, cluster.records[:cut])
    image.take_changes()
    gone = set(image.partitions) - set(cluster.image.partitions)
    assert gone
    image.become(cluster.image.copy())
    changes = image.take_changes()
    assert image == cluster.image
    assert changes.removed == gone
    assert changes.partitions == set(cluster.image.partitions)
    assert changes.brokers == set(cluster.image.brokers)
    assert changes.topics >= set(cluster.image.topics)


def test_a_replica_that_was_taken_away_is_no_more_on_its_broker() -> None:
    cluster = history()
    key, state = next(iter(cluster.image.partitions.items()))
    record = records_pb2.PartitionRecord(
        topic_id=key.topic_id, partition=key.partition, replicas=state.replicas[:1], leader_id=state.replicas[0]
    )
    apply_record(cluster.image, cluster.image.end_offset, records_pb2.MetadataRecord(partition=record))
    assert all(key != other.key for other in cluster.image.replicas_on(state.replicas[1]))


def test_a_replaced_voter_is_another_directory_in_the_image() -> None:
    image = MetadataImage()
    voters = [records_pb2.Voter(broker_id=each, directory_id=bytes([each]) * 16) for each in (1, 2, 3)]
    apply_record(image, 0, records_pb2.MetadataRecord(cluster=records_pb2.ClusterRecord(cluster_id="c", voters=voters)))
    lost = records_pb2.VoterReplacedRecord(broker_id=2, lost_directory_id=b"?" * 16, directory_id=b"n" * 16)
    apply_record(image, 1, records_pb2.MetadataRecord(voter_replaced=lost))
    assert image.voters[1].directory_id == b"\2" * 16  # it did not have that directory
    lost.lost_directory_id = b"\2" * 16
    apply_record(image, 2, records_pb2.MetadataRecord(voter_replaced=lost))
    assert [voter.directory_id for voter in image.voters] == [b"\1" * 16, b"n" * 16, b"\3" * 16]
    assert decode_snapshot(snapshot_of(image)[1], snapshot_of(image)[0]).voters == image.voters
