"""Lives of brokers: registration, fencing, unfencing, controlled shutdown.

The rules: docs/spec/quorum.md § The controller, docs/spec/replication.md § Eligible leaders and damage.

    state      entered when                                       left by
    STARTING   a registration (fenced; the former life is over)   a heartbeat that has replayed it -> RUNNING
    RUNNING    see above                                          silence, a dead process -> FENCED; wants_stop
                                                                  -> STOPPING
    FENCED     out of every ISR that has another member           a caught-up heartbeat -> RUNNING
    STOPPING   wants_stop: leads nothing that another could lead  the next registration

A broker that stops has to wait where its departure would leave an ISR with fewer than min.insync.replicas members while
another live replica is on its way in. So rolling restarts stop no writes, if each broker restarts as soon as the one
before runs. The broker bounds its wait (controlled.shutdown.timeout.ms).

Each event of a broker is one decision: its state and the states of all its partitions in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minilog.addresses import address_text
from minilog.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidArgument,
    StaleBrokerEpoch,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, peer_pb2, records_pb2
from minilog.v1.peer_pb2 import RecoveryFinding as _Finding
from minilog.versions import range_from_wire
from minilog_broker.controller.election import (
    Departure,
    ElectionOutcome,
    ElectionRules,
    can_be_led_by_another,
    depart,
    overtaking,
    reconsider,
)
from minilog_broker.controller.image import BrokerRegistration
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.liveness import Liveness
from minilog_broker.levels import SECURITY_LEVEL, check_level, check_reached
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState

DIRECTORY_ID_BYTES = 16

# The copy has all that counted, as far as the broker can see, or no evidence speaks against it.
_HAS_ALL = (
    _Finding.RECOVERY_FINDING_WHOLE,
    _Finding.RECOVERY_FINDING_TORN,
    _Finding.RECOVERY_FINDING_UNREADABLE,
)


def handed_over(state: PartitionState, broker_id: int, rules: ElectionRules) -> ElectionOutcome:
    """The state with another leader and without the broker in the ISR. Where no other broker can lead it stays."""
    if state.leader_id == broker_id and not can_be_led_by_another(state, broker_id, rules):
        return ElectionOutcome(state)
    return depart(state, broker_id, Departure.OUT, rules)


def is_waited_for(state: PartitionState, broker_id: int, rules: ElectionRules) -> bool:
    """Whether writes would stop without this member of the ISR, and a joiner could prevent that."""
    remaining = set(state.in_sync_replicas) - {broker_id}
    if broker_id not in state.in_sync_replicas or len(remaining) >= rules.effective_min(state):
        return False
    return any(rules.electable(replica) for replica in state.replicas if replica not in state.in_sync_replicas)


def require_incarnation(ledger: Ledger, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The broker, if this is its current life. Raises BrokerIdNotRegistered or StaleBrokerEpoch."""
    broker = ledger.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(
            f"broker {broker_id} is not registered. If the cluster has forgotten it, start it again: it joins as a new "
            "broker"
        )
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(
            f"broker epoch {broker_epoch} of broker {broker_id} is of a former life: its current one is "
            f"{broker.broker_epoch}"
        )
    return broker


