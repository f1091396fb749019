"""Lives of brokers: registration, fencing, unfencing, controlled shutdown. REPLICATION.md, Controller and clock.

    state      entered when                                       left by
    STARTING   a registration (fenced; the former life is over)   a heartbeat that has replayed it -> RUNNING
    RUNNING    see above                                          silence, a dead process -> FENCED; wants_stop
                                                                  -> STOPPING
    FENCED     out of every ISR that has another member           a caught-up heartbeat -> RUNNING
    STOPPING   wants_stop: leads nothing that another could lead  the next registration

A broker that stops is told to wait where an ISR would have fewer than min.insync.replicas without it and another live
replica is on its way in: brokers that are restarted in turn, each as soon as the one before runs, cost no writes. How
long it waits is its own bound (controlled.shutdown.timeout.ms).

Whatever befalls a broker is one decision: its state and all its partitions' in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minilog.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InconsistentVoters,
    InvalidArgument,
    StaleBrokerEpoch,
)
from minilog.v1 import common_pb2, peer_pb2, records_pb2
from minilog_broker.controller.election import (
    Departure,
    ElectionRules,
    Outcome,
    can_be_led_by_another,
    depart,
    overtaking,
    reconsider,
)
from minilog_broker.controller.image import Broker
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.liveness import Liveness
from minilog_broker.replication.state import PartitionKey, PartitionState

DIRECTORY_ID_BYTES = 16


def handed_over(state: PartitionState, broker_id: int, rules: ElectionRules) -> Outcome:
    """Out of the ISR, another leads; where nobody else can lead it stays."""
    if state.leader_id == broker_id and not can_be_led_by_another(state, broker_id, rules):
        return Outcome(state)
    return depart(state, broker_id, Departure.OUT, rules)


def is_waited_for(state: PartitionState, broker_id: int, rules: ElectionRules) -> bool:
    """Whether writes would stop with this member of the ISR, and need not if a joiner came in first."""
    remaining = set(state.in_sync_replicas) - {broker_id}
    if broker_id not in state.in_sync_replicas or len(remaining) >= rules.effective_min(state):
        return False
    return any(rules.electable(replica) for replica in state.replicas if replica not in state.in_sync_replicas)


def require_life(ledger: Ledger, broker_id: int, broker_epoch: int) -> Broker:
    """The broker, if this is its current life. Raises BrokerIdNotRegistered or StaleBrokerEpoch."""
    broker = ledger.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"broker {broker_id} is not registered: register first")
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(
            f"broker epoch {broker_epoch} of broker {broker_id} is not its current life, which is {broker.broker_epoch}"
        )
    return broker


class BrokerLives:
    """See the module's text. Writes into the ledger; the caller seals."""

    def __init__(self, ledger: Ledger, liveness: Liveness) -> None:
        self._ledger = ledger
        self._liveness = liveness
        # The mark of a clean stop that the current life's registration named. While it is still there, that life has
        # appended nothing: a registration sent again, its answer lost, is as clean as the first.
        self._marks: dict[int, int] = {}

    # -- registration

    def register(self, request: peer_pb2.RegisterRequest, now_ms: float) -> int:
        """A new life, fenced; its broker epoch. Raises for what may not join."""
        self._check_cluster(request)
        former = self._ledger.image.brokers.get(request.broker_id)
        self._check_former(request, former, now_ms)
        clean = self._is_clean(request, former)
        broker_epoch = self._ledger.write(records_pb2.MetadataRecord(broker_registration=_registration_record(request)))
        self._ledger.offline.pop(request.broker_id, None)
        self._ledger.full.discard(request.broker_id)
        self._liveness.heard(request.broker_id, now_ms)
        damaged = _keys(request.damaged_replicas)
        for state in self._ledger.image.replicas_on(request.broker_id):
            departure = Departure.OUT if clean else self._unclean_departure(request, former, state)
            if state.key in damaged:
                departure = Departure.DAMAGED
            self._ledger.write_outcome(depart(state, request.broker_id, departure, self._ledger.rules(state.key)))
        return broker_epoch

    def _check_cluster(self, request: peer_pb2.RegisterRequest) -> None:
        image, broker_id = self._ledger.image, request.broker_id
        if broker_id < 0 or len(request.directory_id) != DIRECTORY_ID_BYTES:
            raise InvalidArgument(
                f"broker {broker_id} with a directory id of {len(request.directory_id)} bytes cannot register: "
                f"ids begin at 0, a directory id has {DIRECTORY_ID_BYTES} bytes"
            )
        if request.cluster_id and request.cluster_id != image.cluster_id:
            raise InconsistentClusterId(
                f"the data directory of broker {broker_id} belongs to cluster {request.cluster_id}, "
                f"this is cluster {image.cluster_id}: start it with the voters of its own cluster, "
                f"or with an empty directory"
            )
        recorded = sorted(voter.broker_id for voter in image.voters)
        given = sorted(voter.broker_id for voter in request.voters)
        if given and given != recorded:
            raise InconsistentVoters(
                f"broker {broker_id} was started with voters {given}, the cluster's are {recorded}: give those"
            )

    def _check_former(self, request: peer_pb2.RegisterRequest, former: Broker | None, now_ms: float) -> None:
        if former is None or former.directory_id == request.directory_id:
            return
        if not former.fenced or not self._liveness.is_silent(former.broker_id, now_ms):
            raise DuplicateBrokerRegistration(
                f"broker id {former.broker_id} is held by a live process at {former.host}:{former.port} with another "
                f"data directory: stop it, or choose another id"
            )

    def _is_clean(self, request: peer_pb2.RegisterRequest, former: Broker | None) -> bool:
        """Whether the last that was written in this directory was a clean stop of the life recorded last."""
        mark = request.clean_stop_broker_epoch if request.HasField("clean_stop_broker_epoch") else None
        known = former is not None and former.directory_id == request.directory_id
        clean = known and former is not None and mark in (former.broker_epoch, self._marks.get(former.broker_id, -1))
        if clean and mark is not None:
            self._marks[request.broker_id] = mark
        else:
            self._marks.pop(request.broker_id, None)
        return clean

    def _unclean_departure(
        self, request: peer_pb2.RegisterRequest, former: Broker | None, state: PartitionState
    ) -> Departure:
        """UNCLEAN; DAMAGED where it is the only member and something below its durable end may be missing."""
        if former is not None and former.directory_id != request.directory_id:
            return Departure.DAMAGED  # the disk that held it is gone
        same_boot = former is not None and request.kernel_boot_id == former.kernel_boot_id != ""
        whole = same_boot or self._ledger.config(state.key.topic_id).flush_on_append
        alone = state.in_sync_replicas == (request.broker_id,)
        return Departure.DAMAGED if alone and not whole else Departure.UNCLEAN

    # -- heartbeats

    def heartbeat(self, request: peer_pb2.HeartbeatRequest, now_ms: float) -> peer_pb2.HeartbeatResponse:
        """A sign of life. Raises for a life that is not the current one."""
        broker = require_life(self._ledger, request.broker_id, request.broker_epoch)
        self._liveness.heard(broker.broker_id, now_ms)
        self._went_offline(broker.broker_id, _keys(request.offline_replicas), _keys(request.damaged_replicas))
        self._is_full(broker.broker_id, full=request.no_space)
        if request.wants_stop or broker.stopping:
            self._stop(broker)
        elif broker.fenced and request.metadata_offset > broker.broker_epoch:
            self._unfence(broker)
        broker = self._ledger.image.brokers[broker.broker_id]
        should_stop = broker.stopping and not self._is_waited_for(broker.broker_id)
        return peer_pb2.HeartbeatResponse(fenced=broker.fenced, should_stop=should_stop)

    def _went_offline(self, broker_id: int, keys: set[PartitionKey], damaged: set[PartitionKey]) -> None:
        """An I/O error or damage took replicas offline: out of the ISR, and what they hold is not to be relied on, nor
        what they said before: one that was out already is so anew.

        One that is not named any more went from this broker, or came back with a new log, or was damaged and is cut.
        """
        known = self._ledger.offline.get(broker_id, frozenset())
        self._ledger.offline[broker_id] = frozenset(keys)

        def go_out(state: PartitionState, rules: ElectionRules) -> Outcome:
            departure = Departure.DAMAGED if state.key in damaged else Departure.UNCLEAN
            outcome = depart(state, broker_id, departure, rules)
            return overtaking(state) if outcome.state == state else outcome

        self._ledger.write_outcomes(self._states(broker_id, keys - known), go_out)
        self._ledger.write_outcomes(self._states(broker_id, known - keys), reconsider)

    def _is_full(self, broker_id: int, *, full: bool) -> None:
        """A full disk takes no records: another leads where one can, and no ISR waits for it.

        Looked at again with every heartbeat: another may have come in sync meanwhile."""
        ledger = self._ledger
        if not full:
            ledger.full.discard(broker_id)
            return
        ledger.full.add(broker_id)

        def hand_over(state: PartitionState, rules: ElectionRules) -> Outcome:
            return handed_over(state, broker_id, self._with_space(rules))

        states = [state for state in ledger.image.replicas_on(broker_id) if broker_id in state.in_sync_replicas]
        ledger.write_outcomes(states, hand_over)

    def _states(self, broker_id: int, keys: Iterable[PartitionKey]) -> list[PartitionState]:
        """Those that have a replica on this broker."""
        states = [state for key in sorted(keys) if (state := self._ledger.image.partitions.get(key)) is not None]
        return [state for state in states if broker_id in state.replicas]

    def _unfence(self, broker: Broker) -> None:
        self._write_state(broker, fenced=False, stopping=broker.stopping)
        self._ledger.write_outcomes(self._ledger.image.replicas_on(broker.broker_id), reconsider)

    def fence(self, broker: Broker) -> None:
        """Out of every ISR that has another member; what it led, another leads."""
        self._write_state(broker, fenced=True, stopping=broker.stopping)
        broker_id = broker.broker_id
        self._ledger.write_outcomes(
            self._ledger.image.replicas_on(broker_id),
            lambda state, rules: depart(state, broker_id, Departure.OUT, rules),
        )

    def _stop(self, broker: Broker) -> None:
        """Controlled shutdown: the broker leads nothing that another could, and leaves each ISR that can spare it.

        Looked at again with every heartbeat: a joiner may have come in meanwhile."""
        if not broker.stopping:
            self._write_state(broker, fenced=broker.fenced, stopping=True)
        broker_id = broker.broker_id

        def hand_over(state: PartitionState, rules: ElectionRules) -> Outcome:
            if is_waited_for(state, broker_id, self._with_space(rules)):
                return reconsider(state, rules)  # another leads, and this one stays in the ISR
            return handed_over(state, broker_id, rules)

        self._ledger.write_outcomes(self._ledger.image.replicas_on(broker_id), hand_over)

    def _is_waited_for(self, broker_id: int) -> bool:
        ledger = self._ledger
        return any(
            is_waited_for(state, broker_id, self._with_space(ledger.rules(state.key)))
            for state in ledger.image.replicas_on(broker_id)
        )

    def _with_space(self, rules: ElectionRules) -> ElectionRules:
        """The same rules where a broker with a full disk neither leads nor joins."""
        return replace(rules, electable=lambda each: rules.electable(each) and each not in self._ledger.full)

    def _write_state(self, broker: Broker, *, fenced: bool, stopping: bool) -> None:
        self._ledger.write(
            records_pb2.MetadataRecord(
                broker_state=records_pb2.BrokerStateRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=fenced, stopping=stopping
                )
            )
        )


def _keys(partition_ids: Iterable[common_pb2.PartitionId]) -> set[PartitionKey]:
    return {PartitionKey(each.topic_id, each.partition) for each in partition_ids}


def _registration_record(request: peer_pb2.RegisterRequest) -> records_pb2.BrokerRegistrationRecord:
    return records_pb2.BrokerRegistrationRecord(
        broker_id=request.broker_id,
        directory_id=request.directory_id,
        host=request.host,
        port=request.port,
        rack=request.rack if request.HasField("rack") else None,
        host_label=request.host_label or request.host,
        kernel_boot_id=request.kernel_boot_id,
    )
