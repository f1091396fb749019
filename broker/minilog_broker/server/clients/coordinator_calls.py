"""Calls to other brokers. Coordinators have leaders write markers, and register producers with other coordinators. The
lag of groups asks for the ends of logs, the scrub for the digests of copies, and queues for stable offsets.

A call goes to the leader that this broker's image names. Where that is this broker, there is no connection. The other
broker may be the wrong one, slow or gone: every failure is a MinilogError, and the coordinator calls again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import grpc

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
from minilog.partition_key import PartitionKey
from minilog.v1 import (
    common_pb2,
    coordinator_pb2,
    coordinator_pb2_grpc,
    metadata_pb2,
    metadata_pb2_grpc,
    peer_pb2,
    peer_pb2_grpc,
)
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.coordinator_effects import RegisterProducer, WriteMarkers
from minilog_broker.coordinators.transactions.coordinator import PRODUCER_EPOCH
from minilog_broker.server.clients.channels import CALL_ERRORS, reason
from minilog_broker.server.clients.peer_channels import PeerChannels
from minilog_broker.server.runtime.timer import now_ms

CALL_TIMEOUT_S = 10.0  # markers wait for the high watermark of their partition
AWAIT_TIMEOUT_S = 4.0  # the leader answers in two seconds, also without news
SCRUB_TIMEOUT_S = 60.0  # the other broker reads its copy at a rate, for one leader after another
REGISTER_WITHIN_MS = 5_000.0  # an election or two; after it the client tries again
REGISTER_PAUSE_S = 0.05
CALLS_PER_BROKER = 32  # at the same time: a broker that hangs holds up only its own calls

_Response = TypeVar(
    "_Response",
    coordinator_pb2.WriteMarkersResponse,
    coordinator_pb2.RegisterPartitionsResponse,
    metadata_pb2.ListOffsetsResponse,
    peer_pb2.DigestRecordsResponse,
    peer_pb2.SetCopyAsideResponse,
    peer_pb2.AwaitStableOffsetsResponse,
)


@dataclass(frozen=True, slots=True)
class CallsHere:
    """This broker's answers to calls that it makes to itself."""

    write_markers: Callable[[coordinator_pb2.WriteMarkersRequest], Awaitable[coordinator_pb2.WriteMarkersResponse]]
    register_partitions: Callable[
        [coordinator_pb2.RegisterPartitionsRequest], Awaitable[coordinator_pb2.RegisterPartitionsResponse]
    ]
    await_stable_offsets: Callable[[peer_pb2.AwaitStableOffsetsRequest], Awaitable[peer_pb2.AwaitStableOffsetsResponse]]