class BrokerRegistrations:
    """The controller's part that registers, fences and unfences brokers.

    It writes into the ledger, and the caller seals.
    """

    def __init__(self, ledger: Ledger, liveness: Liveness) -> None:
        self._ledger = ledger
        self._liveness = liveness

    # -- registration

    def register(self, request: peer_pb2.RegisterRequest, now_ms: float) -> int:
        """Begin a new life, which is fenced, and give its broker epoch. Raises for a broker that may not join."""
        self._check_cluster(request)
        former = self._ledger.image.brokers.get(request.broker_id)
        self._check_former(request, former, now_ms)
        clean = self._is_clean(request, former)
        record = _registration_record(request, clean=clean)
        broker_epoch = self._ledger.write(records_pb2.MetadataRecord(broker_registration=record))
        findings = _findings(request.recovered_replicas)
        self._ledger.offline[request.broker_id] = _unreadable(findings)
        self._ledger.torn_tails.report(request.broker_id, _torn_ends(request.recovered_replicas), now_ms, anew=True)
        self._ledger.full.discard(request.broker_id)
        self._ledger.stalled.discard(request.broker_id)
        self._ledger.slow.discard(request.broker_id)
        self._liveness.registered(request.broker_id, now_ms)
        damaged = _keys(request.damaged_replicas)
        for state in self._ledger.image.replicas_on(request.broker_id):
            finding = findings.get(state.key, _Finding.RECOVERY_FINDING_NONE)
            departure = Departure.DAMAGED
            if state.key not in damaged:
                departure = self._departure(request, former, state, finding, clean=clean)
            rules = self._among_those_heard(self._ledger.rules(state.key))
            self._ledger.write_outcome(depart(state, request.broker_id, departure, rules))
        return broker_epoch

    def _among_those_heard(self, rules: ElectionRules) -> ElectionRules:
        """The rules in which a leader counts only if it was heard in this term.

        A leader that was not heard may be gone since before the term, so no broker leaves an ISR for its sake. It is
        deposed until it is heard, so that the brokers that leave stay eligible (election.py).
        """
        heard = self._liveness.has_spoken
        return replace(
            rules,
            is_current_incarnation=lambda broker, epoch: heard(broker) and rules.is_current_incarnation(broker, epoch),
        )

    def _check_cluster(self, request: peer_pb2.RegisterRequest) -> None:
        image, broker_id = self._ledger.image, request.broker_id
        if broker_id < 0 or len(request.directory_id) != DIRECTORY_ID_BYTES:
            raise InvalidArgument(
                f"broker {broker_id} with a directory id of {len(request.directory_id)} bytes cannot register: "
                f"ids begin at 0, and a directory id has {DIRECTORY_ID_BYTES} bytes"
            )
        _check_what_came_with_a_level(request, image.level)
        if request.cluster_id and request.cluster_id != image.cluster_id:
            raise InconsistentClusterId(
                f"the data directory of broker {broker_id} belongs to cluster {request.cluster_id}, and "
                f"this is cluster {image.cluster_id}: start the broker with the voters of its own cluster, "
                f"or with an empty directory"
            )
        levels = range_from_wire(request.levels)
        version = request.client.client_version or "unknown"
        check_level(
            image.level, levels, f"cluster {image.cluster_id}, which broker {broker_id} (version {version}) joins,"
        )

    def _check_former(
        self, request: peer_pb2.RegisterRequest, former: BrokerRegistration | None, now_ms: float
    ) -> None:
        if former is None or former.directory_id == request.directory_id:
            return
        if not former.fenced or not self._liveness.is_silent(former.broker_id, now_ms):
            address = address_text(former.peer_address)
            raise DuplicateBrokerRegistration(
                f"a live process at {address} has broker id {former.broker_id} and another data directory: "
                "stop that process, or choose another id"
            )

    def _is_clean(self, request: peer_pb2.RegisterRequest, former: BrokerRegistration | None) -> bool:
        """Whether the directory's last record is a clean stop of the life that was registered last, or of the one
        before.

        The one before counts while its mark is there and the broker was not unfenced since: then the answer to the last
        registration was lost.
        """
        if former is None or former.directory_id != request.directory_id:
            return False
        marks = (former.broker_epoch, former.clean_stop_broker_epoch)
        return request.HasField("clean_stop_broker_epoch") and request.clean_stop_broker_epoch in marks

    def _departure(
        self,
        request: peer_pb2.RegisterRequest,
        former: BrokerRegistration | None,
        state: PartitionState,
        finding: _Finding.ValueType,
        *,
        clean: bool,
    ) -> Departure:
        """OUT for a copy with all records that counted: it may lead again. There is no such certainty for other copies.

        DAMAGED, so that the copy waits for another, where a doubtful copy is the only member, and where the log is gone
        while others have it. (A sole member without any log most likely never made one.)
        """
        if former is not None and former.directory_id != request.directory_id:
            return Departure.DAMAGED  # the disk that held it is gone
        # The mark is of another life than the recorded one: the disk is older than later writes of the broker.
        set_back = request.HasField("clean_stop_broker_epoch") and not clean
        if finding in _HAS_ALL and not set_back:
            return Departure.OUT
        alone = state.in_sync_replicas == (request.broker_id,)
        waits = finding != _Finding.RECOVERY_FINDING_NONE or bool(state.eligible_leaders)
        return Departure.DAMAGED if alone and waits else Departure.UNCLEAN

    # -- heartbeats

    def heartbeat(self, request: peer_pb2.HeartbeatRequest, now_ms: float) -> peer_pb2.HeartbeatResponse:
        """Take a sign of life. Raises for a life that is not the current one."""
        broker = require_incarnation(self._ledger, request.broker_id, request.broker_epoch)
        news = not self._liveness.has_spoken(broker.broker_id)
        self._liveness.heard(broker.broker_id, now_ms)
        self._ledger.replayed.report(broker.broker_id, request.metadata_offset, self._ledger.end_offset, now_ms)
        news |= self._ledger.torn_tails.report(broker.broker_id, _torn_ends(request.recovered_replicas), now_ms)
        self._went_offline(request)
        self._ledger.undecided[broker.broker_id] = frozenset(_keys(request.undecided_partitions))
        self._ledger.late_cleanings[broker.broker_id] = frozenset(_keys(request.late_cleanings))
        self._takes_records(request)
        if request.wants_stop or broker.stopping:
            self._stop(broker)
        elif broker.fenced and request.metadata_offset > broker.broker_epoch:
            self._unfence(broker)
        elif news:
            self._elect_where_nobody_leads(broker.broker_id)
        broker = self._ledger.image.brokers[broker.broker_id]
        should_stop = broker.stopping and not self._is_waited_for(broker.broker_id)
        return peer_pb2.HeartbeatResponse(fenced=broker.fenced, should_stop=should_stop)

    def _went_offline(self, request: peer_pb2.HeartbeatRequest) -> None:
        """Replicas went offline by an I/O error or by damage, or came back.

        A replica that goes offline leaves the ISR, and its former reports count no more: a replica that was out already
        leaves anew. The content behind an I/O error is known when its broker registers again. So the replica stays
        eligible until then, and leads nothing while it is offline. Damage ends that at once.

        A replica that the heartbeat names no more has left this broker, or has a new log, or was damaged and is cut.
        """
        broker_id, keys, damaged = request.broker_id, _keys(request.offline_replicas), _keys(request.damaged_replicas)
        former = self._ledger.offline.get(broker_id, frozenset())
        self._ledger.offline[broker_id] = frozenset(keys)

        def go_out(state: PartitionState, rules: ElectionRules) -> ElectionOutcome:
            departure = Departure.DAMAGED if state.key in damaged else Departure.OUT
            outcome = depart(state, broker_id, departure, rules)
            return overtaking(state) if outcome.state == state else outcome

        self._ledger.write_outcomes(self._states(broker_id, keys - former), go_out)
        self._ledger.write_outcomes(self._states(broker_id, former - keys), reconsider)

    def _elect_where_nobody_leads(self, broker_id: int) -> None:
        """Elect this broker where it can lead and no broker leads: it was heard for the first time in this term, or its
        copies are whole now."""
        states = [state for state in self._ledger.image.replicas_on(broker_id) if state.leader_id == NO_LEADER]
        self._ledger.write_outcomes(states, reconsider)

    def trust_torn_tails(self, now_ms: float) -> None:
        """Trust torn copies that have waited long enough: no second copy came back in time for a comparison."""
        for broker_id in self._ledger.torn_tails.take_expired(now_ms):
            self._elect_where_nobody_leads(broker_id)

    def _takes_records(self, request: peer_pb2.HeartbeatRequest) -> None:
        """Note whether the broker's disk takes records. A disk that is full, or does not answer, takes none: another
        broker leads where one can, and no ISR waits for this one.

        Each heartbeat repeats the check, for another broker may have come in sync meanwhile.
        """
        ledger, broker_id = self._ledger, request.broker_id
        for brokers, is_reported in (
            (ledger.full, request.no_space),
            (ledger.stalled, request.disk_stalled),
            (ledger.slow, request.disk_is_slow),
        ):
            (brokers.add if is_reported else brokers.discard)(broker_id)
        if ledger.takes_records(broker_id):
            return

        def hand_over(state: PartitionState, rules: ElectionRules) -> ElectionOutcome:
            rules = self._with_disks(rules)
            others = [member for member in state.in_sync_replicas if member != broker_id and rules.electable(member)]
            return handed_over(state, broker_id, rules) if others else ElectionOutcome(state)

        states = [state for state in ledger.image.replicas_on(broker_id) if broker_id in state.in_sync_replicas]
        ledger.write_outcomes(states, hand_over)

    def _states(self, broker_id: int, keys: Iterable[PartitionKey]) -> list[PartitionState]:
        """The partitions of `keys` that have a replica on this broker."""
        states = [state for key in sorted(keys) if (state := self._ledger.image.partitions.get(key)) is not None]
        return [state for state in states if broker_id in state.replicas]

    def _unfence(self, broker: BrokerRegistration) -> None:
        self._write_state(broker, fenced=False, stopping=broker.stopping)
        self._ledger.write_outcomes(self._ledger.image.replicas_on(broker.broker_id), reconsider)

    def fence(self, *brokers: BrokerRegistration) -> None:
        """Fence brokers: they leave every ISR that has another member, and others lead their partitions. All are fenced
        first, so that no election chooses one of them."""
        for broker in brokers:
            self._write_state(broker, fenced=True, stopping=broker.stopping)
        for broker in brokers:
            self._ledger.write_outcomes(
                self._ledger.image.replicas_on(broker.broker_id),
                lambda state, rules, gone=broker.broker_id: depart(state, gone, Departure.OUT, rules),  # type: ignore[misc]
            )

    def _stop(self, broker: BrokerRegistration) -> None:
        """Controlled shutdown: the broker leads nothing that another could, and leaves each ISR that can spare it.

        Each heartbeat repeats the check, for a joiner may have come in meanwhile.
        """
        if not broker.stopping:
            self._write_state(broker, fenced=broker.fenced, stopping=True)
        broker_id = broker.broker_id

        def hand_over(state: PartitionState, rules: ElectionRules) -> ElectionOutcome:
            if is_waited_for(state, broker_id, self._with_disks(rules)):
                return reconsider(state, rules)  # another leads, and this one stays in the ISR
            return handed_over(state, broker_id, rules)

        self._ledger.write_outcomes(self._ledger.image.replicas_on(broker_id), hand_over)

    def _is_waited_for(self, broker_id: int) -> bool:
        ledger = self._ledger
        return any(
            is_waited_for(state, broker_id, self._with_disks(ledger.rules(state.key)))
            for state in ledger.image.replicas_on(broker_id)
        )

    def _with_disks(self, rules: ElectionRules) -> ElectionRules:
        """The same rules, but a broker whose disk takes no records, or soon may take none, neither leads nor joins."""
        ledger = self._ledger

        def electable(broker_id: int) -> bool:
            return rules.electable(broker_id) and ledger.takes_records(broker_id) and broker_id not in ledger.slow

        return replace(rules, electable=electable)

    def _write_state(self, broker: BrokerRegistration, *, fenced: bool, stopping: bool) -> None:
        self._ledger.write(
            records_pb2.MetadataRecord(
                broker_state=records_pb2.BrokerStateRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, fenced=fenced, stopping=stopping
                )
            )
        )


