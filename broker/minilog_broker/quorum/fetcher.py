"""How a follower or an observer of the quorum fetches the log from its leader: over one session, as replicas fetch
data.

It works as for a replica of data (replication/follower), with these differences. Nobody has to name the epoch before
the session: the leader names its own epoch to a follower that asks in an older one. Committed entries are never cut.
The leader answers with a snapshot if the position is below its log start, or if the two logs have nothing in common.
"""

from __future__ import annotations

from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, peer_pb2
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.quorum_effects import FetchSnapshot, SnapshotId
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.follower.fetcher import ReplicaFetcher
from minilog_broker.replication.follower.partition import FollowerPartition, FollowerState
from minilog_broker.replication.partition_state import BrokerIncarnation
from minilog_broker.replication.replica_log import QueuedAppend
from minilog_broker.replication.rules.divergence import NO_COMMON_EPOCH

NO_PARTITION_EPOCH = -1  # voters commit by majority: there is no ISR to be in or out of


class Fetcher:
    """The session of a follower or observer to the quorum's leader.

    `confirmed`: on this stream the leader has spoken as the leader of our epoch. `directory_id`: what the leader is
    told of this node's directory. It counts nobody without one.
    """

    def __init__(self, member: QuorumMember, leader_id: int, epoch: int, directory_id: bytes | None = None) -> None:
        self.leader_id = leader_id
        self.epoch = epoch
        self.confirmed = False
        # The session needs no address, and asks for no life of the leader: see Member.context.
        life = BrokerIncarnation(leader_id, broker_epoch=-1, host="", port=0, fenced=False, stopping=False)
        member.context.incarnations[leader_id] = life
        self.session = ReplicaFetcher(leader_id, member.context, member.rng)
        self._member = member
        self._directory_id = member.directory_id if directory_id is None else directory_id
        self._follower: FollowerPartition | None = None

    # -- its life

    def start(self, now_ms: float) -> None:
        """The epoch is durable. Open the session, or continue in it."""
        self._follower = FollowerPartition(
            METADATA_KEY,
            self.leader_id,
            self.epoch,
            NO_PARTITION_EPOCH,
            self._member.log,
            self.session,
            self._member.emit_log,
            self._member.settings,
            _nobody_reads,
            _by_snapshots,
            disk_answers=lambda: True,  # a voter is in no ISR: the leader counts it up to its durable end
            has_readers=lambda: True,  # every broker applies the committed entries
        )
        self.session.follow(self._follower, now_ms)

    def halt(self) -> None:
        """Take no more runs until `start`. The session stays."""
        self.session.unfollow(METADATA_KEY)

    def enter(self, epoch: int, now_ms: float) -> None:
        """The leader is in a later epoch. Continue in the session."""
        self.halt()
        self.epoch, self.confirmed = epoch, False
        self.start(now_ms)

    def restart(self, now_ms: float) -> None:
        """The log begins anew, behind a snapshot."""
        if METADATA_KEY in self.session.followers:
            self.halt()
            self.start(now_ms)

    def stop(self) -> None:
        """Leave the session."""
        self.session.unfollow(METADATA_KEY)
        self.session.close_if_idle()

    def opened(self, now_ms: float) -> None:
        self.confirmed = False
        self.session.opened(now_ms)

    def closed(self, now_ms: float) -> None:
        self.confirmed = False
        self.session.closed(now_ms)

    # -- messages

    def receive(self, response: StreamMessage[peer_pb2.ReplicateResponse], now_ms: float) -> None:
        """Take a message of the leader that does not refuse the session."""
        message = response.message
        for run in message.runs:
            if not _is_metadata(run.partition_id):
                continue
            # A leader of an earlier epoch cannot be followed in ours.
            self.confirmed = run.leader_epoch == self.epoch
            if self.confirmed and run.HasField("diverging_epoch"):
                self._cut_at_our_start(run.diverging_epoch)
        if message.HasField("snapshot_id"):
            self._needs_snapshot(SnapshotId(message.snapshot_id.end_offset, message.snapshot_id.epoch), now_ms)
            response = StreamMessage(peer_pb2.ReplicateResponse())
        self.session.receive(response, now_ms)

    def _cut_at_our_start(self, divergence: data_pb2.DivergingEpoch) -> None:
        """Change a divergence so that the follower cuts at our start, if the logs part exactly there.

        Then the common epoch is the one that our snapshot ends with, and our log has no entry of it. The follower looks
        for the epoch in its log. So it gets the end of our own first epoch in its place, and cuts there.
        """
        epochs, log = self._member.log.log.epochs, self._member.log
        common_epoch, end_offset = log.end_offset_for(divergence.epoch, log.end)
        is_base = epochs.end_offset_for(divergence.epoch, log.end)[0] == NO_COMMON_EPOCH != common_epoch
        if is_base and epochs.entries and divergence.end_offset >= end_offset:
            divergence.epoch, divergence.end_offset = epochs.entries[0][0], end_offset

    def _needs_snapshot(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """Ask for the snapshot, unless one is on its way. Whatever comes of it, report our position again after a
        pause.

        A snapshot of a later epoch than its leader's cannot be. A start would take its epoch for ours.
        """
        log = self._member.log
        if self._follower is not None and self._follower.state is FollowerState.FETCHING:
            self._follower.pause(now_ms, self._member.timing.snapshot_pause_ms)
        is_possible = snapshot_id.end_offset > log.high_watermark and 0 <= snapshot_id.epoch <= self.epoch
        if is_possible and not self._member.fetching_snapshot:
            self._member.fetching_snapshot = True
            self._member.emit(FetchSnapshot(self.leader_id, snapshot_id))

    def next_request(self, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        request = self.session.next_request(now_ms)
        if (
            request is not None and request.broker_epoch == self._member.context.broker_epoch
        ):  # the first one of a stream
            request.cluster_metadata = True
            request.cluster_id = self._member.cluster_id
            request.directory_id = self._directory_id
        return request

    # -- the answers of the disk

    def resume(self) -> None:
        if self._follower is not None:
            self._follower.resume()

    def appended(self, done: list[QueuedAppend], now_ms: float) -> None:
        for append in done:
            if append.credit is not None and append.credit[0] == self.leader_id:
                self.session.give_back(append.credit[1], append.size_bytes)
        if self._follower is not None:
            self._follower.settled(now_ms)

    def flushed(self) -> None:
        if self._follower is not None:
            self._follower.flushed()

    def truncated(self) -> None:
        if self._follower is not None:
            self._follower.truncated()


def metadata_epochs(response: peer_pb2.ReplicateResponse) -> list[int]:
    """The quorum epochs in which the sender of a message speaks."""
    return [run.leader_epoch for run in response.runs if _is_metadata(run.partition_id)]


def _is_metadata(partition_id: common_pb2.PartitionId) -> bool:
    return PartitionKey.of(partition_id) == METADATA_KEY


def _nobody_reads(now_ms: float) -> None:
    """Consumers read data from followers (follower/reads.py), and never the metadata log."""


def _by_snapshots(log_start: int) -> None:
    """Data follows the leader's log start (leader/delete_records.py). Each voter moves the start of its own metadata
    log, by its snapshots."""
