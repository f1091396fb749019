"""The driver of a queue's worker. It carries out the decisions of the core (minilog.queues.worker).

    AskLease, RenewLeases, SendSettlements    one call of QueueService each, as a task
    CarryDeadLetters                          a transaction (dead_letters.py), as a task
    BeginReading, EndReading                  records of a batch that is kept (kept_batches.py), and bounded reads of
                                              the consumer's shell, on its open sessions, for the rest
    runs that come                            records, messages, the core's `have_read`

A range whose first offsets retention has taken is read from the log's start on. What is below counts as read. The
program's side waits for messages here, and takes them from the core.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pyarrow as pa

from minilog.aio.consumer_shell import POLL_BYTES, ConsumerShell
from minilog.aio.dead_letters import DeadLetterCarrier
from minilog.client_config import ClientConfig
from minilog.consumer.decode import RECORD_BYTES, DecodeOutcome, decode_all, records
from minilog.consumer.partition import FetchedRun
from minilog.consumer.row_selection import AS_RECORDS
from minilog.errors import Closed, InvalidArgument, MinilogError, UnknownTopicId
from minilog.limits import MAX_LEASE_TOPICS
from minilog.net.runtime import Runtime, now_ms, now_s
from minilog.queues.client import Queues
from minilog.queues.dead_letters import CarryDeadLetters
from minilog.queues.kept_batches import KeptBatches
from minilog.queues.leases import HeldRange
from minilog.queues.message import Message, Verdict
from minilog.queues.worker import (
    LEASE_WAIT_MS,
    AskLease,
    BeginReading,
    EndReading,
    RenewLeases,
    SendSettlements,
    Worker,
    WorkerEffect,
    WorkerSettings,
)
from minilog.types import TopicPartition
from minilog.v1 import queue_pb2

_LONGEST_WAIT_S = 1.0
_ID_CHARACTERS, _ID_BYTES = 200, 4  # of a worker's id: the begin of its client.id, and a number that is its own
_log = logging.getLogger(__name__)


def reading_config(config: ClientConfig) -> ClientConfig:
    """The settings of the consumer that reads leased ranges. Below the log's start it goes on at the start."""
    return dataclasses.replace(
        config, queue="", isolation_level="read_committed", auto_offset_reset="earliest", fetch_min_bytes=1
    )


