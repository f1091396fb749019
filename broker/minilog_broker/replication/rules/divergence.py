"""The rule that decides whether a follower's log is a prefix of the leader's, and else where the follower truncates.

Two logs that have a record of the same epoch at the same offset are equal up to it. So a position (fetch offset, epoch
of the record before it) is enough to compare two logs (KIP-101, KIP-279; docs/spec/replication.md § Sessions). All
functions here are pure.

    the leader, for a position                                   answers
    fetch offset below its log start                             BelowLogStart: the follower starts anew there
    the follower's log is empty, fetch offset up to its end      Accepted
    it has the epoch, and the epoch ends at or above the offset  Accepted
    anything else, an offset above its end included              Diverged(largest epoch <= the position's, its end)

    the follower, for the answer Diverged(epoch, end offset)     does
    epoch -1: the two logs have no epoch in common               starts anew at that end offset: the leader's log start,
                                                                 or the base of the leader's batch around the position
    it has the epoch                                             truncates to min(leader's end, own end for it, own end)
    it lacks the epoch                                           truncates to the end of the epoch below, and asks again
    it has later epochs alone                                    truncates to its log start, and asks again
    any of these would be below its log start                    starts anew at the leader's log start

A log start is never above the high watermark. So a follower with all committed records keeps them all: those that it
has deleted are at the leader, too.

Each round removes at least one epoch or ends the exchange. So the follower's log becomes a prefix of the leader's. A
follower never truncates by an offset alone, and never to the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

NO_COMMON_EPOCH = -1


class EpochEnds(Protocol):
    """The part of an epoch cache that the functions here use."""

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """The follower's log up to the position is a prefix of ours."""


@dataclass(frozen=True, slots=True)
class BelowLogStart:
    """Our log begins above the position."""

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """The largest epoch of the leader's log at or below the position's epoch, and the offset where it ends there."""

    epoch: int
    end_offset: int


Verdict: TypeAlias = Accepted | BelowLogStart | Diverged


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """A leader's epoch cache together with the leader's own epoch, which starts at `start_offset`. The disk may not
    have recorded that epoch yet."""

    recorded: EpochEnds
    leader_epoch: int
    start_offset: int

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        if epoch >= self.leader_epoch:
            return self.leader_epoch, log_end
        return self.recorded.end_offset_for(epoch, self.start_offset)


def compare_position(
    epochs: EpochEnds, *, log_start: int, log_end: int, fetch_offset: int, last_fetched_epoch: int | None
) -> Verdict:
    """Compare the position of a follower (or a consumer) with the leader's log. `last_fetched_epoch` is None if the
    follower's log is empty or starts at the position."""
    if fetch_offset < log_start:
        return BelowLogStart(log_start)
    if last_fetched_epoch is None:
        if fetch_offset <= log_end:
            return Accepted()
        return Diverged(NO_COMMON_EPOCH, log_start)
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end)
    if epoch == last_fetched_epoch and fetch_offset <= end_offset:
        return Accepted()
    if epoch == NO_COMMON_EPOCH:
        return Diverged(NO_COMMON_EPOCH, log_start)
    return Diverged(epoch, end_offset)


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log to `end_offset`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class StartAnewAt:
    """Drop all records, and start an empty log at `offset`."""

    offset: int


def truncation(
    epochs: EpochEnds, *, log_start: int, log_end: int, diverged: Diverged, leader_log_start: int
) -> TruncateTo | StartAnewAt:
    """The step of a follower whose log is [`log_start`, `log_end`) after the leader's answer `diverged`."""
    if diverged.epoch == NO_COMMON_EPOCH:
        return StartAnewAt(diverged.end_offset)
    own_epoch, own_end = epochs.end_offset_for(diverged.epoch, log_end)
    if own_epoch == NO_COMMON_EPOCH:
        own_end = log_start
    target = min(diverged.end_offset, own_end, log_end)
    return TruncateTo(target) if target >= log_start else StartAnewAt(leader_log_start)
