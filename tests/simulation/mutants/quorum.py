"""Wrong rules of the metadata quorum and the controller: 19, 21, 22, 23, 27, 30, 31."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from minilog.errors import MinilogError
from minilog.v1 import peer_pb2
from minilog_broker.controller import brokers as brokers_module
from minilog_broker.controller import election
from minilog_broker.controller.liveness import Liveness
from minilog_broker.quorum import leader as leader_module
from minilog_broker.quorum import voting
from minilog_broker.quorum.commit import majority_commit
from minilog_broker.quorum.elections import Elections
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS, NEAR_EPOCHS, ReportedEpochs
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.quorum.vote_keeper import VoteKeeper
from minilog_broker.quorum.voters import VoterKey, VoterSet
from minilog_broker.quorum.voters_heard import VotersHeard
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.replication.rules.own_delay import own_delay_ms
from tests.rules import Patches


def vote_answered_before_it_is_written() -> Patches:
    return [(VoteKeeper, "when_durable", lambda self, action: action())]


def no_check_quorum() -> Patches:
    return [(VotersHeard, "quorum_until_ms", lambda self: math.inf)]


def no_pre_vote() -> Patches:
    """Whoever hears no leader raises the epoch and stands."""
    stand = Transitions.stand

    def mutant(self: Transitions, now_ms: float) -> None:
        if self._member.log.truncating or self._snapshots.loading is not None or self.keeper.is_writing:
            self.state.due_ms = now_ms + 20.0  # type: ignore[misc]
        elif not self._member.voters.current:
            stand(self, now_ms)
        else:
            self.stand_in(self.epoch + 1, {}, now_ms)

    return [(Transitions, "stand", mutant), *pre_vote_beside_a_live_leader()]


def pre_vote_beside_a_live_leader() -> Patches:
    return [
        (Transitions, "hears_leader", lambda self, now_ms: False),
        (VotersHeard, "hears_majority", lambda self, now_ms: False),
    ]


def old_epoch_committed_by_counting() -> Patches:
    def mutant(sets: Sequence[Collection[int]], epoch_start_offset: int, committed: int) -> int:
        return max(committed, min(majority_commit(ends) for ends in sets))

    return [(leader_module, "committed_end", mutant)]


def votes_without_comparing_logs() -> Patches:
    return [(voting, "is_up_to_date", lambda member, request: True)]


def emptied_voter_votes() -> Patches:
    """Its id is enough: whatever disk it has, it votes, stands and counts."""

    def own_key(self: QuorumMember) -> VoterKey:
        recorded = (voter.key for voter in self.voters.current if voter.broker_id == self.node_id)
        return next(recorded, VoterKey(self.node_id, b""))

    def recorded(self: VotersHeard, key: VoterKey) -> VoterKey:
        every = (each for voters in self._member.voter_sets() for each in voters)
        return next((each for each in every if each.broker_id == key.broker_id), key)

    of, counts = VotersHeard._of, VotersHeard._counts
    return [
        (voting, "is_addressed", lambda member, request: True),
        (QuorumMember, "is_voter", property(lambda self: self.node_id in self.voter_ids)),
        (QuorumMember, "own_key", property(own_key)),
        (VotersHeard, "_of", lambda self, key: of(self, recorded(self, key))),
        (VotersHeard, "_counts", lambda self, key: counts(self, recorded(self, key))),
    ]


def given_voters_count() -> Patches:
    """Who votes is what a broker was started with, whatever its log records."""

    def voter_sets(self: QuorumMember) -> tuple[VoterSet, ...]:
        recorded = {key.broker_id: key for key in self.voters.keys}
        return (frozenset(recorded.get(number, VoterKey(number, b"")) for number in self.given_ids),)

    return [(QuorumMember, "voter_sets", voter_sets)]


def epoch_adopted_without_proof() -> Patches:
    """Who says that it leads a later epoch is believed, as far as that may be one of this cluster."""
    begin = Elections._begin

    def mutant(self: Elections, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float) -> MinilogError | None:
        if not self._epoch < request.epoch <= self._epoch + LEAP_EPOCHS or not self._member.is_voter:
            return begin(self, request, now_ms)
        self._transitions.follow(request.epoch, request.leader_id, now_ms)
        return None

    return [(Elections, "_begin", mutant)]


def plausible_refusal_strands() -> Patches:
    """An epoch farther ahead than a cluster gets is garbage, whoever is in it."""
    note = ReportedEpochs.note

    def mutant(self: ReportedEpochs, voter_id: int, epoch: int, *, leads: bool) -> bool:
        own_epoch = self._member.log.last_entry[0]
        return epoch <= own_epoch + NEAR_EPOCHS and note(self, voter_id, epoch, leads=leads)

    return [(ReportedEpochs, "note", mutant)]


def last_member_fenced_out() -> Patches:
    """Fencing takes the last member out of the ISR too: then nobody can ever lead."""
    depart = election.depart

    def mutant(state: Any, broker_id: int, departure: Any, rules: Any) -> Any:
        outcome = depart(state, broker_id, departure, rules)
        if outcome.state.in_sync_replicas != (broker_id,):
            return outcome
        return replace(outcome, state=replace(outcome.state, in_sync_replicas=(), leader_id=NO_LEADER))

    return [(brokers_module, "depart", mutant)]


def paused_controller_fences() -> Patches:
    tick = Liveness.tick

    def mutant(self: Liveness, unfenced: Iterable[int], now_ms: float) -> list[int]:
        self._due_ms = max(self._due_ms, now_ms) if now_ms >= self._due_ms else self._due_ms
        return tick(self, unfenced, now_ms)

    return [(Liveness, "tick", mutant)]


def late_ticks_excuse_everybody() -> Patches:
    """A controller that stood still for some part of the session time-out begins to count anew."""
    tick = Liveness.tick

    def mutant(self: Liveness, unfenced: Iterable[int], now_ms: float) -> list[int]:
        if own_delay_ms(self._due_ms, now_ms, self._timeout_ms) > 0:
            self._heard = dict.fromkeys(self._heard, now_ms)
        return tick(self, unfenced, now_ms)

    return [(Liveness, "tick", mutant)]
