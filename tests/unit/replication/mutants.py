"""Wrong rules, each a known way to get replication wrong (the numbers are those of docs/spec/wrong-rules.md).

A mutant swaps one function of the real code. A search that does not kill it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minilog.errors import OffsetOutOfRange
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.follower.reads import FollowerReads
from minilog_broker.replication.leader import isr_state
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.leader.pending import PendingProduce
from minilog_broker.replication.leader.produce import ProduceHandler
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.replication.replica import Replica
from minilog_broker.replication.replica_effects import TruncateLog
from minilog_broker.replication.replica_log import LogOffsets, ReplicaLog
from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.high_watermark import next_high_watermark
from minilog_broker.replication.sessions.session import ServedSession
from minilog_broker.replication.sessions.source import PositionAnswer, Refuse, SendRuns, Wait
from minilog_broker.storage.producer_state import ProducerState
from tests.rules import Patches


def truncate_to_high_watermark() -> Patches:
    follow = Replica._follow

    def mutant(self: Replica, state: PartitionState, log: ReplicaLog, now_ms: float) -> None:
        if log.settled and log.end > log.high_watermark:
            log.begin_truncation(log.high_watermark)
            self._context.emit(TruncateLog(self.key, log.high_watermark))
        follow(self, state, log, now_ms)

    return [(Replica, "_follow", mutant)]


def progress_without_position() -> Patches:
    return [
        (ServedSession, "is_at", lambda self, key, epoch, number: key in self.subscriptions),
        (LeaderPartition, "_is_epoch_below", lambda self, end, epoch: True),
        (in_sync, "known_end", lambda view, incarnation: view.durable_end),
        (in_sync.FollowerView, "accepted", property(lambda self: True, lambda self, value: None)),
    ]


def no_check_of_previous_epoch() -> Patches:
    """A run is appended wherever it begins at the log's end, and the leader does not look for divergence."""
    return [
        (FollowerPartition, "_belongs", lambda self, run: run.first_offset == self.log.end),
        (LeaderPartition, "_check_log", lambda self, position: SendRuns()),
    ]


def join_against_lagging_high_watermark() -> Patches:
    eligible = in_sync.eligible_end
    return [
        (in_sync, "eligible_end", lambda view, incarnation, *, epoch_start: eligible(view, incarnation, epoch_start=0)),
        *who_lags_joins(),
    ]


def who_lags_joins() -> Patches:
    """It is put out at once. At the beginning of an epoch no other rule stands against who has too little."""
    may_join = in_sync.may_join
    return [(in_sync, "may_join", lambda *args, **given: may_join(*args, **(given | {"caught_up_ms": math.inf})))]


def _high_watermark(change: Callable[[dict[str, Any]], None]) -> Patches:
    def mutant(current: int, **given: Any) -> int:
        change(given)
        return next_high_watermark(current, **given)

    return [(isr_state, "next_high_watermark", mutant)]


def over_committed_only() -> Patches:
    return [(IsrState, "maximal", property(lambda self: self.committed))]


def over_proposal_only() -> Patches:
    return [(IsrState, "maximal", property(lambda self: self.proposal.broker_ids if self.proposal else self.committed))]


def unheard_left_out() -> Patches:
    return _high_watermark(lambda given: given.update(member_ends=[e for e in given["member_ends"] if e is not None]))


def below_min() -> Patches:
    return _high_watermark(lambda given: given.update(min_in_sync=0))


def epoch_spans_lives() -> Patches:
    """A broker leads an epoch that names an earlier life of it."""
    apply = Replica.take_role

    def mutant(self: Replica, now_ms: float, *, why: str) -> None:
        state = self.state
        if state is not None and state.leader_id == self._context.broker_id:
            self.state = replace(state, leader_broker_epoch=self._context.broker_epoch or 0)
        apply(self, now_ms, why=why)

    return [(Replica, "take_role", mutant)]


def latest_at_once() -> Patches:
    return [(LeaderPartition, "knows_its_end", property(lambda self: self.leading))]


def producers_not_rebuilt() -> Patches:
    return [(ProducerState, "apply", lambda self, header, markers=(): None)]


def progress_before_sync() -> Patches:
    appended = ReplicaLog.appended

    def mutant(self: ReplicaLog, end_offset: int) -> Any:
        done = appended(self, end_offset)
        self.durable_end = self.appended_end
        return done

    return [(ReplicaLog, "appended", mutant), (ReplicaLog, "flushed", lambda self, end: True)]


def duplicate_answered_at_once() -> Patches:
    park = ProduceHandler._hold

    def mutant(self: ProduceHandler, entry: Any, base_offset: int, end_offset: int) -> None:
        if end_offset <= self._log.appended_end:
            self._acknowledge([PendingProduce(entry.ticket, base_offset, end_offset, 0.0)])
        else:
            park(self, entry, base_offset, end_offset)

    return [(ProduceHandler, "_hold", mutant)]


def forgotten_proposal() -> Patches:
    return [(IsrState, "lost", lambda self, now_ms: setattr(self, "proposal", None))]


def out_of_range_above_the_high_watermark() -> Patches:
    judge = FollowerReads._check_log

    def mutant(self: FollowerReads, position: Any) -> PositionAnswer:
        if position.fetch_offset > self._log.high_watermark:
            return Refuse(OffsetOutOfRange("above the high watermark of this replica"))
        return judge(self, position)

    return [(FollowerReads, "_check_log", mutant)]


def _ends_at(end: int) -> LogOffsets:
    return LogOffsets(high_watermark=end, last_stable_offset=end, log_start_offset=0, log_end_offset=end)


def shown_up_to_the_end() -> Patches:
    return [
        (FollowerReads, "readable_end", lambda self, audience: self._log.appended_end),
        (FollowerReads, "ends", lambda self: _ends_at(self._log.appended_end)),
    ]


def silent_for_good() -> Patches:
    return [(FollowerReads, "check_position", lambda self, position, session, now_ms: Wait())]


def progress_survives_being_put_out() -> Patches:
    return [(in_sync.FollowerView, "is_out", lambda self, partition_epoch: None)]
