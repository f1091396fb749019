"""What a life serves: the handlers of all services, as server/{data,metadata,admin,peer}_service.py have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilog.errors import (
    BrokerNotAvailable,
    InvalidArgument,
    InvalidRequiredAcks,
    MinilogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    wire_error,
)
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, metadata_pb2, peer_pb2
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import AnswerProduce
from minilog_broker.server.services.data_service import _transaction
from minilog_broker.server.services.metadata_service import _broker, _partition
from tests.simulation.controlling import CALLS
from tests.simulation.network import Respond
from tests.simulation.pump import Pump
from tests.simulation.stream import End, Stream
from tests.simulation.touched import Answered, Sent
from tests.simulation.transaction_serving import METHODS, TransactionServing
from tests.simulation.trim_serving import TrimServing

if TYPE_CHECKING:
    from minilog_broker.controller.image import TopicImage
    from tests.simulation.life import Life

ACKS = (0, 1, -1)


class Session:
    """A session of a follower or consumer, served here; `refused` ends it, behind what it says."""

    __slots__ = ("end", "pump", "refused", "session_id")

    def __init__(self, session_id: int, end: End) -> None:
        self.session_id = session_id
        self.end = end
        self.pump: Pump
        self.refused: MinilogError | None = None


class ProduceStream:
    """One client's produce stream: what is answered and not yet sent."""

    __slots__ = ("alive", "pump", "results", "sign")

    def __init__(self) -> None:
        self.results: list[data_pb2.ProduceResult] = []
        self.sign = False
        self.alive = True
        self.pump: Pump

    def take(self) -> data_pb2.ProduceResponse | None:
        """All that is ready; an empty message as a sign of life when due."""
        if not self.results and not self.sign:
            return None
        self.sign = False
        results, self.results = self.results, []
        return data_pb2.ProduceResponse(results=results)


@dataclass(frozen=True, slots=True)
class ProduceTicket:
    """Where the answer to one produce entry goes."""

    stream: ProduceStream
    correlation_id: int
    partition_id: common_pb2.PartitionId
    key: PartitionKey
    acks: int
    batch: Buffer


