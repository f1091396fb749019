"""Votes and leaders of the metadata quorum. V11. The histories of the quorum and the simulator ask it."""

from __future__ import annotations

from collections.abc import Hashable

from tests.judges.violation import Violation

NOBODY = -1


class Votes:
    """What the voters said, each by its disk: who comes back with another disk is another voter."""

    def __init__(self) -> None:
        self._epochs: dict[Hashable, int] = {}
        self._votes: dict[tuple[Hashable, int], int] = {}

    def epoch(self, voter: int, disk: Hashable, epoch: int, *, is_voter: bool = True) -> None:
        """A node answers with its epoch. That of a voter is never below one that it has answered with, as a voter or
        before it was one."""
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

    def __init__(self) -> None:
        self.of: dict[int, tuple[int, int]] = {}

    def leads(self, number: int, life: int, epoch: int) -> bool:
        """Whether that is new. At most one life leads an epoch."""
        is_new, known = epoch not in self.of, self.of.setdefault(epoch, (number, life))
        if known != (number, life):
            text = f"life {life} of b{number} leads quorum epoch {epoch}, and life {known[1]} of b{known[0]} did"
            raise Violation("V11", text)
        return is_new
