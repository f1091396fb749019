"""Wrong rules of followers, leaders and the in-sync set: 1, 3 to 11, 14, 15, 24, 26, 27, 29."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minilog.consumer.core import ConsumerCore
from minilog.errors import OffsetOutOfRange
from minilog_broker.controller import election
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.follower.reads import FollowerReads
from minilog_broker.replication.leader import isr_state
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.leader.pending import PendingProduce
from minilog_broker.replication.leader.produce import ProduceHandler
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState
from minilog_broker.replication.replica import Replica
from minilog_broker.replication.replica_effects import ProposalAnswer, ReadRun, RecoverLog, TruncateLog
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.high_watermark import next_high_watermark
from minilog_broker.replication.rules.in_sync import FollowerView, Proposal
from minilog_broker.replication.sessions import session
from minilog_broker.replication.sessions.session import ServedSession, SubscriptionState
from minilog_broker.replication.sessions.source import PositionAnswer, Refuse, SendRuns
from minilog_broker.storage.producer_state import ProducerState
from tests.rules import Patches

# -- 1, 3, 9: what followers append and cut


def truncate_to_high_watermark() -> Patches:
    follow = Replica._follow

    def mutant(self: Replica, state: PartitionState, log: ReplicaLog, now_ms: float) -> Any:
        if log.settled and log.end > log.high_watermark:
            log.begin_truncation(log.high_watermark)
            self._context.emit(TruncateLog(self.key, log.high_watermark))
        return follow(self, state, log, now_ms)

    return [(Replica, "_follow", mutant)]


def progress_without_position() -> Patches:
    return [
        (ServedSession, "is_at", lambda self, key, epoch, number: key in self.subscriptions),
        (LeaderPartition, "_is_epoch_below", lambda self, end, epoch: True),
        (in_sync, "known_end", lambda view, incarnation: view.durable_end),
        (in_sync.FollowerView, "accepted", property(lambda self: True, lambda self, value: None)),
    ]


def progress_of_another_epoch() -> Patches:
    """Progress that was told in an earlier epoch counts in this one, and in that of whoever leads again."""
    take_role = Replica.take_role

    def mutant(self: Replica, now_ms: float, *, why: str) -> None:
        former = self.leader.in_sync.views if self.leader is not None and self.leader.leading else _of_old(self)
        self.__dict__["_views_of_old"] = former
        take_role(self, now_ms, why=why)
        if self.leader is not None and self.leader.leading:
            self.leader.in_sync.views.update({b: former[b] for b in self.leader.in_sync.views if b in former})

    return [(Replica, "take_role", mutant), (ServedSession, "is_at", lambda self, key, *_: key in self.subscriptions)]


def _of_old(replica: Replica) -> dict[int, FollowerView]:
    found: dict[int, FollowerView] = replica.__dict__.get("_views_of_old", {})
    return found


def no_check_of_runs() -> Patches:
    """A run is appended wherever it begins at the log's end, and the leader does not look for divergence."""
    return [
        (FollowerPartition, "_belongs", lambda self, run: run.first_offset == self.log.end),
        (LeaderPartition, "_check_log", lambda self, position: SendRuns()),
    ]


def high_watermark_before_truncation() -> Patches:
    """What comes with the answer that the logs diverge counts at once, and until the disk has cut the log."""
    receive = FollowerPartition.receive

    def mutant(self: FollowerPartition, run: Any, batches: Any, now_ms: float) -> int:
        if run.HasField("diverging_epoch") and run.leader_epoch == self.leader_epoch:
            self.log.raise_high_watermark(run.high_watermark)
        return receive(self, run, batches, now_ms)

    def begin_truncation(self: ReplicaLog, _: int) -> None:
        self.truncating = True

    return [(FollowerPartition, "receive", mutant), (ReplicaLog, "begin_truncation", begin_truncation)]


# -- 4 to 8: who counts


def join_against_lagging_high_watermark() -> Patches:
    """And whoever lags may join: at the beginning of an epoch that rule stands against it, too."""
    eligible = in_sync.eligible_end
    return [
        (in_sync, "eligible_end", lambda view, incarnation, *, epoch_start: eligible(view, incarnation, epoch_start=0)),
        *who_lags_joins(),
    ]


