"""Brokers that leave: cordoned, decommissioned, forgotten. The rules: docs/spec/quorum.md § Brokers that go.

    change       effect from then on                                         ended by
    cordon       the broker gets no new replica (KIP-1066: for a disk)       uncordon
    decommission the same, and its replicas move to others                   uncordon; forget, by itself
    forget       it is registered no more (Kafka's UnregisterBroker)         its next registration, as a new broker

The record of a change is of the id, not of a life. So a broker that starts again is still on its way out, and a new
controller goes on with it. The moves are reassignments, as an operator begins them (assignment.py), at most MAX_MOVES
under way at once. A replica goes to the place that a new partition's replica would get (placement.py). A replica on its
way to a broker that is gone meanwhile goes to another.

One broker is decommissioned at a time. Two that leave together could each get the replicas of the other, and the check
for room would hold for neither. A second one can be cordoned meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minilog.errors import BrokerIdNotRegistered, InvalidArgument
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.cluster_records import cordon_record
from minilog_broker.controller.election import reassign
from minilog_broker.controller.image import BrokerRegistration, Cordon
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.liveness import Liveness
from minilog_broker.controller.placement import Site, replacement
from minilog_broker.levels import OPERATIONS_LEVEL, check_reached
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState

MAX_MOVES = 20  # partitions of one decommissioned broker: more would take too much of the disks from clients
CHECK_MS = 1_000.0  # between two checks of the progress

_Change = admin_pb2.BrokerChange


class Retirement:
    """The controller's part that cordons, decommissions and forgets brokers.

    It writes into the ledger, and the caller seals.
    """

    def __init__(self, ledger: Ledger, liveness: Liveness, now_ms: float) -> None:
        self._ledger = ledger
        self._liveness = liveness
        self._due_ms = now_ms

    # -- by command

    def alter(self, request: admin_pb2.AlterBrokerRequest, now_ms: float) -> admin_pb2.AlterBrokerResponse:
        """Carry out a change. Raises BrokerIdNotRegistered, LevelNotReached, and InvalidArgument with the reason of a
        refusal."""
        image = self._ledger.image
        check_reached(image.level, OPERATIONS_LEVEL, "cordoning, decommissioning and forgetting of brokers came")
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(
                f"broker {request.broker_id} is not registered. Registered are {sorted(image.brokers)}"
            )
        former = image.cordons.get(broker.broker_id)
        if request.change == _Change.BROKER_CHANGE_CORDON:
            self._cordon(broker.broker_id, former or Cordon())
        elif request.change == _Change.BROKER_CHANGE_UNCORDON:
            self._cordon(broker.broker_id, None)
        elif request.change == _Change.BROKER_CHANGE_DECOMMISSION:
            if former is None or not former.decommissioning:
                self._check_may_go(broker)
            self._cordon(broker.broker_id, Cordon(True, request.throttle_bytes_per_second))
            self._move(broker.broker_id)
        elif request.change == _Change.BROKER_CHANGE_FORGET:
            self._check_is_gone(broker, now_ms)
            self._forget(broker.broker_id)
        else:
            raise InvalidArgument(
                f"broker {broker.broker_id} has no change {request.change}: use this version of minilog"
            )
        return admin_pb2.AlterBrokerResponse()

    def _cordon(self, broker_id: int, cordon: Cordon | None) -> None:
        if self._ledger.image.cordons.get(broker_id) != cordon:
            self._ledger.write(cordon_record(broker_id, cordon))

    def _check_may_go(self, broker: BrokerRegistration) -> None:
        """Raises InvalidArgument for a voter, for a second broker, and for replicas without room or without a
        source."""
        image, broker_id = self._ledger.image, broker.broker_id
        what = f"broker {broker_id} cannot be decommissioned"
        if self._is_voter(broker_id):
            raise InvalidArgument(
                f"{what}: it is a voter of the metadata quorum. Add another voter where the cluster needs one, and "
                f"remove this one first: `minilog cluster remove-voter {broker_id}`"
            )
        cordons = image.cordons.items()
        if others := [other for other, cordon in cordons if cordon.decommissioning and other != broker_id]:
            raise InvalidArgument(
                f"{what}: broker {others[0]} is being decommissioned, and brokers go one at a time. Cordon broker "
                f"{broker_id}, so that nothing moves to it, and try again when broker {others[0]} is gone"
            )
        for state in image.replicas_on(broker_id):
            partition = f"partition {state.key.partition} of {state.topic_name}"
            if not self._has_source(state, broker_id):
                raise InvalidArgument(
                    f"{what}: it does not run, and only it has all acknowledged records of {partition}. Start it "
                    f"first, or delete the topic"
                )
            if broker_id in state.target_replicas and self._target(state, {broker_id}) is None:
                raise InvalidArgument(
                    f"{what}: {partition} has the replicas {list(state.target_replicas)}, and no other broker that "
                    f"runs is uncordoned and has space. Start another broker, or uncordon one"
                )

    def _has_source(self, state: PartitionState, broker_id: int) -> bool:
        """Whether a copy with all acknowledged records can be the source."""
        if {*state.in_sync_replicas, *state.eligible_leaders} - {broker_id}:
            return True
        return self._ledger.rules(state.key).electable(broker_id)

    def _check_is_gone(self, broker: BrokerRegistration, now_ms: float) -> None:
        broker_id = broker.broker_id
        what = f"broker {broker_id} cannot be forgotten"
        if self._is_voter(broker_id):
            raise InvalidArgument(
                f"{what}: it is a voter of the metadata quorum. Remove it from the voters first: `minilog cluster "
                f"remove-voter {broker_id}`"
            )
        if replicas := self._ledger.image.replicas_on(broker_id):
            first = replicas[0]
            raise InvalidArgument(
                f"{what}: it has replicas of {len(replicas)} partitions, such as {first.key.partition} of "
                f"{first.topic_name}: `minilog broker decommission {broker_id}` moves them to others"
            )
        if not self._is_gone(broker_id, now_ms):
            raise InvalidArgument(
                f"{what}: it runs or starts, or the controller heard it less than a session ago. Stop it, and try again"
            )

    def _forget(self, broker_id: int) -> None:
        ledger = self._ledger
        unregister = records_pb2.UnregisterBrokerRecord(broker_id=broker_id)
        ledger.write(records_pb2.MetadataRecord(unregister_broker=unregister))
        ledger.offline.pop(broker_id, None)
        ledger.undecided.pop(broker_id, None)
        ledger.late_cleanings.pop(broker_id, None)
        ledger.replayed.forget(broker_id)
        for brokers in (ledger.full, ledger.stalled, ledger.slow):
            brokers.discard(broker_id)

    def _is_voter(self, broker_id: int) -> bool:
        return any(voter.broker_id == broker_id for voter in self._ledger.image.voters)

    # -- by itself

    def _leaving(self) -> list[int]:
        return sorted(broker_id for broker_id, cordon in self._ledger.image.cordons.items() if cordon.decommissioning)

    @property
    def next_tick_ms(self) -> float:
        return self._due_ms if self._leaving() else math.inf

    def tick(self, now_ms: float) -> None:
        """Begin the next moves where it is time, and forget brokers without replicas that are gone."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + CHECK_MS
        for broker_id in self._leaving():
            if self._ledger.image.replicas_on(broker_id):
                self._move(broker_id)
            elif self._is_gone(broker_id, now_ms):
                self._forget(broker_id)

    def _is_gone(self, broker_id: int, now_ms: float) -> bool:
        is_fenced = self._ledger.image.brokers[broker_id].fenced
        return is_fenced and not self._is_voter(broker_id) and self._liveness.is_gone(broker_id, now_ms)

    def _move(self, broker_id: int) -> None:
        """Begin as many moves as there is room for. Moves to brokers that are gone begin again elsewhere."""
        states = self._ledger.image.replicas_on(broker_id)
        room = MAX_MOVES - sum(broker_id not in state.target_replicas for state in states)
        of_decommission = self._ledger.image.cordons[broker_id].throttle_bytes_per_second
        for state in states:
            is_new = broker_id in state.target_replicas
            if state.leader_id == NO_LEADER or (is_new and room <= 0):
                continue
            gone = {broker_id} if is_new else self._gone(state)
            target = self._target(state, gone) if gone else None
            if target is not None:
                # A move that an operator began keeps its own throttle, and so does one of ours that begins again.
                throttle = state.throttle_bytes_per_second or of_decommission
                self._ledger.write_outcome(reassign(state, target, throttle, self._ledger.rules(state.key)))
                room -= is_new

    def _gone(self, state: PartitionState) -> set[int]:
        """Brokers that are to get a replica, do not have it yet, and do not run."""
        joining = set(state.target_replicas) - set(state.in_sync_replicas)
        return {broker for broker in joining if broker in state.adding_replicas and not self._runs(broker)}

    def _target(self, state: PartitionState, leaving: set[int]) -> tuple[int, ...] | None:
        """The target replicas, with other brokers in the place of those that leave. None: there is no room."""
        target = list(state.target_replicas)
        for index, leaver in enumerate(target):
            if leaver in leaving:
                staying = [broker for broker in target if broker != leaver]
                free = [broker for broker in self._free() if broker not in target and broker not in leaving]
                if not free:
                    return None
                target[index] = replacement(self._sites(), staying, free, self._load())
        return tuple(target)

    def _free(self) -> Iterable[int]:
        """Brokers that take new replicas."""
        image = self._ledger.image
        return (
            broker_id
            for broker_id in image.brokers
            if self._runs(broker_id) and broker_id not in image.cordons and self._ledger.takes_records(broker_id)
        )

    def _runs(self, broker_id: int) -> bool:
        broker = self._ledger.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.stopping

    def _sites(self) -> dict[int, Site]:
        brokers = self._ledger.image.brokers.values()
        return {broker.broker_id: Site(broker.failure_domain, broker.host_label) for broker in brokers}

    def _load(self) -> dict[int, int]:
        return {broker_id: len(keys) for broker_id, keys in self._ledger.image.partitions_of_broker.items()}
