"""The coordinators of a life: as server/shells/coordinators.py and server/shells/coordinator_shell.py, on virtual time.

There is one for each partition of `__transactions` and `__groups` that this life has led, and it stays. Its log is read
by the data disk's thread, its markers and registrations are unary calls over the simulated network (coordinator_calls).
Tickets are functions that take the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage, MinilogError, NotCoordinator, wire_error
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import decode_run, encode_batch
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import (
    CoordinatorAnswer,
    CoordinatorEffect,
    DeleteRecordsBelow,
    LoadLog,
    MarkersRefused,
    Moment,
    RegisterProducer,
    WriteMarkers,
)
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from minilog_broker.replication.leader.leadership import (
    BeganToLead,
    HighWatermarkMoved,
    LeadershipEffect,
    StoppedLeading,
)
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.server.disk.disk_thread import DiskCommand
from tests.simulation.coordinator_calls import CoordinatorCalls
from tests.simulation.network import Respond
from tests.simulation.process import CoreTimer
from tests.simulation.touched import TrimAsked

if TYPE_CHECKING:
    from tests.simulation.life import Life

PIECE_BYTES = 4_096  # some decisions: so that a term may end between two pieces
SLACK_RECORDS = 20  # so that logs are cut
TRANSACTION_TIMEOUT_MS = 4_000  # of who does not say otherwise


class CoordinatorPart:
    """One coordinator: its core, and the partition of an internal topic that it lives in."""

    def __init__(self, coordinating: Coordinating, key: PartitionKey, topic_name: str) -> None:
        self.key = key
        self.core: TransactionCoordinator | GroupCoordinator
        name = f"partition {key.partition} of {topic_name}"
        if topic_name == TRANSACTIONS_TOPIC_NAME:
            settings = TransactionSettings(transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
            self.core = TransactionCoordinator(name, settings, self._append, coordinating.knows_topic)
        else:
            self.core = GroupCoordinator(name, self._append, coordinating.knows_topic)
        self.core._table.places.slack_records = SLACK_RECORDS
        self._coordinating = coordinating
        self._life = coordinating.life
        self._leader_epoch = self._log_end = -1
        self._term = 0  # what is loaded for an earlier one is not wanted any more
        self._timer = CoreTimer(self._life.process, self._next_tick_ms, self._tick)
        self._timer.start()

    @property
    def leads(self) -> bool:
        return self.core.state is not CoordinatorState.IDLE

    @property
    def taken_for_committed(self) -> int:
        """Up to where the core acts on the log; 0 where it does not act (judges)."""
        return self.core._table.committed_end() if self.core.state is CoordinatorState.ACTIVE else 0

    def moment(self) -> Moment:
        return Moment(self._life.now_ms, self._life.node.now_us)

    # -- the partition

    def told(self, effect: LeadershipEffect) -> None:
        """What the replica says of its leading."""
        match effect:
            case BeganToLead(leader_epoch=leader_epoch, log_end=log_end):
                self._term += 1
                self._leader_epoch, self._log_end = leader_epoch, log_end
                self.core.lead(leader_epoch, log_end)
            case HighWatermarkMoved(leader_epoch=leader_epoch, offset=offset):
                self.core.high_watermark(leader_epoch, offset, self.moment())
            case StoppedLeading():
                self._term += 1
                self.core.deposed()
        self.run()

    def _append(self, records: Sequence[LogRecord]) -> int:
        life = self._life
        batch = encode_batch(self.key, records, life.node.now_us)
        self._log_end = life.manager.append_own(self.key, self._leader_epoch, self._log_end, batch, life.now_ms)
        return self._log_end

    def _load(self, effect: LoadLog, offset: int, term: int) -> None:
        """One piece, then the next."""
        life = self._life
        log = life.logs.get(self.key)
        if term != self._term or log is None:
            return

        def work() -> bytes | CorruptMessage:
            try:
                return log.read(offset, PIECE_BYTES, effect.end_offset)
            except CorruptMessage as damage:
                return damage

        def read(run: bytes | CorruptMessage) -> None:
            if term == self._term:
                self._take(effect, run, offset, term)

        def failed(error: OSError) -> None:
            life.manager.log_failed(self.key, error, life.now_ms)
            life.replicas.run()

        if offset < effect.end_offset:
            life.data_disk.submit(DiskCommand(work, read, failed))
        else:
            self.core.replayed(effect.leader_epoch, [], effect.end_offset, self.moment())
            self.run()

    def _take(self, effect: LoadLog, run: bytes | CorruptMessage, offset: int, term: int) -> None:
        life, records, behind = self._life, [], offset
        try:
            if isinstance(run, CorruptMessage):
                raise run
            for behind, found in decode_run(self.key, run):  # noqa: B007, the last one is wanted
                records.extend(found)
            if behind <= offset:
                raise CorruptMessage(f"the log of an internal topic ends at {offset}, below {effect.end_offset}")
            self.core.replayed(effect.leader_epoch, records, behind, self.moment())
        except CorruptMessage as damage:
            life.touch(self.key)
            life.manager.log_damaged(self.key, damage, life.now_ms)
            life.replicas.run()
            return
        self.run()
        self._load(effect, behind, term)

    # -- effects

    def run(self) -> None:
        """Carry out what the core asks for; what it appended goes to the disk first."""
        life = self._life
        life.touch(self.key)
        life.replicas.run()
        while todo := self.core.take_effects():
            for effect in todo:
                if life.effects_left is not None:
                    life.count_effect()
                self._carry_out(effect)
            life.replicas.run()
        self._timer.arm()

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        calls = self._coordinating.calls
        match effect:
            case CoordinatorAnswer(ticket=ticket, message=message):
                assert callable(ticket)
                ticket(message)
            case LoadLog():
                log = self._life.logs[self.key]
                self._load(effect, log.log_start_offset, self._term)
            case DeleteRecordsBelow(leader_epoch=leader_epoch, offset=offset):
                self._life.cluster.count("coordinator log is cut")
                self._life.touched.trims_asked.append(TrimAsked(self._life.node.node_id, self.key, offset))
                self._life.manager.delete_own_records(self.key, leader_epoch, offset)
            case WriteMarkers():
                calls.write_markers(effect, lambda error: self._markers(effect, error))
            case MarkersRefused(target=target, error=error):
                self._life.note(f"partition {target.partition} markers are refused: {error}")
                self._life.cluster.count("markers refused")
            case RegisterProducer():
                calls.register(effect, self.key, lambda error: self._registered(effect, error))

    def _markers(self, effect: WriteMarkers, error: MinilogError | None) -> None:
        assert isinstance(self.core, TransactionCoordinator)
        if error is None:
            self.core.markers_written(effect, self.moment())
        else:
            self._life.note(f"markers of {effect.transactional_id} are not written yet: {error}")
            self.core.markers_failed(effect, error, self.moment())
        self.run()

    def _registered(self, effect: RegisterProducer, error: MinilogError | None) -> None:
        assert isinstance(self.core, GroupCoordinator)
        self.core.registered(effect.number, error, self.moment())
        self.run()

    # -- time

    def _next_tick_ms(self) -> float:
        return self.core.next_tick_ms if isinstance(self.core, TransactionCoordinator) else float("inf")

    def _tick(self) -> None:
        if isinstance(self.core, TransactionCoordinator):
            self.core.tick(self.moment())
        self.run()

    def stop(self) -> None:
        self._timer.stop()
        self._term += 1


class Coordinating:
    """See the module's text."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.parts: dict[PartitionKey, CoordinatorPart] = {}
        self.calls = CoordinatorCalls(life)

    def knows_topic(self, topic_id: bytes) -> bool:
        return topic_id in self.life.image.topics

    def told(self, effect: LeadershipEffect) -> None:
        """What a replica of an internal topic says of its leading."""
        part = self.parts.get(effect.key)
        if part is None and isinstance(effect, BeganToLead):
            part = self.parts[effect.key] = CoordinatorPart(self, effect.key, effect.topic_name)
        if part is not None:
            part.told(effect)

    def topics_deleted(self) -> None:
        """The image lacks topics that it had."""
        for part in self.parts.values():
            if isinstance(part.core, GroupCoordinator):
                part.core.drop_deleted_topics()
                part.run()

    def stop(self) -> None:
        for part in self.parts.values():
            part.stop()

    # -- who is in charge

    def of(self, topic_name: str, name: str) -> CoordinatorPart:
        """Raises NotCoordinator, or CoordinatorLoadInProgress before the first use of all."""
        topic_id = self.life.image.topic_ids.get(topic_name)
        if topic_id is None:
            error = self.calls.first_use(topic_name)
            assert error is not None
            raise error
        key = PartitionKey(topic_id, coordinator_partition(name))
        if key not in self.parts:
            raise NotCoordinator(f"this broker does not lead partition {key.partition} of {topic_name}")
        return self.parts[key]

    def ask(
        self, topic_name: str, name: str, kind: type[Any], respond: Respond, ask: Callable[[CoordinatorPart], None]
    ) -> None:
        """`ask` the core in charge of `name`; or say why it is not asked."""
        try:
            part = self.of(topic_name, name)
        except MinilogError as error:
            respond(kind(error=wire_error(error)))
            return
        ask(part)
        part.run()

    def write_group_markers(self, request: coordinator_pb2.WriteMarkersRequest, respond: Respond) -> None:
        """WriteMarkers for a partition of `__groups`: what they end has ended in the groups of that partition."""
        part = self.parts.get(PartitionKey(request.partition_id.topic_id, request.partition_id.partition))
        if part is None:
            error = NotCoordinator(f"this broker does not lead that partition of {GROUPS_TOPIC_NAME}")
            respond(coordinator_pb2.WriteMarkersResponse(error=wire_error(error)))
            return
        assert isinstance(part.core, GroupCoordinator)
        part.core.write_markers(respond, request)
        part.run()
