"""Calls to coordinators as a client makes them: found by metadata, and asked again while they may be elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from minilog.errors import MinilogError, RetriableError, error_from_wire
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.v1 import common_pb2, coordinator_pb2, coordinator_pb2_grpc, metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, OF_NOW, Cluster

WITHIN_S = 15.0
PAUSE_S = 0.05
_Answer = TypeVar("_Answer", bound=Message)


def error_of(answer: Message) -> MinilogError | None:
    return error_from_wire(answer.error)  # type: ignore[attr-defined]


class Coordinating:
    """Stubs for each broker of a cluster, and who coordinates what."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._channels = {
            broker_id: grpc.insecure_channel(f"{HOST}:{port}", options=[("grpc.max_reconnect_backoff_ms", 200)])
            for broker_id, port in cluster.ports.items()
        }

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def groups_at(self, broker_id: int) -> Any:
        return coordinator_pb2_grpc.GroupServiceStub(self._channels[broker_id])

    def transactions_at(self, broker_id: int) -> Any:
        return coordinator_pb2_grpc.TransactionServiceStub(self._channels[broker_id])

    def markers_at(self, broker_id: int) -> Any:
        return coordinator_pb2_grpc.MarkerServiceStub(self._channels[broker_id])

    def topic(self, name: str) -> metadata_pb2.TopicMetadata:
        """From any broker that runs; the first use makes an internal topic."""
        for broker_id in self._cluster.processes:
            stub = metadata_pb2_grpc.MetadataServiceStub(self._channels[broker_id])
            with contextlib.suppress(grpc.RpcError):
                (found,) = stub.GetMetadata(
                    metadata_pb2.GetMetadataRequest(client=OF_NOW, topic_names=[name]), timeout=2
                ).topics
                return found
        raise AssertionError("no broker answers")

    def leader_of(self, topic_name: str, name: str) -> int:
        """Who coordinates; -1 while nobody does, or a broker that is gone is still named."""
        topic = self.topic(topic_name)
        if topic.error.code:
            return -1
        leader_id = topic.partitions[coordinator_partition(name)].leader_id
        return leader_id if leader_id in self._cluster.processes else -1

    def of_group(self, group_id: str, call: Callable[[Any], _Answer]) -> _Answer:
        return self._until_told(GROUPS_TOPIC_NAME, group_id, lambda broker_id: call(self.groups_at(broker_id)))

    def of_transaction(self, transactional_id: str, call: Callable[[Any], _Answer]) -> _Answer:
        return self._until_told(
            TRANSACTIONS_TOPIC_NAME, transactional_id, lambda broker_id: call(self.transactions_at(broker_id))
        )

    def _until_told(self, topic_name: str, name: str, call: Callable[[int], _Answer]) -> _Answer:
        """The coordinator's answer, if need be after a retriable error or a broken connection."""
        deadline = time.monotonic() + WITHIN_S
        told: object = None
        while time.monotonic() < deadline:
            leader_id = self.leader_of(topic_name, name)
            if leader_id >= 0:
                try:
                    answer = call(leader_id)
                except grpc.RpcError as error:
                    told = error
                else:
                    told = error_of(answer)
                    if not isinstance(told, RetriableError):
                        return answer
            time.sleep(PAUSE_S)
        raise AssertionError(f"the coordinator of {name} does not answer: {told}")

    # -- calls

    def commit(self, group_id: str, topic_id: bytes, offset: int, **transaction: Any) -> MinilogError | None:
        request = coordinator_pb2.CommitOffsetsRequest(
            group_id=group_id,
            offsets=[
                coordinator_pb2.OffsetToCommit(
                    partition_id=common_pb2.PartitionId(topic_id=topic_id), offset=offset, leader_epoch=0
                )
            ],
        )
        if transaction:
            request.transaction.CopyFrom(coordinator_pb2.TransactionalCommit(**transaction))
        return error_of(self.of_group(group_id, lambda stub: stub.CommitOffsets(request, timeout=8)))

    def fetch(self, group_id: str) -> coordinator_pb2.FetchOffsetsResponse:
        request = coordinator_pb2.FetchOffsetsRequest(group_id=group_id)
        answer: coordinator_pb2.FetchOffsetsResponse = self.of_group(
            group_id, lambda stub: stub.FetchOffsets(request, timeout=5)
        )
        return answer

    def committed(self, group_id: str) -> list[int]:
        """The offsets of the group; an AssertionError where one is unstable."""
        answer = self.fetch(group_id)
        assert not answer.error.code
        assert not any(each.error.code for each in answer.offsets), answer
        return [each.offset for each in answer.offsets]

    def enlist(
        self, transactional_id: str, run: bytes, attempt: bytes, generation: int | None = None
    ) -> coordinator_pb2.EnlistResponse:
        request = coordinator_pb2.EnlistRequest(
            transactional_id=transactional_id, run_id=run, attempt_id=attempt, generation=generation
        )
        answer: coordinator_pb2.EnlistResponse = self.of_transaction(
            transactional_id, lambda stub: stub.Enlist(request, timeout=5)
        )
        return answer

    def end(
        self, transactional_id: str, run: bytes, attempt: bytes, generation: int, *winners: coordinator_pb2.Winner
    ) -> coordinator_pb2.EndTransactionResponse:
        request = coordinator_pb2.EndTransactionRequest(
            transactional_id=transactional_id,
            run_id=run,
            attempt_id=attempt,
            generation=generation,
            winners=winners,
            timeout_ms=8_000,
        )
        answer: coordinator_pb2.EndTransactionResponse = self.of_transaction(
            transactional_id, lambda stub: stub.EndTransaction(request, timeout=12)
        )
        return answer


@contextlib.contextmanager
def coordinating(cluster: Cluster) -> Iterator[Coordinating]:
    client = Coordinating(cluster)
    try:
        yield client
    finally:
        client.close()