def _check_what_came_with_a_level(request: peer_pb2.RegisterRequest, level: int) -> None:
    """Raises LevelNotReached for values of the registration that an older version could not read in its record."""
    for is_there, what, setting in (
        (request.HasField("peer_host"), "a listener for other brokers", "inter.broker.listen"),
        (request.HasField("host_label"), f"a host label, {request.host_label}", "--host-label"),
        (bool(request.listeners), "named listeners for clients", "listeners"),
    ):
        if is_there:
            first = f"Start all brokers of this version without {setting}"
            remedy = f"{first}, run `minilog cluster upgrade`, and then set it"
            check_reached(level, SECURITY_LEVEL, f"broker {request.broker_id} has {what}: they came", remedy)


def _findings(replicas: Iterable[peer_pb2.RecoveredReplica]) -> dict[PartitionKey, _Finding.ValueType]:
    return {PartitionKey.of(replica.partition_id): replica.finding for replica in replicas}


def _unreadable(findings: dict[PartitionKey, _Finding.ValueType]) -> frozenset[PartitionKey]:
    return frozenset(key for key, finding in findings.items() if finding == _Finding.RECOVERY_FINDING_UNREADABLE)


def _torn_ends(replicas: Iterable[peer_pb2.RecoveredReplica]) -> dict[PartitionKey, tuple[int, int]]:
    return {
        PartitionKey.of(replica.partition_id): (replica.last_epoch, replica.end_offset)
        for replica in replicas
        if replica.finding == _Finding.RECOVERY_FINDING_TORN
    }


def _keys(partition_ids: Iterable[common_pb2.PartitionId]) -> set[PartitionKey]:
    return {PartitionKey.of(partition_id) for partition_id in partition_ids}


def _registration_record(request: peer_pb2.RegisterRequest, *, clean: bool) -> records_pb2.BrokerRegistrationRecord:
    return records_pb2.BrokerRegistrationRecord(
        broker_id=request.broker_id,
        directory_id=request.directory_id,
        host=request.host,
        port=request.port,
        rack=request.rack if request.HasField("rack") else None,
        failure_domain=request.failure_domain or request.host,
        kernel_boot_id=request.kernel_boot_id,
        levels=range_from_wire(request.levels).to_wire(),
        version=request.client.client_version,
        clean_stop_broker_epoch=request.clean_stop_broker_epoch if clean else None,
        peer_host=request.peer_host if request.HasField("peer_host") else None,
        peer_port=request.peer_port,
        host_label=request.host_label if request.HasField("host_label") else None,
        listeners=sorted(request.listeners, key=lambda listener: listener.name),
    )
