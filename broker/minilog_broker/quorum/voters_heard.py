"""What a leader knows of each voter: its durable end, when it was heard, and whether it needs to hear who leads.

Check-quorum (V21): a leader that hears no majority for quorum.fetch.timeout resigns. A new leader gives everybody a
full period. The time in which its own process stood still does not count (replication/rules/own_delay.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minilog_broker.quorum.ballot import is_majority
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.voters import VoterKey, VoterSet
from minilog_broker.replication.rules.own_delay import excused

_SLOWEST_TELLING_MS = 1_000.0  # the leader tells a voter that is down no more often: when it starts, it asks by itself


@dataclass(slots=True)
class _Heard:
    excused_ms: float  # silence before it is nobody's fault: it counts from there on
    durable_end: int = 0  # the voter has reported it in this epoch, from an accepted position
    heard_ms: float = -math.inf


@dataclass(slots=True)
class _Telling:
    due_ms: float
    pause_ms: float
    session_open: bool = False


class VotersHeard:
    """The voters of one leader, in one epoch of the quorum. Times are milliseconds of the monotonic clock."""

    def __init__(self, member: QuorumMember, now_ms: float) -> None:
        self._member = member
        self._voters: dict[VoterKey, _Heard] = {}
        self._stood_still_ms = -math.inf
        self._telling: dict[int, _Telling] = {}
        self.voters_changed(now_ms)

    def _of(self, key: VoterKey) -> _Heard:
        return self._voters[key]

    def _counts(self, key: VoterKey) -> bool:
        return any(key in voters for voters in self._member.voter_sets())

    def voters_changed(self, now_ms: float) -> None:
        """Our log names other voters than before. A new voter has a full period from now on, and the leader tells it.

        A removed voter is forgotten. If it comes again, it is a new one.
        """
        keys = {key for voters in self._member.voter_sets() for key in voters}
        self._voters = {key: self._voters.get(key, _Heard(excused_ms=now_ms)) for key in sorted(keys)}
        others = [voter_id for voter_id in self._member.voter_ids if voter_id != self._member.node_id]
        pause_ms = self._member.timing.begin_epoch_retry_ms
        self._telling = {voter_id: self._telling.get(voter_id, _Telling(now_ms, pause_ms)) for voter_id in others}

    @property
    def keys(self) -> set[VoterKey]:
        """The voters, by the last change of them in our log."""
        return set(self._voters)

    # -- durable ends

    def set_end(self, key: VoterKey, durable_end: int) -> None:
        if self._counts(key):
            self._of(key).durable_end = durable_end

    def ends(self) -> list[list[int]]:
        """The durable ends, for each set of voters that needs a majority."""
        return [[self._of(key).durable_end for key in voters] for voters in self._member.voter_sets()]

    # -- check-quorum

    def hear(self, key: VoterKey, now_ms: float) -> None:
        if self._counts(key):
            self._of(key).heard_ms = now_ms

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """This process stood still for `delay_ms`, until now."""
        self._stood_still_ms = now_ms
        for voter in self._voters.values():
            voter.excused_ms = excused(voter.excused_ms, delay_ms, now_ms)
            voter.heard_ms = excused(voter.heard_ms, delay_ms, now_ms)

    def quorum_until_ms(self) -> float:
        """Until when a majority of each set counts as heard. Infinity if this node is the majority by itself."""
        heard_ms = min(self._majority_heard_ms(voters) for voters in self._member.voter_sets())
        return heard_ms + self._member.timing.fetch_timeout_ms

    def hears_majority(self, now_ms: float) -> bool:
        """Whether a majority was really heard of late. No excuse counts, and no message that waited while we stood
        still."""
        heard = self.heard(now_ms)
        return bool(heard) and all(is_majority(voters & heard, voters) for voters in self._member.voter_sets())

    def heard(self, now_ms: float) -> set[VoterKey]:
        """The voters that were heard so, and this node. Empty shortly after it stood still."""
        if now_ms - self._stood_still_ms < self._member.timing.fetch_timeout_ms:
            return set()
        late_ms = now_ms - self._member.timing.fetch_timeout_ms / 2
        return {key for key, voter in self._voters.items() if voter.heard_ms >= late_ms} | {self._member.own_key}

    def _majority_heard_ms(self, voters: VoterSet) -> float:
        times = [math.inf if key == self._member.own_key else self._counts_from_ms(key) for key in voters]
        return sorted(times, reverse=True)[len(times) // 2]

    def _counts_from_ms(self, key: VoterKey) -> float:
        voter = self._of(key)
        return max(voter.heard_ms, voter.excused_ms)

    # -- telling them who leads, until they fetch

    def session_opened(self, broker_id: int) -> None:
        if (telling := self._telling.get(broker_id)) is not None:
            telling.session_open = True

    def session_closed(self, broker_id: int, now_ms: float) -> None:
        if (telling := self._telling.get(broker_id)) is not None:
            telling.session_open = False
            telling.pause_ms = self._member.timing.begin_epoch_retry_ms
            telling.due_ms = now_ms + telling.pause_ms

    def telling_due_ms(self) -> float:
        return min((telling.due_ms for telling in self._telling.values() if not telling.session_open), default=math.inf)

    def take_to_tell(self, now_ms: float) -> list[int]:
        """The voters to tell now. The leader tells each again after a pause that doubles, as long as the voter does not
        fetch."""
        due = [
            (voter_id, telling)
            for voter_id, telling in self._telling.items()
            if not telling.session_open and telling.due_ms <= now_ms
        ]
        for _, telling in due:
            telling.due_ms = now_ms + telling.pause_ms
            telling.pause_ms = min(2 * telling.pause_ms, _SLOWEST_TELLING_MS)
        return [voter_id for voter_id, _ in due]
