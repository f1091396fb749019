"""Leaders of partitions whose calls for stable offsets go to the real cores: no sockets, and virtual time."""

from __future__ import annotations

import asyncio

from minilog.errors import BrokerNotAvailable, LeaderNotAvailable, MinilogError, wire_error
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog_broker.replication.replica_effects import StableOffsetMoved
from minilog_broker.replication.stable_offsets import KnownPartition
from minilog_broker.server.services.stable_offset_answers import StableOffsetAnswers
from tests.unit.replication.broker import TOPIC_ID
from tests.unit.replication.cluster import ReplicaCluster

NOTHING = KnownPartition()
PARTITIONS = [PartitionKey(TOPIC_ID, number) for number in range(12)]


def request_of(
    *questions: tuple[PartitionKey, KnownPartition], max_wait_ms: int = 2_000
) -> peer_pb2.AwaitStableOffsetsRequest:
    request = peer_pb2.AwaitStableOffsetsRequest(broker_id=9, max_wait_ms=max_wait_ms)
    for key, known in questions:
        request.partitions.add(partition_id=key.to_wire(), **known._asdict())
    return request


class LeadersOfCores:
    """Three brokers. Broker 1 leads all PARTITIONS at first. `hangs`: brokers that answer nothing at all."""

    def __init__(self) -> None:
        self.cluster = ReplicaCluster()
        for key in PARTITIONS[1:]:
            self.cluster.controller.create(key, tuple(self.cluster.brokers), 1)
        self.cluster.settle()
        self.answers = {number: StableOffsetAnswers(broker) for number, broker in self.cluster.brokers.items()}
        self.leaders = dict.fromkeys(PARTITIONS, 1)  # as the asker's image has them
        self.hangs: set[int] = set()
        self.gone: set[int] = set()
        self.refusal: MinilogError | None = None
        self.requests: list[tuple[int, list[int]]] = []  # the broker, and the numbers of the partitions
        self.under_way = self.most_under_way = 0
        self._woken = dict.fromkeys(self.cluster.brokers, 0)

    def leader_of(self, key: PartitionKey) -> tuple[int, int]:
        if key not in self.leaders:
            raise LeaderNotAvailable(f"partition {key.partition} has no leader now")
        return self.leaders[key], 0

    async def await_stable_offsets(
        self, broker_id: int, request: peer_pb2.AwaitStableOffsetsRequest
    ) -> peer_pb2.AwaitStableOffsetsResponse:
        self.requests.append((broker_id, [entry.partition_id.partition for entry in request.partitions]))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if broker_id in self.hangs:
                await asyncio.sleep(4.0)
            if broker_id in self.hangs | self.gone:
                raise BrokerNotAvailable(f"broker {broker_id} did not answer")
            if self.refusal is not None:
                return peer_pb2.AwaitStableOffsetsResponse(error=wire_error(self.refusal))
            return await self.answers[broker_id].answer(request)
        finally:
            self.under_way -= 1

    def settle(self) -> None:
        """The cluster does all that it can, and its shells carry out StableOffsetMoved."""
        self.cluster.settle()
        for number, broker in self.cluster.brokers.items():
            effects, self._woken[number] = broker.history[self._woken[number] :], len(broker.history)
            for effect in effects:
                if isinstance(effect, StableOffsetMoved):
                    self.answers[number].moved(effect.key)

    def produce(self, *numbers: int, to: int = 1) -> None:
        """A committed record in each of these partitions."""
        for number in numbers:
            self.cluster.produce(to, key=PARTITIONS[number])
        self.settle()

    def known(self, number: int, *, at: int = 1) -> KnownPartition:
        """What a coordinator knows that has heard all."""
        leader = self.cluster[at].leader(PARTITIONS[number])
        assert leader is not None
        ends = leader.ends()
        return KnownPartition(leader.leader_epoch, ends.last_stable_offset, ends.log_start_offset)

    def move(self, number: int, leader_id: int, *, replayed: bool = True) -> None:
        """Another broker leads a partition. `replayed`: the asker's image has it."""
        self.cluster.controller.move(PARTITIONS[number], leader_id)
        self.settle()
        if replayed:
            self.leaders[PARTITIONS[number]] = leader_id

    @property
    def waiting_partitions(self) -> int:
        """At all leaders: what calls wait for, and what the cores watch."""
        watched = {number: len(broker.manager._context.watched) for number, broker in self.cluster.brokers.items()}
        waiting = {number: answers.waiting_partitions for number, answers in self.answers.items()}
        assert watched == waiting
        return sum(waiting.values())
