"""The epochs that the other voters say they are in: the only proof that a later epoch is real. V11, V20.

A request names an epoch, and may come from anybody in anybody's name: it is a hint, and the voters are asked. What a
voter answers on a channel that this node has opened to it is that voter's own word, and of a voter that is well it is
on its disk. (KRaft and Raft as it is usually built believe every epoch that is higher.)

    told                                                        adopted
    a majority, ourselves among them, is at or above an epoch   that epoch: one that is sick is no majority
    one voter is at most NEAR_EPOCHS above us, and we hear no   its epoch, at once: so far apart come voters whose
    leader                                                      elections were lost
    one voter is farther above us, and we hear no leader        a leap, at most LEAP_EPOCHS towards it
    a leader that a majority hears is told a later epoch        a leap: it stands in the epoch behind that (V20)

So the highest epoch on a disk is reached wherever a majority is there, one voter's word moves a heard leader seldom,
and one that names ever later epochs needs weeks to use them up: each next leap waits twice as long as the one before.
"""

from __future__ import annotations

import math

from minilog_broker.quorum.commit import majority_commit
from minilog_broker.quorum.member import MAX_EPOCH, NO_LEADER, Member

# Each election that is lost costs one epoch, and takes tens of milliseconds: some seconds of a majority at odds.
NEAR_EPOCHS = 64
# No cluster gets so far ahead while a broker looks away: ten elections a second for a day.
LEAP_EPOCHS = 1 << 20
_FIRST_PAUSE_MS = 1_000.0  # between two leaps: voters that stand five leaps apart are together in half a minute
_LONGEST_PAUSE_MS = 600_000.0  # the 2,048 leaps that there are room for take two weeks: it is in the log by then


class ReportedEpochs:
    """What each voter has said last of its epoch, and when the next leap may be."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._reports: dict[int, tuple[int, bool]] = {}  # voter: its epoch, and whether it said that it leads it
        self._leap_due_ms = -math.inf
        self._leap_pause_ms = _FIRST_PAUSE_MS

    def note(self, voter_id: int, epoch: int, *, leads: bool) -> bool:
        """A voter's own word; whether it can be true."""
        if not self._member.is_peer(voter_id) or not 0 <= epoch <= MAX_EPOCH:
            return False
        self._reports[voter_id] = epoch, leads
        return True

    def proven(self, own_epoch: int) -> int:
        """The highest epoch that a majority of each set of voters has reached."""
        return min(
            majority_commit([self._epoch_of(key.broker_id, own_epoch) for key in voters])
            for voters in self._member.voter_sets()
        )

    def _epoch_of(self, voter_id: int, own_epoch: int) -> int:
        return own_epoch if voter_id == self._member.node_id else self._reports.get(voter_id, (0, False))[0]

    def leader_of(self, epoch: int) -> int:
        """Who said of itself that it leads `epoch`; -1 nobody."""
        return next((voter_id for voter_id, report in self._reports.items() if report == (epoch, True)), NO_LEADER)

    def leap_towards(self, epoch: int, own_epoch: int, now_ms: float) -> int:
        """The epoch to go to for one voter's word; our own where it is not above, or no leap is due yet."""
        if epoch <= own_epoch or now_ms < self._leap_due_ms:
            return own_epoch
        self._leap_due_ms = now_ms + self._leap_pause_ms
        self._leap_pause_ms = min(2 * self._leap_pause_ms, _LONGEST_PAUSE_MS)
        return min(epoch, own_epoch + LEAP_EPOCHS)
