"""One broker's part in the metadata quorum: the owner of all transitions between roles. V11, V12, V13.

    from       event                                         to         what is done
    (start)    start, this node is the voter                 CANDIDATE   epoch raised; PersistVote(epoch, itself)
    CANDIDATE   vote_persisted                                LEADER     RecordEpochStart, leader change, cluster record
    LEADER     what opened the epoch is committed, replayed  (active)   the controller may decide and answer
    (start)    start, another node is the voter              OBSERVER  a session to the voter
    OBSERVER  an answer of a higher epoch                   OBSERVER  that epoch is adopted, positions start anew

For now there is one voter: its own vote is a majority, and nobody else can lead. With more voters, CANDIDATE waits for
the votes of others, and LEADER may end; the commit rule and the sessions are written for both.

    in                                                    out
    start, vote_persisted, tick                           take_effects() -> list[QuorumEffect], in order
    log_appended, log_flushed, log_truncated              take_committed() -> list[CommittedBatch] to replay, in order
    open_session, replicate_request, close_session        next_message(session_id)
    leader_session_opened, _closed, leader_message        next_request()
    append_records (while active) -> end offset

Times are monotonic milliseconds; `timestamp_us` is the wall clock's, for the record batches only.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minilog.errors import InconsistentClusterId, InvalidConfig, NotController, NotLeaderOrFollower
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.quorum.cluster import check_cluster, cluster_record, find_cluster_record, new_cluster_id
from minilog_broker.quorum.effects import AnswerVote, PersistVote, QuorumEffect, SessionRefused, SnapshotId, VoteState
from minilog_broker.quorum.leader import Leader
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.records import CommittedBatch, decode_run, encode_leader_change, encode_records
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.voters import Voter
from minilog_broker.replication.host import Host, TimerKind
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.settings import ReplicationSettings

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log

REPLAY_BYTES = 1 << 20  # one step of a replay: the event loop has its turn between two


class Role(enum.Enum):
    """See the module's table."""

    UNATTACHED = enum.auto()
    PROSPECTIVE = enum.auto()
    CANDIDATE = enum.auto()
    LEADER = enum.auto()
    FOLLOWER = enum.auto()
    OBSERVER = enum.auto()


