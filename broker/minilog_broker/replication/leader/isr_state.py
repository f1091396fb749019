"""The ISR of one led partition: the followers' progress, the committed ISR, and the one proposal in flight.

    the proposal is                      it ends by
    committed                            metadata with a higher partition epoch
    refused, the joiner is ineligible    the same: the controller commits the refusal, as a higher partition epoch
                                         without another change. The leader does not propose the joiner for a while
    lost, or refused otherwise           nothing yet: the leader sends the same proposal again, because it may have been
                                         committed

So the maximal ISR contains the controller's ISR at any time (V10). An answer alone removes no member from it: the
answer may come from a deposed controller, and a copy of the proposal may still be under way. Only committed metadata
decides on both.
"""

from __future__ import annotations

from dataclasses import replace

from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.replication.replica_effects import ProposalAnswer, ProposeInSyncReplicas
from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.high_watermark import next_high_watermark
from minilog_broker.replication.rules.in_sync import FollowerView, LogEndMarks, Proposal


class IsrState:
    """The ISR of one partition in one leader epoch. Times are milliseconds of the monotonic clock."""

    def __init__(
        self, context: ReplicationContext, state: PartitionState, epoch_start: int, log_end: int, now_ms: float
    ) -> None:
        self.state = state
        self.proposal: Proposal | None = None
        self.views: dict[int, FollowerView] = {}
        self.log_start = -1  # the leader's own; the log start of a joiner is never lower
        self.marks = LogEndMarks(context.settings.replica_lag_time_max_ms)
        self._context = context
        self._epoch_start = epoch_start
        self._previous_check_end = log_end
        self._update_views(self.committed, now_ms)

    @property
    def committed(self) -> frozenset[int]:
        return frozenset(self.state.in_sync_replicas)

    @property
    def maximal(self) -> frozenset[int]:
        return in_sync.maximal_in_sync(self.committed, self.proposal)

    def _update_views(self, fresh: frozenset[int], now_ms: float) -> None:
        """Keep one view for each other replica, and drop the views of replicas that left. The `fresh` members get a
        full lag period."""
        own = self._context.broker_id
        self.views = {b: self.views.get(b) or FollowerView(b) for b in self.state.replicas if b != own}
        for broker_id, view in self.views.items():
            if broker_id in fresh:
                view.last_caught_up_ms = max(view.last_caught_up_ms, now_ms)
            elif broker_id not in self.committed:
                view.is_out(self.state.partition_epoch)

    # -- the committed state

    def commit(self, state: PartitionState, now_ms: float) -> bool:
        """Take committed metadata of this leader epoch, which ends a pending proposal. Returns whether it is new."""
        if state.partition_epoch <= self.state.partition_epoch:
            return False
        before, proposal = self.state, self.proposal
        self.state, self.proposal = state, None
        self._update_views(self.committed - frozenset(before.in_sync_replicas), now_ms)
        if proposal is not None and state == replace(before, partition_epoch=state.partition_epoch):
            self._refused(proposal, now_ms)
        return True

    def _refused(self, proposal: Proposal, now_ms: float) -> None:
        """Do not propose its joiners, if any, again before a pause."""
        until_ms = now_ms + self._context.settings.refused_joiner_pause_ms
        for broker_id in (proposal.broker_ids - self.committed) & self.views.keys():
            self.views[broker_id].refused_until_ms = until_ms
            self._arm_lag(until_ms)

    def excuse(self, delay_ms: float, log_end: int, now_ms: float) -> None:
        """Excuse all followers for `delay_ms`, for which this process stood still."""
        for view in self.views.values():
            view.excuse(delay_ms, log_end=log_end, marks=self.marks, now_ms=now_ms)

    def left(self, broker_id: int) -> bool:
        """Note that a follower's session is gone. Its progress still counts, but the follower does not join. Returns
        whether it was ready to join before."""
        view = self.views.get(broker_id)
        if view is None:
            return False
        heard, view.wants_in, view.waiting = view.wants_in, False, None
        return heard

    def forget_unsynced(self) -> None:
        """Drop the durable ends that followers reported under flush.policy=os. The leader's policy is fsync now."""
        for view in self.views.values():
            view.forget_unsynced()

    def count_unsynced(self, log_end: int, now_ms: float) -> None:
        """Count the progress that waited for flush.policy=os, which is the leader's policy now. If a follower learned
        of the policy before the leader, it may never repeat that progress."""
        for view in self.views.values():
            if view.waiting is not None:
                view.progressed(view.waiting, log_end=log_end, marks=self.marks, now_ms=now_ms)

    def fetched_ends(self) -> list[int]:
        """The durable ends of the followers whose sessions are open, in sync or not."""
        return [view.durable_end for view in self.views.values() if view.wants_in and view.durable_end is not None]

    # -- high watermark

    def high_watermark(
        self, current: int, *, own_durable_end: int, log_end: int, min_in_sync: int, now_ms: float
    ) -> int:
        """The high watermark after `current`, by rules/high_watermark.py."""
        members = self.maximal - {self._context.broker_id}
        incarnations, views = self._context.incarnations, self.views
        member_ends = [in_sync.known_end(views[b], incarnations.get(b)) if b in views else None for b in members]
        return next_high_watermark(
            current,
            own_durable_end=own_durable_end,
            member_ends=member_ends,
            joiner_ends=self._joiner_ends(members, log_end, now_ms) if len(members) < len(views) else (),
            in_sync_count=len(self.state.in_sync_replicas),
            min_in_sync=min_in_sync,
        )

    def _joiner_ends(self, members: frozenset[int], log_end: int, now_ms: float) -> list[int]:
        """The ends of the joiners outside the maximal ISR that the high watermark waits for. A timer looks again when
        one of them becomes late."""
        ends: list[int] = []
        lag_ms = self._context.settings.replica_lag_time_max_ms
        for broker_id, view in self.views.items():
            if broker_id in members:
                continue
            end = in_sync.eligible_end(view, self._context.incarnations.get(broker_id), epoch_start=self._epoch_start)
            caught_up_ms = view.caught_up_ms(log_end=log_end, marks=self.marks, now_ms=now_ms)
            if end is not None and now_ms - caught_up_ms <= lag_ms:
                ends.append(end)
                if end < log_end:
                    self._arm_lag(caught_up_ms + lag_ms + 1.0)
        return ends

    # -- proposals

    def check_lag(self, log_end: int, now_ms: float) -> None:
        """A timer's event: propose the ISR without the late members, and look again while a member may become late."""
        settings = self._context.settings
        late: set[int] = set()
        due_ms = None
        for broker_id in self.committed & self.views.keys():
            view = self.views[broker_id]
            caught_up_ms = view.caught_up_ms(log_end=log_end, marks=self.marks, now_ms=now_ms)
            behind = in_sync.is_behind_in_records(
                view, previous_check_end=self._previous_check_end, lag_max_records=settings.replica_lag_max_records
            )
            if behind or now_ms - caught_up_ms > settings.replica_lag_time_max_ms:
                late.add(broker_id)
            if view.durable_end is None or view.durable_end < log_end:
                half_ms = now_ms + settings.replica_lag_time_max_ms / 2
                own_due_ms = caught_up_ms + settings.replica_lag_time_max_ms + 1.0
                due_ms = min(due_ms or half_ms, half_ms, max(own_due_ms, now_ms + 1.0))
        self._previous_check_end = log_end
        if late:
            self._propose(self.committed - late)
            due_ms = now_ms + settings.replica_lag_time_max_ms / 2
        if due_ms is not None:
            self._arm_lag(due_ms)

    def watch_lag(self, now_ms: float) -> None:
        """Start the timer, because the log grows and a follower may become late."""
        if self.views:
            self._arm_lag(now_ms + self._context.settings.replica_lag_time_max_ms / 2)

    def reconfigured(self, now_ms: float) -> None:
        """Follow the context's new settings. A timer that was armed for the former lag time may be too late."""
        self.marks.space(self._context.settings.replica_lag_time_max_ms)
        self.watch_lag(now_ms)

    def _arm_lag(self, due_ms: float) -> None:
        self._context.timers.arm(TimerKind.LAG, self.state.key, due_ms)

    def propose_joiner(self, broker_id: int, high_watermark: int, log_end: int, now_ms: float) -> None:
        """Propose a follower that may join, unless a proposal is in flight."""
        if self.proposal is not None or broker_id in self.committed:
            return
        view, incarnation = self.views[broker_id], self._context.incarnations.get(broker_id)
        if in_sync.may_join(
            view,
            incarnation,
            epoch_start=self._epoch_start,
            high_watermark=high_watermark,
            log_start=self.log_start,
            caught_up_ms=view.caught_up_ms(log_end=log_end, marks=self.marks, now_ms=now_ms),
            lag_time_max_ms=self._context.settings.replica_lag_time_max_ms,
            previous_check_end=self._previous_check_end,
            lag_max_records=self._context.settings.replica_lag_max_records,
            now_ms=now_ms,
        ):
            self._propose(self.committed | {broker_id})
        elif now_ms < view.refused_until_ms:
            self._arm_lag(view.refused_until_ms)

    def propose_joiners(self, high_watermark: int, log_end: int, now_ms: float) -> None:
        """Propose the followers that may join, one at a time. So the refusal of one does not keep another one out."""
        for broker_id in self.views:
            self.propose_joiner(broker_id, high_watermark, log_end, now_ms)

    def _propose(self, broker_ids: frozenset[int] | set[int]) -> None:
        if self.proposal is not None or broker_ids == self.committed:
            return
        incarnations = self._context.incarnations
        members = tuple((b, incarnations[b].broker_epoch if b in incarnations else -1) for b in sorted(broker_ids))
        self.proposal = Proposal(self.state.leader_epoch, self.state.partition_epoch, members)
        self.send_proposal()

    def send_proposal(self) -> None:
        """Send the proposal in flight to the controller, for the first time or again."""
        if (proposal := self.proposal) is not None:
            state = self.state
            self._context.emit(
                ProposeInSyncReplicas(state.key, proposal.leader_epoch, proposal.partition_epoch, proposal.members)
            )

    def answered(self, answer: ProposalAnswer, now_ms: float) -> None:
        """Take the answer to a proposal. A refused proposal is sent again, until committed metadata ends it."""
        if self.proposal is not None and answer.error is not None:
            self._retry(now_ms)

    def lost(self, now_ms: float) -> None:
        """Note that no answer to the proposal came."""
        if self.proposal is not None:
            self._retry(now_ms)

    def _retry(self, now_ms: float) -> None:
        due_ms = now_ms + self._context.settings.proposal_retry_ms
        self._context.timers.arm(TimerKind.PROPOSAL, self.state.key, due_ms)
