"""Votes, leaders and the one log of the metadata quorum: V11, V12, V20, V21. Its histories, its small model and the
simulator ask it. What a world knows late, or does not know, it leaves out: the judge has no excuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from tests.judges.violation import Violation, hold

NOBODY = -1
Entry = TypeVar("Entry")


class Stored(NamedTuple):
    """What is on a voter's disk: its epoch and vote, and the epoch of the last entry of its log."""

    epoch: int
    voted_for: int
    log_epoch: int = 0


class Votes:
    """What the voters said, each by its disk: who comes back with another disk is another voter."""

    def __init__(self) -> None:
        self._epochs: dict[Hashable, int] = {}
        self._votes: dict[tuple[Hashable, int], int] = {}

    def answered(
        self, voter: int, disk: Hashable, epoch: int, stored: Stored, *, is_voter: bool = True, granted_to: int = NOBODY
    ) -> None:
        """A node answers who asks for its vote. All that it says is on its disk. NOBODY: the vote is not granted."""
        if epoch > max(stored.epoch, stored.log_epoch):
            raise Violation("V11", f"b{voter} answers a vote in epoch {epoch}, its disk has epoch {stored.epoch}")
        self.epoch(voter, disk, epoch, is_voter=is_voter)
        if granted_to == NOBODY:
            return
        if stored.epoch < epoch or (stored.epoch == epoch and stored.voted_for != granted_to):
            raise Violation("V11", f"b{voter} votes for b{granted_to} in epoch {epoch}, its disk has {stored[:2]}")
        self.vote(voter, disk, epoch, granted_to)

    def epoch(self, voter: int, disk: Hashable, epoch: int, *, is_voter: bool = True) -> None:
        """A node is in an epoch. That of a voter is never below one that it has answered with, as a voter or before it
        was one."""
        known = self._epochs.get(disk, -1)
        if is_voter and epoch < known:
            raise Violation("V11", f"b{voter} is in epoch {epoch}, and was in {known}")
        self._epochs[disk] = max(epoch, known)

    def vote(self, voter: int, disk: Hashable, epoch: int, candidate: int) -> None:
        """It votes, NOBODY: not yet. In an epoch it has one vote, and keeps to it."""
        known = self._votes.get((disk, epoch), NOBODY)
        if known not in (NOBODY, candidate):
            raise Violation("V11", f"b{voter} votes for b{known} and for b{candidate} in epoch {epoch}")
        self._votes[disk, epoch] = candidate


class Leaders:
    """Who leads which epoch: `of` has the broker and its life."""

    def __init__(self, of: Iterable[tuple[int, tuple[int, int]]] = ()) -> None:
        self.of = dict(of)

    def leads(self, number: int, life: int, epoch: int, stored_epoch: int) -> bool:
        """Whether that is new. At most one life leads an epoch, and it has the epoch on its disk."""
        is_new, known = epoch not in self.of, self.of.setdefault(epoch, (number, life))
        if known != (number, life):
            text = f"life {life} of b{number} leads quorum epoch {epoch}, and life {known[1]} of b{known[0]} did"
            raise Violation("V11", text)
        hold(not is_new or stored_epoch >= epoch, "V11", f"b{number} leads quorum epoch {epoch}, not on its disk")
        return is_new


class Holders(NamedTuple):
    """A set of voters that may count, and those of it that have something on their disks."""

    voters: Collection[int]
    holding: Collection[int]

    @property
    def are_majority(self) -> bool:
        return 2 * len(self.holding) > len(self.voters)


class OneLog(Generic[Entry]):
    """What anybody has ever held for committed, in its order. `end_of`: the offset behind an entry."""

    def __init__(self, end_of: Callable[[Entry], int], entries: Iterable[Entry] = ()) -> None:
        self._end_of = end_of
        self.entries = list(entries)

    @property
    def end(self) -> int:
        return self._end_of(self.entries[-1]) if self.entries else 0

    def told(self, number: int, end: int, lacks: int | None, own: Iterable[Entry]) -> Sequence[Entry]:
        """Somebody holds all below `end` for committed; what of it is new. `lacks`: the first offset of what is known
        that its log has not, or otherwise; None: it has all. `own`: its entries behind the known end."""
        hold(
            lacks is None, "V12", f"b{number} tells that {end} is committed, and has not what was committed at {lacks}"
        )
        if end <= self.end:
            return ()
        known = len(self.entries)
        self.entries.extend(each for each in own if self._end_of(each) <= end)
        if self.end != end:
            raise Violation("V12", f"b{number} tells that {end} is committed, and has a log up to {self.end}")
        return self.entries[known:]


def check_held(end: int, holders: Iterable[Holders]) -> None:
    """All below `end` is committed: of one of these sets a majority has it on its disks."""
    tried: list[str] = []
    for each in holders:
        if each.are_majority:
            return
        tried.append(f"of the voters {sorted(each.voters)} only {sorted(each.holding)}")
    raise Violation("V12", f"{end} is committed, and {' or '.join(tried)} have it on disk")


def check_entered(number: int, end: int, epoch: int, is_entered: bool) -> None:
    """Before that a majority has an entry of the epoch of who says so: nothing else is committed by counting."""
    hold(is_entered, "V12", f"b{number} tells in quorum epoch {epoch} that {end} is committed, by counting")


def check_leader(number: int, epoch: int, lacks: int | None) -> None:
    """A leader of a new quorum epoch has all that was committed before."""
    hold(lacks is None, "V12", f"b{number} leads quorum epoch {epoch}, and has not what was committed at {lacks}")


def check_heard(number: int, epoch: int, silent: float, patience: float) -> None:
    """V21: who leads, or answers as the controller, has heard a majority not too long ago."""
    hold(silent <= patience, "V21", f"b{number} leads quorum epoch {epoch}, and has heard no majority for {silent:.2f}")


def check_not_deposed(number: int, epoch: int, hears: Holders, after: str) -> None:
    """V20: the leader of `epoch` leads no more, or another does. `hears`: who heard it all the time, itself too."""
    if hears.are_majority:
        text = f"b{number} led quorum epoch {epoch}, {sorted(hears.holding)} heard it all the time"
        raise Violation("V20", f"{text}, and {after}")