def who_lags_joins() -> Patches:
    """Whoever is at the high watermark joins, also where that stands: it is put out at once, and joins again."""
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
    def maximal(self: IsrState) -> frozenset[int]:
        return self.proposal.broker_ids if self.proposal else self.committed

    return [(IsrState, "maximal", property(maximal))]


def unheard_left_out() -> Patches:
    return _high_watermark(lambda given: given.update(member_ends=[e for e in given["member_ends"] if e is not None]))


def below_min() -> Patches:
    return _high_watermark(lambda given: given.update(min_in_sync=0))


def progress_of_an_earlier_life() -> Patches:
    """It counts, and its follower may join by it: neither being put out nor the end of its session matters."""

    def known(view: FollowerView, incarnation: Any) -> int | None:
        return view.durable_end if view.accepted else None

    def restart(self: FollowerView, broker_epoch: int | None = None) -> None:
        self.broker_epoch = broker_epoch

    return [
        (in_sync, "known_end", known),
        (FollowerView, "restart", restart),
        (FollowerView, "is_out", lambda self, partition_epoch: None),
        (IsrState, "left", lambda self, broker_id: False),
    ]


def _told_before_it_was_put_out() -> Patches:
    """What a follower told before it was outside the ISR last counts, for members too."""
    return [(FollowerView, "is_out", lambda self, partition_epoch: None)]


def joins_without_a_session() -> Patches:
    """By what it told in a session that is closed a follower joins, falls behind, is put out and joins again.

    Three rules stand against that: what was told before it was put out counts no more, and who lags does not join."""
    wants_in = property(lambda self: True, lambda self, value: None)
    return [(FollowerView, "wants_in", wants_in), *_told_before_it_was_put_out(), *who_lags_joins()]


def late_ticks_excuse_for_a_full_period() -> Patches:
    """A leader that stood still for some part of the lag time begins to count anew, for everybody."""

    def mutant(self: IsrState, delay_ms: float, log_end: int, now_ms: float) -> None:
        self._update_views(self.committed, now_ms)

    return [(IsrState, "excuse", mutant)]


def cut_at_once() -> Patches:
    """A damaged copy is cut before it is committed that the controller knows of it."""
    go_offline = Replica.go_offline

    def mutant(self: Replica, error: Exception, now_ms: float) -> None:
        go_offline(self, error, now_ms)
        if self._to_recover and self.config is not None:
            self._to_recover, self.offline, self._opening, self._log_config = False, None, True, self.config
            self._context.emit(RecoverLog(self.key, self.config))

    return [(Replica, "go_offline", mutant)]


def epoch_spans_lives() -> Patches:
    """An election that finds the same broker again, in another life, keeps the leader epoch."""
    with_epochs = election._with_epochs

    def mutant(before: PartitionState, state: PartitionState) -> PartitionState:
        found = with_epochs(before, state)
        moved = found.leader_id != before.leader_id and NO_LEADER not in (found.leader_id, before.leader_id)
        return found if moved else replace(found, leader_epoch=before.leader_epoch)

    return [(election, "_with_epochs", mutant)]


def removed_replica_keeps_progress() -> Patches:
    """The leader knows a replica that comes again as it was when it went: the leader epoch goes on."""
    update, with_epochs = IsrState._update_views, election._with_epochs

    def keep(self: IsrState, fresh: frozenset[int], now_ms: float) -> None:
        known: dict[int, FollowerView] = self.__dict__.setdefault("_known", {})
        known.update(self.views)
        update(self, fresh, now_ms)
        self.views.update({broker_id: known[broker_id] for broker_id in self.views if broker_id in known})

    def go_on(before: PartitionState, state: PartitionState) -> PartitionState:
        found = with_epochs(before, state)
        moved = (state.leader_id, state.leader_broker_epoch) != (before.leader_id, before.leader_broker_epoch)
        return replace(found, leader_epoch=before.leader_epoch + moved)

    return [(IsrState, "_update_views", keep), (election, "_with_epochs", go_on)]


# -- 10, 11: what is answered


def latest_at_once() -> Patches:
    return [(LeaderPartition, "knows_its_end", property(lambda self: self.leading))]


