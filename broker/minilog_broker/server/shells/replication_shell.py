"""The shell around ReplicaManager: it carries out the core's effects, and gives the outcomes back.

Every event goes through `self.manager`, and after each one `run()` carries out the effects in order. Disk commands go
to the data disk thread, and reads that have to wait go to the readers' threads. asyncio events wake sessions. The other
effects go to the links of this broker.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from minilog.errors import CorruptMessage, MinilogError, OffsetOutOfRange, StorageError, wire_error
from minilog.limits import parts_of
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, metadata_pb2
from minilog_broker.replication import replica_effects
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.replica_effects import (
    BeganToLead,
    Effect,
    HighWatermarkMoved,
    LeadershipEffect,
    StoppedLeading,
)
from minilog_broker.replication.rules.check_position import GONE
from minilog_broker.server.disk.disk_thread import LOGS_AT_ONCE, BoundedLane, Disk, DiskCommand
from minilog_broker.server.disk.log_directory import FoundLog, LogDirectory, log_settings
from minilog_broker.server.disk.offset_lookups import LOOKED_UP_AT_ONCE, LookUp, is_looked_up, look_up_all
from minilog_broker.server.disk.reader_threads import DiskRead, Readers, result_of
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver
from minilog_broker.server.runtime.timer import CoreTimer, now_ms
from minilog_broker.server.runtime.turns import WorkPiece
from minilog_broker.server.shells.session_reads import SessionReads
from minilog_broker.server.shells.session_streams import CoreSessions
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.find_ends import EndsSearch
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.reserve import Reserve

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outside:
    """The handlers of effects that leave the replicas.

    `disk_changed`: the controller should hear at once of an offline replica or a full disk. `failed`: an effect could
    not be carried out, and the process must not go on half alive.
    """

    answer_produce: Callable[[replica_effects.AnswerProduce], None]
    answer_markers: Callable[[replica_effects.AnswerMarkers], None]
    answer_delete_records: Callable[[replica_effects.AnswerDeleteRecords], None]
    register: Callable[[replica_effects.RegisterPartition], None]
    open_link: Callable[[replica_effects.OpenFetcherStream], None]
    close_link: Callable[[int], None]
    wake_link: Callable[[int], None]
    propose: Callable[[replica_effects.ProposeInSyncReplicas], None]
    tell_coordinator: Callable[[LeadershipEffect], None]
    stable_offset_moved: Callable[[PartitionKey], None]
    disk_changed: Callable[[], None]
    failed: Callable[[BaseException], None]


class ReplicationShell:
    """All replicas of one broker: the core, its disk thread, its readers and its sessions."""

    def __init__(
        self,
        manager: ReplicaManager,
        disk: Disk,
        directory: LogDirectory,
        reserve: Reserve,
        outside: Outside,
        readers: Readers,
        observer: BrokerObserver = UNOBSERVED,
    ) -> None:
        self.manager = manager
        self._looking_up = asyncio.Lock()
        self.readers = readers
        self._reads = SessionReads(manager, lambda read: directory.logs.get(read.key), readers, self._event, observer)
        self._observer = observer
        self.offline: dict[PartitionKey, replica_effects.PartitionOffline] = {}
        self.sessions = CoreSessions()
        self._outside = outside
        self._disk = disk
        self._lane = BoundedLane(disk, LOGS_AT_ONCE)
        self._directory = directory
        self._reserve = reserve
        self.timer = CoreTimer(manager.next_tick_ms, self._tick)
        self._running = self._stopped = False
        # The number of times that each log was let go. A replica may come back, and then answers of the disk for its
        # former log do not count.
        self._let_go: defaultdict[PartitionKey, int] = defaultdict(int)

    @property
    def backlog_bytes(self) -> int:
        """The bytes that wait for the disk."""
        return self._disk.backlog_bytes

    def close_session(self, session_id: int) -> None:
        """End a session whose stream is gone."""
        self.sessions.close(session_id)
        self.manager.close_session(session_id, now_ms())
        self.run()

    def adopt(self, recovered: list[FoundLog]) -> None:
        """Take the logs that recovery opened at the start, and those that it could not open."""
        for log in recovered:
            self.manager.adopt_log(log.key, log.log, log.producer_state, now_ms())
        for unreadable in self._directory.unreadable.values():
            self.manager.adopt_unreadable(unreadable.key, unreadable.reason, now_ms())

    # -- effects

    def run(self) -> None:
        """Carry out the core's effects, until there are no more."""
        if self._running or self._stopped:  # an effect may call back at once
            return
        self._running = True
        try:
            while todo := self.manager.take_effects():
                for effect in todo:
                    self._carry_out(effect)
        except Exception as error:  # the effects are lost: the process must not go on half alive
            self._outside.failed(error)
            raise
        finally:
            self._running = False
        self.timer.arm()

    def stop(self) -> None:
        """Carry out nothing from here on: the broker closes its logs, and what the disk reports late would open a link
        to a leader anew, whose records have no log."""
        self._stopped = True

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case replica_effects.AppendToLog():
                self._append(effect)
            case replica_effects.SessionReady(session_id=session_id):
                self.sessions.wake(session_id)
            case replica_effects.ReadRun():
                self._reads.read(effect)
            case replica_effects.AnswerProduce():
                self._outside.answer_produce(effect)
            case replica_effects.FetcherStreamReady(leader_id=leader_id):
                self._outside.wake_link(leader_id)
            case replica_effects.OpenFetcherStream():
                self._outside.open_link(effect)
            case replica_effects.CloseFetcherStream(leader_id=leader_id):
                self._outside.close_link(leader_id)
            case replica_effects.ProposeInSyncReplicas():
                self._outside.propose(effect)
            case replica_effects.AnswerMarkers():
                self._outside.answer_markers(effect)
            case replica_effects.AnswerDeleteRecords():
                self._outside.answer_delete_records(effect)
            case replica_effects.RegisterPartition():
                self._outside.register(effect)
            case replica_effects.FindEnds():
                self._find_ends(effect, EndsSearch(effect.producer_ids, effect.within))
            case replica_effects.FindBatch():
                self._find_batch(effect)
            case replica_effects.SessionRefused(session_id=session_id, error=error):
                self.sessions.refuse(session_id, error)
            case replica_effects.PartitionOffline():
                self._go_offline(effect)
            case replica_effects.LaterVersionMet(error=error):
                self._outside.failed(error)
            case replica_effects.StableOffsetMoved(key=key):
                self._outside.stable_offset_moved(key)
            case BeganToLead() | HighWatermarkMoved() | StoppedLeading():
                self._outside.tell_coordinator(effect)
            case _:
                self._change_log(effect)

    def _change_log(self, effect: Effect) -> None:
        if isinstance(effect, replica_effects.TruncateLog | replica_effects.StartLogAt) and effect.committed_lost:
            logger.error(
                "committed records are lost: this replica has them, its leader does not, and the replica follows the "
                "leader. The cause is an unclean election, or a leader whose disk came back in an older state. Readers "
                "of the topic see other records there",
                topic=effect.key.topic_id.hex(),
                partition=effect.key.partition,
                records=effect.committed_lost,
            )
        match effect:
            case replica_effects.OpenLog(key=key):
                self._open(key, lambda: (self._directory.create(effect), ProducerState()))
            case replica_effects.RecoverLog(key=key, config=config, differs_from=differs_from):
                self._let_go[key] += 1
                self._open(key, lambda: self._directory.recover_damaged(key, log_settings(config), differs_from))
            case replica_effects.CheckCopy():
                self._check_copy(effect)
            case replica_effects.ConfigureLog(key=key, config=config):
                configure = lambda log: self._reserve.write_metadata(lambda: log.configure(log_settings(config)))  # noqa: E731
                self._submit(key, configure, lambda _: self.manager.log_configured(key, config, now_ms()))
            case replica_effects.RecordEpochStart(key=key, leader_epoch=epoch, start_offset=start):
                reserve = self._reserve
                record = lambda log: reserve.write_metadata(lambda: log.assign_epoch(epoch, start))  # noqa: E731
                self._submit(key, record, lambda _: None)
            case replica_effects.TruncateLog(key=key, end_offset=end_offset):
                self._truncate(key, lambda log: log.truncate_to(end_offset))
            case replica_effects.StartLogAt(key=key, offset=offset):
                self._truncate(key, lambda log: log.truncate_fully_and_start_at(offset))
            case replica_effects.AdvanceLogStart(key=key):
                self._submit(key, self._trim(effect), lambda _: self.manager.log_start_moved(key, now_ms()))
            case replica_effects.WriteProducerSnapshot(key=key, offset=offset, snapshot=snapshot):
                self._submit(key, lambda log: log.write_producer_snapshot(offset, snapshot), lambda _: None)
            case replica_effects.AbortUnmarked(key=key, below=below, offset=offset, snapshot=snapshot):
                store = lambda log: log.write_lasting_producer_snapshot(offset, snapshot)  # noqa: E731
                self._submit(key, store, lambda _: self.manager.transactions_aborted(key, below, now_ms()))
            case replica_effects.BeginCompaction(key=key):
                self._submit(key, self._begin_compaction(effect), lambda _: None)
            case replica_effects.ForgetTornTail(key=key):
                self._submit(key, lambda log: log.forget_torn_tail(), lambda _: None)
            case replica_effects.DeleteLog(key=key):
                self.set_aside(key)

    def _trim(self, effect: replica_effects.AdvanceLogStart) -> Callable[[Log], None]:
        wanted = effect.offset, effect.snapshot_offset, effect.snapshot
        return lambda log: self._reserve.write_metadata(lambda: log.delete_records(*wanted))

    def _begin_compaction(self, effect: replica_effects.BeginCompaction) -> Callable[[Log], None]:
        begin = effect.point, effect.snapshot_offset, effect.snapshot
        return lambda log: self._reserve.write_metadata(lambda: log.begin_compaction(*begin))

    def _find_ends(self, effect: replica_effects.FindEnds, search: EndsSearch) -> None:
        """Search step by step, since other work waits for the disk's thread, too."""

        def stepped(_: object) -> None:
            if search.damage is not None:
                self.manager.log_damaged(effect.key, search.damage, now_ms())
            elif search.finished:
                self.manager.ends_found(effect.key, effect.number, search.ends)
            else:
                self._find_ends(effect, search)

        self._submit(effect.key, search.step, stepped)

    def _find_batch(self, effect: replica_effects.FindBatch) -> None:
        key, offset = effect.key, effect.offset
        log = self._directory.logs[key]

        def done(base: int) -> None:
            self.manager.batch_found(key, effect.leader_epoch, offset, base, now_ms())

        def failed(error: OSError | MinilogError) -> None:
            if isinstance(error, OffsetOutOfRange):
                done(GONE)
            else:
                self.manager.log_damaged(key, error, now_ms())

        self.readers.submit(DiskRead(lambda: log.batch_base(offset), self._of(key, done), self._of(key, failed)))

    def _append(self, effect: replica_effects.AppendToLog) -> None:
        key, batches = effect.key, effect.batches
        log, headers = self._directory.logs[key], batches.headers
        size_bytes = sum(header.length for header in headers)
        self._observer.appended(size_bytes, batches.end_offset - headers[0].base_offset)
        self._disk.submit(
            DiskCommand(
                work=lambda: self._reserve.write_data(lambda: log.append(batches)),
                on_done=self._of(key, lambda _: self.manager.log_appended(key, batches.end_offset, now_ms())),
                on_failed=self._of(key, lambda error: self._failed(key, error)),
                log=log,
                flush=log,
                size_bytes=size_bytes,
                on_flushed=self._of(key, lambda end: self.manager.log_flushed(key, end, now_ms())),
            )
        )

    def _open(self, key: PartitionKey, work: Callable[[], tuple[Log, ProducerState]]) -> None:
        def opened(log_and_state: tuple[Log, ProducerState]) -> None:
            self.offline.pop(key, None)
            self.manager.log_opened(key, *log_and_state, now_ms())

        self._lane.submit(
            DiskCommand(
                work=work,
                on_done=self._of(key, opened),
                on_failed=self._of(key, lambda error: self._failed(key, error)),
            )
        )

    def _check_copy(self, effect: replica_effects.CheckCopy) -> None:
        """Check a copy. There is an answer in any case, for the next check waits for it."""
        key, let_go = effect.key, self._let_go[effect.key]
        log = self._directory.logs.get(key)

        def checked(error: CorruptMessage | OSError | None) -> None:
            damage = error if self._let_go[key] == let_go else None
            self._event(lambda: self.manager.copy_checked(key, effect.offset, damage, now_ms()))

        work = lambda: None if log is None else check_copy(log, *key, effect.offset, effect.max_bytes)  # noqa: E731
        self._disk.submit(DiskCommand(work, checked, checked))

    def _submit(self, key: PartitionKey, work: Callable[[Log], object], done: Callable[..., None]) -> None:
        log = self._directory.logs[key]
        failed = self._of(key, lambda error: self._failed(key, error))
        self._disk.submit(DiskCommand(lambda: work(log), self._of(key, done), failed, log))

    def _truncate(self, key: PartitionKey, cut: Callable[[Log], object]) -> None:
        def work(log: Log) -> ProducerState:
            self._reserve.write_metadata(lambda: cut(log))
            return recover_producer_state(log)

        self._submit(key, work, lambda state: self.manager.log_truncated(key, state, now_ms()))

    def _of(self, key: PartitionKey, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        """A callback that makes `tell` and then runs, but nothing where the log was let go meanwhile."""
        let_go = self._let_go[key]

        def report(result: Any) -> None:
            if self._let_go[key] == let_go:
                self._event(lambda: tell(result))

        return report

    def _failed(self, key: PartitionKey, error: OSError) -> None:
        if error.errno in NO_SPACE:  # server/background/upkeep.py has the one line of a full disk
            logger.debug("the disk is full under a replica", partition=str(key.partition), topic=key.topic_id.hex())
        else:
            logger.error(
                "the disk failed under a replica",
                partition=str(key.partition),
                topic=key.topic_id.hex(),
                error=str(error),
            )
        self.manager.log_failed(key, error, now_ms())
        if error.errno in NO_SPACE:
            self._outside.disk_changed()

    def _mark_failed(self, error: OSError) -> None:
        logger.error("the broker could not record damage: do not restart it on this disk", error=str(error))

    def _delete_failed(self, error: OSError) -> None:
        logger.error(
            "the broker could not remove the files of a deleted topic, and tries again at its next start",
            error=str(error),
        )

    def _go_offline(self, effect: replica_effects.PartitionOffline) -> None:
        key, reason = effect.key, effect.reason
        if effect.damaged:
            mark = DiskCommand(lambda: self._directory.mark_damaged(key, reason), lambda _: None, self._mark_failed)
            self._disk.submit(mark)
        logger.error("a replica is offline", topic=key.topic_id.hex(), partition=key.partition, reason=reason)
        self.offline[key] = effect
        self._outside.disk_changed()

    def _event(self, event: Callable[[], None]) -> None:
        event()
        self.run()

    # -- time

    def _tick(self) -> None:
        self.manager.tick(now_ms())
        self.run()

    def disk_looked_at(self, *, answers: bool, has_space: bool) -> None:
        """Hand the state of the disk to ReplicaManager, before each heartbeat."""
        self._event(lambda: self.manager.disk_looked_at(answers=answers, has_space=has_space))

    def set_aside(self, key: PartitionKey) -> None:
        """Rename a log of no replica. Its files are removed when delete.delay.ms is over."""
        self._let_go[key] += 1
        self.offline.pop(key, None)
        self._lane.submit(DiskCommand(lambda: self._directory.delete(key), lambda _: None, self._delete_failed))

    # -- reads

    def next_message(self, session_id: int) -> StreamMessage[Any] | None:
        self._reads.make_up(session_id)
        message = self.manager.next_message(session_id, now_ms())
        self.run()
        return message

    async def list_offsets(
        self, entries: Sequence[metadata_pb2.ListOffsetsEntry], piece: WorkPiece
    ) -> list[metadata_pb2.ListOffsetsResult]:
        """The results, each with the ends of one moment. A reader's thread looks up the values that need the files."""
        results, wanted = [], list[LookUp]()
        for entry in entries:
            piece = await piece.next() if piece.is_over() else piece
            result = self.manager.list_offsets(entry, now_ms())
            results.append(result)
            key = PartitionKey.of(entry.partition_id)
            if is_looked_up(entry) and not result.HasField("error"):
                wanted.append((self._directory.logs[key], entry, result))
        for part in parts_of(wanted, LOOKED_UP_AT_ONCE):
            await self._look_up(part)
        return results

    async def _look_up(self, wanted: Sequence[LookUp]) -> None:
        """Look up a part of one request, while no other request is looked up. A thread that searches in memory has the
        interpreter, and several of them would leave the event loop a small share."""
        async with self._looking_up:
            errors = await result_of(self.readers, lambda: look_up_all(wanted))
        for (log, _, result), error in zip(wanted, errors, strict=True):
            if error is not None:
                self._not_looked_up(log, result, error)

    def _not_looked_up(self, log: Log, result: metadata_pb2.ListOffsetsResult, error: OSError | MinilogError) -> None:
        """Make the error the answer. A failing disk takes the replica offline, where it still has that log. A missing
        file may have been cut away during the lookup."""
        fails = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        if fails:
            self.damaged(log, error)
        failure = error if isinstance(error, MinilogError) else StorageError(str(error))
        partition_id, leader_epoch = result.partition_id, result.leader_epoch
        refusal = metadata_pb2.ListOffsetsResult(
            partition_id=partition_id, error=wire_error(failure), leader_epoch=leader_epoch
        )
        result.CopyFrom(refusal)

    def compact(self, key: PartitionKey, point: CompactionPoint) -> None:
        """Announce a compaction point of a partition that this broker leads."""
        self._event(lambda: self.manager.compact(key, point, now_ms()))

    def damaged(self, log: Log, error: OSError | MinilogError) -> None:
        """Note that a read has found damage in a log. It has no effect where the replica has another log by now."""
        if self._directory.logs.get(log.key) is log and log.failed is None:
            self._event(lambda: self.manager.log_damaged(log.key, error, now_ms()))

    def fetch(self, session_id: int, request: data_pb2.FetchRequest) -> None:
        self._event(lambda: self.manager.fetch_request(session_id, request, now_ms()))
