"""Who is in sync: the rules of the ISR, without the partition around them. Pure.

A follower was last caught up at the time of the newest mark (time, end offset before an append) that its durable end
has reached; while it has reached the log's end, it is caught up now.

    out   last caught up longer ago than the lag time; or, where a bound in records is set, more than it below the end
          of one check earlier, on two checks running
    in    durable end >= HW and >= the start of the leader's epoch, log start no lower than the leader's, position
          accepted in this epoch, its session open and its disk not full, and its life is the current one, not fenced
          and not stopping; and it is not out at once by the rule above: below min the HW stands, and says nothing of
          who goes on. (A damaged replica was cut by its recovery: it is whole again when it has all below HW, and
          being taken in is what ends its damage, as records.proto says.)

A copy may be cut within one life, where it was found damaged. So whatever puts a replica out, or takes its copy
offline, is committed as a higher partition epoch; the copy is cut only when its broker has seen that; and a follower
names with its progress the partition epoch that it has seen. Of one outside the ISR the leader counts what was told
under the committed state it knows, or a later one, and nothing older; once in, it stays at that bound. A proposal is
accepted under the very partition epoch that it was made from: so nothing befell the joiner between its last word and
its joining, however late messages and metadata are and whatever overtakes what.
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
    """An ISR asked of the controller: made from one snapshot of the committed state."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]  # (broker id, broker epoch)

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.members)


def maximal_in_sync(committed: frozenset[int], proposal: Proposal | None) -> frozenset[int]:
    """The committed ISR and every member of a proposal in flight: a joiner counts at once, a leaver until then."""
    return committed if proposal is None else committed | proposal.broker_ids


class LogEndMarks:
    """When the log ended where: enough to say when a follower was last caught up."""

    __slots__ = ("_marks", "_spacing_ms")

    def __init__(self, lag_time_ms: float) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=MARKS)
        self.space(lag_time_ms)

    def space(self, lag_time_ms: float) -> None:
        """Set the distance of marks for this lag time: all marks together cover twice the lag time."""
        self._spacing_ms = lag_time_ms * 2 / MARKS

    def note(self, now_ms: float, end_offset: int) -> None:
        """The log, until now ending at `end_offset`, grows."""
        if not self._marks or now_ms - self._marks[-1][0] >= self._spacing_ms:
            self._marks.append((now_ms, end_offset))

    def last_reached(self, durable_end: int) -> float:
        """The time of the newest mark at or below `durable_end`; -inf where there is none."""
        for time_ms, end_offset in reversed(self._marks):
            if end_offset <= durable_end:
                return time_ms
        return -math.inf


@dataclass(frozen=True, slots=True)
class Progress:
    """What a follower told of its copy, behind an accepted position."""

    durable_end: int
    log_start: int
    partition_epoch: int
    takes_no_records: bool  # its disk is full, or does not answer
    unsynced: bool  # under flush.policy=os: its durable end may be lost with power


