"""The votes of one round: who granted a vote, who denied it, and who is silent. Pure."""

from __future__ import annotations

from collections.abc import Collection

from minilog_broker.quorum.voters import VoterKey, VoterSet


class Ballot:
    """One round of one election. The candidate needs a majority of each of `sets`. A founding election needs every
    voter."""

    def __init__(self, sets: Collection[VoterSet], own: VoterKey, *, unanimous: bool = False) -> None:
        self._sets = tuple(sets)
        self._unanimous = unanimous
        self.granted: set[VoterKey] = set()
        self._heard: set[VoterKey] = set()
        keys = {key for voters in self._sets for key in voters}
        self.others = sorted(key for key in keys if key.broker_id != own.broker_id)

    def grant(self, key: VoterKey) -> None:
        self.granted.add(key)
        self._heard.add(key)

    def deny(self, key: VoterKey) -> None:
        """The voter denied its vote, or did not answer."""
        self._heard.add(key)

    @property
    def silent(self) -> list[VoterKey]:
        """The other voters that have not answered yet."""
        return [key for key in self.others if key not in self._heard]

    @property
    def won(self) -> bool:
        if self._unanimous and not all(voters <= self.granted for voters in self._sets):
            return False
        return bool(self._sets) and all(is_majority(voters & self.granted, voters) for voters in self._sets)

    @property
    def exhausted(self) -> bool:
        """Whether every other voter has answered or cannot be reached, and the round is not won."""
        return not self.won and self._heard.issuperset(self.others)


def is_majority(some: Collection[VoterKey], voters: VoterSet) -> bool:
    return 2 * len(some) > len(voters)
