"""Whether a follower's log is a prefix of the leader's, and where the follower truncates if it is not. Pure.

Two logs that have a record of the same epoch at the same offset are equal up to it. So a position (fetch offset, epoch
of the record before it) is enough to find out (KIP-101, KIP-279;
docs/spec/replication.md § Sessions):

    the leader, asked with a position                            answers
    fetch offset below its log start                             BelowLogStart: the follower starts anew there
    the follower's log is empty, fetch offset up to its end      Accepted
    it has the epoch, and the epoch ends at or above the offset  Accepted
    anything else, an offset above its end included              Diverged(largest epoch <= asked, its end)

    the follower, told (epoch, end offset)                       does
    epoch -1: nothing in common                                  starts anew at the leader's end offset for it, which
                                                                 is its log start or the base of the batch around it
    it has the epoch                                             truncates to min(leader's end, own end for it, own end)
    it lacks the epoch                                           truncates to the end of the epoch below, and asks again

Each round removes at least one epoch or ends, so the follower's log becomes a prefix of the leader's. There is no
truncation by offset alone, and never to the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

NO_COMMON_EPOCH = -1


class EpochEnds(Protocol):
    """What the functions here need of an epoch cache."""

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
    """The largest epoch at or below the one asked for, and where it ends in our log."""

    epoch: int
    end_offset: int


Verdict: TypeAlias = Accepted | BelowLogStart | Diverged


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """A leader's epoch cache in which its own epoch is known to start at `start_offset`, whether or not the disk has
    recorded that already."""

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
    """Judge a follower's (or a consumer's) position. `last_fetched_epoch` None: its log is empty or starts there."""
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
    """Drop everything, start empty at `offset`."""

    offset: int


def truncation(
    epochs: EpochEnds, *, log_start: int, log_end: int, told: Diverged, leader_log_start: int
) -> TruncateTo | StartAnewAt:
    """What a follower whose log is [`log_start`, `log_end`) does with the leader's answer."""
    if told.epoch == NO_COMMON_EPOCH:
        return StartAnewAt(told.end_offset)
    own_epoch, own_end = epochs.end_offset_for(told.epoch, log_end)
    if own_epoch == NO_COMMON_EPOCH:
        return StartAnewAt(leader_log_start)
    target = min(told.end_offset, own_end, log_end)
    return TruncateTo(target) if target >= log_start else StartAnewAt(leader_log_start)
