"""DataService: produce and fetch, each one bidirectional stream; and the deletion of records, a call.

A produce stream gathers its answers while an earlier message is on its way, so that one message carries all that are
ready. Nothing waits here: the core answers at the high watermark, at a time-out, or when the leadership is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from minilog.errors import InvalidRequiredAcks, MinilogError, wire_error
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, data_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.replication.replica_effects import AnswerDeleteRecords, AnswerProduce
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.access.refusals import Refusals
from minilog_broker.server.clients.streams import pump
from minilog_broker.server.runtime.observer import BrokerObserver, CallObserver
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.services.access_checks import DataAccess
from minilog_broker.server.services.batch_validation import BatchValidation, Validated
from minilog_broker.server.services.fetch_parts import parts_of_request
from minilog_broker.server.shells.replication_shell import ReplicationShell

if TYPE_CHECKING:
    from minilog_broker.server.ingress.rules.client_stream import ClientStream

_Message = TypeVar("_Message")
ACKS = (0, 1, -1)
MAX_BACKLOG_BYTES = 64 << 20  # some tenths of a second of a disk: more would only delay every answer
MAX_UNTAKEN_RESULTS = 10_000
ROOM_PAUSE_S = 0.005


@dataclass(slots=True)
class ProduceStream:
    """One client's produce stream, with the answers that are not sent yet."""

    keepalive_ms: float
    caller: Caller
    observer: CallObserver
    proven: Claim | None = None  # the last valid one: a producer writes under one id for a long time
    results: list[data_pb2.ProduceResult] = field(default_factory=list)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    paced: asyncio.Event = field(default_factory=asyncio.Event)  # set when the client has named its interval
    sent_at_ms: float = field(default_factory=now_ms)

    def pace(self, keepalive_ms: float) -> None:
        """Send at least this often from now on."""
        self.keepalive_ms = keepalive_ms
        self.paced.set()

    def answer(self, result: data_pb2.ProduceResult) -> None:
        self.results.append(result)
        self.ready.set()

    def next_message(self) -> StreamMessage[data_pb2.ProduceResponse] | None:
        """All answers that are ready, or an empty message as a sign of life when one is due; else None."""
        if self.results:
            results, self.results = self.results, []
        elif now_ms() - self.sent_at_ms >= self.keepalive_ms:
            results = []
        else:
            return None
        self.sent_at_ms = now_ms()
        return StreamMessage(data_pb2.ProduceResponse(results=results))


@dataclass(frozen=True, slots=True)
class ProduceTicket:
    """The stream and the place for the answer to one produce entry."""

    stream: ProduceStream
    correlation_id: int
    key: PartitionKey
    came_ms: float
    """Not a part of the request, which would keep its batches in memory until the answer."""


def answer_produce(effect: AnswerProduce) -> None:
    """Carry out AnswerProduce: put the result on its stream."""
    ticket = effect.ticket
    assert isinstance(ticket, ProduceTicket)
    ticket.stream.observer.took((now_ms() - ticket.came_ms) / 1000.0)
    ticket.stream.answer(
        data_pb2.ProduceResult(
            correlation_id=ticket.correlation_id,
            partition_id=ticket.key.to_wire(),
            error=None if effect.error is None else wire_error(effect.error),
            base_offset=effect.base_offset,
            log_start_offset=effect.log_start_offset,
            leader_id=effect.leader_id,
            leader_epoch=effect.leader_epoch,
        )
    )


