"""The rules of the ISR: which followers are in sync. Pure, and without the partition around them.

A follower was last caught up at the time of the newest mark (time, end offset before an append) that its durable end
has reached. While it has reached the log's end, it is caught up now.

    out   It was last caught up longer ago than the lag time. Or a bound in records is set, and in two checks in a row
          it was more than the bound below the log's end at the check before.
    in    Its durable end is at or above the HW and the start of the leader's epoch. Its log start is not below the
          leader's. The leader has accepted its position in this epoch. Its session is open and its disk is not full.
          Its life is the current one, not fenced and not stopping. And the rule above does not put it out at once: the
          HW alone would not show that, because it stands still below min members. (Recovery has cut a damaged replica.
          The replica is whole again when it has all records below the HW. Its joining ends the damage, as records.proto
          says.)

Recovery may cut a damaged copy within one life. Therefore:

1. Each change that puts a replica out of the ISR, or takes its copy offline, is committed as a higher partition epoch.
2. A broker cuts the copy only after it has seen that partition epoch.
3. A follower names with its progress the partition epoch that it has seen.
4. For a follower outside the ISR the leader counts progress only under the committed state that the leader knows, or
   under a later one. The bound stays when the follower has joined.
5. The controller accepts a proposal only under the partition epoch from which the leader made it.

So nothing can happen to the joiner's copy between its last progress and its joining, however late messages and metadata
are, and in whatever order they arrive.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from minilog_broker.replication.partition_state import BrokerIncarnation
from minilog_broker.replication.rules.own_delay import excused

MARKS = 64  # a ring of this many, each `lag time / 32` apart: two lag times


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR that a leader asks the controller for. It is made from one snapshot of the committed state."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]  # (broker id, broker epoch)

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.members)


def maximal_in_sync(committed: frozenset[int], proposal: Proposal | None) -> frozenset[int]:
    """The committed ISR and every member of a proposal in flight. A joiner counts at once. A leaver counts until the
    proposal is committed."""
    return committed if proposal is None else committed | proposal.broker_ids


class LogEndMarks:
    """Times with the log's end at each. They show when a follower was last caught up."""

    __slots__ = ("_marks", "_spacing_ms")

    def __init__(self, lag_time_ms: float) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=MARKS)
        self.space(lag_time_ms)

    def space(self, lag_time_ms: float) -> None:
        """Set the distance of marks for this lag time: all marks together cover twice the lag time."""
        self._spacing_ms = lag_time_ms * 2 / MARKS

    def note(self, now_ms: float, end_offset: int) -> None:
        """Note that the log grows. Until now it has ended at `end_offset`."""
        if not self._marks or now_ms - self._marks[-1][0] >= self._spacing_ms:
            self._marks.append((now_ms, end_offset))

    def last_reached(self, durable_end: int) -> float:
        """The time of the newest mark at or below `durable_end`. -inf if there is none."""
        for time_ms, end_offset in reversed(self._marks):
            if end_offset <= durable_end:
                return time_ms
        return -math.inf


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a follower's copy, as the follower reported it behind an accepted position."""

    durable_end: int
    log_start: int
    partition_epoch: int
    takes_no_records: bool  # its disk is full, or does not answer
    unsynced: bool  # under flush.policy=os: its durable end may be lost with power


