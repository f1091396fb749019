"""Leader: writes the metadata log in one epoch, serves it, commits by majority, and resigns if it hears no majority.

Its first entry is a leader change. In a new log the cluster record follows. An entry is committed when a majority of
voters have it on disk, and also an entry of this epoch (V12). A voter counts only with its recorded directory.
Observers do not count. Sessions, positions and divergence work as for data (replication/sessions,
replication/rules/divergence.py). The difference is a position below the log start: the leader answers it with the id of
a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InconsistentVoters,
    MinilogError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TimedOut,
    UnknownLeaderEpoch,
)
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.quorum.ballot import is_majority
from minilog_broker.quorum.commit import committed_end
from minilog_broker.quorum.member import QuorumMember, Role
from minilog_broker.quorum.quorum_effects import (
    AppendToLog,
    MetadataSessionRefused,
    RecordEpochStart,
    SendBeginQuorumEpoch,
    SessionReady,
)
from minilog_broker.quorum.records import METADATA_KEY, place
from minilog_broker.quorum.voters import VoterKey, VoterSet
from minilog_broker.quorum.voters_heard import VotersHeard
from minilog_broker.replication.context import TimerKind
from minilog_broker.replication.replica_effects import CheckCopy
from minilog_broker.replication.replica_log import LogOffsets, QueuedAppend
from minilog_broker.replication.rules.divergence import (
    NO_COMMON_EPOCH,
    BelowLogStart,
    Diverged,
    LeaderEpochs,
    compare_position,
)
from minilog_broker.replication.sessions.session import ServedSession, SessionPartition, below_log_start, message_of
from minilog_broker.replication.sessions.source import Asker, Audience, PositionAnswer, Refuse, SendRuns, Wait

_LOOK_PAUSE_MS = 1_000.0  # between two checks of our own copy: a follower that needs one waits so long


class QuorumLeader:
    """The role of the voter that leads the quorum. It is the Source of its sessions.

    At `due_ms` it checks that it hears a majority, and tells voters of its epoch.
    """

    role = Role.LEADER

    def __init__(self, member: QuorumMember, epoch: int, now_ms: float) -> None:
        log = member.log
        self.leader_id = member.node_id
        self.leader_epoch = epoch
        self.epoch_start_offset = log.end
        self.opening_end_offset = log.end  # behind the entries that open the epoch
        self.voters = VotersHeard(member, now_ms)
        self._look_again_ms = now_ms
        self._member = member
        self._log = log
        self._epochs = LeaderEpochs(log, epoch, log.end)
        self._sessions: dict[int, ServedSession] = {}
        self._keys: dict[int, VoterKey] = {}  # the broker at the other side of a session
        self._ends: dict[int, int] = {}  # the durable end by session, whether its broker votes or not
        self._subscriptions: dict[int, SessionPartition] = {}

    # -- the log

    def open_epoch(self, batches: Iterable[bytes]) -> None:
        """Append the first entries, the leader change before all others. The vote is durable."""
        self._member.emit(RecordEpochStart(METADATA_KEY, self.leader_epoch, self.epoch_start_offset))
        for batch in batches:
            self.append(batch)
        self.opening_end_offset = self._log.end

    def append(self, batch: bytes) -> int:
        """Give `batch` the next place in the log. Returns the end offset behind it."""
        placed = place(batch, self._log.end, self.leader_epoch)
        self._log.queue_append(QueuedAppend(placed.headers, len(batch), credit=None))
        voters_end = self._member.voters.newest_end_offset
        self._member.emit_log(AppendToLog(METADATA_KEY, placed))
        if self._member.voters.newest_end_offset != voters_end:
            self.voters.voters_changed(self._member.now_ms)
        return self._log.end

    def appended(self, now_ms: float) -> None:
        self._tell_sessions(now_ms, news=False)

    def flushed(self, now_ms: float) -> None:
        self.voters.set_end(self._member.own_key, self._log.durable_end)
        self._commit(now_ms)

    def _commit(self, now_ms: float) -> None:
        before = self._log.high_watermark
        end = committed_end(self.voters.ends(), self.epoch_start_offset, before)
        if end > before and self._log.raise_high_watermark(end):
            self._tell_sessions(now_ms, news=True)
            # After a replacement the former voters count no more. They may have held back the entries that follow.
            self._commit(now_ms)

    def _tell_sessions(self, now_ms: float, *, news: bool) -> None:
        for session_id, subscription in self._subscriptions.items():
            self._sessions[session_id].available(subscription, now_ms, news=news)

    # -- the quorum

    @property
    def due_ms(self) -> float:
        return min(self.voters.quorum_until_ms(), self.voters.telling_due_ms())

    def tell(self, now_ms: float) -> None:
        """Tell the voters that do not fetch who leads."""
        for voter_id in self.voters.take_to_tell(now_ms):
            request = peer_pb2.BeginQuorumEpochRequest(
                cluster_id=self._member.cluster_id,
                leader_id=self._member.node_id,
                epoch=self.leader_epoch,
                voter_id=voter_id,
            )
            self._member.emit(SendBeginQuorumEpoch(voter_id, request))

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """This process stood still for `delay_ms`. That silence is not the fault of the others."""
        self.voters.excuse(delay_ms, now_ms)
        for session in self._sessions.values():
            session.excuse(delay_ms, now_ms)

    def resign(self, epoch: int, leader_id: int) -> None:
        """Lead no more. Tell every session the epoch that is known now, and its leader."""
        text = f"broker {self._member.node_id} does not lead the metadata quorum any more"
        leader = self._member.addresses.word_of(leader_id)
        for session_id in list(self._sessions):
            refusal = NotLeaderOrFollower(text)
            self._member.emit(MetadataSessionRefused(session_id, refusal, epoch, leader_id, leader))
        self._sessions.clear()
        self._subscriptions.clear()

    # -- sessions

    def open_session(self, session_id: int, first: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        """Take a session. Refuse it as a whole if the other side belongs to another cluster, or has the id of this
        broker."""
        member = self._member
        if member.is_stranger(first.cluster_id, first.broker_id, first.directory_id):
            if not member.settled_cluster_id:  # another voter may have founded the cluster, and the other side knows it
                text = f"broker {member.node_id} founds cluster {member.cluster_id}, and has not committed it yet"
                self._refuse(session_id, NotLeaderOrFollower(text))
                return
            text = (
                f"broker {first.broker_id} belongs to cluster {first.cluster_id}, broker {member.node_id} leads "
                f"cluster {member.cluster_id}: start it with the voters of its own cluster, or with an empty directory"
            )
            self._refuse(session_id, InconsistentClusterId(text))
            return
        if first.broker_id == member.node_id:
            text = f"broker id {first.broker_id} is that of the quorum's leader: give every broker an id of its own"
            self._refuse(session_id, InconsistentVoters(text))
            return
        self._sessions[session_id] = ServedSession(
            session_id=session_id,
            audience=Audience.FOLLOWER,
            settings=member.settings,
            wake=lambda woken: member.emit(SessionReady(woken)),
            hold=lambda held, due_ms: member.context.timers.arm(TimerKind.SESSION, held, due_ms),
            read=member.emit,
            opened_ms=now_ms,
            keepalive_ms=member.settings.peer_keepalive_ms(first.keepalive_ms),
            broker_id=first.broker_id,
            broker_epoch=first.broker_epoch,
        )
        self._keys[session_id] = VoterKey(first.broker_id, first.directory_id)
        self._ends[session_id] = 0
        if first.directory_id:  # who only listens does not follow yet, and is told on
            self.voters.session_opened(first.broker_id)

    def _refuse(self, session_id: int, error: MinilogError) -> None:
        self._member.emit(MetadataSessionRefused(session_id, error, self.leader_epoch, self._member.node_id))

    def close_session(self, session_id: int, now_ms: float) -> None:
        session = self._sessions.pop(session_id, None)
        self._subscriptions.pop(session_id, None)
        self._keys.pop(session_id, None)
        self._ends.pop(session_id, None)
        if session is not None and all(other.broker_id != session.broker_id for other in self._sessions.values()):
            self.voters.session_closed(session.broker_id, now_ms)

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.grant(request.credit_bytes, now_ms)
        key = self._keys[session_id]
        self.voters.hear(key, now_ms)
        for position in request.positions:
            if PartitionKey.of(position.partition_id) == METADATA_KEY:
                self._subscriptions[session_id] = session.take_position(METADATA_KEY, self, position, now_ms)
        for progress in request.progress:
            if session.is_at(PartitionKey.of(progress.partition_id), progress.leader_epoch, progress.position_number):
                self._ends[session_id] = min(progress.durable_end_offset, self._log.end)
                self.voters.set_end(key, self._ends[session_id])
                self._commit(now_ms)
            if progress.HasField("corrupt_offset"):
                self._check_own_copy(progress.corrupt_offset, now_ms)

    def copy_end(self, key: VoterKey) -> int | None:
        """The durable end of another broker's log, whether it votes or not. None: it has no session here."""
        return next((end for session_id, end in self._ends.items() if self._keys[session_id] == key), None)

    def hears_majority_of(self, voters: VoterSet, now_ms: float) -> bool:
        """Whether the leader has heard a majority of `voters` lately. A broker that does not vote yet counts by its
        session."""
        fetching = set(self._keys.values()) - self.voters.keys
        return is_majority(voters & (self.voters.heard(now_ms) | fetching), voters)

    def _check_own_copy(self, offset: int, now_ms: float) -> None:
        """A follower got this batch damaged three times, so check our own copy. If that is damaged, this broker ends
        (copy_checked)."""
        if now_ms < self._look_again_ms or not self._log.log_start <= offset < self._log.appended_end:
            return
        self._look_again_ms = now_ms + _LOOK_PAUSE_MS
        self._member.emit(CheckCopy(METADATA_KEY, offset, max_bytes=1))

    def session(self, session_id: int) -> ServedSession | None:
        """The session, if it is open here."""
        return self._sessions.get(session_id)

    def next_message(self, session_id: int, now_ms: float) -> StreamMessage[peer_pb2.ReplicateResponse] | None:
        session = self._sessions.get(session_id)
        runs = session.next_runs(now_ms) if session is not None else None
        if runs is None:
            return None
        response = message_of(peer_pb2.ReplicateResponse, runs)
        subscription, snapshot = self._subscriptions.get(session_id), self._log.snapshot
        if snapshot is not None and subscription is not None and self._needs_snapshot(subscription):
            response.message.snapshot_id.end_offset, response.message.snapshot_id.epoch = snapshot
        return response

    def _needs_snapshot(self, subscription: SessionPartition) -> bool:
        """Whether the log cannot lead on from the position."""
        if isinstance(subscription.error, OffsetOutOfRange):
            return True
        diverged = subscription.diverged
        return diverged is not None and diverged.epoch == NO_COMMON_EPOCH and self._log.log_start > 0

    def look_at_session(self, session_id: int, now_ms: float) -> None:
        """Timer: a sign of life is due, or the other side gave none."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        if now_ms - session.last_heard_ms >= self._member.settings.silence_ms:
            self.close_session(session_id, now_ms)
            text = f"broker {session.broker_id} was silent on its metadata session: open it anew"
            self._refuse(session_id, TimedOut(text))
            return
        session.look(now_ms)

    # -- the source of its sessions

    @property
    def schemas(self) -> None:
        """The metadata log has none."""
        return None

    def check_position(self, position: data_pb2.FetchPosition, session: Asker, now_ms: float) -> PositionAnswer:
        if position.leader_epoch < self.leader_epoch:
            text = f"quorum epoch {position.leader_epoch} is over, it is {self.leader_epoch}"
            return Refuse(FencedLeaderEpoch(text))
        if position.leader_epoch > self.leader_epoch:
            text = f"quorum epoch {position.leader_epoch} is not known here, ours is {self.leader_epoch}"
            return Wait(UnknownLeaderEpoch(text))
        verdict = compare_position(
            self._epochs,
            log_start=self._log.log_start,
            log_end=self._log.end,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch if position.HasField("last_fetched_epoch") else None,
        )
        match verdict:
            case Diverged():
                return verdict
            case BelowLogStart(log_start_offset=log_start):
                return Refuse(below_log_start(position.fetch_offset, log_start))
            case _:
                return SendRuns()

    def readable_end(self, audience: Audience) -> int:
        return self._log.appended_end

    def ends(self) -> LogOffsets:
        committed = self._log.high_watermark
        return LogOffsets(committed, committed, self._log.log_start, self._log.appended_end)

    @property
    def cuts(self) -> int:
        return self._log.cuts

    def read_failed(self, error: Exception) -> None:
        """Raises it. A broker whose metadata log is damaged ends."""
        raise error

    def epoch_before(self, offset: int) -> int | None:
        return self._log.log.epoch_before(offset)

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        return []  # no transactions in the metadata log