class QueueConsumerShell:
    """The calls and the reads around the core. It lives on one event loop. `clock_s` is the program's clock: the
    loop's own, unless the program has threads beside the loop."""

    def __init__(self, config: ClientConfig, runtime: Runtime, clock_s: Callable[[], float] | None = None) -> None:
        self.config = config
        self._reader = ConsumerShell(reading_config(config), runtime)
        self._cluster = self._reader.cluster
        self._queues = Queues(self._cluster)
        self._kept = KeptBatches()
        self.worker = Worker(
            WorkerSettings(config.queue, config.max_poll_records, config.max_poll_interval_ms, config.max_lock_renewals)
        )
        self._worker_id = f"{config.client_id[:_ID_CHARACTERS]}-{runtime.unique_bytes(_ID_BYTES).hex()}"
        self._carrier = DeadLetterCarrier(config, runtime, f"{config.queue}-dead-letters-{self._worker_id}")
        self._clock_s = clock_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()  # the driver has work
        self._changed = asyncio.Event()  # calls of the program look again
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asking: tuple[AskLease, asyncio.Task[None]] | None = None
        self._wakes_user = False
        self._started = self._closed = False

    def start(self) -> None:
        """Begin, on the loop on which the driver will live. Raises Closed, RuntimeError on another loop."""
        self._cluster.home.check()
        if self._closed:
            raise Closed("the queue consumer is closed")
        if not self._started:
            self._started = True
            self._loop = asyncio.get_running_loop()
            for work in (self._run_forever, self._read_forever, self._refresh_forever):
                self._spawn(work())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _stop_asking(self) -> None:
        """Give up a request for a lease that may wait long. A short one is worth its answer."""
        if self._asking is not None and self._asking[0].max_wait_ms > LEASE_WAIT_MS:
            self._asking[1].cancel()  # perhaps before its first step: so the core learns of it here
            self._asking = None
            self.worker.lease_stopped(now_ms())

    # -- any thread

    def now_ms(self) -> float:
        """The monotonic clock of the program's thread."""
        if self._clock_s is not None:
            return self._clock_s() * 1000.0
        assert self._loop is not None  # a message comes from a poll, which began on the loop
        return self._loop.time() * 1000.0

    def look(self) -> None:
        """Let the driver look at the core."""
        self._call_soon(self._wake.set)

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.config.queue

    def enlist(self, message: Message) -> None:
        """A transaction settles the message: Settler has the meaning."""
        self._cluster.home.check_process()
        if self.worker.enlist(message, self.now_ms()):
            self.look()

    def transaction_ended(self, message: Message, *, committed: bool) -> None:
        """The transaction that settles the message has ended: Settler has the meaning."""
        if self.worker.transaction_ended(message, committed=committed):
            self.look()

    def settle(self, message: Message, verdict: Verdict, delay_ms: int, reason: str) -> None:
        """Note a verdict of the program. Message has the meaning."""
        self._cluster.home.check_process()
        if self.worker.note(message, verdict, delay_ms, reason, self.now_ms()):
            self.look()
        if verdict is Verdict.REJECT:
            _log.info(
                "queue %r: offset %d of partition %d of topic %r is rejected: %s",
                self.config.queue,
                message.offset,
                message.partition,
                message.topic,
                reason or "no reason given",
            )

    def wakeup(self) -> None:
        """End the poll that waits, or the next one."""
        self._wakes_user = True
        self._call_soon(self._changed.set)

    def _call_soon(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call)

    def takes_wakeup(self) -> bool:
        """Whether the program has called `wakeup` since the last poll. This takes the call back."""
        woken, self._wakes_user = self._wakes_user, False
        return woken

    def raise_error(self) -> None:
        """Raise the first error that waits for the program."""
        if self.worker.errors:
            raise self.worker.errors.popleft()

    def next_message(self) -> Message | None:
        """The next message for a program that iterates. Raises the first error that waits, InvalidArgument without a
        subscription."""
        self.raise_error()
        message = self.worker.next_message(self.now_ms())
        if message is None and not self.worker.topics:
            raise InvalidArgument("this queue consumer has no topics, and would wait for ever: subscribe first")
        if self.worker.runs_low():
            self.look()
        return message

    def take(self) -> list[Message]:
        """The messages for a program that polls. Raises the first error that waits."""
        self.raise_error()
        taken = self.worker.take(self.config.max_poll_records, self.now_ms())
        if self.worker.runs_low():
            self.look()
        return taken

    # -- calls of the program, on the loop

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Lease records of these topics. QueueConsumer.subscribe has the meaning."""
        self.start()
        if isinstance(topics, str):
            raise InvalidArgument(f"subscribe takes a list of topics: give [{topics!r}]")
        names, deadline_s = list(dict.fromkeys(topics)), self._cluster.deadline()
        if len(names) > MAX_LEASE_TOPICS:
            raise InvalidArgument(f"{len(names)} topics are too many: a queue consumer takes {MAX_LEASE_TOPICS}")
        await self._cluster.refresh(names, deadline_s)
        cached = [await self._cluster.topic(name, deadline_s) for name in names]
        self._stop_asking()
        self.worker.subscribe({name: topic.topic_id for name, topic in zip(names, cached, strict=True)})
        self._wake.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a message or an error. True if the program has called `wakeup`."""
        self.start()
        deadline_s = now_s() + timeout_s
        self.worker.polled(now_ms())
        self.worker.hurry()
        self._wake.set()
        while True:
            self._changed.clear()
            self.worker.polled(now_ms())
            remaining_s = deadline_s - now_s()
            if self.takes_wakeup():
                return True
            if self.worker.errors or self.worker.has_message(now_ms()) or remaining_s <= 0:
                return False
            await self._change(remaining_s)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until each verdict has its outcome. False when the time is over."""
        self.start()
        deadline_s = now_s() + timeout_s
        self.worker.hurry()
        return await self._until(self.worker.is_flushed, deadline_s)

    async def _until(self, is_done: Callable[[], bool], deadline_s: float) -> bool:
        self._wake.set()
        while not is_done():
            if now_s() >= deadline_s:
                return False
            self._changed.clear()
            await self._change(deadline_s - now_s())
        return True

    async def _change(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, _LONGEST_WAIT_S)):
                await self._changed.wait()

    async def close(self, timeout_s: float) -> None:
        """Settle what is noted, give the rest back, and close the connections. Idempotent. Raises the first error that
        no other call has raised."""
        self._cluster.home.check()
        was_open, self._closed = not self._closed, True
        if was_open and self._started:
            self.worker.close(now_ms())
            self._stop_asking()
            if not await self._until(self.worker.is_closed, now_s() + timeout_s):
                _log.warning(
                    "queue %r: the coordinator did not answer within %g s, and the consumer closes: messages that it "
                    "has not settled are delivered again when their locks end",
                    self.config.queue,
                    timeout_s,
                )
        for task in list(self._tasks):
            task.cancel()
        await self._carrier.close()
        await self._reader.close()
        if was_open:
            self.raise_error()

    # -- the driver

    async def _run_forever(self) -> None:
        while True:
            self._wake.clear()
            self._drive()
            wait_s = (self.worker.next_wake_ms(now_ms()) - now_ms()) / 1000.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.001), _LONGEST_WAIT_S)):
                    await self._wake.wait()

    def _drive(self) -> None:
        try:
            for effect in self.worker.poll(now_ms()):
                self._carry_out(effect)
        except Exception:  # a bug: log it, and go on as far as possible
            _log.exception("the queue consumer met an unexpected error")
        self._changed.set()

    def _carry_out(self, effect: WorkerEffect) -> None:
        match effect:
            case AskLease():
                self._asking = effect, self._spawn(self._lease(effect))
            case RenewLeases():
                self._spawn(self._renew(effect))
            case SendSettlements():
                self._spawn(self._send(effect))
            case CarryDeadLetters():
                self._spawn(self._carry(effect))
            case BeginReading(held):
                self._reader.apply(lambda: self._begin_reading(held))
            case EndReading(partition):
                self._reader.apply(lambda: self._reader.core.read_less([partition]))

    def _begin_reading(self, held: HeldRange) -> None:
        cache = self._cluster.cache
        if held.partition.topic not in cache.topics:  # it is deleted, and the look at the topics tells the program
            self.worker.reading_failed(held.partition, None, now_ms())
            self._wake.set()
            return
        if held.leader_epoch > cache.seen_epoch(held.key):  # an earlier leader may lack the records
            cache.see_epoch(held.key, held.leader_epoch)
        if (kept := self._kept.rows(held)) is not None:
            messages = self._messages(kept.run, kept.rows, held)
            self.worker.have_read(held.partition, kept.end, messages, now_ms())
            self._wake.set()
        if held.unread:
            self._reader.core.read_more([held.bounded()])

    async def _lease(self, ask: AskLease) -> None:
        request = queue_pb2.LeaseRequest(
            queue=self.config.queue,
            topic_ids=ask.topic_ids,
            max_records=ask.max_records,
            max_bytes=self.config.max_poll_bytes,
            max_wait_ms=ask.max_wait_ms,
            worker_id=self._worker_id,
            takes_dead_letters=True,
        )
        try:
            leased = await self._queues.lease(request)
            self.worker.leased(leased.response, leased.sent_ms, now_ms())
        except MinilogError as error:
            self.worker.lease_failed(ask, error, now_ms())
        self._asking = None
        self._wake.set()

    async def _renew(self, ask: RenewLeases) -> None:
        try:
            renewed = await self._queues.renew(self.config.queue, ask.lease_ids)
            self.worker.renewed(ask.lease_ids, renewed.response, renewed.sent_ms)
        except MinilogError as error:
            self.worker.renewal_failed(error, now_ms())
        self._wake.set()

    async def _send(self, ask: SendSettlements) -> None:
        try:
            settled = await self._queues.settle(self.config.queue, [span.to_wire() for span in ask.spans])
            self.worker.settled(settled.refused, now_ms(), is_repeat=settled.is_repeat)
        except MinilogError as error:
            self.worker.settling_failed(error, now_ms())
        self._wake.set()

    async def _carry(self, ask: CarryDeadLetters) -> None:
        try:
            await self._carrier.carry(ask)
        except Exception:  # a bug: log it. The records are given back, and carried again later
            _log.exception("the queue consumer met an unexpected error with dead letters")
        self.worker.carried(ask.messages, now_ms())
        self._wake.set()

    # -- reading

    async def _read_forever(self) -> None:
        while True:
            number = self._reader.polls.begin()
            try:
                taken = await self._reader.take(_LONGEST_WAIT_S, POLL_BYTES, AS_RECORDS, number)
                outcome = decode_all(taken, self.config.max_poll_bytes, RECORD_BYTES)
                await self._reader.report(outcome)  # no other task runs between `take` and this
                self._reader.polls.returned = number
                self._have_read(outcome)
            except MinilogError as error:
                self._reader.polls.returned = number
                await self._reading_failed(error)
            except Exception as error:  # a bug: the program must learn that its messages do not come
                self._reader.polls.returned = number
                _log.exception("the queue consumer cannot read")
                await self._reading_failed(MinilogError(f"the queue consumer cannot read: {error!r}"))

    def _have_read(self, outcome: DecodeOutcome) -> None:
        messages: dict[TopicPartition, list[Message]] = {}
        for run, every in outcome.good:
            held = self.worker.reading.get(run.partition)
            if held is not None and held.key == run.key:
                messages.setdefault(run.partition, []).extend(self._messages(run, every, held))
                self._kept.keep(run, held.leader_epoch)
        for partition, held in list(self.worker.reading.items()):
            position = self._reader.core.position(partition)
            if position is None or position == held.read_to:
                continue
            if position < held.read_to:  # the log ends below: an election has cut it
                self.worker.reading_failed(partition, None, now_ms())
            else:
                self.worker.have_read(partition, position, messages.get(partition, ()), now_ms())
        if outcome.lack is not None:
            self.worker.fail(outcome.lack)
        self._drive()  # at once: the consumer's shell waits for nothing while a bounded read is at its end

    def _messages(self, run: FetchedRun, every: Iterable[pa.RecordBatch], held: HeldRange) -> list[Message]:
        return [Message.of(record, held, self) for rows in every for record in records(run, rows)]

    async def _reading_failed(self, error: MinilogError) -> None:
        failures = self._reader.core.steering.failures()
        for partition, failure in failures.items():
            if partition in self.worker.reading:
                self.worker.reading_failed(partition, failure, now_ms())
        self._drive()
        if not failures and error.retriable:
            _log.debug("the queue consumer goes on reading after: %s", error)
        elif not failures:
            self.worker.fail(error)
            await asyncio.sleep(_LONGEST_WAIT_S)

    async def _refresh_forever(self) -> None:
        """Look whether the topics are still there: a queue gives no records of a topic that was deleted, or made
        anew. While a call for a lease waits, the coordinator looks. It refuses the call when a topic is gone."""
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000.0)
            topics = dict(self.worker.topics)
            try:
                if topics and self._asking is None:
                    await self._cluster.refresh(topics)
                for name, topic_id in topics.items():
                    self._cluster.cache.check_same_topic(name, topic_id)
            except UnknownTopicId as error:
                self.worker.fail(UnknownTopicId(f"{error}: subscribe anew to go on with a topic of this name"))
                self._changed.set()
            except MinilogError as error:
                _log.debug("the queue consumer did not get metadata yet, and asks again: %s", error)