def ahead_of_follower_is_out_of_range() -> Patches:
    judge, turn_away = FollowerReads._check_log, ConsumerCore._turn_away

    def refuse(self: FollowerReads, position: Any) -> PositionAnswer:
        if position.fetch_offset > self._log.high_watermark:
            return Refuse(OffsetOutOfRange(f"{self}: {position.fetch_offset} is above {self._log.high_watermark}"))
        return judge(self, position)

    def believe(self: ConsumerCore, assigned: Any, error: Any, run: Any, now_ms: float) -> None:
        if isinstance(error, OffsetOutOfRange):
            assigned.begin_reset("earliest", self._next_number())
        else:
            turn_away(self, assigned, error, run, now_ms)

    return [(FollowerReads, "_check_log", refuse), (ConsumerCore, "_turn_away", believe)]


# -- 14, 15: deduplication


def followers_know_no_producers() -> Patches:
    appended = Replica.appended

    def mutant(self: Replica, end_offset: int, now_ms: float) -> None:
        if self.leader is None and self.log is not None:
            self.log.producers = ProducerState()
        appended(self, end_offset, now_ms)

    return [(Replica, "appended", mutant)]


def producers_not_truncated() -> Patches:
    truncated = Replica.truncated

    def mutant(self: Replica, producers: ProducerState, now_ms: float) -> None:
        truncated(self, producers if self.log is None else self.log.producers, now_ms)

    return [(Replica, "truncated", mutant)]


def duplicate_answered_at_once() -> Patches:
    park = ProduceHandler._hold

    def mutant(self: ProduceHandler, entry: Any, base_offset: int, end_offset: int) -> None:
        if end_offset <= self._log.appended_end:
            self._acknowledge([PendingProduce(entry.ticket, base_offset, end_offset, 0.0)])
        else:
            park(self, entry, base_offset, end_offset)

    return [(ProduceHandler, "_hold", mutant)]


def state_before_append() -> Patches:
    append = ProduceHandler._append

    def mutant(self: ProduceHandler, header: Any, batch: Any) -> Any:
        placed = append(self, header, batch)
        self.producers.apply(placed)
        return placed

    return [(ProduceHandler, "_append", mutant)]


# -- 24, 26, 27, 29: progress and proposals


def progress_before_sync() -> Patches:
    appended = ReplicaLog.appended

    def mutant(self: ReplicaLog, end_offset: int) -> Any:
        done = appended(self, end_offset)
        self.durable_end = self.appended_end
        return done

    return [(ReplicaLog, "appended", mutant), (ReplicaLog, "flushed", lambda self, end: True)]


def proposal_without_leader() -> Patches:
    propose = IsrState._propose

    def mutant(self: IsrState, broker_ids: frozenset[int]) -> None:
        others = frozenset(broker_ids) - {self._context.broker_id}
        propose(self, others or broker_ids)

    return [(IsrState, "_propose", mutant)]


def metadata_resets_progress() -> Patches:
    update = IsrState._update_views

    def mutant(self: IsrState, fresh: frozenset[int], now_ms: float) -> None:
        self.views = {}
        update(self, fresh, now_ms)

    return [(IsrState, "_update_views", mutant)]


def refused_growth_kept() -> Patches:
    """Refused for good, it stays proposed: the same again for ever, and the joiner is waited for."""
    commit = IsrState.commit

    def mutant(self: IsrState, state: PartitionState, now_ms: float) -> bool:
        before: Proposal | None = self.proposal
        news = commit(self, state, now_ms)
        if news and before is not None and not before.broker_ids <= self.committed:
            self.proposal = before
        return news

    return [(IsrState, "commit", mutant)]


def forgotten_proposal() -> Patches:
    def mutant(self: IsrState, *_: Any) -> None:
        self.proposal = None

    def answered(self: IsrState, answer: ProposalAnswer, now_ms: float) -> None:
        if answer.error is not None:
            self.proposal = None

    return [(IsrState, "lost", mutant), (IsrState, "answered", answered)]


def no_joiner_waited_for() -> Patches:
    return [(IsrState, "_joiner_ends", lambda self, members, log_end, now_ms: [])]


def given_up_read_is_sent() -> Patches:
    """What is read is sent to whatever position its partition has when it is read."""

    def mutant(self: ServedSession, asked: ReadRun) -> bool:
        found = self.subscriptions.get(asked.key)
        return found is not None and found.source is not None and found.state is SubscriptionState.SENDING

    return [(ServedSession, "waits_for", mutant)]


def cut_read_is_sent() -> Patches:
    """The same, and nobody looks whether the log was cut, or its start moved, while it was read."""
    return [*given_up_read_is_sent(), (session, "_is_of_now", lambda asked, source: True)]
