"""The shell of one coordinator: its core beside the log of the partition that it lives in.

    events of the replica (replica_effects.py) ──►   lead, high_watermark, deposed   LoadLog ──► Loader ──► replayed
    DeleteRecordsBelow ──► ReplicaManager.delete_own_records
    calls (services) ──► tickets ──► Answer                            append ──► ReplicaManager.append_own
    WriteMarkers, RegisterProducer ──► CoordinatorCalls ──► markers_written, registered

There is one for each partition that this broker has led, and it stays, since it also carries out effects of a former
term.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import structlog
from google.protobuf.message import Message

from minilog.errors import CoordinatorLoadInProgress, CorruptMessage, MinilogError, wire_error
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import encode_batch
from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState
from minilog_broker.coordinators.coordinator_effects import (
    BytesWritten,
    CoordinatorAnswer,
    CoordinatorEffect,
    DeleteRecordsBelow,
    LoadLog,
    MarkersRefused,
    MemberAnswer,
    Moment,
    RegisterProducer,
    WriteMarkers,
)
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.coordinators.pending_coordinator import PendingCoordinator
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.replication.replica_effects import (
    BeganToLead,
    HighWatermarkMoved,
    LeadershipEffect,
    StoppedLeading,
)
from minilog_broker.replication.stable_offsets import Question, StableOffset
from minilog_broker.security.audit import Audit
from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls, outcome
from minilog_broker.server.runtime.timer import CoreTimer, now_ms
from minilog_broker.server.shells.coordinator_loading import Loader
from minilog_broker.server.shells.member_stream import MemberStream
from minilog_broker.server.shells.replication_shell import ReplicationShell

logger = structlog.get_logger()

MAX_WAITING = 10_000  # calls without an answer at one coordinator: about the calls of clients in a stall


_Core = TypeVar("_Core", bound=Coordinator[Any, Any])
_PendingCore = TypeVar("_PendingCore", bound=PendingCoordinator[Any, Any, Any])
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The shared surroundings of one broker's coordinators. `spawn` begins a task that ends with the broker. An
    unexpected error in the task ends the broker. `ask_stable_offset` gives its answer once, and
    returns what withdraws the question. `audit`: takes an event into the audit log. `topic_name`: by the id of a
    topic."""

    replicas: ReplicationShell
    loader: Loader
    calls: CoordinatorCalls
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    wall_us: Callable[[], int]
    ask_stable_offset: Callable[[Question, Callable[[StableOffset | MinilogError], None]], Callable[[], None]]
    audit: Audit
    topic_name: Callable[[bytes], str]

    def moment(self) -> Moment:
        """The time by both clocks."""
        return Moment(now_ms(), self.wall_us())


class CoordinatorShell(Generic[_Core]):
    """The I/O around the core of one coordinator. `make` makes the core, whose log (OwnLog) this is."""

    max_waiting = MAX_WAITING

    def __init__(self, key: PartitionKey, around: Surroundings, make: Callable[[OwnLog], _Core]) -> None:
        self.key = key
        self.core: _Core = make(self)
        self._around = around
        self._leader_epoch = self._log_end = -1
        self._loading: asyncio.Task[None] | None = None
        self._waiting = 0
        self._charges: WeakKeyDictionary[object, Callable[[int], None]] = WeakKeyDictionary()  # by ticket
        self._timer = CoreTimer(self._next_tick_ms, self._tick)
        self._timer.start()

    @property
    def leads(self) -> bool:
        return self.core.state is not CoordinatorState.IDLE

    # -- the partition

    def on_leadership(self, effect: LeadershipEffect) -> None:
        """Take an event of the replica's leadership."""
        match effect:
            case BeganToLead(leader_epoch=leader_epoch, log_end=log_end):
                self._stop_loading()
                self._leader_epoch, self._log_end = leader_epoch, log_end
                self.core.lead(leader_epoch, log_end)
            case HighWatermarkMoved(leader_epoch=leader_epoch, offset=offset):
                self.core.high_watermark(leader_epoch, offset, self._around.moment())
            case StoppedLeading():
                self._stop_loading()
                self.core.deposed()
        self.run()

    def require_room(self) -> None:
        """OwnLog has the meaning."""
        self._around.replicas.manager.require_own_room(self.key, self._leader_epoch, now_ms())

    def append(self, records: Sequence[LogRecord]) -> int:
        """OwnLog has the meaning."""
        batch = encode_batch(self.key, records, self._around.wall_us())
        manager = self._around.replicas.manager
        self._log_end = manager.append_own(self.key, self._leader_epoch, self._log_end, batch)
        return self._log_end

    def is_wanted(self) -> None:
        """A client asks for this coordinator. Where it still loads, it loads before those that nobody asks for."""
        if self._loading is not None:
            self._around.loader.want(self.key)

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    async def _load(self, effect: LoadLog) -> None:
        def take(records: list[LogRecord], behind: int) -> None:
            self.core.replayed(effect.leader_epoch, records, behind, self._around.moment())
            self.run()

        replicas = self._around.replicas
        began_ms = now_ms()
        try:
            await self._around.loader.load(self.key, effect.end_offset, take)
        except CorruptMessage as error:
            replicas.manager.log_damaged(self.key, error, now_ms())
            replicas.run()
        except OSError as error:
            replicas.manager.log_failed(self.key, error, now_ms())
            replicas.run()
        else:
            took_ms = round(now_ms() - began_ms)
            logger.debug("a coordinator is loaded", coordinator=str(self.core), offsets=effect.end_offset, ms=took_ms)

    # -- calls

    async def ask(
        self, kind: type[Response], ask: Callable[[object], None], charge: Callable[[int], None] | None = None
    ) -> Response:
        """Give a call to the core, and wait until the answer is committed. The core does not wait for a caller that
        goes away. `charge`: gets the bytes that are written for the call."""
        if self._waiting >= self.max_waiting:
            busy = CoordinatorLoadInProgress(f"{self.core}: {self.max_waiting} calls wait for their answers: retry")
            return kind(error=wire_error(busy))
        self.is_wanted()
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        if charge is not None:
            self._charges[ticket] = charge
        try:
            ask(ticket)
            self.run()
            answer = await ticket
        finally:
            self._waiting -= 1
            if not ticket.done() or ticket.cancelled():
                self._caller_left(ticket)
        assert isinstance(answer, kind)
        return answer

    def _caller_left(self, ticket: object) -> None:
        """Nobody waits for the answer of this ticket any more."""

    # -- effects

    def run(self) -> None:
        """Carry out the core's effects. Its appends go to the disk first."""
        self._around.replicas.run()
        while todo := self.core.take_effects():
            for effect in todo:
                self._carry_out(effect)
            self._around.replicas.run()
        self._timer.arm()

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case CoordinatorAnswer(ticket=asyncio.Future() as ticket, message=message):
                if not ticket.done():
                    ticket.set_result(message)
            case BytesWritten(ticket=ticket, count=count):
                if (charge := self._charges.get(ticket)) is not None:
                    charge(count)
            case LoadLog():
                self._loading = self._around.spawn(self._load(effect))
            case DeleteRecordsBelow(leader_epoch=leader_epoch, offset=offset):
                self._around.replicas.manager.delete_own_records(self.key, leader_epoch, offset)
            case _:
                raise AssertionError(f"{self.core} cannot ask for {effect}")

    # -- time

    def _next_tick_ms(self) -> float:
        return math.inf

    def _tick(self) -> None:
        """Nothing is ever due."""

    def stop(self) -> None:
        self._timer.stop()
        self._stop_loading()