@dataclass(slots=True)
class FollowerView:
    """The leader's knowledge of one follower, in one leader epoch and one life of the follower. A new epoch has new
    views."""

    broker_id: int
    broker_epoch: int | None = None
    accepted: bool = False  # a position of this epoch passed the checks
    durable_end: int | None = None
    waiting: Progress | None = None  # of flush.policy=os, while the leader's is fsync. It counts if that becomes os
    unsynced: bool = False  # the follower reported its durable end under flush.policy=os
    log_start: int = -1  # the durable one
    partition_epoch: int = -1  # of the committed state that the follower had seen when it reported its durable end
    counts_from: int = -1  # progress from before this partition epoch does not count
    wants_in: bool = False  # its session is open, and its disk takes records
    last_caught_up_ms: float = field(default=-math.inf)
    checks_behind: int = 0
    refused_until_ms: float = field(default=-math.inf)

    def restart(self, broker_epoch: int | None = None) -> None:
        """Forget the follower's progress: it has begun another life, or its position diverged."""
        self.broker_epoch = broker_epoch
        self.accepted = self.wants_in = False
        self.durable_end = self.waiting = None
        self.log_start = self.partition_epoch = -1

    def is_out(self, partition_epoch: int) -> None:
        """Note that the committed state of `partition_epoch` has the follower outside the ISR: earlier progress does
        not count any more."""
        self.counts_from = partition_epoch
        self.last_caught_up_ms = -math.inf

    def excuse(self, delay_ms: float, *, log_end: int, marks: LogEndMarks, now_ms: float) -> None:
        """Add `delay_ms`, for which this process stood still, to the time at which the follower was last caught up."""
        caught_up_ms = self.caught_up_ms(log_end=log_end, marks=marks, now_ms=now_ms)
        self.last_caught_up_ms = excused(caught_up_ms, delay_ms, now_ms)

    def progressed(self, progress: Progress, *, log_end: int, marks: LogEndMarks, now_ms: float) -> None:
        """Take the follower's progress, reported in this epoch and life. A lower durable end than before shows that its
        log was cut."""
        self.waiting, self.unsynced = None, progress.unsynced
        self.log_start, self.partition_epoch = progress.log_start, progress.partition_epoch
        self.wants_in = not progress.takes_no_records
        durable_end = progress.durable_end
        if self.durable_end is not None and durable_end < self.durable_end:
            self.last_caught_up_ms = -math.inf
        self.durable_end = durable_end
        caught_up_ms = now_ms if durable_end >= log_end else marks.last_reached(durable_end)
        self.last_caught_up_ms = max(self.last_caught_up_ms, caught_up_ms)

    def forget_unsynced(self) -> None:
        """Do not count progress under flush.policy=os any more, because the leader's policy is fsync now. It waits, and
        counts again if the leader's policy becomes os. Progress of a follower under fsync stays."""
        if self.unsynced and self.durable_end is not None:
            log_start, epoch, refuses = self.log_start, self.partition_epoch, not self.wants_in
            self.waiting = Progress(self.durable_end, log_start, epoch, refuses, unsynced=True)
            self.durable_end = None

    def caught_up_ms(self, *, log_end: int, marks: LogEndMarks, now_ms: float) -> float:
        """The time at which the follower was last caught up."""
        if self.durable_end is None:
            return self.last_caught_up_ms
        if self.durable_end >= log_end:
            return now_ms
        return max(self.last_caught_up_ms, marks.last_reached(self.durable_end))


def known_end(view: FollowerView, incarnation: BrokerIncarnation | None) -> int | None:
    """The durable end of a member, if the member has reported it in its current life, and since it was last outside the
    ISR. Else None."""
    if incarnation is None or not view.accepted or view.broker_epoch != incarnation.broker_epoch:
        return None
    if view.partition_epoch < view.counts_from:
        return None
    return view.durable_end


def known_log_start(view: FollowerView, incarnation: BrokerIncarnation | None) -> int:
    """The durable log start of a member, under the same conditions as `known_end`. Else -1."""
    return -1 if known_end(view, incarnation) is None else view.log_start


def eligible_end(view: FollowerView, incarnation: BrokerIncarnation | None, *, epoch_start: int) -> int | None:
    """The durable end of a follower that meets all conditions of joining which do not depend on the high watermark or
    the lag. Else None."""
    end = known_end(view, incarnation)
    if (
        incarnation is None
        or end is None
        or incarnation.fenced
        or incarnation.stopping
        or not view.wants_in
        or end < epoch_start
    ):
        return None
    return end


def may_join(
    view: FollowerView,
    incarnation: BrokerIncarnation | None,
    *,
    epoch_start: int,
    high_watermark: int,
    now_ms: float,
    log_start: int = -1,
    caught_up_ms: float = math.inf,
    lag_time_max_ms: float = 0.0,
    previous_check_end: int = 0,
    lag_max_records: int | None = None,
) -> bool:
    """Whether a follower may join, by the rule `in` of the module's text. A follower that the controller has just
    refused waits first."""
    end = eligible_end(view, incarnation, epoch_start=epoch_start)
    if view.log_start < log_start:
        return False  # else an election could bring deleted records back
    if now_ms - caught_up_ms > lag_time_max_ms or _lags_in_records(view, previous_check_end, lag_max_records):
        return False  # else the rule `out` would put it out at once
    return end is not None and end >= high_watermark and now_ms >= view.refused_until_ms


def is_behind_in_records(view: FollowerView, *, previous_check_end: int, lag_max_records: int | None) -> bool:
    """Check the bound in records once. True if this check and the one before it both saw the follower behind."""
    behind = _lags_in_records(view, previous_check_end, lag_max_records)
    view.checks_behind = view.checks_behind + 1 if behind else 0
    return view.checks_behind >= 2


def _lags_in_records(view: FollowerView, previous_check_end: int, lag_max_records: int | None) -> bool:
    if lag_max_records is None:
        return False
    return view.durable_end is None or view.durable_end < previous_check_end - lag_max_records
