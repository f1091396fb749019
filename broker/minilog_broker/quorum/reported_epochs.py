"""The epochs that the other voters report: the only proof that a later epoch is real. V11, V20.

A request names an epoch, and anybody may send it in anybody's name. So it is a hint, and this node asks the voters. It
opens a channel to each voter, so the answer on it is the voter's own word. A healthy voter has that epoch on its disk.
(KRaft, and Raft as it is usually built, believe every higher epoch.)

    reported                                                    this node adopts
    a majority, with ourselves, is at or above an epoch         that epoch: a single sick voter is no majority
    one voter is at most NEAR_EPOCHS above us, and we hear no   its epoch, at once: lost elections drive voters so far
    leader                                                      apart
    one voter is farther above us, and we hear no leader        a leap of at most LEAP_EPOCHS towards it
    one voter is above a leader that hears a majority           a leap: the leader stands in the epoch behind it (V20)

So a majority always reaches the highest epoch on a disk of its own. One voter's word seldom moves a leader that is
heard. A voter that names ever later epochs needs weeks to use them up, because each leap waits twice as long as the
leap before.
"""

from __future__ import annotations

import math

from minilog_broker.quorum.commit import majority_commit
from minilog_broker.quorum.member import MAX_EPOCH, NO_LEADER, QuorumMember

# Each lost election costs one epoch and tens of milliseconds: a majority may be at odds for some seconds.
NEAR_EPOCHS = 64
# A cluster does not get so far ahead while a broker is away: ten elections a second for a day.
LEAP_EPOCHS = 1 << 20
_FIRST_PAUSE_MS = 1_000.0  # between two leaps: voters that stand five leaps apart are together in half a minute
_LONGEST_PAUSE_MS = 600_000.0  # there is room for 2,048 leaps, which take two weeks: by then the logs show it


class ReportedEpochs:
    """The epoch that each voter reported last, and the time of the next leap."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._reports: dict[int, tuple[int, bool]] = {}  # voter: its epoch, and whether it leads it
        self._leap_due_ms = -math.inf
        self._leap_pause_ms = _FIRST_PAUSE_MS

    def note(self, voter_id: int, epoch: int, *, leads: bool) -> bool:
        """Take a voter's own word. Whether it can be true."""
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
        """The voter that reported that it leads `epoch`; -1: none."""
        return next((voter_id for voter_id, report in self._reports.items() if report == (epoch, True)), NO_LEADER)

    def leap_towards(self, epoch: int, own_epoch: int, now_ms: float) -> int:
        """The epoch to go to on one voter's word. It is our own epoch if the voter's is not above it, or if no leap is
        due yet."""
        if epoch <= own_epoch or now_ms < self._leap_due_ms:
            return own_epoch
        self._leap_due_ms = now_ms + self._leap_pause_ms
        self._leap_pause_ms = min(2 * self._leap_pause_ms, _LONGEST_PAUSE_MS)
        return min(epoch, own_epoch + LEAP_EPOCHS)