class TransactionShell(CoordinatorShell[TransactionCoordinator]):
    """A coordinator of transactions: markers go out, time-outs come."""

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case WriteMarkers():
                self._around.spawn(self._write_markers(effect))
            case MarkersRefused(target=target, transactional_id=transactional_id, error=error):
                logger.error(
                    "a leader refuses the markers of a committed transaction: it lacks acknowledged records, as after "
                    "an unclean election. Readers in read_committed stay in front of them. The coordinator tries again "
                    "until the topic is deleted or another copy leads",
                    topic=target.topic_id.hex(),
                    partition=target.partition,
                    transactional_id=transactional_id,
                    error=str(error),
                )
            case _:
                super()._carry_out(effect)

    async def _write_markers(self, effect: WriteMarkers) -> None:
        error = await outcome(self._around.calls.write_markers(effect))
        if error is None:
            self.core.markers_written(effect, self._around.moment())
        else:
            logger.debug("a leader has not written markers yet", coordinator=str(self.core), error=str(error))
            self.core.markers_failed(effect, error, self._around.moment())
        self.run()

    def expire(self, wall_us: int) -> None:
        """Drop transactions with a long silence, by a trusted wall clock."""
        self.core.expire(wall_us)
        self.run()

    def _next_tick_ms(self) -> float:
        return self.core.next_tick_ms

    def _tick(self) -> None:
        self.core.tick(self._around.moment())
        self.run()


class PendingShell(CoordinatorShell[_PendingCore]):
    """A coordinator of what producers do in transactions: registers them with the coordinators of those."""

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case RegisterProducer():
                self._around.spawn(self._register(effect))
            case _:
                super()._carry_out(effect)

    async def _register(self, effect: RegisterProducer) -> None:
        error = await outcome(self._around.calls.register(effect, self.key))
        self.core.registered(effect.number, error, self._around.moment())
        self.run()

    def drop_deleted_topics(self) -> None:
        """Drop what is known of topics that the image no longer has."""
        self.core.drop_deleted_topics()
        self.run()

    def topics_changed(self) -> None:
        """The image has topics or partitions that it had not, or lacks some."""
        self.core.topics_changed(self._around.moment())
        self.run()

    def _next_tick_ms(self) -> float:
        return self.core.next_tick_ms

    def _tick(self) -> None:
        self.core.tick(self._around.moment())
        self.run()


class GroupShell(PendingShell[GroupCoordinator]):
    """A coordinator of groups: answers members on their streams."""

    def member(self, stream: MemberStream, request: coordinator_pb2.MemberRequest, speaker: Speaker) -> None:
        """The next message of a member's stream."""
        self.is_wanted()
        self.core.member(stream, request, speaker, self._around.moment())
        self.run()

    def member_stream_ended(self, stream: MemberStream) -> None:
        """Nothing comes or goes on it any more."""
        self.core.member_stream_ended(stream)
        self.run()

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case MemberAnswer(stream=MemberStream() as stream, message=message):
                stream.put(message)
            case CoordinatorAnswer(
                ticket=MemberStream() as stream, message=coordinator_pb2.MemberResponse() as message
            ):
                stream.put(message)
            case _:
                super()._carry_out(effect)
