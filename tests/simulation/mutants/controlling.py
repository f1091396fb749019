"""Wrong rules of the active controller: what it answers when, and whom it elects, registers and fences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from minilog.errors import InvalidReplicationFactor
from minilog.v1 import peer_pb2
from minilog_broker.controller import assignment, election, preferred, retirement
from minilog_broker.controller import in_sync as proposals
from minilog_broker.controller.brokers import BrokerRegistrations
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.controller_effects import ControllerAnswer
from minilog_broker.controller.election import ElectionOutcome, led_by_preferred
from minilog_broker.controller.image import BrokerRegistration
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.liveness import Liveness
from minilog_broker.controller.placement import Site, place_replicas
from minilog_broker.controller.preferred import PreferredLeaders
from minilog_broker.controller.retirement import Retirement
from minilog_broker.controller.topics import Topics
from minilog_broker.replication.partition_state import PartitionState
from tests.rules import Patches


def answers_before_it_is_committed() -> Patches:
    """A controller answers brokers with what it has decided, before a majority has it."""
    answer = Controller._answer
    kinds = peer_pb2.RegisterResponse, peer_pb2.HeartbeatResponse, peer_pb2.ProposeInSyncReplicasResponse

    def mutant(self: Controller, ticket: object, response: Any) -> None:
        if isinstance(response, kinds):
            self._effects.append(ControllerAnswer(ticket, response))
        else:
            answer(self, ticket, response)

    return [(Controller, "_answer", mutant)]


def producer_ids_before_they_are_committed() -> Patches:
    """A block of producer ids is handed to a broker before a majority knows that it is given."""
    answer = Controller._answer

    def mutant(self: Controller, ticket: object, response: Any) -> None:
        if isinstance(response, peer_pb2.AllocateProducerIdsResponse):
            self._effects.append(ControllerAnswer(ticket, response))
        else:
            answer(self, ticket, response)

    return [(Controller, "_answer", mutant)]


def any_partition_epoch() -> Patches:
    """A proposal is judged by its leader epoch alone: one that was overtaken is accepted when it comes."""
    accept = proposals._accept

    def mutant(ledger: Ledger, leader_id: int, key: Any, proposal: peer_pb2.InSyncReplicasProposal) -> None:
        state = ledger.image.partitions.get(key)
        if state is not None:
            proposal.partition_epoch = state.partition_epoch
        accept(ledger, leader_id, key, proposal)

    return [(proposals, "_accept", mutant)]


def first_live_replica_leads() -> Patches:
    """An election takes the first replica that can lead, in the ISR or not."""
    elect = election._elect

    def mutant(state: PartitionState, barred: frozenset[int], rules: Any) -> tuple[PartitionState, bool]:
        live = [broker for broker in state.replicas if election.can_lead(state, broker, rules)]
        if not live:
            return elect(state, barred, rules)
        members = state.in_sync_replicas if live[0] in state.in_sync_replicas else (live[0],)
        return election._led_by(replace(state, in_sync_replicas=members), live[0], rules), False

    return [(election, "_elect", mutant)]


def preferred_leads_out_of_sync() -> Patches:
    """The preferred leader leads again as soon as it lives, and is taken into the ISR by that."""

    def available(self: PreferredLeaders, state: PartitionState) -> bool:
        return election.can_lead(state, state.preferred_leader, self._ledger.rules(state.key))

    def taken_in(state: PartitionState, rules: Any) -> ElectionOutcome:
        members = frozenset({*state.in_sync_replicas, state.preferred_leader})
        outcome = led_by_preferred(state, rules)
        return replace(outcome, state=replace(outcome.state, in_sync_replicas=election._ordered(state, members)))

    return [(PreferredLeaders, "_is_available", available), (preferred, "led_by_preferred", taken_in)]


def registered_again_is_the_same_life() -> Patches:
    """A broker that registers again from its own directory, and before anybody missed it, goes on as the same life."""
    register = BrokerRegistrations.register

    def mutant(self: BrokerRegistrations, request: peer_pb2.RegisterRequest, now_ms: float) -> int:
        former = self._ledger.image.brokers.get(request.broker_id)
        if former is None or former.fenced or former.stopping or former.directory_id != request.directory_id:
            return register(self, request, now_ms)
        self._liveness.heard(request.broker_id, now_ms)
        return former.broker_epoch

    return [(BrokerRegistrations, "register", mutant)]


def reassigned_with_the_first() -> Patches:
    """A reassignment is done when the first replica of its target is in sync."""

    def mutant(state: PartitionState, effective_min: int) -> PartitionState:
        target = state.target_replicas
        if not state.reassigning or not set(target) & set(state.in_sync_replicas):
            return assignment.advanced(state, effective_min)
        done = assignment._with_replicas(state, target)
        return replace(done, adding_replicas=(), removing_replicas=(), throttle_bytes_per_second=0)

    return [(election, "advanced", mutant)]


def cordons_are_not_looked_at() -> Patches:
    """The replicas of new partitions are placed on cordoned brokers, too."""

    def every_site(self: Topics, name: str, partitions: int, factor: int) -> list[tuple[int, ...]]:
        brokers = self._ledger.image.brokers.values()
        usable = [broker for broker in brokers if not broker.fenced and not broker.stopping]
        sites = {broker.broker_id: Site(broker.failure_domain, broker.host_label) for broker in usable}
        if not 1 <= factor <= len(sites):
            raise InvalidReplicationFactor(f"{factor} replicas do not fit")
        return place_replicas(sites, partitions, factor, self._random)

    return [(Topics, "_place", every_site)]


def all_moves_at_once() -> Patches:
    """A broker that is decommissioned has all its partitions moved at once."""
    return [(retirement, "MAX_MOVES", 1_000)]


def forgotten_with_replicas() -> Patches:
    """A broker is forgotten as soon as it is fenced."""
    check = Retirement._check_is_gone

    def mutant(self: Retirement, broker: BrokerRegistration, now_ms: float) -> None:
        if not broker.fenced or self._is_voter(broker.broker_id):
            check(self, broker, now_ms)

    return [(Retirement, "_check_is_gone", mutant)]


def another_controller_does_not_go_on() -> Patches:
    """Moves begin by command alone: what is left has no turn."""
    return [(Retirement, "tick", lambda self, now_ms: setattr(self, "_due_ms", now_ms + 1_000.0))]


def no_time_from_a_new_controller() -> Patches:
    """A controller that is new counts the silence of all brokers from before its time: who has not spoken yet is
    silent."""
    make = Liveness.__init__

    def mutant(self: Liveness, session_timeout_ms: float, now_ms: float, unfenced: Iterable[int]) -> None:
        known = list(unfenced)
        make(self, session_timeout_ms, now_ms, known)
        self._heard = dict.fromkeys(known, now_ms - session_timeout_ms)

    return [(Liveness, "__init__", mutant)]
