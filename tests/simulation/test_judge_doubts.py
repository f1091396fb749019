"""What the judge does not hold against anybody: a copy that rotted, and elections that a stray epoch asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller.topic_config import effective_topic_config
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS
from minilog_broker.storage.durable_file import write_durable_file
from tests.judges.violation import Violation
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge.hearing import Hearing
from tests.simulation.judge.metadata import Topic
from tests.simulation.judge.schemas import Schemas
from tests.simulation.judge.truth import Truth
from tests.simulation.plan import Plan
from tests.world.loop import Process

TOPIC_ID = bytes(16)
KEY = PartitionKey(TOPIC_ID, 0)
LOG = "/data/t-0"
STARTED_S = 10.0


def _cluster() -> tuple[SimulatedCluster, Truth]:
    """Of three brokers that all run."""
    cluster = SimulatedCluster(1, Plan())
    cluster.loop.close()
    for host in cluster.hosts.values():
        host.process, host.wanted = Process(host.name), True
    return cluster, Truth(cluster, lambda state, decision: None, lambda batch: None, Schemas().version)


class TestACopyThatRotted:
    """b1, b2 and b3 have one batch of t-0; b1 and b2 are in sync."""

    @pytest.fixture(autouse=True)
    def cluster(self) -> None:
        cluster, truth = _cluster()
        truth.metadata.topics[TOPIC_ID] = Topic("t", {}, effective_topic_config({}))
        truth.metadata.states[KEY] = records_pb2.PartitionRecord(topic_id=TOPIC_ID, in_sync_replicas=[1, 2])
        batch = build_batch(TOPIC_ID, 0, records_to_columns([b"a"]), timestamp_us=1)
        self.disks = [host.disk for host in cluster.hosts.values()]
        for disk in self.disks:
            disk.make_dir("/data")
            disk.make_dir(LOG)
            file = disk.open(f"{LOG}/{0:020d}.log", create=True)
            file.write([batch], 0)
            file.close()
        partition = truth.partition(KEY)
        assert partition is not None
        self.partition = partition

    def _asked(self, number: int) -> int | None:
        copy = self.partition.sound_copy(number)
        if copy is None:
            return None
        assert copy.live.end == 1
        return copy.host.number

    def test_a_sound_one_is_asked_itself(self) -> None:
        assert [self._asked(number) for number in (1, 2, 3)] == [1, 2, 3]

    def test_of_a_rotten_one_the_copy_of_a_member_is_asked(self) -> None:
        self.disks[0].flip_bit(f"{LOG}/{0:020d}.log", 3, 0)
        assert [self._asked(number) for number in (1, 2, 3)] == [2, 2, 3]

    def test_where_no_member_is_sound_nobody_is_asked(self) -> None:
        for disk in self.disks[:2]:
            disk.flip_bit(f"{LOG}/{0:020d}.log", 3, 0)
        assert [self._asked(number) for number in (1, 2, 3)] == [None, None, 3]


class TestALeaderThatHasDeletedAll:
    """b1, b2 and b3 are in sync. The log of b1 begins at 1, and it tells the high watermark 1."""

    @pytest.fixture(autouse=True)
    def world(self) -> None:
        self.cluster, truth = _cluster()
        truth.metadata.topics[TOPIC_ID] = Topic("t", {}, effective_topic_config({}))
        truth.metadata.states[KEY] = records_pb2.PartitionRecord(
            topic_id=TOPIC_ID, replicas=[1, 2, 3], in_sync_replicas=[1, 2, 3]
        )
        partition = truth.partition(KEY)
        assert partition is not None
        self.partition = partition
        self.partition.deletable = 1
        self._write(1, 1, b"")
        write_durable_file(self.cluster.hosts[1].disk, f"{LOG}/checkpoint", b'{"log_start_offset":1}')

    def _write(self, number: int, base: int, content: bytes) -> None:
        disk = self.cluster.hosts[number].disk
        for name in ("/data", LOG):
            disk.make_dir(name)
        file = disk.open(f"{LOG}/{base:020d}.log", create=True)
        file.write([content], 0)
        file.fdatasync()
        file.close()
        for name in ("/", "/data", LOG):
            disk.fsync_dir(name)

    def _write_batch(self, number: int, value: bytes) -> None:
        self._write(number, 0, build_batch(TOPIC_ID, 0, records_to_columns([value]), timestamp_us=1))

    def test_the_others_say_what_it_was(self) -> None:
        """Seed 75000206: retention ran in the moment in which the high watermark rose."""
        for number in (2, 3):
            self._write_batch(number, b"a")
        assert [header.base_offset for header in self.partition.told(1, 1, None)] == [0]
        assert self.partition.end == 1

    @pytest.mark.parametrize("other", [b"longer", None])
    def test_a_member_that_lacks_the_record_is_found(self, other: bytes | None) -> None:
        self._write_batch(2, b"a")
        if other is not None:
            self._write_batch(3, other)
        with pytest.raises(Violation, match=r"V5: b3 \(t-0\) .* is in the ISR or eligible, and lacks 0"):
            self.partition.told(1, 1, None)

    def test_records_that_no_member_has_were_not_committed(self) -> None:
        with pytest.raises(Violation, match="V1: t-0: b1 tells the high watermark 1, and has a log up to 0"):
            self.partition.told(1, 1, None)

    def test_records_that_may_not_be_deleted_are_missing(self) -> None:
        self.partition.deletable = 0
        for number in (2, 3):
            self._write_batch(number, b"a")
        with pytest.raises(Violation, match="b1 tells the high watermark 1, and has"):
            self.partition.told(1, 1, None)


class _Call:
    """The stream of the metadata log from a follower to b2."""

    method, host = "/minilog.v1.PeerService/Replicate", "b2"

    def __init__(self, client: str) -> None:
        self.client = client


class TestElections:
    """b2 leads the quorum, and b1 and b3 follow it: then b3 is heard of."""

    def _elect(
        self,
        led: int,
        epoch: int,
        stray_epoch: int,
        recorded: dict[int, str] | None = None,
        changes: Sequence[list[int]] = (),
    ) -> None:
        cluster, truth = _cluster()
        truth.metadata._directories.update(recorded or {})
        sets = [truth.metadata.voters, *changes]
        hearing = Hearing(cluster, truth)
        calls: list[Any] = [_Call("b1"), _Call("b3")]
        cluster.loop.now_s = STARTED_S
        hearing.look()
        hearing.leads(2, cluster.hosts[2].lives, led)
        for call in calls:
            hearing.saw(call, peer_pb2.ReplicateRequest(cluster_metadata=True), False)
        for _ in range(30):
            cluster.loop.now_s += 0.2
            for call in calls:
                hearing.heard(call, False)
                hearing.heard(call, True)
        cluster.stray_epoch = stray_epoch
        with patch.object(truth.metadata, "voter_sets", lambda: sets):
            hearing.leads(3, cluster.hosts[3].lives, epoch)

    @pytest.mark.parametrize(
        ("led", "epoch", "stray_epoch"),
        [
            (5, 6, -1),
            (5, 6, 3 * LEAP_EPOCHS + 1),  # no leap
            (2 * LEAP_EPOCHS + 8, 2 * LEAP_EPOCHS + 9, 2 * LEAP_EPOCHS + 1),  # it was reached before
            (5, 5 + LEAP_EPOCHS, -1),  # nobody has such an epoch
        ],
    )
    def test_a_leader_that_a_majority_heard_is_followed_by_nobody(self, led: int, epoch: int, stray_epoch: int) -> None:
        with pytest.raises(Violation, match=rf"V20: b2 led quorum epoch {led}, \[1, 2, 3\] heard it all the time"):
            self._elect(led, epoch, stray_epoch)

    def test_a_broker_on_another_disk_than_the_recorded_one_is_no_voter(self) -> None:
        """Seed 980297."""
        lost = {1: "lost", 2: "", 3: ""}
        with pytest.raises(Violation, match=r"V20: b2 led quorum epoch 5, \[2, 3\] heard it all the time"):
            self._elect(5, 6, -1, lost)
        self._elect(5, 6, -1, lost | {3: "lost"})

    def test_a_change_that_is_not_committed_needs_a_majority_of_its_voters_too(self) -> None:
        """Seed 70000091: a leader that wrote it, and could not reach the new voters, resigned."""
        lost = {1: "", 2: "", 3: "lost"}
        with pytest.raises(Violation, match=r"V20: b2 led quorum epoch 5, \[1, 2\] heard it all the time"):
            self._elect(5, 6, -1, lost, changes=[[1, 2]])
        self._elect(5, 6, -1, lost, changes=[[2, 3]])

    @pytest.mark.parametrize("led", [5, 2 * LEAP_EPOCHS + 8])
    def test_but_on_the_way_to_a_stray_epoch(self, led: int) -> None:
        """The last leap may be shorter than the others, by the elections since (seed 800544)."""
        stray = 3 * LEAP_EPOCHS + 1
        self._elect(led, min(led + LEAP_EPOCHS, stray) + 1, stray)