class CoordinatorCalls:
    """The calls of coordinators, of the lag of groups, of the scrub and of queues to other brokers.

    `here`: this broker's own answers to the same calls.
    """

    def __init__(
        self,
        broker_id: int,
        client: common_pb2.ClientIdentity,
        image: MetadataImage,
        address_of: Callable[[int], tuple[str, int] | None],
        here: CallsHere,
        channels: PeerChannels,
    ) -> None:
        self._peers = channels
        self._broker_id = broker_id
        self._here = here
        self._client = client
        self._image = image
        self._address_of = address_of
        self._channels: dict[int, tuple[tuple[str, int], grpc.aio.Channel]] = {}
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CALLS_PER_BROKER))

    async def write_markers(self, effect: WriteMarkers) -> None:
        """Write markers. Returns when they are below the high watermark there. Raises MinilogError where that is not
        certain."""
        request = coordinator_pb2.WriteMarkersRequest(
            client=self._client,
            partition_id=effect.target.to_wire(),
            transactional_id=effect.transactional_id,
            markers=[
                coordinator_pb2.ProducerMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=PRODUCER_EPOCH,
                    committed=marker.committed,
                    last_sequence=marker.last_sequence,
                )
                for marker in effect.markers
            ],
            coordinator_partition=coordinator_partition(effect.transactional_id),
            coordinator_epoch=effect.coordinator_epoch,
        )
        leader_id, _ = self.leader_of(effect.target)
        if leader_id == self._broker_id:
            response = await self._here.write_markers(request)
        else:
            response = await self._call(
                leader_id,
                lambda channel: coordinator_pb2_grpc.MarkerServiceStub(channel).WriteMarkers(
                    request, timeout=CALL_TIMEOUT_S
                ),
            )
        if error := error_from_wire(response.error):
            raise error

    async def register(self, effect: RegisterProducer, partition: PartitionKey) -> None:
        """Register durably with the transaction that the producer writes to `partition`. Raises MinilogError where it
        may not."""
        deadline_ms = now_ms() + REGISTER_WITHIN_MS
        while True:
            try:
                await self._register_once(effect, partition)
                return
            except RetriableError:
                if now_ms() > deadline_ms:
                    raise
            await asyncio.sleep(REGISTER_PAUSE_S)

    async def _register_once(self, effect: RegisterProducer, partition: PartitionKey) -> None:
        request = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id=effect.transactional_id,
            producer_id=effect.producer_id,
            partitions=[partition.to_wire()],
        )
        if error := error_from_wire((await self.register_partitions(request)).error):
            raise error

    async def register_partitions(
        self, request: coordinator_pb2.RegisterPartitionsRequest
    ) -> coordinator_pb2.RegisterPartitionsResponse:
        """Make one call to the coordinator that this broker's image names.

        The call has the epoch that the image knows, or a later one of the request. Raises MinilogError where there is
        no coordinator, or no answer.
        """
        topic_id = self._image.topic_ids.get(TRANSACTIONS_TOPIC_NAME)
        if topic_id is None:
            raise CoordinatorLoadInProgress(f"this broker does not know {TRANSACTIONS_TOPIC_NAME} yet: retry")
        coordinator = PartitionKey(topic_id, coordinator_partition(request.transactional_id))
        leader_id, leader_epoch = self.leader_of(coordinator)
        request.client.CopyFrom(self._client)
        request.coordinator_epoch = max(request.coordinator_epoch, leader_epoch)
        if leader_id == self._broker_id:
            return await self._here.register_partitions(request)
        return await self._call(
            leader_id,
            lambda channel: coordinator_pb2_grpc.TransactionServiceStub(channel).RegisterPartitions(
                request, timeout=CALL_TIMEOUT_S
            ),
        )

    async def list_offsets(
        self, leader_id: int, entries: Iterable[metadata_pb2.ListOffsetsEntry]
    ) -> metadata_pb2.ListOffsetsResponse:
        """The ends of logs that another broker leads. Raises MinilogError where it does not answer."""
        request = metadata_pb2.ListOffsetsRequest(client=self._client, entries=entries)
        return await self._call(
            leader_id,
            lambda channel: metadata_pb2_grpc.MetadataServiceStub(channel).ListOffsets(request, timeout=CALL_TIMEOUT_S),
        )

    async def digest_records(self, broker_id: int, request: peer_pb2.DigestRecordsRequest) -> bytes:
        """The digest of another broker's copy. Raises MinilogError where there is no answer, as from a broker of an
        earlier version."""
        request.client.CopyFrom(self._client)
        response = await self._call(
            broker_id,
            lambda channel: peer_pb2_grpc.PeerServiceStub(channel).DigestRecords(request, timeout=SCRUB_TIMEOUT_S),
        )
        if error := error_from_wire(response.error):
            raise error
        return response.digest

    async def set_copy_aside(self, broker_id: int, request: peer_pb2.SetCopyAsideRequest) -> None:
        """Have another broker set its copy aside, which differs from most. Raises MinilogError where the outcome is not
        known."""
        request.client.CopyFrom(self._client)
        response = await self._call(
            broker_id,
            lambda channel: peer_pb2_grpc.PeerServiceStub(channel).SetCopyAside(request, timeout=SCRUB_TIMEOUT_S),
        )
        if error := error_from_wire(response.error):
            raise error

    async def await_stable_offsets(
        self, broker_id: int, request: peer_pb2.AwaitStableOffsetsRequest
    ) -> peer_pb2.AwaitStableOffsetsResponse:
        """The news of stable offsets from a leader. Raises MinilogError where it does not answer.

        This call waits for news, so it takes no turn of the calls that only wait for work. StableOffsets bounds the
        number of these calls."""
        request.client.CopyFrom(self._client)
        request.broker_id = self._broker_id
        if broker_id == self._broker_id:
            return await self._here.await_stable_offsets(request)
        return await self._call_now(
            broker_id,
            lambda channel: peer_pb2_grpc.PeerServiceStub(channel).AwaitStableOffsets(request, timeout=AWAIT_TIMEOUT_S),
        )

    # -- other brokers

    def leader_of(self, key: PartitionKey) -> tuple[int, int]:
        """The leader's id and epoch, as this broker's image names them. Raises UnknownTopicId, LeaderNotAvailable."""
        state = self._image.partitions.get(key)
        if state is None:
            raise UnknownTopicId(f"broker {self._broker_id} does not know topic id {key.topic_id.hex()}")
        if state.leader_id < 0:
            raise LeaderNotAvailable(f"partition {key.partition} of {state.topic_name} has no leader now")
        return state.leader_id, state.leader_epoch

    async def _call(self, broker_id: int, call: Callable[[grpc.aio.Channel], Awaitable[_Response]]) -> _Response:
        async with self._turns[broker_id]:
            return await self._call_now(broker_id, call)

    async def _call_now(self, broker_id: int, call: Callable[[grpc.aio.Channel], Awaitable[_Response]]) -> _Response:
        try:
            return await call(await self._channel(broker_id))
        except CALL_ERRORS as error:
            raise BrokerNotAvailable(f"broker {broker_id} did not answer: {reason(error)}") from error

    async def _channel(self, broker_id: int) -> grpc.aio.Channel:
        address = self._address_of(broker_id)
        if address is None:
            raise BrokerNotAvailable(f"broker {self._broker_id} does not know broker {broker_id}")
        former = self._channels.get(broker_id)
        if former is not None and former[0] == address:
            return former[1]
        channel = self._peers.open(broker_id, address)
        self._channels[broker_id] = (address, channel)
        if former is not None:
            await former[1].close()
        return channel

    async def close(self) -> None:
        for _, channel in self._channels.values():
            await channel.close()


async def outcome(work: Awaitable[None]) -> MinilogError | None:
    """The error of some work, None where it succeeded."""
    try:
        await work
    except MinilogError as error:
        return error
    return None
