"""The node's part in snapshots: where the log starts, which snapshot is on its way, where the replay goes on.

    what happens                           what is done
    start, with a snapshot                 LoadSnapshot; the log is moved up to it, or begun anew behind it where it
                                           does not reach it or parted from it before
    a snapshot of our own is durable       DeleteBeforeSnapshot: the log may drop what is below
    a fetched one is whole and durable     StartLogAt, LoadSnapshot: all that we had is older, or was never committed

While a snapshot is to be loaded, the node hands out no decision for the replay.
"""

from __future__ import annotations

from minilog.errors import InconsistentClusterId, NotLeaderOrFollower, OffsetOutOfRange, StorageError
from minilog.record_batch.header import Buffer
from minilog.v1 import peer_pb2
from minilog_broker.levels import check_level
from minilog_broker.quorum.cluster import check_cluster
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.quorum_effects import CommittedRead, DeleteBeforeSnapshot, LoadSnapshot, StartLogAt
from minilog_broker.quorum.records import METADATA_KEY, CommittedBatch, decode_run
from minilog_broker.quorum.voters import voters_of
from minilog_broker.storage.snapshot_id import SnapshotId

REPLAY_BYTES = 1 << 20  # one step of a replay: the event loop has its turn between two


class NodeSnapshots:
    """The snapshots of one node: where its log starts, what it is loading, and up to where it has replayed."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._log = member.log
        self.loading: SnapshotId | None = None
        self.replayed_end_offset = self._log.log_start

    # -- where the log starts

    def start(self) -> bool:
        """Begin, at a start. Whether a snapshot has to be loaded first. Raises StorageError if metadata is missing."""
        snapshot, log = self._log.snapshot, self._log
        if log.log_start > (0 if snapshot is None else snapshot.end_offset):
            raise StorageError(
                f"the metadata log of broker {self._member.node_id} begins at offset {log.log_start}, and there is no "
                f"whole snapshot up to there: set the data directory aside and start with an empty one. If the broker "
                f"is a voter, then replace the voter by command"
            )
        if snapshot is None:
            return False
        epoch = log.log.epoch_before(snapshot.end_offset)
        if log.log_start == snapshot.end_offset or epoch == snapshot.epoch:
            log.raise_high_watermark(snapshot.end_offset)
            if log.log_start < snapshot.end_offset:
                self._member.emit(DeleteBeforeSnapshot(snapshot.end_offset))
            self._load(snapshot)
        else:
            self._begin_anew(snapshot)
        return True

    def taken(self, snapshot_id: SnapshotId) -> None:
        """A snapshot of our own image is durable."""
        if self._log.log_start < snapshot_id.end_offset <= self._log.high_watermark:
            self._log.add_snapshot(snapshot_id)
            self._member.emit(DeleteBeforeSnapshot(snapshot_id.end_offset))

    def fetched(self, snapshot_id: SnapshotId) -> bool:
        """A snapshot of the leader is whole and durable here. Whether it has more than we know to be committed."""
        if snapshot_id.end_offset <= self._log.high_watermark:
            return False
        self._log.add_snapshot(snapshot_id)
        durable = self._log.durable_end >= snapshot_id.end_offset
        if (
            durable
            and not self._log.truncating
            and self._log.log.epoch_before(snapshot_id.end_offset) == snapshot_id.epoch
        ):
            self._log.raise_high_watermark(snapshot_id.end_offset)
            return False
        self._begin_anew(snapshot_id)
        return True

    def _begin_anew(self, snapshot_id: SnapshotId) -> None:
        self._log.begin_truncation(snapshot_id.end_offset)
        self._member.emit(StartLogAt(METADATA_KEY, snapshot_id.end_offset))
        self._load(snapshot_id)

    def _load(self, snapshot_id: SnapshotId) -> None:
        self.loading = snapshot_id
        self.replayed_end_offset = snapshot_id.end_offset
        self._member.emit(LoadSnapshot(snapshot_id))

    def requested(self, request: peer_pb2.FetchSnapshotRequest, epoch: int) -> SnapshotId:
        """The snapshot to send to a broker that our log does not reach. Raises the reason if the request is wrong."""
        if request.cluster_id and request.cluster_id != self._member.cluster_id:
            raise InconsistentClusterId(
                f"broker {request.broker_id} belongs to cluster {request.cluster_id}, this is {self._member.cluster_id}"
            )
        if request.epoch != epoch:
            raise NotLeaderOrFollower(
                f"the quorum epoch is {epoch} here, not {request.epoch}: look for the leader again"
            )
        wanted = SnapshotId(request.snapshot_id.end_offset, request.snapshot_id.epoch)
        if wanted not in self._log.snapshots:
            raise OffsetOutOfRange(f"the snapshot at offset {wanted.end_offset} is gone: ask for the one there is now")
        return wanted

    # -- replay

    def check_level(self, level: int) -> None:
        """The cluster is at `level`. Raises UnsupportedVersion if this broker cannot read that."""
        check_level(level, self._member.levels, f"cluster {self._member.cluster_id}")

    def next_committed(self) -> CommittedRead | None:
        """The next committed decisions, about REPLAY_BYTES of them. None if there are none, or if a snapshot is to be
        loaded."""
        start, end = self.replayed_end_offset, self._log.high_watermark
        return None if self.loading is not None or start >= end else CommittedRead(start, end, REPLAY_BYTES)

    def take_committed(self, read: CommittedRead, run: Buffer) -> list[CommittedBatch]:
        """The decisions in `run`. None of them if the replay goes on elsewhere by now, at a snapshot."""
        if self.loading is not None or read.offset != self.replayed_end_offset or not run:
            return []
        decisions = list(decode_run(run))
        for decision in decisions:
            for record in decision.records:
                if record.HasField("cluster_level"):
                    self.check_level(record.cluster_level.level)
                if record.HasField("cluster"):
                    check_cluster(self._member, record.cluster.cluster_id, voters_of(record.cluster))
        self.replayed_end_offset = decisions[-1].end_offset
        return decisions
