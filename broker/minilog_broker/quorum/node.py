"""One broker's part in the metadata quorum: events in, effects out. V11, V12, V13, V20, V21.

    in                                                    out
    start, tick, vote_persisted                           take_effects() -> list[QuorumEffect], in order
    vote_request, vote_answered, vote_unanswered          next_committed() to be read, take_committed() to be replayed
    begin_quorum_epoch, begin_epoch_answered              next_read(session_id), next_message(session_id)
    log_appended, log_flushed, log_truncated              next_request()
    open_session, replicate_request, close_session        next_tick_ms()
    run_read, run_not_in_memory, read_failed
    fetcher_stream_opened, _closed, leader_message
    snapshot_request, _taken, _fetched, _unfetched, _loaded
    append_records (while active) -> end offset

Each role has a file of its own, and `transitions` owns the ways between them. quorum_effects.py has each effect and its
answer. Times are monotonic milliseconds. `timestamp_us` is the wall clock's time, and only goes into record batches. An
event raises InconsistentVoters or InconsistentClusterId if this node does not belong to the cluster. It raises
UnsupportedVersion if the node has to read what a later version wrote. The process ends with that sentence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from minilog.addresses import Address
from minilog.errors import (
    InconsistentClusterId,
    InconsistentVoters,
    MinilogError,
    NotController,
    NotLeaderOrFollower,
    StorageError,
    error_from_wire,
)
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2, records_pb2
from minilog.versions import VersionRange
from minilog_broker.quorum.cluster import check_cluster, check_new
from minilog_broker.quorum.elections import Elections
from minilog_broker.quorum.fetcher import metadata_epochs
from minilog_broker.quorum.follower import Follower
from minilog_broker.quorum.leader import QuorumLeader
from minilog_broker.quorum.member import NO_LEADER, QuorumMember, Role
from minilog_broker.quorum.metadata_log import MetadataLog
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.quorum_effects import (
    CommittedRead,
    MetadataSessionRefused,
    QuorumEffect,
    SnapshotId,
    VoteState,
)
from minilog_broker.quorum.records import CommittedBatch, encode_records
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.snapshots import NodeSnapshots
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.quorum.voters import Voter, VoterKey, VoterSet
from minilog_broker.replication.context import TimerKind
from minilog_broker.replication.replica_effects import ReadRun
from minilog_broker.replication.rules.own_delay import own_delay_ms
from minilog_broker.replication.sessions.session import ServedSession
from minilog_broker.replication.settings import ReplicationSettings

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log


class QuorumNode:
    """The core of one broker's part in the metadata quorum.

    `cluster_id`: from the data directory, None if the directory is new. `address`: other brokers reach this one there.
    `voters`: the addresses that this broker was started with. `snapshot`: the newest whole snapshot on disk. `levels`:
    the levels that this broker can read. `registered`: the address of a voter's broker, as the image has it.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        cluster_id: str | None,
        address: Address,
        voters: Sequence[peer_pb2.VoterAddress],
        vote: VoteState,
        log: Log,
        settings: ReplicationSettings,
        quorum_settings: QuorumSettings,
        snapshot: SnapshotId | None,
        rng: random.Random,
        levels: VersionRange,
        registered: Callable[[Voter], Address | None],
    ) -> None:
        self.node_id = node_id
        self._log = MetadataLog(log, snapshot)
        self._member = QuorumMember(
            node_id,
            directory_id,
            cluster_id,
            address,
            voters,
            self._log,
            settings,
            quorum_settings,
            rng,
            levels,
            registered,
        )
        self._snapshots = NodeSnapshots(self._member)
        epochs = (vote.epoch, self._log.last_epoch, log.epochs.latest_epoch, snapshot and snapshot.epoch)
        epoch = max(stored_epoch or 0 for stored_epoch in epochs)
        self._transitions = Transitions(self._member, self._snapshots, vote, epoch)
        self._elections = Elections(self._member, self._transitions)
        self._ever_heard = False  # a leader, in this life: from then on this node belongs to the cluster
        self._refused_by: set[int] = set()  # voters that say that this node does not belong

    # -- its state

    @property
    def role(self) -> Role:
        return self._transitions.state.role

    @property
    def epoch(self) -> int:
        """The epoch of the leader, as far as this node knows it. What it has promised may be later, while it only
        listens."""
        state = self._transitions.state
        return state.fetcher.epoch if isinstance(state, Follower) else self._transitions.epoch

    @property
    def leader_id(self) -> int:
        """The broker that leads the quorum, and so is the controller; -1: not known."""
        return self._transitions.leader_id

    @property
    def is_leader(self) -> bool:
        return self._transitions.leader is not None

    @property
    def is_active(self) -> bool:
        """Whether this node leads, and the entries that open its epoch are committed and replayed. Then the controller
        may decide."""
        leader = self._transitions.leader
        return leader is not None and self.replayed_end_offset >= leader.opening_end_offset

    @property
    def committed_end_offset(self) -> int:
        return self._log.high_watermark

    @property
    def replayed_end_offset(self) -> int:
        return self._snapshots.replayed_end_offset

    @property
    def log_end_offset(self) -> int:
        """The end of all entries that have a place in the log, written or not."""
        return self._log.end

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The recorded voters with their directory ids, as of the newest voter entry of the log. Empty if there is
        none."""
        return self._member.voters.current

    def addresses(self, broker_id: int) -> tuple[Address, ...]:
        """The addresses at which a voter may listen, the likeliest first. Empty if none is known."""
        return self._member.addresses.of(broker_id)

    @property
    def may_vote(self) -> bool:
        """False if the log names this broker as a voter, but with another directory: the broker has lost its disk."""
        return self._member.may_vote

    def copy_end(self, key: VoterKey) -> int | None:
        """The durable end of the log of a broker that fetches from this one. None: it does not."""
        leader = self._transitions.leader
        return None if leader is None else leader.copy_end(key)

    def hears_majority_of(self, voters: VoterSet, now_ms: float) -> bool:
        """Whether this node leads, and hears a majority of `voters`. A broker that does not vote yet counts by its
        session."""
        leader = self._transitions.leader
        return leader is not None and leader.hears_majority_of(voters, now_ms)

    def take_effects(self) -> list[QuorumEffect]:
        effects = list(self._member.effects)
        self._member.effects.clear()
        return effects

    # -- a start, and time

    def start(self, now_ms: float) -> None:
        """Take a role. If there is a snapshot, that happens when it is loaded. Also raises StorageError if metadata is
        missing."""
        self._member.now_ms = now_ms
        if not self._snapshots.start():
            self._settle_in(now_ms)

    def _settle_in(self, now_ms: float) -> None:
        """Take the first role: the node has read everything that the disk has."""
        member = self._member
        if not self._log.truncating:  # otherwise the log begins anew behind the snapshot
            start = max(self._log.log_start, member.voters.newest_end_offset)
            member.voters.scan(self._log.log, start, self._log.log.log_end_offset)
        if member.voters.cluster_id is not None:
            check_cluster(member, member.voters.cluster_id, member.voters.current)
        else:
            check_new(member)
        self._transitions.take_part(now_ms)

    def next_tick_ms(self) -> float:
        return min(self._member.context.timers.next_ms(), self._transitions.state.due_ms)

    def tick(self, now_ms: float) -> None:
        """Call this at `next_tick_ms`. The time that this process stood still makes nobody late."""
        self._at(now_ms)
        for kind, reference in self._member.context.timers.due(now_ms):
            leader, fetcher = self._transitions.leader, self._transitions.fetcher
            match kind:
                case TimerKind.SESSION if leader is not None and isinstance(reference, int):
                    leader.look_at_session(reference, now_ms)
                case TimerKind.LEADER_SESSION if fetcher is not None and reference == fetcher.leader_id:
                    fetcher.session.look(now_ms)
                case TimerKind.FOLLOWER_RESUME if fetcher is not None:
                    fetcher.resume()
                case _:
                    continue
        if self._transitions.state.due_ms <= now_ms:
            self._transitions.due(now_ms)

    def leave(self, now_ms: float) -> None:
        """This process ends: the node stands for election no more."""
        self._at(now_ms)
        self._transitions.leave(now_ms)

    def disk_stalled(self, now_ms: float) -> None:
        """Our disk does not answer, and without it a leader decides nothing. Lead no more, if another voter can."""
        self._at(now_ms)
        if self._transitions.leader is not None and not self._member.is_only_voter:
            self._transitions.resign(now_ms)

    def _at(self, now_ms: float) -> None:
        """Begin an event. If this process stood still before it, and not yet at the event before, excuse the others for
        that time."""
        member, state, due_ms = self._member, self._transitions.state, self.next_tick_ms()
        delay_ms = own_delay_ms(max(due_ms, member.now_ms), now_ms, member.settings.shortest_timeout_ms)
        member.now_ms = now_ms
        if delay_ms > 0 and isinstance(state, QuorumLeader | Follower | Observer):
            state.excuse(delay_ms, now_ms)

    # -- votes, and who leads (quorum.elections)

    def vote_persisted(self, now_ms: float, timestamp_us: int) -> None:
        """The oldest PersistVote is durable."""
        self._at(now_ms)
        self._elections.vote_persisted(now_ms, timestamp_us)

    def vote_request(self, ticket: object, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """A candidate asks for our vote. AnswerVote answers it, when what the answer promises is durable."""
        self._at(now_ms)
        self._elections.vote_request(ticket, request, now_ms)

    def vote_answered(
        self,
        voter_id: int,
        request: peer_pb2.VoteRequest,
        response: peer_pb2.VoteResponse,
        now_ms: float,
        timestamp_us: int,
    ) -> None:
        """A voter answered our SendVote."""
        self._at(now_ms)
        self._introduced(response)
        if response.error.code:
            self._vote_refused(VoterKey(voter_id, response.directory_id), error_from_wire(response.error))
        self._elections.vote_answered(voter_id, request, response, now_ms, timestamp_us)

    def vote_unanswered(self, voter_id: int, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """The voter did not answer."""
        self._at(now_ms)
        self._elections.vote_unanswered(voter_id, request, now_ms)

    def begin_quorum_epoch(
        self, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float
    ) -> peer_pb2.BeginQuorumEpochResponse:
        """A broker says that it leads."""
        self._at(now_ms)
        return self._elections.begin_quorum_epoch(request, now_ms)

    def begin_epoch_answered(
        self, voter_id: int, response: peer_pb2.BeginQuorumEpochResponse | None, now_ms: float
    ) -> None:
        """A voter answered our SendBeginQuorumEpoch. None: it did not, and the leader tells it again."""
        self._at(now_ms)
        if response is not None:
            self._introduced(response)
            self._elections.begin_epoch_answered(voter_id, response, now_ms)

    def _vote_refused(self, voter: VoterKey, refusal: MinilogError | None) -> None:
        """A voter says that this node does not belong. Raises `refusal` if most of the others say so.

        A voter that is recorded here was asked when this node founded the cluster. If it names another cluster since,
        the leader of that cluster takes this node.
        """
        founded_together = isinstance(refusal, InconsistentClusterId) and voter in self._member.voters.keys
        if isinstance(refusal, InconsistentClusterId | InconsistentVoters) and not self._ever_heard:
            if founded_together and not self._member.settled_cluster_id:
                return
            self._refused_by.add(voter.broker_id)
            if 2 * len(self._refused_by) > len(self._member.voter_ids) - 1:
                raise refusal

    def _introduced(self, response: peer_pb2.VoteResponse | peer_pb2.BeginQuorumEpochResponse) -> None:
        """A peer names a leader, which our log may not know."""
        if response.HasField("leader"):
            self._member.addresses.introduce(response.leader)

    # -- the log

    def append_records(self, records: Sequence[records_pb2.MetadataRecord], timestamp_us: int) -> int:
        """Append one decision as one batch. Returns the log's end offset behind it. Raises NotController unless
        active."""
        leader = self._transitions.leader
        if leader is None or not self.is_active:
            raise NotController(f"broker {self.node_id} is not the active controller, broker {self.leader_id} is")
        return leader.append(encode_records(records, timestamp_us))

    def next_committed(self) -> CommittedRead | None:
        """The next committed decisions to read, about a mebibyte. None if all are replayed (V13)."""
        return self._snapshots.next_committed()

    def take_committed(self, read: CommittedRead, run: Buffer) -> list[CommittedBatch]:
        """The decisions in `run`, which was read for `read`. None of them if a snapshot came in their place.

        The caller replays them before its next call. Raises the errors of `start` if a first entry says that this node
        does not belong.
        """
        return self._snapshots.take_committed(read, run)

    def log_appended(self, end_offset: int, now_ms: float) -> None:
        self._at(now_ms)
        done = self._log.appended(end_offset)
        if (leader := self._transitions.leader) is not None:
            leader.appended(now_ms)
        if (fetcher := self._transitions.fetcher) is not None:
            fetcher.appended(done, now_ms)

    def log_flushed(self, durable_end_offset: int, now_ms: float) -> None:
        self._at(now_ms)
        if not self._log.flushed(durable_end_offset):
            return
        if (leader := self._transitions.leader) is not None:
            leader.flushed(now_ms)
        if (fetcher := self._transitions.fetcher) is not None:
            fetcher.flushed()
        self._transitions.look_at_voters(now_ms)

    def copy_checked(self, offset: int, error: Exception | None) -> None:
        """CheckCopy is done. Raises StorageError if our copy is not what was written: this broker ends."""
        if error is not None:
            raise StorageError(f"the metadata log of broker {self.node_id} is damaged at offset {offset}: {error}")

    def log_truncated(self, now_ms: float) -> None:
        """TruncateLog or StartLogAt is done."""
        self._at(now_ms)
        self._log.truncated()
        if (fetcher := self._transitions.fetcher) is not None and not self._log.truncating:
            fetcher.truncated()
        self._transitions.look_at_voters(now_ms)

    # -- snapshots

    def snapshot_request(self, request: peer_pb2.FetchSnapshotRequest) -> SnapshotId:
        """The snapshot to send. Raises the reason if the request is wrong."""
        if self._transitions.leader is None:
            raise NotLeaderOrFollower(f"broker {self.node_id} does not lead the metadata quorum")
        return self._snapshots.requested(request, self.epoch)

    def snapshot_taken(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """A snapshot of our own image is durable. The log start may move up to it."""
        self._at(now_ms)
        self._snapshots.taken(snapshot_id)

    def snapshot_fetched(self, snapshot_id: SnapshotId, now_ms: float) -> None:
        """The snapshot of a FetchSnapshot is whole and durable here."""
        self._at(now_ms)
        self._member.fetching_snapshot = False
        if not self.is_leader and self._snapshots.fetched(snapshot_id):
            self._transitions.log_begins_anew(now_ms)

    def snapshot_unfetched(self, now_ms: float) -> None:
        """The snapshot could not be fetched. After a pause this node reports its position again, and the leader answers
        anew."""
        self._at(now_ms)
        self._member.fetching_snapshot = False

    def snapshot_loaded(
        self,
        snapshot_id: SnapshotId,
        cluster_id: str | None,
        voters: Sequence[Voter],
        level: int,
        *,
        has_addresses: bool,
    ) -> None:
        """LoadSnapshot is done (MetadataReplay.load). The arguments say what the image says of the cluster. Raises as
        `start`."""
        member, now_ms = self._member, self._member.now_ms
        if self._snapshots.loading != snapshot_id:
            return
        self._snapshots.loading = None
        self._snapshots.check_level(level)
        if cluster_id is not None:
            member.voters.start_at(snapshot_id.end_offset, cluster_id, voters, has_addresses=has_addresses)
            check_cluster(member, cluster_id, voters)
        if self._transitions.started:
            self._transitions.look_at_voters(now_ms)
        else:
            self._settle_in(now_ms)

    # -- sessions of other brokers here

    def open_session(self, session_id: int, first: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        """A Replicate stream of the metadata log. Its first message goes to replicate_request, too.

        MetadataSessionRefused refuses it if this node does not lead, or if the other side does not belong here.
        """
        self._at(now_ms)
        leader = self._transitions.leader
        if leader is not None:
            leader.open_session(session_id, first, now_ms)
            return
        error = NotLeaderOrFollower(f"broker {self.node_id} does not lead the metadata quorum")
        epoch = self._transitions.epoch_for_others()
        leader_id = self.leader_id if epoch == self.epoch else NO_LEADER
        word = self._member.addresses.word_of(leader_id)
        self._member.emit(MetadataSessionRefused(session_id, error, epoch, leader_id, word))

    def close_session(self, session_id: int) -> None:
        if (leader := self._transitions.leader) is not None:
            leader.close_session(session_id, self._member.now_ms)

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        self._at(now_ms)
        if (leader := self._transitions.leader) is not None:
            leader.replicate_request(session_id, request, now_ms)
            self._transitions.look_at_voters(now_ms)

    def next_read(self, session_id: int, now_ms: float) -> ReadRun | None:
        """What to read for the next message of a session: see ReplicaManager."""
        session = self._session(session_id)
        return None if session is None else session.next_read(now_ms)

    def run_read(self, read: ReadRun, batches: Buffer, now_ms: float) -> None:
        if (session := self._session(read.session_id)) is not None:
            session.run_read(read, batches, now_ms)

    def run_not_in_memory(self, read: ReadRun) -> None:
        if (session := self._session(read.session_id)) is not None:
            session.run_not_in_memory(read)

    def read_failed(self, read: ReadRun, error: Exception, now_ms: float) -> None:
        """Raises the error if it is an error of our log as it is now: the broker ends."""
        if (session := self._session(read.session_id)) is not None:
            session.read_failed(read, error, now_ms)

    def waits_for(self, read: ReadRun) -> bool:
        session = self._session(read.session_id)
        return session is not None and session.waits_for(read)

    def _session(self, session_id: int) -> ServedSession | None:
        leader = self._transitions.leader
        return None if leader is None else leader.session(session_id)

    def next_message(self, session_id: int, now_ms: float) -> StreamMessage[peer_pb2.ReplicateResponse] | None:
        leader = self._transitions.leader
        return leader.next_message(session_id, now_ms) if leader is not None else None

    # -- our session to the leader

    def fetcher_stream_opened(self, now_ms: float) -> None:
        self._at(now_ms)
        if (fetcher := self._transitions.fetcher) is not None:
            fetcher.opened(now_ms)

    def fetcher_stream_closed(self, now_ms: float) -> None:
        """The stream broke or could not be opened."""
        self._at(now_ms)
        self._transitions.broke(now_ms)

    def leader_message(self, response: StreamMessage[peer_pb2.ReplicateResponse], now_ms: float) -> None:
        self._at(now_ms)
        fetcher = self._transitions.fetcher
        if fetcher is None:
            return
        if response.message.error.code:
            self._session_refused(response, now_ms)
            return
        self._elections.leader_names(max(metadata_epochs(response.message), default=-1), now_ms)
        if self._transitions.fetcher is not fetcher:
            return
        fetcher.receive(response, now_ms)
        if fetcher.confirmed:
            self._ever_heard = True
            self._transitions.heard(now_ms)
        self._transitions.look_at_voters(now_ms)

    def _session_refused(self, refused: StreamMessage[peer_pb2.ReplicateResponse], now_ms: float) -> None:
        """The broker that we asked does not lead, or does not take us."""
        response = refused.message
        refusal = error_from_wire(response.error)
        if isinstance(refusal, InconsistentClusterId | InconsistentVoters) and not self._ever_heard:
            raise refusal
        leader_id = response.quorum_leader_id if response.HasField("quorum_leader_id") else NO_LEADER
        if response.HasField("quorum_leader"):
            self._member.addresses.introduce(response.quorum_leader)
        fetcher = self._transitions.fetcher
        if fetcher is not None:
            fetcher.session.receive(refused, now_ms)  # drops the session, and opens it again after a while
            if (response.quorum_epoch, leader_id) != (self.epoch, fetcher.leader_id):
                self._transitions.broke(now_ms)
            self._elections.learn(fetcher.leader_id, response.quorum_epoch, leader_id, now_ms)

    def next_request(self, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        fetcher = self._transitions.fetcher
        return fetcher.next_request(now_ms) if fetcher is not None else None
