"""The leader of the metadata quorum, in one epoch: places entries, serves the log, commits by majority.

Its first entry is a leader change; in a new log the cluster record follows. An entry is committed when a majority of
voters have it on disk and one of this epoch is among them (V12). Observers do not count. Sessions, positions and
divergence are those of data (replication.session, replication.divergence).
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import FencedLeaderEpoch, TimedOut, UnknownLeaderEpoch
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.quorum.commit import committed_end
from minilog_broker.quorum.effects import SessionRefused
from minilog_broker.quorum.records import METADATA_KEY, place
from minilog_broker.replication.divergence import BelowLogStart, Diverged, LeaderEpochs, check_position
from minilog_broker.replication.effects import AppendToLog, RecordEpochStart, SessionReady
from minilog_broker.replication.host import Host, TimerKind
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.replication.session import (
    Audience,
    Ends,
    Judgement,
    Refuse,
    Send,
    Session,
    Subscription,
    Wait,
    below_log_start,
)
from minilog_broker.replication.state import PartitionKey


class Leader:
    """See the module's text. The Source of its sessions."""

    def __init__(self, host: Host, log: ReplicaLog, epoch: int, voter_ids: Iterable[int]) -> None:
        self.leader_epoch = epoch
        self.epoch_start_offset = log.end
        self.opening_end_offset = log.end  # behind the entries that open the epoch
        self._host = host
        self._log = log
        self._epochs = LeaderEpochs(log.log.epochs, epoch, log.end)
        # A voter's end counts once it was told in this epoch, from an accepted position.
        self._voter_ends = dict.fromkeys(voter_ids, 0)
        self.refused: list[SessionRefused] = []
        self._sessions: dict[int, Session] = {}
        self._subscriptions: dict[int, Subscription] = {}

    # -- the log

    def open_epoch(self, batches: Iterable[bytes]) -> None:
        """The first entries, the leader change before all others. The vote is durable."""
        self._host.emit(RecordEpochStart(METADATA_KEY, self.leader_epoch, self.epoch_start_offset))
        for batch in batches:
            self.append(batch)
        self.opening_end_offset = self._log.end

    def append(self, batch: bytes) -> int:
        """Give `batch` the next place; the end offset behind it."""
        placed = place(batch, self._log.end, self.leader_epoch)
        self._log.queue_append(QueuedAppend(placed.headers, len(batch), credit=None))
        self._host.emit(AppendToLog(METADATA_KEY, placed))
        return self._log.end

    def appended(self, now_ms: float) -> None:
        self._tell_sessions(now_ms, news=False)

    def flushed(self, now_ms: float) -> None:
        self._voter_ends[self._host.broker_id] = self._log.durable_end
        self._commit(now_ms)

    def _commit(self, now_ms: float) -> None:
        before = self._log.high_watermark
        end = committed_end(self._voter_ends.values(), self.epoch_start_offset, before)
        if end > before and self._log.raise_high_watermark(end):
            self._tell_sessions(now_ms, news=True)

    def _tell_sessions(self, now_ms: float, *, news: bool) -> None:
        for session_id, subscription in self._subscriptions.items():
            self._sessions[session_id].available(subscription, now_ms, news=news)

    # -- sessions

    def open_session(self, session_id: int, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        self._sessions[session_id] = Session(
            session_id=session_id,
            audience=Audience.FOLLOWER,
            settings=self._host.settings,
            wake=lambda woken: self._host.emit(SessionReady(woken)),
            hold=lambda held, due_ms: self._host.timers.arm(TimerKind.SESSION, held, due_ms),
            opened_ms=now_ms,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
        )

    def close_session(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
        self._subscriptions.pop(session_id, None)

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.grant(request.credit_bytes, now_ms)
        for position in request.positions:
            if _key(position.partition_id) == METADATA_KEY:
                self._subscriptions[session_id] = session.take_position(METADATA_KEY, self, position, now_ms)
        for progress in request.progress:
            if session.is_at(_key(progress.partition_id), progress.leader_epoch, progress.position_number):
                self._progress(session.broker_id, progress.durable_end_offset, now_ms)

    def _progress(self, broker_id: int, durable_end_offset: int, now_ms: float) -> None:
        if broker_id in self._voter_ends:
            self._voter_ends[broker_id] = min(durable_end_offset, self._log.end)
            self._commit(now_ms)

    def next_message(self, session_id: int, now_ms: float) -> peer_pb2.ReplicateResponse | None:
        session = self._sessions.get(session_id)
        runs = session.next_runs(now_ms) if session is not None else None
        return None if runs is None else peer_pb2.ReplicateResponse(runs=runs)

    def look_at_session(self, session_id: int, now_ms: float) -> None:
        """Timer: a sign of life is due, or the other side gave none."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        if now_ms - session.last_heard_ms >= self._host.settings.silence_ms:
            self.close_session(session_id)
            silent = TimedOut(f"broker {session.broker_id} was silent on its metadata session: open it anew")
            self.refused.append(SessionRefused(session_id, silent, self.leader_epoch, self._host.broker_id))
            return
        session.look(now_ms)

    def excuse(self, now_ms: float) -> None:
        """This process stood still: the others are not to blame."""
        for session in self._sessions.values():
            session.last_heard_ms = now_ms

    # -- what its sessions send from

    def judge(self, position: data_pb2.FetchPosition, session: Session, now_ms: float) -> Judgement:
        if position.leader_epoch < self.leader_epoch:
            text = f"quorum epoch {position.leader_epoch} is over, it is {self.leader_epoch}"
            return Refuse(FencedLeaderEpoch(text))
        if position.leader_epoch > self.leader_epoch:
            text = f"quorum epoch {position.leader_epoch} is not known here, ours is {self.leader_epoch}"
            return Wait(UnknownLeaderEpoch(text))
        verdict = check_position(
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
                return Send()

    def readable_end(self, audience: Audience) -> int:
        return self._log.appended_end

    def ends(self) -> Ends:
        committed = self._log.high_watermark
        return Ends(committed, committed, self._log.log_start, self._log.appended_end)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        return self._log.log.read(offset, max_bytes, end_offset)

    def epoch_before(self, offset: int) -> int | None:
        return self._log.log.epoch_before(offset)


def _key(partition_id: object) -> PartitionKey:
    return PartitionKey(partition_id.topic_id, partition_id.partition)  # type: ignore[attr-defined]