def answer_delete_records(effect: AnswerDeleteRecords) -> None:
    """Carry out AnswerDeleteRecords: give the result to the waiting call, if there still is one."""
    assert isinstance(effect.ticket, asyncio.Future)
    if not effect.ticket.done():
        effect.ticket.set_result(effect)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The part of a produce request about one batch."""

    key: PartitionKey
    correlation_id: int
    leader_epoch: int
    transaction: TransactionalWrite | None
    producer_proof: bytes


@dataclass(slots=True)
class _Produced:
    """A produce request, and its batches as they came."""

    acks: int
    timeout_ms: int
    keepalive_ms: int
    entries: list[_Entry]
    batches: Sequence[Buffer]
    validated: list[Validated]

    @classmethod
    def of(cls, received: StreamMessage[data_pb2.ProduceRequest]) -> _Produced:
        request = received.message
        entries = [
            _Entry(
                PartitionKey.of(entry.partition_id),
                entry.correlation_id,
                entry.leader_epoch,
                _transaction(entry),
                entry.producer_proof,
            )
            for entry in request.entries
        ]
        return cls(request.acks, request.timeout_ms, request.keepalive_ms, entries, received.payloads, [])

    @property
    def keys(self) -> list[PartitionKey]:
        return [entry.key for entry in self.entries]


class DataService(data_pb2_grpc.DataServiceServicer):
    """The gRPC service for records. One per broker. Each call of Produce and Fetch has a stream of its own. `now_us`:
    the wall clock, None while it is not trusted."""

    def __init__(
        self,
        replicas: ReplicationShell,
        settings: ReplicationSettings,
        image: MetadataImage,
        observer: BrokerObserver,
        now_us: Callable[[], int | None],
    ) -> None:
        self._now_us = now_us
        self._access, self._owners = DataAccess(image), ProducerOwners(image)
        self._produced, self._fetched = observer.call("Produce"), observer.call("Fetch")
        self._replicas = replicas
        self._validation = BatchValidation(replicas.manager.led_config, now_us)
        self._settings = settings

    async def Produce(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamMessage[data_pb2.ProduceRequest]], context: ClientStream
    ) -> None:
        stream = ProduceStream(self._settings.session_keepalive_ms, context.caller, self._produced)
        keepalive = asyncio.ensure_future(_wake_for_keepalives(stream))
        try:
            await pump(
                self._validated(request_iterator),
                lambda produced: self._produce(stream, produced),
                stream.next_message,
                context.write,
                stream.ready,
                lambda: self._room(stream),
            )
        finally:
            keepalive.cancel()

    async def _room(self, stream: ProduceStream) -> None:
        """Wait while the disk is behind, or while the client does not take its answers."""
        while self._replicas.backlog_bytes > MAX_BACKLOG_BYTES or len(stream.results) > MAX_UNTAKEN_RESULTS:  # noqa: ASYNC110
            await asyncio.sleep(ROOM_PAUSE_S)

    async def _validated(
        self, incoming: AsyncIterator[StreamMessage[data_pb2.ProduceRequest]]
    ) -> AsyncIterator[_Produced]:
        """The messages in order. The next one is taken when the one before it is validated."""
        async for request in incoming:
            produced = _Produced.of(request)
            del request  # no large message stays in memory during the wait for the next one
            produced.validated = await self._validation.validate(produced.keys, produced.batches)
            yield produced
            del produced

    def _produce(self, stream: ProduceStream, produced: _Produced) -> None:
        manager, replicas = self._replicas.manager, self._replicas
        if produced.keepalive_ms:
            stream.pace(self._settings.client_keepalive_ms(produced.keepalive_ms))
        if produced.acks not in ACKS:
            self._refuse_acks(stream, produced)
            return
        now_us = self._now_us()
        with stream.caller.refusals() as refusals:
            for entry, batch, outcome in zip(produced.entries, produced.batches, produced.validated, strict=True):
                ticket = ProduceTicket(stream, entry.correlation_id, entry.key, came_ms := now_ms())
                if (refusal := self._refusal(stream, refusals, entry, batch)) is not None:
                    answer_produce(AnswerProduce(ticket, refusal, -1, -1, -1, -1))
                    continue
                given = (entry.leader_epoch, produced.acks, produced.timeout_ms, batch, came_ms, entry.transaction)
                manager.produce(ticket, entry.key, *given, outcome, now_us)
        replicas.run()

    def _refusal(self, stream: ProduceStream, refusals: Refusals, entry: _Entry, batch: Buffer) -> MinilogError | None:
        """The refusal of an entry whose caller may not write there, or not under this producer id."""
        if (refusal := self._access.refuses_write(refusals, entry.key, entry.transaction)) is not None:
            return refusal
        name = "" if entry.transaction is None else entry.transaction.transactional_id
        claim = Claim.of(batch, name, entry.producer_proof)
        if claim == stream.proven or (refusal := self._owners.refusal(stream.caller, claim)) is not None:
            return refusal
        stream.proven = claim
        return None

    @staticmethod
    def _refuse_acks(stream: ProduceStream, produced: _Produced) -> None:
        error = InvalidRequiredAcks(f"acks={produced.acks} is not valid: give 0, 1 or all (-1 on the wire)")
        for entry in produced.entries:
            ticket = ProduceTicket(stream, entry.correlation_id, entry.key, now_ms())
            answer_produce(AnswerProduce(ticket, error, -1, -1, -1, -1))

    async def Fetch(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamMessage[data_pb2.FetchRequest]], context: ClientStream
    ) -> None:
        replicas = self._replicas
        session_id = replicas.sessions.open()
        opened = False
        refusals: list[data_pb2.FetchResponse] = []

        def receive(received: StreamMessage[data_pb2.FetchRequest]) -> None:
            nonlocal opened
            request = received.message
            refused = self._access.take_out_refused(context.caller, request)
            if refused.runs:
                refusals.append(refused)
                replicas.sessions.ready(session_id).set()
            if not opened:
                replicas.manager.open_consumer_session(session_id, request, now_ms())
                opened = True
            replicas.fetch(session_id, request)

        def next_message() -> StreamMessage[Any] | None:
            if error := replicas.sessions.refusal(session_id):
                raise error  # ends the stream; the client opens another
            if refusals:
                answer = refusals.pop(0)
                return StreamMessage(answer, [b""] * len(answer.runs))
            return _timed(self._fetched, lambda: replicas.next_message(session_id)) if opened else None

        async def room_to_send() -> None:
            await context.room(is_costly=replicas.manager.is_costly(session_id))

        try:
            ready = replicas.sessions.ready(session_id)
            incoming = in_pieces(request_iterator, context.turns)
            await pump(incoming, receive, next_message, context.write, ready, room_to_send=room_to_send)
        finally:
            replicas.close_session(session_id)

    async def DeleteRecords(  # noqa: N802
        self, request: data_pb2.DeleteRecordsRequest, context: object
    ) -> data_pb2.DeleteRecordsResponse:
        """Answered when all entries are."""
        return data_pb2.DeleteRecordsResponse(results=await asyncio.gather(*self._delete_records(request)))

    def _delete_records(
        self, request: data_pb2.DeleteRecordsRequest
    ) -> list[Coroutine[Any, Any, data_pb2.DeleteRecordsResult]]:
        loop, replicas = asyncio.get_running_loop(), self._replicas
        waiting = []
        for entry in request.entries:
            answered: asyncio.Future[AnswerDeleteRecords] = loop.create_future()
            key = PartitionKey.of(entry.partition_id)
            wanted = DeleteRecordsRequest(answered, entry.before_offset, now_ms() + request.timeout_ms)
            replicas.manager.delete_records(key, entry.leader_epoch, wanted, now_ms())
            waiting.append(_deleted(entry.partition_id, answered))
        replicas.run()
        return waiting


async def _deleted(
    partition_id: common_pb2.PartitionId, answered: asyncio.Future[AnswerDeleteRecords]
) -> data_pb2.DeleteRecordsResult:
    answer = await answered
    error = None if answer.error is None else wire_error(answer.error)
    return data_pb2.DeleteRecordsResult(partition_id=partition_id, error=error, low_watermark=answer.low_watermark)


def _transaction(entry: data_pb2.ProduceEntry) -> TransactionalWrite | None:
    if not entry.HasField("transaction"):
        return None
    return TransactionalWrite(entry.transaction.transactional_id, entry.transaction.coordinator_epoch)


async def in_pieces(
    incoming: AsyncIterator[StreamMessage[data_pb2.FetchRequest]], turns: Turns
) -> AsyncIterator[StreamMessage[data_pb2.FetchRequest]]:
    """The same positions in the same order. The conditions of a long message are read in as many turns as they need."""
    async for received in incoming:
        piece = turns.piece()
        for part in parts_of_request(received.message):
            if piece.is_over():
                piece = await piece.next()
            yield StreamMessage(part)


def _timed(observer: CallObserver, next_message: Callable[[], _Message | None]) -> _Message | None:
    """The next message, with its time given to the observer where there is one."""
    began_ms = now_ms()
    message = next_message()
    if message is not None:
        observer.took((now_ms() - began_ms) / 1000.0)
    return message


async def _wake_for_keepalives(stream: ProduceStream) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.paced.wait(), stream.keepalive_ms / 1000.0)
        stream.paced.clear()
        stream.ready.set()
