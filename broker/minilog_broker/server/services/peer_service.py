"""PeerService: the calls of other brokers to this one.

The data replicas serve Replicate, or the quorum node for the metadata log. The quorum node also serves Vote,
BeginQuorumEpoch and FetchSnapshot. The active controller serves Register, Heartbeat, ProposeInSyncReplicas,
AllocateProducerIds and CreateInternalTopic. The scrub serves DigestRecords and SetCopyAside. StableOffsetAnswers serves
AwaitStableOffsets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from minilog.errors import InvalidArgument, wire_error
from minilog.net.payload_stream import PayloadStream
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2, peer_pb2_grpc
from minilog_broker.controller.controller import Controller
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.services.calls import controller_call
from minilog_broker.server.services.stable_offset_answers import StableOffsetAnswers
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.server.shells.scrub import Scrub


class PeerService(peer_pb2_grpc.PeerServiceServicer):
    """The gRPC service for other brokers. It hands each call to the part of this broker that answers it."""

    def __init__(
        self,
        replicas: ReplicationShell,
        quorum: QuorumShell,
        controller: ControllerShell,
        scrub: Scrub,
        stable_offsets: StableOffsetAnswers,
    ) -> None:
        self._replicas = replicas
        self._stable_offsets = stable_offsets
        self._scrub = scrub
        self._quorum = quorum
        self.controller = controller

    async def Register(self, request: peer_pb2.RegisterRequest, context: object) -> peer_pb2.RegisterResponse:  # noqa: N802
        return await self.controller.register(request)

    async def Heartbeat(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamMessage[peer_pb2.HeartbeatRequest]], context: PayloadStream
    ) -> None:
        incarnation: tuple[int, int] | None = None
        try:
            async for received in request_iterator:
                request = received.message
                incarnation = (request.broker_id, request.broker_epoch)
                await context.write(StreamMessage(await self.controller.heartbeat(request)))
        finally:
            if incarnation is not None:
                self.controller.heartbeat_stream_broke(*incarnation)

    async def Replicate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamMessage[peer_pb2.ReplicateRequest]], context: PayloadStream
    ) -> None:
        received = await anext(request_iterator, None)
        if received is None:
            return
        first = received.message
        if first.cluster_metadata:
            await self._quorum.serve(first, request_iterator, context)
        elif first.broker_epoch < 0:
            error = InvalidArgument(f"broker {first.broker_id} opened a session without a broker epoch: register first")
            await context.write(StreamMessage(peer_pb2.ReplicateResponse(error=wire_error(error))))
        else:
            await self._serve_follower(first, request_iterator, context)

    async def _serve_follower(
        self,
        first: peer_pb2.ReplicateRequest,
        rest: AsyncIterator[StreamMessage[peer_pb2.ReplicateRequest]],
        stream: PayloadStream,
    ) -> None:
        replicas, manager = self._replicas, self._replicas.manager

        def receive(session_id: int, request: peer_pb2.ReplicateRequest) -> None:
            manager.replicate_request(session_id, request, now_ms())
            replicas.run()

        session_id = replicas.sessions.open()
        try:
            manager.open_follower_session(
                session_id, first.broker_id, first.broker_epoch, now_ms(), keepalive_ms=first.keepalive_ms
            )
            replicas.run()
            await replicas.sessions.serve(session_id, first, rest, stream, receive, replicas.next_message)
        finally:
            replicas.close_session(session_id)

    ProposeInSyncReplicas = controller_call(peer_pb2.ProposeInSyncReplicasResponse, Controller.propose_isr)
    AllocateProducerIds = controller_call(peer_pb2.AllocateProducerIdsResponse, Controller.allocate_producer_ids)
    CreateInternalTopic = controller_call(peer_pb2.CreateInternalTopicResponse, Controller.create_internal_topic)

    async def Vote(self, request: peer_pb2.VoteRequest, context: object) -> peer_pb2.VoteResponse:  # noqa: N802
        return await self._quorum.vote(request)

    async def BeginQuorumEpoch(  # noqa: N802
        self, request: peer_pb2.BeginQuorumEpochRequest, context: object
    ) -> peer_pb2.BeginQuorumEpochResponse:
        return self._quorum.begin_quorum_epoch(request)

    async def DigestRecords(  # noqa: N802
        self, request: peer_pb2.DigestRecordsRequest, context: object
    ) -> peer_pb2.DigestRecordsResponse:
        return await self._scrub.answer_digest(request)

    async def SetCopyAside(  # noqa: N802
        self, request: peer_pb2.SetCopyAsideRequest, context: object
    ) -> peer_pb2.SetCopyAsideResponse:
        return await self._scrub.answer_set_aside(request)

    async def AwaitStableOffsets(  # noqa: N802
        self, request: peer_pb2.AwaitStableOffsetsRequest, context: object
    ) -> peer_pb2.AwaitStableOffsetsResponse:
        return await self._stable_offsets.answer(request)

    async def FetchSnapshot(  # type: ignore[override]  # noqa: N802
        self, request: peer_pb2.FetchSnapshotRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        async for piece in self._quorum.send_snapshot(request):
            await context.write(piece)
