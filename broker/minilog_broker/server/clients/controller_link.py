"""The calls of this broker to the active controller: registration, heartbeats, ISR proposals, producer ids, first uses
of internal topics.

Heartbeats have a stream and a channel of their own. When the stream breaks, or another broker comes to lead the quorum,
the broker looks for the controller again at once. An answer that another life has replaced this one ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import structlog

from minilog.errors import (
    BrokerIdNotRegistered,
    BrokerNotAvailable,
    MinilogError,
    RetriableError,
    StaleBrokerEpoch,
    error_from_wire,
)
from minilog.net.payload_stream import STREAM_ERRORS
from minilog.partition_key import PartitionKey
from minilog.stream_messages import HEARTBEAT, StreamMessage
from minilog.v1 import common_pb2, peer_pb2, peer_pb2_grpc
from minilog_broker.replication.replica_effects import PartitionOffline, ProposalAnswer, ProposeInSyncReplicas
from minilog_broker.server.clients.channels import CALL_ERRORS, reason
from minilog_broker.server.clients.peer_channels import Peer, PeerChannels
from minilog_broker.server.disk.disk_stall import DiskAnswer
from minilog_broker.server.runtime.timer import now_ms

logger = structlog.get_logger()

RETRY_PAUSE_S = 0.05
REGISTER_QUIETLY_MS = 5_000.0  # a common start of brokers, or an election, takes less
CALL_TIMEOUT_S = 2.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class HeartbeatSources:
    """The sources of the values in a heartbeat (HeartbeatRequest)."""

    metadata_offset: Callable[[], int]
    offline_replicas: Callable[[], Iterable[PartitionOffline]]
    unsettled_replicas: Callable[[], Iterable[peer_pb2.RecoveredReplica]]
    undecided_partitions: Callable[[], Iterable[PartitionKey]]
    late_cleanings: Callable[[], Iterable[PartitionKey]]
    no_space: Callable[[], bool]
    disk_answer: Callable[[], DiskAnswer]


@dataclass(frozen=True, slots=True)
class IdBlock:
    """Producer ids that no other broker gives, and the committed end of the metadata log behind their allocation."""

    ids: range
    committed_end_offset: int


class ControllerLink:
    """A broker's connection to the active controller.

    `find_controller` gives the controller as far as this broker knows it.

    `session_goes_on` is called with each answer. Its arguments: when the question was sent, when the session ends, and
    the end of the metadata log that must be replayed before that counts.
    """

    def __init__(
        self,
        client: common_pb2.ClientIdentity,
        broker_id: int,
        find_controller: Callable[[], Peer | None],
        heartbeat_interval_ms: int,
        sources: HeartbeatSources,
        session_goes_on: Callable[[float, float, int], None],
        channels: PeerChannels,
    ) -> None:
        self._channels = channels
        self.broker_epoch = -1
        self.fenced = True
        self.should_stop = asyncio.Event()
        self.wants_stop = False
        self.answered_ms = 0.0  # the time of the last answer to a heartbeat
        self._sources = sources
        self._session_goes_on = session_goes_on
        self._client = client
        self._broker_id = broker_id
        self._find_controller = find_controller
        self._interval_s = heartbeat_interval_ms / 1000.0
        self._beat_now = asyncio.Event()
        self._moved = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None
        self._channel_peer: Peer | None = None

    def controller_moved(self) -> None:
        """Note that another broker leads the quorum, or none. Calls wait for answers of the former one no more."""
        self._moved.set()
        self._moved = asyncio.Event()
        self._beat_now.set()

    async def _unless_moved(self, answer: Awaitable[_Result]) -> _Result:
        """The answer. Raises BrokerNotAvailable where the controller moved before it came."""
        answered = asyncio.ensure_future(answer)
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait((answered, moved), return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return answered.result()
            raise BrokerNotAvailable("another broker became the controller during the call")
        finally:
            answered.cancel()
            moved.cancel()

    async def call(self, method: str, request: Any) -> Any:
        """One unary call of PeerService to the controller. Raises BrokerNotAvailable where it cannot be reached."""
        stub = peer_pb2_grpc.PeerServiceStub(await self._controller_channel())
        try:
            return await self._unless_moved(getattr(stub, method)(request, timeout=CALL_TIMEOUT_S))
        except CALL_ERRORS as error:
            raise BrokerNotAvailable(
                f"the controller, {self._channel_peer}, did not answer {method}: {reason(error)}"
            ) from error
        except asyncio.CancelledError:  # also raised by a call whose channel another call has closed
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise BrokerNotAvailable(f"the controller moved before it answered {method}") from None

    async def _controller_channel(self) -> grpc.aio.Channel:
        peer = self._find_controller()
        if peer is None:
            raise BrokerNotAvailable("this broker knows no controller yet")
        if self._channel is None or peer != self._channel_peer:
            former = self._channel
            self._channel, self._channel_peer = self._channels.open(*peer), peer
            if former is not None:
                await former.close()
        return self._channel

    # -- registration

    async def register(self, request: peer_pb2.RegisterRequest) -> peer_pb2.RegisterResponse:
        """Register until the controller accepts. A final refusal is raised. A lasting temporary one has one line in the
        log."""
        began_ms, is_logged = now_ms(), False
        while True:
            try:
                answer: peer_pb2.RegisterResponse = await self.call("Register", request)
                if error := error_from_wire(answer.error):
                    raise error
            except RetriableError as error:
                logger.debug("the controller has not registered this broker yet", error=str(error))
                if not is_logged and now_ms() - began_ms > REGISTER_QUIETLY_MS:
                    is_logged = True
                    logger.warning(
                        "this broker waits for its registration: make sure that a majority of the voters runs and can "
                        "be reached, and that no other process runs under its id",
                        broker=self._broker_id,
                        error=str(error),
                    )
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self.broker_epoch = answer.broker_epoch
            return answer

    # -- heartbeats

    def beat_now(self) -> None:
        """Send the next heartbeat at once, with a change that the controller should know."""
        self._beat_now.set()

    async def keep_beating(self) -> None:
        """Send heartbeats until cancelled. Raises StaleBrokerEpoch after a registration of another life of this broker,
        and BrokerIdNotRegistered after the controller has forgotten the broker."""
        while True:
            try:
                await self._beat()
            except (StaleBrokerEpoch, BrokerIdNotRegistered):
                raise
            except STREAM_ERRORS as error:
                logger.debug("the heartbeat stream broke", error=str(error) or type(error).__name__)
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _beat(self) -> None:
        peer = self._find_controller()
        if peer is None:
            raise BrokerNotAvailable("this broker knows no controller yet")
        stream = await self._channels.open_stream(*peer, HEARTBEAT)
        try:
            answers = stream.received()
            while True:
                self._beat_now.clear()
                sent_ms = now_ms()
                await stream.write(StreamMessage(self._heartbeat()))
                timeout_s = max(5 * self._interval_s, 1.0)
                async with asyncio.timeout(timeout_s):  # wait_for may drop a cancellation (Python 3.11)
                    answer = await self._unless_moved(anext(answers, None))
                if answer is None:
                    raise BrokerNotAvailable("the controller ended the heartbeat stream")
                self._answered(answer.message, sent_ms)
                await _wait(self._beat_now, self._interval_s)
        finally:
            stream.cancel()

    def _heartbeat(self) -> peer_pb2.HeartbeatRequest:
        offline, disk = list(self._sources.offline_replicas()), self._sources.disk_answer()
        return peer_pb2.HeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=self._sources.metadata_offset(),
            wants_stop=self.wants_stop,
            offline_replicas=[replica.key.to_wire() for replica in offline],
            damaged_replicas=[replica.key.to_wire() for replica in offline if replica.damaged],
            undecided_partitions=[key.to_wire() for key in self._sources.undecided_partitions()],
            late_cleanings=[key.to_wire() for key in self._sources.late_cleanings()],
            no_space=self._sources.no_space(),
            disk_stalled=disk >= DiskAnswer.STALLED,
            disk_is_slow=disk >= DiskAnswer.SLOW,
            recovered_replicas=self._sources.unsettled_replicas(),
        )

    def _answered(self, answer: peer_pb2.HeartbeatResponse, sent_ms: float) -> None:
        error = error_from_wire(answer.error)
        if isinstance(error, (StaleBrokerEpoch, BrokerIdNotRegistered)):
            raise error
        if error is not None:
            raise BrokerNotAvailable(str(error))
        self.answered_ms = now_ms()
        self._session_goes_on(sent_ms, sent_ms + answer.session_timeout_ms, answer.committed_end_offset)
        if answer.should_stop:
            self.should_stop.set()
        self.fenced = answer.fenced

    # -- ISR proposals and producer ids

    async def propose(self, effects: Sequence[ProposeInSyncReplicas]) -> list[ProposalAnswer | None]:
        """The controller's answers to at most MAX_ADMIN_PARTITIONS proposals. None where there was none: the core
        proposes again."""
        request = peer_pb2.ProposeInSyncReplicasRequest(
            client=self._client,
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            proposals=[_proposal(effect) for effect in effects],
        )
        nothing: list[ProposalAnswer | None] = [None] * len(effects)
        try:
            answer: peer_pb2.ProposeInSyncReplicasResponse = await self.call("ProposeInSyncReplicas", request)
        except MinilogError as error:
            logger.debug("the controller did not answer ISR proposals", proposals=len(effects), error=str(error))
            return nothing
        whole = error_from_wire(answer.error)
        if whole is not None:
            return nothing if whole.retriable else [ProposalAnswer(whole)] * len(effects)
        if len(answer.answers) != len(effects):
            return nothing
        return [ProposalAnswer(error_from_wire(one.error)) for one in answer.answers]

    async def allocate_producer_ids(self) -> IdBlock:
        """A fresh block of producer ids for this broker to hand out."""
        request = peer_pb2.AllocateProducerIdsRequest(
            client=self._client, broker_id=self._broker_id, broker_epoch=self.broker_epoch
        )
        answer: peer_pb2.AllocateProducerIdsResponse = await self.call("AllocateProducerIds", request)
        if error := error_from_wire(answer.error):
            raise error
        ids = range(answer.first_producer_id, answer.first_producer_id + answer.count)
        return IdBlock(ids, answer.committed_end_offset)

    async def create_internal_topic(self, name: str) -> None:
        """Have the controller create `__transactions` or `__groups`. Raises the controller's error."""
        request = peer_pb2.CreateInternalTopicRequest(
            client=self._client, broker_id=self._broker_id, broker_epoch=self.broker_epoch, name=name
        )
        answer: peer_pb2.CreateInternalTopicResponse = await self.call("CreateInternalTopic", request)
        if error := error_from_wire(answer.error):
            raise error

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


def _proposal(effect: ProposeInSyncReplicas) -> peer_pb2.InSyncReplicasProposal:
    return peer_pb2.InSyncReplicasProposal(
        partition_id=effect.key.to_wire(),
        leader_epoch=effect.leader_epoch,
        partition_epoch=effect.partition_epoch,
        in_sync_replicas=[
            peer_pb2.InSyncReplica(broker_id=broker, broker_epoch=epoch) for broker, epoch in effect.members
        ],
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