class QuorumNode:
    """See the module's text. `cluster_id`: what the data directory knows; None where it is new."""

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        cluster_id: str | None,
        voters: Sequence[peer_pb2.VoterAddress],
        vote: VoteState,
        log: Log,
        settings: ReplicationSettings,
        quorum_settings: QuorumSettings,
        snapshot: SnapshotId | None,
        rng: random.Random,
    ) -> None:
        if len(voters) != 1:
            raise InvalidConfig(
                f"{len(voters)} voters were given: this version has a metadata quorum of one, give one voter"
            )
        self.role = Role.UNATTACHED
        self.node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._voters = tuple(voters)
        self._log = ReplicaLog(log)
        self._epoch = max(vote.epoch, self._log.last_epoch or 0, log.epochs.latest_epoch or 0)
        self._rng = rng
        self.may_vote = True
        self._host = Host(node_id, settings)
        self._votes: list[QuorumEffect] = []
        self._leader: Leader | None = None
        self._observer: Observer | None = None
        self._replayed_end_offset = self._log.log_start

    # -- what it knows

    @property
    def epoch(self) -> int:
        return self._observer.leader_epoch if self._observer else self._epoch

    @property
    def leader_id(self) -> int:
        """Who leads the quorum, and so is the controller: with one voter, that one."""
        return self._voters[0].broker_id

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_active(self) -> bool:
        """Leading, and what opened the epoch is committed and replayed: the controller may decide (REPLICATION.md)."""
        return self._leader is not None and self._replayed_end_offset >= self._leader.opening_end_offset

    @property
    def committed_end_offset(self) -> int:
        return self._log.high_watermark

    @property
    def replayed_end_offset(self) -> int:
        return self._replayed_end_offset

    @property
    def log_end_offset(self) -> int:
        """The end of what was given a place, written or not."""
        return self._log.end

    def take_effects(self) -> list[QuorumEffect]:
        effects = [*self._votes, *self._host.effects]
        self._votes.clear()
        self._host.effects.clear()
        if self._leader is not None:
            effects += self._leader.refused
            self._leader.refused.clear()
        return effects

    # -- transitions

    def start(self, now_ms: float) -> None:
        """Take a role. Raises InconsistentVoters or InconsistentClusterId where the log says that it cannot be."""
        recorded = find_cluster_record(self._decisions(self._log.log_start, self._log.end))
        if recorded is not None:
            self._check(recorded)
        if self.leader_id == self.node_id:
            self._stand_for_election(known_cluster=recorded is not None)
        else:
            self._observe(now_ms)

    def _stand_for_election(self, *, known_cluster: bool) -> None:
        if self._cluster_id is not None and not known_cluster:
            raise InconsistentClusterId(
                f"the data directory of broker {self.node_id} belongs to cluster {self._cluster_id}, but its metadata "
                f"log is empty: restore __cluster_metadata-0, or start a new cluster in an empty directory"
            )
        self._epoch += 1
        self.role = Role.CANDIDATE
        self._votes.append(PersistVote(self._epoch, self.node_id))

    def vote_persisted(self, now_ms: float, timestamp_us: int) -> None:
        """Epoch and vote are on disk: a majority of one."""
        if self.role is not Role.CANDIDATE:
            return
        recorded = find_cluster_record(self._decisions(self._log.log_start, self._log.end))
        opening = [encode_leader_change(self.node_id, self._epoch, self._voters, timestamp_us)]
        if recorded is None:
            first = cluster_record(new_cluster_id(self._rng), self._voters, {self.node_id: self._directory_id})
            opening.append(encode_records([first], timestamp_us))
        self.role = Role.LEADER
        self._leader = Leader(self._host, self._log, self._epoch, [voter.broker_id for voter in self._voters])
        self._leader.open_epoch(opening)

    def _observe(self, now_ms: float) -> None:
        self.role = Role.OBSERVER
        self._observer = Observer(self._host, self._log, self._epoch, self._voters[0], self._rng)
        self._observer.start(now_ms)

    def _check(self, record: records_pb2.ClusterRecord) -> None:
        check_cluster(
            record,
            cluster_id=self._cluster_id,
            voters=self._voters,
            node_id=self.node_id,
            directory_id=self._directory_id,
        )

    # -- the log

    def append_records(self, records: Sequence[records_pb2.MetadataRecord], timestamp_us: int) -> int:
        """One decision as one batch; the log's end offset behind it. Raises NotController unless active."""
        if self._leader is None or not self.is_active:
            raise NotController(f"broker {self.node_id} is not the active controller, broker {self.leader_id} is")
        return self._leader.append(encode_records(records, timestamp_us))

    def take_committed(self) -> list[CommittedBatch]:
        """The next committed decisions to replay, about a mebibyte of them; none when all are replayed (V13).

        The caller replays them before its next call. Raises as `start` where a first entry says that we do not belong.
        """
        if self._replayed_end_offset >= self._log.high_watermark:
            return []
        run = self._log.log.read(self._replayed_end_offset, REPLAY_BYTES, self._log.high_watermark)
        decisions = list(decode_run(run))
        recorded = find_cluster_record(decisions)
        if recorded is not None:
            self._check(recorded)
        self._replayed_end_offset = decisions[-1].end_offset
        if self._observer is not None:
            self._observer.replayed_end_offset = self._replayed_end_offset
        return decisions

    def _decisions(self, offset: int, end_offset: int) -> Sequence[CommittedBatch]:
        """The decisions from `offset` up to the first that has records: where the cluster record is, if anywhere."""
        found: list[CommittedBatch] = []
        while offset < end_offset and not any(decision.records for decision in found):
            found = list(decode_run(self._log.log.read(offset, REPLAY_BYTES, end_offset)))
            offset = found[-1].end_offset
        return found

    def log_appended(self, end_offset: int, now_ms: float) -> None:
        done = self._log.appended(end_offset)
        if self._leader is not None:
            self._leader.appended(now_ms)
        if self._observer is not None:
            self._observer.appended(done, now_ms)

    def log_flushed(self, durable_end_offset: int, now_ms: float) -> None:
        if not self._log.flushed(durable_end_offset):
            return
        if self._leader is not None:
            self._leader.flushed(now_ms)
        if self._observer is not None:
            self._observer.flushed()

    def log_truncated(self, now_ms: float) -> None:
        self._log.truncated()
        if self._observer is not None:
            self._observer.truncated()

    # -- votes and snapshots (not yet: one voter needs none)

    def vote_request(self, ticket: object, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """A candidate asks: answered by AnswerVote."""
        response = peer_pb2.VoteResponse(epoch=self.epoch, leader_id=self.leader_id, directory_id=self._directory_id)
        self._votes.append(AnswerVote(ticket, response))

    def vote_answered(
        self,
        voter_id: int,
        request: peer_pb2.VoteRequest,
        response: peer_pb2.VoteResponse,
        now_ms: float,
        timestamp_us: int,
    ) -> None:
        """A voter answered our SendVote."""

    def vote_unanswered(self, voter_id: int, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """It did not."""

    def begin_quorum_epoch(
        self, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float
    ) -> peer_pb2.BeginQuorumEpochResponse:
        """A leader says that it leads."""
        return peer_pb2.BeginQuorumEpochResponse(epoch=self.epoch, leader_id=self.leader_id)

    def begin_epoch_answered(
        self, voter_id: int, response: peer_pb2.BeginQuorumEpochResponse | None, now_ms: float
    ) -> None:
        """A voter answered our SendBeginQuorumEpoch; None: it did not."""

    def snapshot_request(self, request: peer_pb2.FetchSnapshotRequest) -> SnapshotId:
        """Which snapshot to send. Raises what is wrong with the request."""
        raise NotLeaderOrFollower(f"broker {self.node_id} has no snapshot")

    def snapshot_fetched(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """The snapshot of a FetchSnapshot is whole and durable here."""

    def snapshot_unfetched(self, now_ms: float) -> None:
        """It could not be fetched."""

    def snapshot_taken(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """A snapshot of our own image is durable: the log start may move up to it."""

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Recorded ones, with directory ids, as of the newest voter entry of the log."""
        return ()

    # -- sessions of others here

    def open_session(self, session_id: int, first: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        """A Replicate stream of the metadata log, by its first message, which goes to replicate_request too.

        Where we do not lead it is refused: SessionRefused.
        """
        if self._leader is None:
            text = f"broker {self.node_id} does not lead the metadata quorum, broker {self.leader_id} does or will"
            self._votes.append(SessionRefused(session_id, NotLeaderOrFollower(text), self.epoch, self.leader_id))
            return
        self._leader.open_session(session_id, first.broker_id, first.broker_epoch, now_ms)

    def close_session(self, session_id: int) -> None:
        if self._leader is not None:
            self._leader.close_session(session_id)

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        if self._leader is not None:
            self._leader.replicate_request(session_id, request, now_ms)

    def next_message(self, session_id: int, now_ms: float) -> peer_pb2.ReplicateResponse | None:
        return self._leader.next_message(session_id, now_ms) if self._leader is not None else None

    # -- our session to the leader

    def leader_session_opened(self, now_ms: float) -> None:
        if self._observer is not None:
            self._observer.session.opened(now_ms)

    def leader_session_closed(self, now_ms: float) -> None:
        if self._observer is not None:
            self._observer.session.closed(now_ms)

    def leader_message(self, response: peer_pb2.ReplicateResponse, now_ms: float) -> None:
        if self._observer is not None:
            self._observer.leader_message(response, now_ms)

    def next_request(self, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        return self._observer.next_request(now_ms) if self._observer is not None else None

    # -- time

    def next_tick_ms(self) -> float:
        return self._host.timers.next_ms()

    def tick(self, now_ms: float) -> None:
        """Call when `next_tick_ms` is reached. After a late tick of its own nobody else is late."""
        if now_ms - self.next_tick_ms() > self._host.settings.late_tick_ms:
            self._excuse(now_ms)
        for kind, reference in self._host.timers.due(now_ms):
            match kind:
                case TimerKind.SESSION if self._leader is not None and isinstance(reference, int):
                    self._leader.look_at_session(reference, now_ms)
                case TimerKind.LEADER_SESSION if self._observer is not None:
                    self._observer.session.look(now_ms)
                case TimerKind.FOLLOWER_RESUME if self._observer is not None:
                    self._observer.resume()
                case _:
                    continue

    def _excuse(self, now_ms: float) -> None:
        if self._leader is not None:
            self._leader.excuse(now_ms)
        if self._observer is not None:
            self._observer.session.excuse(now_ms)
