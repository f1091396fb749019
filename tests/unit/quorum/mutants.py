"""Wrong rules of a metadata quorum (the numbers are those of docs/spec/wrong-rules.md). Histories must notice each.

A mutant swaps one function of the real code. A search that does not kill it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from unittest.mock import patch

import msgspec

from minilog_broker.quorum import follower as follower_module
from minilog_broker.quorum import leader as leader_module
from minilog_broker.quorum import voting
from minilog_broker.quorum.commit import majority_commit
from minilog_broker.quorum.fetcher import Fetcher
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.standing import Unattached
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.quorum.vote_keeper import VoteKeeper
from minilog_broker.quorum.voters import VoterHistory, VoterKey, VoterSet
from minilog_broker.quorum.voters_heard import VotersHeard
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.recovery import Recovery
from tests.rules import Patches
from tests.unit.quorum.machine import VOTE_FILE, QuorumMachine


def listener_counts() -> Patches:
    """A voter names its directory to a leader below its promise, too."""

    def fetcher(member: QuorumMember, leader_id: int, epoch: int, directory_id: bytes) -> Fetcher:
        return Fetcher(member, leader_id, epoch)

    return [(follower_module, "Fetcher", fetcher)]


def vote_not_synced() -> Patches:
    """The vote is written, and lost with the power."""

    def write_vote(self: QuorumMachine, vote: VoteState) -> None:
        with patch.object(self.files, "fsync_dir", lambda path: None):
            write_durable_file(self.files, VOTE_FILE, msgspec.json.encode(vote))
        self.votes_written.append(vote)

    return [(QuorumMachine, "write_vote", write_vote)]


def vote_answered_before_it_is_written() -> Patches:
    return [(VoteKeeper, "when_durable", lambda self, action: action())]


def unsynced_tail_served() -> Patches:
    return [(Recovery, "_sync", lambda self: None)]


def no_check_quorum() -> Patches:
    return [(VotersHeard, "quorum_until_ms", lambda self: math.inf)]


def no_pre_vote() -> Patches:
    def stand(self: Transitions, now_ms: float) -> None:
        if self._member.log.truncating or self._snapshots.loading is not None or self.keeper.is_writing:
            self.state.due_ms = now_ms + 20.0  # type: ignore[misc]
        elif not self._member.voters.current:
            _STAND(self, now_ms)
        else:
            self.stand_in(self.epoch + 1, {}, now_ms)

    return [
        (Transitions, "stand", stand),
        (Transitions, "hears_leader", lambda self, now_ms: False),
        (VotersHeard, "hears_majority", lambda self, now_ms: False),
    ]


_STAND = Transitions.stand


def pre_vote_beside_a_live_leader() -> Patches:
    return [
        (Transitions, "hears_leader", lambda self, now_ms: False),
        (VotersHeard, "hears_majority", lambda self, now_ms: False),
    ]


def old_epoch_committed_by_counting() -> Patches:
    def committed_end(sets: Sequence[Collection[int]], epoch_start_offset: int, committed: int) -> int:
        return max(committed, min(majority_commit(ends) for ends in sets))

    return [(leader_module, "committed_end", committed_end)]


def emptied_voter_votes() -> Patches:
    """Its id is enough: whatever disk it has, it votes, stands and counts."""

    def own_key(self: QuorumMember) -> VoterKey:
        recorded = (voter.key for voter in self.voters.current if voter.broker_id == self.node_id)
        return next(recorded, VoterKey(self.node_id, b""))

    def recorded(self: VotersHeard, key: VoterKey) -> VoterKey:
        of_this_id = (
            each for voters in self._member.voter_sets() for each in voters if each.broker_id == key.broker_id
        )
        return next(of_this_id, key)

    of, counts = VotersHeard._of, VotersHeard._counts
    return [
        (voting, "is_addressed", lambda member, request: True),
        (QuorumMember, "is_voter", property(lambda self: self.node_id in self.voter_ids)),
        (QuorumMember, "own_key", property(own_key)),
        (VotersHeard, "_of", lambda self, key: of(self, recorded(self, key))),
        (VotersHeard, "_counts", lambda self, key: counts(self, recorded(self, key))),
    ]


def no_log_comparison() -> Patches:
    return [(voting, "is_up_to_date", lambda member, request: True)]


def given_voters_count() -> Patches:
    """Who votes is what a broker was started with, whatever its log records."""

    def voter_sets(self: QuorumMember) -> tuple[VoterSet, ...]:
        recorded = {key.broker_id: key for key in self.voters.keys}
        return (frozenset(recorded.get(each, VoterKey(each, b"")) for each in self.given_ids),)

    return [(QuorumMember, "voter_sets", voter_sets)]


def added_while_one_is_added() -> Patches:
    """A change of the voters counts when it is committed, not from when it is in the log."""

    def sets(self: VoterHistory, committed_end_offset: int) -> tuple[VoterSet, ...]:
        known = [entry.keys for entry in self._entries if entry.end_offset <= committed_end_offset]
        return (known[-1] if known else self._entries[0].keys,)

    return [(VoterHistory, "sets", sets)]


def replaced_by_its_own_majority() -> Patches:
    """With a voter that is replaced the voters before it are needed no more."""
    return [(VoterHistory, "sets", lambda self, committed_end_offset: (self.keys,))]


def vote_of_an_observer_forgotten() -> Patches:
    """An observer that becomes a voter begins in the epoch of its log, whatever it has voted in."""

    def look_at_voters(self: Transitions, now_ms: float) -> None:
        was_observer = isinstance(self.state, Observer)
        look(self, now_ms)
        if was_observer and isinstance(self.state, Unattached):
            self.epoch = self._member.log.last_entry[0]

    look = Transitions.look_at_voters
    return [(Transitions, "look_at_voters", look_at_voters)]


def observers_vote_for_nobody() -> Patches:
    """A broker votes when its own log says so, not before."""
    addressed = voting.is_addressed
    return [
        (voting, "is_addressed", lambda member, request: member.is_voter and addressed(member, request)),
    ]


def removed_at_once() -> Patches:
    """A voter whose log removes it takes no part any more, committed or not."""
    return [(VoterHistory, "takes_part", lambda self, key, committed_end_offset: key in self.keys)]


def known_voters_only() -> Patches:
    """Only voters of our own log are asked, followed and believed."""

    def voters_only(self: QuorumMember) -> list[VoterKey]:
        return sorted({key for voters in self.voter_sets() for key in voters if key.broker_id != self.node_id})

    return [(QuorumMember, "peer_keys", voters_only)]