@dataclass(slots=True)
class FollowerView:
    """What a leader knows of one follower, in one leader epoch and one life of it. A new epoch has new views."""

    broker_id: int
    broker_epoch: int | None = None
    accepted: bool = False  # a position of this epoch passed the checks
    durable_end: int | None = None
    waiting: Progress | None = None  # told under flush.policy=os, and we are under fsync: it counts if we turn to os
    unsynced: bool = False  # the durable end was told so
    log_start: int = -1  # its durable one
    partition_epoch: int = -1  # of the committed state that it had seen when it told its durable end
    counts_from: int = -1  # a word from before this partition epoch counts for nothing
    wants_in: bool = False  # it is heard in an open session, and its disk takes records
    last_caught_up_ms: float = field(default=-math.inf)
    checks_behind: int = 0
    refused_until_ms: float = field(default=-math.inf)

    def restart(self, broker_epoch: int | None = None) -> None:
        """Another life, or a position that diverged: nothing is known."""
        self.broker_epoch = broker_epoch
        self.accepted = self.wants_in = False
        self.durable_end = self.waiting = None
        self.log_start = self.partition_epoch = -1

    def is_out(self, partition_epoch: int) -> None:
        """Outside the ISR by the committed state of `partition_epoch`: what was known of it before is over."""
        self.counts_from = partition_epoch
        self.last_caught_up_ms = -math.inf

    def excuse(self, delay_ms: float, *, log_end: int, marks: LogEndMarks, now_ms: float) -> None:
        """We stood still for so long: that is not held against it."""
        caught_up_ms = self.caught_up_ms(log_end=log_end, marks=marks, now_ms=now_ms)
        self.last_caught_up_ms = excused(caught_up_ms, delay_ms, now_ms)

    def progressed(self, told: Progress, *, log_end: int, marks: LogEndMarks, now_ms: float) -> None:
        """Its word, told in this epoch and life. A shorter durable end: its log was cut."""
        self.waiting, self.unsynced = None, told.unsynced
        self.log_start, self.partition_epoch = told.log_start, told.partition_epoch
        self.wants_in = not told.takes_no_records
        durable_end = told.durable_end
        if self.durable_end is not None and durable_end < self.durable_end:
            self.last_caught_up_ms = -math.inf
        self.durable_end = durable_end
        caught_up_ms = now_ms if durable_end >= log_end else marks.last_reached(durable_end)
        self.last_caught_up_ms = max(self.last_caught_up_ms, caught_up_ms)

    def forget_unsynced(self) -> None:
        """What it told under flush.policy=os counts no more, unless we turn back to it: told under fsync, it counts."""
        if self.unsynced and self.durable_end is not None:
            log_start, epoch, refuses = self.log_start, self.partition_epoch, not self.wants_in
            self.waiting = Progress(self.durable_end, log_start, epoch, refuses, unsynced=True)
            self.durable_end = None

    def caught_up_ms(self, *, log_end: int, marks: LogEndMarks, now_ms: float) -> float:
        """When it was last caught up."""
        if self.durable_end is None:
            return self.last_caught_up_ms
        if self.durable_end >= log_end:
            return now_ms
        return max(self.last_caught_up_ms, marks.last_reached(self.durable_end))


def known_end(view: FollowerView, incarnation: BrokerIncarnation | None) -> int | None:
    """The durable end of a member, where it is known of its current life, and since it was outside the ISR last."""
    if incarnation is None or not view.accepted or view.broker_epoch != incarnation.broker_epoch:
        return None
    if view.partition_epoch < view.counts_from:
        return None
    return view.durable_end


def known_log_start(view: FollowerView, incarnation: BrokerIncarnation | None) -> int:
    """Its durable log start, where it is known of its current life; else -1."""
    return -1 if known_end(view, incarnation) is None else view.log_start


def eligible_end(view: FollowerView, incarnation: BrokerIncarnation | None, *, epoch_start: int) -> int | None:
    """The durable end of a follower that may join but for the high watermark; None where it may not."""
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
    """The rule of `in` above; one that the controller has just refused waits."""
    end = eligible_end(view, incarnation, epoch_start=epoch_start)
    if view.log_start < log_start:
        return False  # an election could bring back what was deleted
    if now_ms - caught_up_ms > lag_time_max_ms or _lags_in_records(view, previous_check_end, lag_max_records):
        return False  # it would be put out at once
    return end is not None and end >= high_watermark and now_ms >= view.refused_until_ms


def is_behind_in_records(view: FollowerView, *, previous_check_end: int, lag_max_records: int | None) -> bool:
    """One check of the bound in records; True on the second one running."""
    behind = _lags_in_records(view, previous_check_end, lag_max_records)
    view.checks_behind = view.checks_behind + 1 if behind else 0
    return view.checks_behind >= 2


def _lags_in_records(view: FollowerView, previous_check_end: int, lag_max_records: int | None) -> bool:
    if lag_max_records is None:
        return False
    return view.durable_end is None or view.durable_end < previous_check_end - lag_max_records
