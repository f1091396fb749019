"""What coordinators and leaders ask of other brokers: as server/clients/coordinator_calls.py,
partition_registrations.py and internal_topics.py. A call goes to the leader that this life's image names, to this life
itself without a connection; it may be lost, doubled or late, and is asked again by whoever wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from minilog.errors import (
    BrokerNotAvailable,
    CoordinatorLoadInProgress,
    LeaderNotAvailable,
    MinilogError,
    RetriableError,
    UnknownTopicId,
    error_from_wire,
)
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.v1 import common_pb2, coordinator_pb2, peer_pb2
from minilog_broker.controller.internal_topics import INTERNAL_TOPIC_NAMES
from minilog_broker.coordinators.coordinator_effects import RegisterProducer, WriteMarkers
from minilog_broker.coordinators.groups.records import partition_id
from minilog_broker.coordinators.transactions.coordinator import PRODUCER_EPOCH
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import RegisterPartition
from tests.simulation.network import Failure

if TYPE_CHECKING:
    from tests.simulation.life import Life

CALL_TIMEOUT_MS = 10_000.0
REGISTER_WITHIN_MS = 5_000.0
REGISTER_PAUSE_MS = 50.0
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 20.0, 500.0

Tell = Callable[[MinilogError | None], None]


class _Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    coordinator_epoch: int


class CoordinatorCalls:
    """See the module's text."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._asked: dict[_Producer, list[RegisterPartition]] = {}
        self._creating: dict[str, None] = {}

    # -- calls

    def _call(self, leader_id: int, method: str, request: Any, tell: Tell) -> None:
        life = self._life

        def answered(answer: Any) -> None:
            if isinstance(answer, Failure):
                tell(BrokerNotAvailable(f"broker {leader_id} did not answer: {answer.value}"))
            else:
                tell(error_from_wire(answer.error))

        if leader_id == life.node.node_id:
            # As tasks of one event loop: neither the call nor its answer comes within a step of the core.
            later = lambda answer: life.process.after(0.0, answered, answer)  # noqa: E731
            life.process.after(0.0, lambda _: life.serving.serve_call(method, request, later))
        else:
            life.network.call(life.process, leader_id, method, request, answered, CALL_TIMEOUT_MS)

    def _leader_of(self, key: PartitionKey) -> tuple[int, int]:
        """(leader id, leader epoch)."""
        state = self._life.image.partitions.get(key)
        if state is None:
            raise UnknownTopicId(f"topic id {key.topic_id.hex()} is not known to this broker")
        if state.leader_id < 0:
            raise LeaderNotAvailable(f"partition {key.partition} of {state.topic_name} has no leader now")
        return state.leader_id, state.leader_epoch

    def write_markers(self, effect: WriteMarkers, tell: Tell) -> None:
        """`tell` when they are below the high watermark there, or with why that is not known."""
        request = coordinator_pb2.WriteMarkersRequest(
            partition_id=partition_id(effect.target),
            transactional_id=effect.transactional_id,
            coordinator_partition=coordinator_partition(effect.transactional_id),
            coordinator_epoch=effect.coordinator_epoch,
        )
        for marker in effect.markers:
            request.markers.add(
                producer_id=marker.producer_id,
                producer_epoch=PRODUCER_EPOCH,
                committed=marker.committed,
                last_sequence=marker.last_sequence,
            )
        try:
            leader_id, _ = self._leader_of(effect.target)
        except MinilogError as error:
            self._later(tell, error)
        else:
            self._call(leader_id, "WriteMarkers", request, tell)

    def register(self, effect: RegisterProducer, partition: PartitionKey, tell: Tell) -> None:
        """A coordinator of groups: asked again for some seconds."""
        deadline_ms = self._life.now_ms + REGISTER_WITHIN_MS
        request = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id=effect.transactional_id,
            producer_id=effect.producer_id,
            partitions=[partition_id(partition)],
        )

        def told(error: MinilogError | None) -> None:
            if isinstance(error, RetriableError) and self._life.now_ms <= deadline_ms:
                self._life.process.after(REGISTER_PAUSE_MS, lambda _: self.register_partitions(request, told))
            else:
                tell(error)

        self.register_partitions(request, told)

    def register_partitions(self, request: coordinator_pb2.RegisterPartitionsRequest, tell: Tell) -> None:
        """One call, to the coordinator that this life's image names."""
        topic_id = self._life.image.topic_ids.get(TRANSACTIONS_TOPIC_NAME)
        try:
            if topic_id is None:
                raise CoordinatorLoadInProgress(f"{TRANSACTIONS_TOPIC_NAME} is not known to this broker yet: retry")
            key = PartitionKey(topic_id, coordinator_partition(request.transactional_id))
            leader_id, leader_epoch = self._leader_of(key)
        except MinilogError as error:
            self._later(tell, error)
            return
        request.coordinator_epoch = max(request.coordinator_epoch, leader_epoch)
        self._call(leader_id, "RegisterPartitions", request, tell)

    def _later(self, tell: Tell, error: MinilogError) -> None:
        """Not within the step of the core that asks."""
        self._life.process.after(0.0, tell, error)

    # -- what leaders of partitions ask

    def registration_wanted(self, effect: RegisterPartition) -> None:
        """Carry out RegisterPartition: of one producer all that is asked at the same time goes in one call."""
        producer = _Producer(effect.transactional_id, effect.producer_id, effect.coordinator_epoch)
        if producer in self._asked:
            self._asked[producer].append(effect)
        else:
            self._asked[producer] = [effect]
            self._life.process.after(0.0, self._ask_for, (producer, FIRST_PAUSE_MS))

    def _ask_for(self, argument: tuple[_Producer, float]) -> None:
        producer, pause_ms = argument
        life, manager = self._life, self._life.manager
        asked = [each for each in self._asked[producer] if manager.is_registering(each.key, each.number)]
        if not asked:
            del self._asked[producer]
            return
        self._asked[producer] = list(asked)
        request = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            partitions=[
                common_pb2.PartitionId(topic_id=each.key.topic_id, partition=each.key.partition) for each in asked
            ],
            coordinator_epoch=producer.coordinator_epoch,
        )

        def told(error: MinilogError | None) -> None:
            if error is not None and error.retriable:
                life.process.after(pause_ms, self._ask_for, (producer, min(2 * pause_ms, LONGEST_PAUSE_MS)))
                return
            self._asked[producer] = [each for each in self._asked[producer] if each not in asked]
            for each in asked:
                life.touch(each.key)
                manager.registered(each.key, each.number, error, life.now_ms)
            life.replicas.run()
            self._ask_for((producer, pause_ms))

        self.register_partitions(request, told)

    # -- the first use of an internal topic

    def first_use(self, name: str) -> CoordinatorLoadInProgress | None:
        """`name` was asked for, and there is no such topic: what to say; None where it is no internal topic."""
        if name not in INTERNAL_TOPIC_NAMES:
            return None
        life = self._life
        if name not in self._creating:
            self._creating[name] = None
            request = peer_pb2.CreateInternalTopicRequest(
                broker_id=life.node.node_id,
                broker_epoch=-1 if life.broker_epoch is None else life.broker_epoch,
                name=name,
            )
            life.link.create_internal_topic(request, lambda _: self._creating.pop(name, None))
        return CoordinatorLoadInProgress(f"{name} is created now, at its first use: retry")
