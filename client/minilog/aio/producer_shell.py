"""The driver of a producer. It carries out the decisions of the sender: streams, metadata, producer ids, completions.

It lives on one event loop. Both producers, blocking and asyncio, use it. Threads of the program call only the
accumulator and `wake_from_thread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from minilog.client_config import ClientConfig
from minilog.errors import (
    AuthenticationFailed,
    InvalidTxnState,
    MinilogError,
    ProducerFenced,
    TimedOut,
    error_from_wire,
)
from minilog.net.broker_streams import BrokerStreams
from minilog.net.metadata_refreshes import MetadataRefreshes
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import Runtime, now_ms, now_s
from minilog.producer.accumulator import Accumulator
from minilog.producer.batch import Batch, RecordsCompletion
from minilog.producer.producer_effects import (
    Connect,
    Delivered,
    Effect,
    Failed,
    LostRecords,
    NeedProducerId,
    RefreshMetadata,
    Send,
)
from minilog.producer.sender import Sender
from minilog.stream_messages import PRODUCE, StreamMessage
from minilog.transactions.messages import Enlistment, WrittenPartition
from minilog.v1 import data_pb2, metadata_pb2, metadata_pb2_grpc

_LONGEST_WAIT_S = 1.0
_log = logging.getLogger(__name__)


class ProducerShell:
    """The I/O around a producer's sender.

    Only the event loop may call `start` and the coroutines. Every thread may use `accumulator`.
    """

    def __init__(
        self, config: ClientConfig, runtime: Runtime, completion: Callable[[Batch], Any] = RecordsCompletion
    ) -> None:
        self.config = config
        self.cluster = NetworkClient(config, runtime)
        chance = runtime.chance()
        self.accumulator = Accumulator(
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            chance=chance,
            available=self.cluster.cache.available_partitions,
            completion=completion,
        )
        self._sender = Sender(config, self.accumulator, self.cluster.cache, chance)
        self._wake = asyncio.Event()
        self._refreshes = MetadataRefreshes(self.cluster.backoff(), config.metadata_max_age_ms / 1000.0)
        self._streams = BrokerStreams(
            self.cluster,
            PRODUCE,
            keepalive_ms=config.session_keepalive_ms,
            lost=self._lost,
            doubted=self._refreshes.want,
        )
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._participant: object = None  # the owner of the open transaction
        self.is_closed = False  # all records are delivered or reported
        self._silent_until_ms = 0.0  # until then no warning of losses under acks=0

    def start(self) -> None:
        """Begin to send. Call it on the loop on which the driver will live. Raises RuntimeError on another loop."""
        self.cluster.home.check()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.spawn(self._send_forever())
            self.spawn(self._refresh_forever())

    @property
    def has_lost_its_loop(self) -> bool:
        """Whether the event loop has ended, so that this producer sends no more."""
        return self._loop is not None and self._loop.is_closed()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a task for this work. It ends at the latest with the producer."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def wake(self) -> None:
        """Let the driver look for work now. Call it on the loop."""
        self._wake.set()

    def wake_from_thread(self) -> None:
        """Let the driver look for work now. Any thread may call it."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the producer
            self._loop.call_soon_threadsafe(self._wake.set)

    async def settled_something(self, timeout_s: float) -> None:
        """Return when a batch was settled, or after `timeout_s`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await asyncio.wait([waiter], timeout=max(0.0, timeout_s))

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all records so far are settled (acks=0: written to the brokers' connections).

        False if that takes longer than `timeout_s`."""
        self.cluster.home.check()
        target = self.accumulator.begin_flush()
        self.wake()
        deadline_s = now_s() + timeout_s
        while not self.accumulator.is_settled(target):
            if now_s() >= deadline_s:
                return False
            await self.settled_something(deadline_s - now_s())
        return True

    # -- transactions

    def reserve(self, participant: object) -> None:
        """Let only this participant begin a transaction, until `release`. Raises InvalidTxnState if another participant
        has an open one."""
        if self._participant is not None:
            raise InvalidTxnState("a transaction of this producer is open: a producer has one at a time")
        self._participant = participant

    def release(self) -> None:
        self._participant = None

    def begin(self, enlistment: Enlistment) -> None:
        """Begin the transaction. All records from now on belong to it."""
        self._sender.begin(enlistment)
        self.wake()

    async def finish(self) -> tuple[WrittenPartition, ...]:
        """Wait until all records of the transaction are acknowledged. Returns the partitions that have them.

        Raises the reason if the transaction has failed. Then the caller calls `drop`."""
        self.accumulator.refuse(InvalidTxnState("the transaction is about to be committed: send in another one"))
        within_ms = self.config.delivery_timeout_ms
        if not await self.flush(within_ms / 1000.0 + 1.0):
            raise TimedOut(f"not all that was sent in the transaction was acknowledged within {within_ms} ms")
        failure = self._sender.identity.failure
        if failure is not None:
            kind = ProducerFenced if isinstance(failure, ProducerFenced) else InvalidTxnState
            raise kind(f"the transaction has failed, and is aborted: {failure.code}: {failure}") from failure
        return self._sender.end()

    def fail(self, error: MinilogError) -> None:
        """Fail the open transaction, if there is one. Then it can only be aborted. The producer reports its remaining
        records."""
        self._sender.identity.fail(error)
        self.wake()

    def drop(self) -> None:
        """Leave the open transaction, if there is one, without a commit."""
        if self._sender.identity.transaction is not None:
            self._sender.identity.fail(InvalidTxnState("it was aborted"))
            self._carry_out(self._sender.poll(now_ms(), self.cluster.runtime.wall_us()))
            self._sender.end()

    # -- the end

    async def close(self, timeout_s: float) -> None:
        """Deliver records within `timeout_s`, report the rest, and close the connections."""
        self.cluster.home.check()
        self.accumulator.close()
        try:
            if self._loop is not None:
                deadline_s = now_s() + timeout_s
                await self.flush(timeout_s)
                if self.config.acks == 0:
                    await self._finish_streams(deadline_s)
        finally:
            self._carry_out(self._sender.abandon())
            self.is_closed = True
            for task in list(self._tasks):
                task.cancel()
            await self._streams.close_all()
            await self.cluster.close()

    async def _finish_streams(self, deadline_s: float) -> None:
        """End the streams under acks=0, where brokers acknowledge no records. When this side has ended a stream and the
        broker ends it, too, the broker has taken all written records."""
        for broker_id, all_taken in (await self._streams.finish(deadline_s - now_s())).items():
            if not all_taken:
                _log.warning("acks=0: broker %s has not taken all that was sent; the last of it may be lost", broker_id)

    async def _send_forever(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._carry_out(self._sender.poll(now_ms(), self.cluster.runtime.wall_us()))
            except Exception:  # after a bug the time-outs must still end the pending futures
                _log.exception("the producer met an unexpected error")
            wait_s = (self._sender.next_wake_ms(now_ms()) - now_ms()) / 1000.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.001), _LONGEST_WAIT_S)):
                    await self._wake.wait()

    def _carry_out(self, effects: list[Effect]) -> None:
        settled: list[Batch] = []
        for effect in effects:
            match effect:
                case Send(broker_id, request):
                    self._streams.send(broker_id, request)
                case Delivered(batch, base_offset):
                    batch.completion.delivered(base_offset)
                    settled.append(batch)
                case Failed(batch, error):
                    batch.completion.failed(error)
                    settled.append(batch)
                case Connect(broker_id):
                    self._connect(broker_id)
                case RefreshMetadata():
                    self._refreshes.want()
                case NeedProducerId():
                    self.spawn(self._ask_for_id())
                case LostRecords(error):
                    self._tell_of_loss(error)
        for batch in settled:
            self.accumulator.settled(batch)
        if settled:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self.wake()

    def _tell_of_loss(self, error: MinilogError) -> None:
        """Warn of records that a broker refused under acks=0, at most once a second. No future gets that error."""
        if now_ms() >= self._silent_until_ms:
            self._silent_until_ms = now_ms() + 1000.0
            _log.warning("acks=0: records were refused and are lost: %s", error)

    def _connect(self, broker_id: int) -> None:
        keepalive_ms = self.config.session_keepalive_ms
        first = data_pb2.ProduceRequest(client=self.cluster.identity, acks=self.config.acks, keepalive_ms=keepalive_ms)

        def opened() -> None:
            self._streams.send(broker_id, StreamMessage(first))
            self._sender.connection_opened(broker_id)
            self.wake()

        def received(response: StreamMessage[data_pb2.ProduceResponse]) -> None:
            if response.message.results:
                self._sender.answered(broker_id, response.message, now_ms())
                self.wake()

        def written(request: StreamMessage[data_pb2.ProduceRequest]) -> None:
            if request.message.acks == 0:
                self._sender.written(request.message)
                self.wake()

        self._streams.open(
            broker_id,
            keepalive=lambda: data_pb2.ProduceRequest(acks=self.config.acks),
            opened=opened,
            received=received,
            written=written,
        )

    def _lost(self, broker_id: int, refusal: MinilogError | None) -> None:
        self._sender.connection_lost(broker_id, now_ms())
        if refusal is not None:
            self._sender.connection_refused(broker_id, refusal)
        self.wake()

    async def _ask_for_id(self) -> None:
        request = metadata_pb2.InitProducerIdRequest(client=self.cluster.identity)
        try:
            answer = await self.cluster.ask_any(
                lambda channel, timeout: metadata_pb2_grpc.MetadataServiceStub(channel).InitProducerId(
                    request, timeout=timeout
                ),
                self.cluster.deadline(),
            )
            if (error := error_from_wire(answer.error)) is not None:
                raise error
            self._sender.producer_id_given(answer.producer_id, answer.producer_epoch, answer.producer_proof)
        except MinilogError as error:
            _log.debug("no producer id yet, asking again: %s", error)
            self._sender.producer_id_refused(error, now_ms())
        self.wake()

    async def _refresh_forever(self) -> None:
        while True:
            await self._refreshes.due()
            if self.cluster.cache.topics:
                try:
                    await self.cluster.refresh(list(self.cluster.cache.topics))
                except AuthenticationFailed as refusal:
                    self._sender.metadata_refused(refusal)
                except MinilogError as error:
                    _log.debug("no metadata yet, asking again: %s", error)
                self._sender.metadata_changed(now_ms())
                self.wake()