class Serving:
    """See the module's text: a network.Host."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.process = life.process
        self._session_ids = itertools.count(1)
        self._transactions = TransactionServing(life)
        self.trims = TrimServing(life)
        self._keepalive_ms = life.plan.session_keepalive_ms
        self._streams: dict[str, Callable[[Stream], None]] = {
            "Replicate": self._replicate,
            "Heartbeat": self._heartbeat,
            "FetchSnapshot": lambda stream: life.quorum_part.voting.serve_snapshot(stream),
            "Produce": self._produce_stream,
            "Fetch": self._fetch_stream,
        }

    # -- unary calls

    def serve_call(self, method: str, request: Any, respond: Respond) -> None:
        life = self._life
        if method in CALLS:
            life.controlling.ask(method, request, respond)
        elif method == "GetMetadata":
            respond(self._metadata(request))
        elif method == "ListOffsets":
            results = [life.manager.list_offsets(entry, life.now_ms) for entry in request.entries]
            life.replicas.run()
            respond(metadata_pb2.ListOffsetsResponse(results=results))
        elif method == "Vote":
            life.quorum_part.voting.vote_asked(request, respond)
        elif method == "BeginQuorumEpoch":
            life.quorum_part.voting.epoch_begun(request, respond)
        elif method in METHODS:
            self._transactions.serve(method, request, respond)
        elif method == "DeleteRecords":
            self.trims.serve(request, respond)
        elif method == "InitProducerId":
            self._init_producer_id(respond)
        else:
            raise AssertionError(f"nothing serves {method}")

    def _metadata(self, request: metadata_pb2.GetMetadataRequest) -> metadata_pb2.GetMetadataResponse:
        life = self._life
        if not life.is_registered:
            error = BrokerNotAvailable("this broker is starting: ask another one, or again")
            return metadata_pb2.GetMetadataResponse(error=wire_error(error), controller_id=-1, metadata_offset=-1)
        image = life.image
        wanted = list(image.topic_ids) if request.all_topics else list(request.topic_names)
        topics = [self._topic_by_name(name) for name in wanted]
        topics.extend(self._topic_by_id(topic_id) for topic_id in request.topic_ids if not request.all_topics)
        return metadata_pb2.GetMetadataResponse(
            cluster_id=image.cluster_id or "",
            controller_id=life.quorum_part.controller_id,
            controller_epoch=life.quorum.epoch,
            metadata_offset=image.end_offset,
            brokers=[_broker(each) for each in image.brokers.values()],
            topics=topics,
        )

    def _topic_by_name(self, name: str) -> metadata_pb2.TopicMetadata:
        topic_id = self._life.image.topic_ids.get(name)
        if topic_id is None:
            first_use = self._life.coordinating.calls.first_use(name)
            error = first_use or UnknownTopicOrPartition(f"no topic {name}")
            return metadata_pb2.TopicMetadata(error=wire_error(error), name=name)
        return self._topic(self._life.image.topics[topic_id])

    def _topic_by_id(self, topic_id: bytes) -> metadata_pb2.TopicMetadata:
        topic = self._life.image.topics.get(topic_id)
        if topic is None:
            error = UnknownTopicId(f"no topic has the id {topic_id.hex()}")
            return metadata_pb2.TopicMetadata(error=wire_error(error), topic_id=topic_id)
        return self._topic(topic)

    def _topic(self, topic: TopicImage) -> metadata_pb2.TopicMetadata:
        image = self._life.image
        return metadata_pb2.TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            configs=image.shown_config(topic.topic_id),
            partitions=[_partition(state) for state in image.partitions_of(topic.topic_id)],
        )

    def _init_producer_id(self, respond: Respond) -> None:
        def tell(found: int | MinilogError) -> None:
            if isinstance(found, int):
                respond(metadata_pb2.InitProducerIdResponse(producer_id=found, producer_epoch=0))
            else:
                error = wire_error(found)
                respond(metadata_pb2.InitProducerIdResponse(error=error, producer_id=-1, producer_epoch=-1))

        self._life.link.next_producer_id(tell)

    # -- streams

    def serve_stream(self, method: str, stream: Stream) -> None:
        self._streams[method](stream)

    def _heartbeat(self, stream: Stream) -> None:
        end, controlling = stream.server, self._life.controlling
        known: list[tuple[int, int]] = []

        def received(request: peer_pb2.HeartbeatRequest) -> None:
            known[:] = [(request.broker_id, request.broker_epoch)]
            controlling.heartbeat(request, end.send)

        def closed(_: object) -> None:
            if known:
                controlling.heartbeat_stream_broke(*known[0])

        end.on_message, end.on_closed = received, closed

    def _replicate(self, stream: Stream) -> None:
        """The first message says whose session it is."""
        end, life = stream.server, self._life

        def first(request: peer_pb2.ReplicateRequest) -> None:
            if request.cluster_metadata:
                self._serve_quorum(stream, request)
            elif request.broker_epoch < 0:
                error = InvalidArgument("a session without a broker epoch: register first")
                end.send(peer_pb2.ReplicateResponse(error=wire_error(error)))
                end.close()
            else:
                self._serve_follower(end, request)
            life.replicas.run()

        end.on_message = first

    def _serve_quorum(self, stream: Stream, first: peer_pb2.ReplicateRequest) -> None:
        quorum, life = self._life.quorum_part, self._life
        end = stream.server
        session = Session(next(self._session_ids), end)
        quorum.sessions[session.session_id] = session
        heard = (first.broker_id, life.node.node_id)

        def received(request: peer_pb2.ReplicateRequest) -> None:
            life.touched.heard[heard] = None
            quorum.replicate_request(session.session_id, request)

        session.pump = Pump(self.process, end, lambda: self._take(session, quorum.next_message))
        end.on_message = received
        end.on_closed = lambda _: quorum.close_session(session.session_id)
        quorum.open_session(session.session_id, first)
        received(first)

    def _serve_follower(self, end: End, first: peer_pb2.ReplicateRequest) -> None:
        life = self._life
        replicas, manager = life.replicas, life.manager
        session = Session(next(self._session_ids), end)
        replicas.sessions[session.session_id] = session

        def received(request: peer_pb2.ReplicateRequest) -> None:
            for position in request.positions:
                life.touch(PartitionKey(position.partition_id.topic_id, position.partition_id.partition))
            for progress in request.progress:
                life.touch(PartitionKey(progress.partition_id.topic_id, progress.partition_id.partition))
            manager.replicate_request(session.session_id, request, life.now_ms)
            replicas.run()

        session.pump = Pump(self.process, end, lambda: self._take(session, self._next_data))
        end.on_message = received
        end.on_closed = lambda _: replicas.close_session(session.session_id)
        manager.open_follower_session(session.session_id, first.broker_id, first.broker_epoch, life.now_ms)
        replicas.run()
        received(first)

    def _next_data(self, session_id: int) -> Any | None:
        message = self._life.manager.next_message(session_id, self._life.now_ms)
        self._life.replicas.run()
        return message

    def _take(self, session: Session, take: Callable[[int], Any | None]) -> Any | None:
        """The next message of a session, or its refusal and then its end."""
        if session.refused is None:
            return take(session.session_id)
        session.end.send(refusal(session.refused))
        self._end(session)
        return None

    def _end(self, session: Session) -> None:
        session.end.close()
        self._life.quorum_part.close_session(session.session_id)
        self._life.replicas.close_session(session.session_id)

    # -- clients' data

    def _produce_stream(self, stream: Stream) -> None:
        produce, end = ProduceStream(), stream.server
        produce.pump = Pump(self.process, end, produce.take)
        end.on_message = lambda request: self._produce(produce, request)

        def closed(_: object) -> None:
            produce.alive = False

        def sign(_: object) -> None:
            if produce.alive and not end.closed:
                produce.sign = True
                produce.pump.wake()
                self.process.after(self._keepalive_ms, sign)

        end.on_closed = closed
        self.process.after(self._keepalive_ms, sign)

    def _produce(self, stream: ProduceStream, received: StreamMessage[data_pb2.ProduceRequest]) -> None:
        life, request = self._life, received.message
        for entry, payload in zip(request.entries, received.payloads, strict=True):
            batch = bytes(payload)
            key = PartitionKey(entry.partition_id.topic_id, entry.partition_id.partition)
            ticket = ProduceTicket(stream, entry.correlation_id, entry.partition_id, key, request.acks, batch)
            life.touch(key)
            if request.acks not in ACKS:
                refused = InvalidRequiredAcks(f"acks={request.acks} is not one of 0, 1 and all (-1 on the wire)")
                self.answer_produce(AnswerProduce(ticket, refused, -1, -1, -1, -1))
                continue
            said = (entry.leader_epoch, request.acks, request.timeout_ms, batch, life.now_ms, _transaction(entry))
            life.manager.produce(ticket, key, *said)
        life.replicas.run()

    def answer_produce(self, effect: AnswerProduce) -> None:
        """Put the result on its stream."""
        ticket = effect.ticket
        assert isinstance(ticket, ProduceTicket)
        life = self._life
        life.touch(ticket.key)  # whatever moved the high watermark: a session that closed does, and names no partition
        answered = Answered(life.node.node_id, life.number, ticket.key, ticket.acks, ticket.batch, effect)
        life.touched.answers.append(answered)
        ticket.stream.results.append(
            data_pb2.ProduceResult(
                correlation_id=ticket.correlation_id,
                partition_id=ticket.partition_id,
                error=None if effect.error is None else wire_error(effect.error),
                base_offset=effect.base_offset,
                log_start_offset=effect.log_start_offset,
                leader_id=effect.leader_id,
                leader_epoch=effect.leader_epoch,
            )
        )
        ticket.stream.pump.wake()

    def _fetch_stream(self, stream: Stream) -> None:
        life = self._life
        end = stream.server
        session = Session(next(self._session_ids), end)

        def received(request: data_pb2.FetchRequest) -> None:
            manager = life.manager
            if session.session_id not in life.replicas.sessions:
                life.replicas.sessions[session.session_id] = session
                manager.open_consumer_session(session.session_id, request.isolation_level, life.now_ms)
            manager.fetch_request(session.session_id, request, life.now_ms)
            life.replicas.run()
            session.pump.wake()

        def take() -> Any | None:
            if session.refused is not None:  # ends the stream; the client opens another
                self._end(session)
                return None
            message = self._next_data(session.session_id)
            if message is not None and life.plan.trims_per_s:
                for run, batches in zip(message.message.runs, message.payloads, strict=True):
                    key = PartitionKey(run.partition_id.topic_id, run.partition_id.partition)
                    if batches:
                        life.touched.sent.append(Sent(life.node.node_id, key, batches))
            return message

        session.pump = Pump(self.process, end, take)
        end.on_message = received
        end.on_closed = lambda _: life.replicas.close_session(session.session_id)


def refusal(refused: Any) -> peer_pb2.ReplicateResponse:
    """The message that refuses a session as a whole."""
    error = refused if isinstance(refused, MinilogError) else refused.error
    response = peer_pb2.ReplicateResponse(error=wire_error(error))
    if (epoch := getattr(refused, "quorum_epoch", None)) is not None:
        response.quorum_epoch = epoch
        response.quorum_leader_id = refused.quorum_leader_id
    return response
