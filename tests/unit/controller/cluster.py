"""A controller over a log in memory: what it appends is committed when a test says so, and replayed into an image.

After each step that is committed, `check` compares the controller's image with the replay, and judges the states.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from minilog.errors import MinilogError, NotController, error_from_wire
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2, common_pb2, peer_pb2, records_pb2
from minilog.v1.peer_pb2 import RecoveryFinding
from minilog.versions import VersionRange
from minilog_broker.controller.controller import Controller, ControllerSettings
from minilog_broker.controller.controller_effects import ControllerAnswer, ControllerEffect
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.quorum.ballot import is_majority
from minilog_broker.quorum.voters import VoterKey, VoterSet
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState, TopicConfig
from minilog_broker.server.running_config import check_dynamic
from tests.judges.states import check_state

DEFAULTS = TopicConfig(
    min_in_sync_replicas=2,
    max_message_bytes=8 << 20,
    segment_bytes=1 << 30,
    segment_ms=7 * 86_400_000,
    flush_on_append=True,
    retention_ms=7 * 86_400_000,
    retention_bytes=-1,
    unclean_leader_election=False,
)
CLUSTER_ID = "the-cluster"
SESSION_TIMEOUT_MS = 3_000.0
IMBALANCE_CHECK_MS = 20_000.0
_Message = TypeVar("_Message")

# What recovery finds of a copy: the finding, and of a torn one the epoch of its last record and its end.
Found = tuple[RecoveryFinding.ValueType, int, int] | None
TORN, UNREADABLE = RecoveryFinding.RECOVERY_FINDING_TORN, RecoveryFinding.RECOVERY_FINDING_UNREADABLE
WHOLE: Found = (RecoveryFinding.RECOVERY_FINDING_WHOLE, -1, 0)
DOUBTFUL: Found = (RecoveryFinding.RECOVERY_FINDING_DOUBTFUL, -1, 0)
CLOSED: Found = (UNREADABLE, -1, 0)
MISSING: Found = None


def torn(epoch: int, end_offset: int) -> Found:
    return (TORN, epoch, end_offset)


class HasError(Protocol):
    """A message that says what went wrong, if anything did."""

    @property
    def error(self) -> common_pb2.Error: ...


def directory_id(broker_id: int, disk: int = 0) -> bytes:
    return bytes([disk] * 15 + [broker_id])


def error_of(message: HasError) -> MinilogError | None:
    return error_from_wire(message.error)


class How(TypedDict, total=False):
    """What `ControllerCluster.register` is told of the broker that starts."""

    disk: int
    boot: str
    domain: str | None
    damaged: Iterable[PartitionKey]
    host_label: str | None
    listeners: Iterable[common_pb2.ListenerAddress]


class SeenByQuorum:
    """What the leader of the quorum sees: the test says it. `copies`: ends of those that do not vote, by broker."""

    def __init__(self) -> None:
        self.copies: dict[int, int] = {}
        self.silent: set[int] = set()

    def copy_end(self, key: VoterKey) -> int | None:
        return self.copies.get(key.broker_id)

    def hears_majority_of(self, voters: VoterSet) -> bool:
        return is_majority([key for key in voters if key.broker_id not in self.silent], voters)


class ControllerCluster:
    """One controller over a log that commits when it is told to; brokers are what the test says of them."""

    def __init__(
        self,
        seed: int = 0,
        *,
        defaults: TopicConfig = DEFAULTS,
        replication_factor: int | None = None,
        voters: tuple[int, ...] = (1,),
        levels: VersionRange = SUPPORTED_LEVELS,
    ) -> None:
        self.now_ms = 0.0
        self.records: list[records_pb2.MetadataRecord] = []
        self.batches: list[int] = []  # the end offset of each
        self.image = MetadataImage()
        self.effects: list[ControllerEffect] = []
        self.answers: dict[object, object] = {}
        self._judged: dict[PartitionKey, PartitionState] = {}
        self._tickets = 0
        self.appends_left = math.inf  # 0: another leads the quorum, and the controller was not told yet
        self._settings = ControllerSettings(
            defaults,
            check_dynamic,
            broker_id=1,
            levels=levels,
            broker_session_timeout_ms=SESSION_TIMEOUT_MS,
            default_replication_factor=replication_factor,
            leader_imbalance_check_interval_ms=IMBALANCE_CHECK_MS,
        )
        self._random = random.Random(seed)
        self.quorum = SeenByQuorum()
        self.controller = Controller(self._settings, self._append, self._random, self._random.randbytes, self.quorum)
        self.voters = voters
        recorded = [records_pb2.Voter(broker_id=each, directory_id=directory_id(each)) for each in voters]
        cluster = records_pb2.ClusterRecord(cluster_id=CLUSTER_ID, voters=recorded)
        self._append([records_pb2.MetadataRecord(cluster=cluster)])
        self._replay()
        self.term = 1
        self.controller.activate(self.term, self.image, self.image.end_offset, self.now_ms)

    def _append(self, records: Sequence[records_pb2.MetadataRecord]) -> int:
        if not self.appends_left:
            raise NotController("another leads the quorum")
        self.appends_left -= 1
        self.records.extend(records_pb2.MetadataRecord.FromString(record.SerializeToString()) for record in records)
        self.batches.append(len(self.records))
        return len(self.records)

    def _replay(self) -> None:
        for offset in range(self.image.end_offset, len(self.records)):
            apply_record(self.image, offset, self.records[offset])

    # -- steps

    def commit(self) -> None:
        """All that was appended is committed and replayed."""
        self._replay()
        self.controller.committed(len(self.records))
        for effect in self.controller.take_effects():
            if isinstance(effect, ControllerAnswer):
                assert effect.ticket not in self.answers
                self.answers[effect.ticket] = effect.message
            else:
                self.effects.append(effect)
        if self.controller.is_active:
            assert self.controller.image == self.image
        self.check()

    def fail_over(self, defaults: TopicConfig | None = None) -> None:
        """Another controller takes over with what is committed; nothing else survives. `defaults`: as configured."""
        self.controller.deactivate(2)
        del self.records[self.image.end_offset :]
        if defaults is not None:
            self._settings = replace(self._settings, defaults=defaults)
            self.controller = Controller(
                self._settings, self._append, self._random, self._random.randbytes, self.quorum
            )
        self.appends_left = math.inf
        self.term += 1
        self.controller.activate(self.term, self.image, self.image.end_offset, self.now_ms)
        self.commit()

    def reconfigure(self, **changes: Any) -> None:
        """What of the controller's settings may change while its broker runs."""
        self._settings = replace(self._settings, **changes)
        self.controller.reconfigured(self._settings, self.now_ms)

    def append_by_another(self, record: records_pb2.MetadataRecord) -> None:
        """A controller of another version wrote it, and this one takes over."""
        self._append([record])
        self._replay()
        self.fail_over()

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def answer(self, ticket: object, kind: type[_Message]) -> _Message:
        self.commit()
        message = self.answers.pop(ticket)
        assert isinstance(message, kind)
        return message

    def register(
        self,
        broker_id: int,
        *,
        clean: int | None = None,
        disk: int = 0,
        boot: str = "boot",
        domain: str | None = None,
        host_label: str | None = None,
        listeners: Iterable[common_pb2.ListenerAddress] = (),
        damaged: Iterable[PartitionKey] = (),
        found: Mapping[PartitionKey, Found] | None = None,
        cluster_id: str = CLUSTER_ID,
        voters: Iterable[int] | None = None,
        levels: VersionRange = SUPPORTED_LEVELS,
    ) -> peer_pb2.RegisterResponse:
        """`found`: of the logs that recovery did not find whole."""
        request = peer_pb2.RegisterRequest(
            cluster_id=cluster_id,
            broker_id=broker_id,
            directory_id=directory_id(broker_id, disk),
            host=f"host{broker_id}",
            port=9092,
            clean_stop_broker_epoch=clean,
            kernel_boot_id=boot,
            failure_domain=domain or f"host{broker_id}",
            damaged_replicas=[common_pb2.PartitionId(topic_id=k.topic_id, partition=k.partition) for k in damaged],
            recovered_replicas=self._recovered(broker_id, dict.fromkeys(damaged) | dict(found or {})),
            voters=[peer_pb2.VoterAddress(broker_id=each) for each in (self.voters if voters is None else voters)],
            levels=levels.to_wire(),
            host_label=host_label,
            listeners=listeners,
        )
        ticket = self.ticket()
        self.controller.register(ticket, request, self.now_ms)
        return self.answer(ticket, peer_pb2.RegisterResponse)

    def _recovered(self, broker_id: int, found: Mapping[PartitionKey, Found]) -> list[peer_pb2.RecoveredReplica]:
        """Whole, but for `found`; None: there is nothing to say of it."""
        replicas = {state.key: WHOLE for state in self.image.replicas_on(broker_id)} | dict(found)
        return [
            peer_pb2.RecoveredReplica(
                partition_id=common_pb2.PartitionId(topic_id=key.topic_id, partition=key.partition),
                finding=each[0],
                last_epoch=each[1],
                end_offset=each[2],
            )
            for key, each in replicas.items()
            if each is not None
        ]

    def heartbeat(
        self,
        broker_id: int,
        *,
        epoch: int | None = None,
        metadata_offset: int | None = None,
        wants_stop: bool = False,
        offline: Iterable[PartitionKey] = (),
        damaged: Iterable[PartitionKey] = (),
        found: Mapping[PartitionKey, Found] | None = None,
        late_cleanings: Iterable[PartitionKey] = (),
    ) -> peer_pb2.HeartbeatResponse:
        request = peer_pb2.HeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id) if epoch is None else epoch,
            metadata_offset=self.image.end_offset if metadata_offset is None else metadata_offset,
            wants_stop=wants_stop,
            offline_replicas=[
                common_pb2.PartitionId(topic_id=k.topic_id, partition=k.partition) for k in (*offline, *damaged)
            ],
            damaged_replicas=[common_pb2.PartitionId(topic_id=k.topic_id, partition=k.partition) for k in damaged],
            recovered_replicas=self._unsettled(found or {}),
            late_cleanings=[key.to_wire() for key in late_cleanings],
        )
        ticket = self.ticket()
        self.controller.heartbeat(ticket, request, self.now_ms)
        return self.answer(ticket, peer_pb2.HeartbeatResponse)

    def _unsettled(self, found: Mapping[PartitionKey, Found]) -> list[peer_pb2.RecoveredReplica]:
        return [each for each in self._recovered(-1, found) if each.finding in (TORN, UNREADABLE)]

    def start(
        self,
        broker_id: int,
        *,
        clean: int | None = None,
        found: Mapping[PartitionKey, Found] | None = None,
        **how: Unpack[How],
    ) -> None:
        """Register and become unfenced."""
        response = self.register(broker_id, clean=clean, found=found, **how)
        assert error_of(response) is None, error_of(response)
        known = {key: each for key, each in (found or {}).items() if each is not None}
        self.heartbeat(broker_id, found=known, offline=[key for key, each in known.items() if each[0] == UNREADABLE])

    def upgrade(self, level: int) -> None:
        """The cluster is at this level from now on."""
        ticket = self.ticket()
        self.controller.upgrade_level(ticket, admin_pb2.UpgradeLevelRequest(level=level))
        assert error_of(self.answer(ticket, admin_pb2.UpgradeLevelResponse)) is None

    def start_all(self, brokers: int = 3) -> None:
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    def fence(self, broker_id: int) -> None:
        """Its stream breaks and connections are refused: killed."""
        self.controller.heartbeat_stream_broken(broker_id, self.epoch(broker_id), self.now_ms)
        self.controller.broker_refused_connection(broker_id, self.epoch(broker_id), self.now_ms)
        self.commit()

    def silence(self, broker_id: int) -> None:
        """It hangs: the others are heard until it is fenced."""
        for _ in range(4):
            self.advance(SESSION_TIMEOUT_MS / 3)
            for each in self.image.brokers:
                if each != broker_id:
                    self.heartbeat(each)

    def restart(
        self,
        broker_id: int,
        *,
        clean: bool = False,
        found: Mapping[PartitionKey, Found] | None = None,
        **how: Unpack[How],
    ) -> None:
        """Killed or stopped and started again, whatever its state was."""
        former = self.epoch(broker_id)
        self.fence(broker_id)
        self.start(broker_id, clean=former if clean else None, found=found, **how)

    def create(
        self,
        name: str = "t",
        partitions: int | None = 1,
        replication_factor: int | None = None,
        *,
        validate_only: bool = False,
        **configs: str,
    ) -> admin_pb2.TopicResult:
        topic = admin_pb2.NewTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=dotted(configs)
        )
        ticket = self.ticket()
        request = admin_pb2.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        self.controller.create_topics(ticket, request)
        return self.answer(ticket, admin_pb2.CreateTopicsResponse).results[0]

    def create_internal(self, name: str, broker_id: int = 1) -> peer_pb2.CreateInternalTopicResponse:
        ticket = self.ticket()
        request = peer_pb2.CreateInternalTopicRequest(
            broker_id=broker_id, broker_epoch=self.epoch(broker_id), name=name
        )
        self.controller.create_internal_topic(ticket, request)
        return self.answer(ticket, peer_pb2.CreateInternalTopicResponse)

    def created(
        self, name: str = "t", partitions: int = 1, replication_factor: int = 3, **configs: str
    ) -> PartitionKey:
        """The first partition of a new topic."""
        result = self.create(name, partitions, replication_factor, validate_only=False, **configs)
        assert error_of(result) is None, error_of(result)
        return PartitionKey(result.topic_id, 0)

    def alter(
        self, name: str = "t", partitions: int | None = None, unset: Iterable[str] = (), **configs: str
    ) -> admin_pb2.TopicResult:
        topic = admin_pb2.TopicAlteration(
            name=name, num_partitions=partitions, set_configs=dotted(configs), unset_configs=list(unset)
        )
        ticket = self.ticket()
        self.controller.alter_topics(ticket, admin_pb2.AlterTopicsRequest(topics=[topic]))
        return self.answer(ticket, admin_pb2.AlterTopicsResponse).results[0]

    def elect(self, *names: str, partitions: Iterable[int] = ()) -> list[admin_pb2.PartitionResult]:
        """The preferred leaders, of all topics where none is named."""
        topics = [admin_pb2.TopicPartitions(name=name, partitions=list(partitions)) for name in names]
        ticket = self.ticket()
        self.controller.elect_leaders(ticket, admin_pb2.ElectLeadersRequest(topics=topics))
        response = self.answer(ticket, admin_pb2.ElectLeadersResponse)
        assert error_of(response) is None
        return list(response.results)

    def reassign(
        self, key: PartitionKey, replicas: Iterable[int], throttle_bytes_per_second: int = 0
    ) -> admin_pb2.PartitionResult:
        """Ask for other replicas; none: cancel."""
        name = self.image.topics[key.topic_id].name
        wanted = admin_pb2.PartitionReassignment(
            name=name,
            partition=key.partition,
            replicas=list(replicas),
            throttle_bytes_per_second=throttle_bytes_per_second,
        )
        ticket = self.ticket()
        request = admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[wanted])
        self.controller.alter_reassignments(ticket, request)
        response = self.answer(ticket, admin_pb2.AlterPartitionReassignmentsResponse)
        assert error_of(response) is None
        return response.results[0]

    def delete(self, name: str = "", topic_id: bytes = b"") -> admin_pb2.TopicResult:
        ticket = self.ticket()
        deletion = admin_pb2.TopicDeletion(name=name, topic_id=topic_id)
        self.controller.delete_topics(ticket, admin_pb2.DeleteTopicsRequest(topics=[deletion]))
        return self.answer(ticket, admin_pb2.DeleteTopicsResponse).results[0]

    def propose(
        self,
        key: PartitionKey,
        members: Iterable[int],
        *,
        proposer: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        epochs: Mapping[int, int] | None = None,
    ) -> peer_pb2.InSyncReplicasAnswer:
        """What the leader asks for, from the current state but for what is given."""
        state = self.image.partitions.get(key)
        life = {broker.broker_id: broker.broker_epoch for broker in self.image.brokers.values()} | dict(epochs or {})
        proposer = proposer if proposer is not None else (state.leader_id if state else 1)
        proposal = peer_pb2.InSyncReplicasProposal(
            partition_id=common_pb2.PartitionId(topic_id=key.topic_id, partition=key.partition),
            leader_epoch=leader_epoch if leader_epoch is not None else (state.leader_epoch if state else 0),
            partition_epoch=partition_epoch if partition_epoch is not None else (state.partition_epoch if state else 0),
            in_sync_replicas=[peer_pb2.InSyncReplica(broker_id=m, broker_epoch=life.get(m, 0)) for m in members],
        )
        ticket = self.ticket()
        request = peer_pb2.ProposeInSyncReplicasRequest(
            broker_id=proposer, broker_epoch=life[proposer], proposals=[proposal]
        )
        self.controller.propose_isr(ticket, request)
        response = self.answer(ticket, peer_pb2.ProposeInSyncReplicasResponse)
        if response.error.code:
            return peer_pb2.InSyncReplicasAnswer(error=response.error)
        return response.answers[0]

    def advance(self, by_ms: float) -> None:
        """Time passes, with ticks when they are due."""
        until_ms = self.now_ms + by_ms
        while (due_ms := self.controller.next_tick_ms) <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.controller.tick(self.now_ms, self.wall_ms)
            self.commit()
        self.now_ms = until_ms

    @property
    def wall_ms(self) -> int:
        """Since 1970, as far as tokens are concerned."""
        return int(self.now_ms)

    # -- questions

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].broker_epoch

    def state(self, key: PartitionKey) -> PartitionState:
        return self.image.partitions[key]

    # -- invariants

    def check(self) -> None:
        """V4, V17 and what must hold of every committed state."""
        for key, state in self.image.partitions.items():
            before = self._judged.get(key)
            if state != before:
                is_clean = not self.image.effective_config(key.topic_id).unclean_leader_election
                check_state(f"{state.topic_name}-{key.partition}", state, before, is_clean=is_clean)
            self._check_members(state)
        self._judged = dict(self.image.partitions)

    def _check_members(self, state: PartitionState) -> None:
        isr = set(state.in_sync_replicas)
        assert state.target_replicas, "a reassignment takes nobody all replicas"
        assert state.original_replicas
        assert {*state.adding_replicas, *state.removing_replicas} <= set(state.replicas)
        assert not (state.reassigning and set(state.target_replicas) <= isr), "a reassignment that is done goes on"
        if len(isr) > 1:
            assert not any(self.image.brokers[member].fenced for member in isr), "a fenced broker is in a larger ISR"
        if state.leader_id == NO_LEADER:
            return
        leader = self.image.brokers[state.leader_id]
        assert not leader.fenced
        assert leader.broker_epoch == state.leader_broker_epoch, "a life that is over leads"


def dotted(configs: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in configs.items()}


def led_by(cluster: ControllerCluster, leader: int, replicas: int = 3, **configs: str) -> PartitionKey:
    """A new partition that `leader` leads."""
    for _ in range(50):
        key = cluster.created(f"t{len(cluster.image.topics)}", 1, replicas, **configs)
        if cluster.state(key).leader_id == leader:
            return key
    raise AssertionError(f"broker {leader} was never the first")
