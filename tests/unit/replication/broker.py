"""The shell of one broker of the fake world: carries out its core's effects on a disk in memory."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from minilog.errors import MinilogError, OffsetOutOfRange
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import HEADER_BYTES, Attributes, BatchHeader, batch_crc, decode_header, encode_header
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, metadata_pb2, peer_pb2
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication import replica_effects
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.replica_effects import AnswerProduce, ProposalAnswer, ProposeInSyncReplicas
from minilog_broker.replication.rules.check_position import GONE
from minilog_broker.server.disk.offset_lookups import is_looked_up, look_up_all
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.find_ends import EndsSearch
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.recovery import mark_damaged
from minilog_broker.storage.run_reads import read_run, read_run_now
from minilog_broker.storage.segment_name import SegmentName
from minilog_broker.storage.settings import LogSettings
from tests.world.disk import MemoryDisk

if TYPE_CHECKING:
    from tests.unit.replication.cluster import ReplicaCluster

TOPIC_ID = bytes(range(16))
KEY = PartitionKey(TOPIC_ID, 0)
NOW_US = 1_700_000_000_000_000


def batch(
    rows: int = 1, *, key: PartitionKey = KEY, producer: tuple[int, int, int] = (-1, -1, -1), size_bytes: int = 10
) -> bytes:
    """A client's batch. `producer`: id, epoch, base sequence."""
    columns = records_to_columns([b"x" * size_bytes] * rows)
    producer_id, producer_epoch, sequence = producer
    return build_batch(
        key.topic_id,
        key.partition,
        columns,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        timestamp_us=NOW_US,
    )


def transactional(data: bytes, *, key: PartitionKey = KEY) -> bytes:
    """The same batch as part of a transaction."""
    header = decode_header(data)
    header = replace(header, attributes=header.attributes | Attributes.TRANSACTIONAL)
    crc = batch_crc(key.topic_id, key.partition, encode_header(header) + data[HEADER_BYTES:])
    return encode_header(replace(header, crc=crc)) + data[HEADER_BYTES:]


@dataclass(eq=False)
class Link:
    """One Replicate stream: `up` to the leader, `down` to the follower. In order, until it breaks."""

    follower_id: int
    leader_id: int
    leader_broker_epoch: int
    session_id: int | None = None
    up: deque[peer_pb2.ReplicateRequest] = field(default_factory=deque)
    down: deque[StreamMessage[peer_pb2.ReplicateResponse]] = field(default_factory=deque)
    up_ready: bool = False
    down_ready: bool = False


class BrokerOfCores:
    """The shell of one broker: carries out effects. A crash makes a new life on what the disk kept."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.files = MemoryDisk()
        self.alive = True
        self.lives = 0
        self.version = 0  # changes with every change of a log
        self.kept: dict[PartitionKey, list[BatchHeader]] = {}  # what the disk kept at the last crash
        self.answers: dict[object, AnswerProduce] = {}
        self.links: dict[int, Link] = {}  # by leader
        self.let_go: Counter[PartitionKey] = Counter()  # logs that are deleted
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        self.version += 1
        self.level = ClusterLevel(SUPPORTED_LEVELS)
        self.manager = ReplicaManager(self.broker_id, self.cluster.settings, random.Random(self.broker_id), self.level)
        self.logs: dict[PartitionKey, Log] = {}
        self.disk: deque[Callable[[], None]] = deque()
        self.dirty: dict[PartitionKey, None] = {}
        self.reads: deque[replica_effects.ReadRun] = deque()  # that wait for the disk ...
        self.found: deque[Callable[[], None]] = deque()  # ... and are read, and not told
        self.proposals: deque[ProposeInSyncReplicas] = deque()  # on their way to the controller
        self.proposal_answers: deque[tuple[PartitionKey, ProposalAnswer | None]] = (
            deque()
        )  # on their way back; None: lost
        self.broker_epoch: int | None = None
        self.images_replayed = 0
        self.config = self.cluster.config  # as it was replayed
        self.offline: dict[PartitionKey, str] = {}
        self.refused: list[int] = []
        self.sessions: dict[int, Link] = {}  # served here
        self.consumers: dict[int, list[StreamMessage[data_pb2.FetchResponse]]] = {}
        self.consumers_ready: dict[int, None] = {}
        self.history: list[replica_effects.Effect] = []
        self.registrations: deque[replica_effects.RegisterPartition] = deque()  # asked, and not answered yet
        self.marked: dict[object, MinilogError | None] = {}
        self.deleted: dict[object, replica_effects.AnswerDeleteRecords] = {}

    # -- life

    def crash(self) -> None:
        """The process dies and the machine loses power."""
        self.kept = {key: self.headers_below(key, log.durable_end_offset) for key, log in self.logs.items()}
        self.version += 1
        self.alive = False
        self.files.lose_unsynced()
        for link in [*self.links.values(), *self.sessions.values()]:
            self.cluster.break_link(link)
        self.links.clear()

    def restart(self) -> None:
        """A new life: logs are recovered, then it registers and replays the metadata from the beginning."""
        keys = list(self.logs)
        self.alive = True
        self._begin()
        for key in keys:
            self.logs[key] = self._open(key, unclean=True)
            log = self.logs[key]
            self.manager.adopt_log(key, log, recover_producer_state(log), self.cluster.now_ms)
        self.register()

    def register(self) -> None:
        self.broker_epoch = self.cluster.controller.register(self.broker_id)
        self.manager.set_broker_epoch(self.broker_epoch, self.cluster.now_ms)

    def _open(self, key: PartitionKey, *, unclean: bool = False) -> Log:
        settings = LogSettings(flush_on_append=self.cluster.config.flush_on_append)
        path = f"/topic-{key.partition}-{self.let_go[key]}"
        return Log.open(self.files, path, key, "topic", settings, unclean=unclean, create=True)

    # -- effects

    def run(self) -> None:
        """Carry out what the core asks for."""
        while todo := self.manager.take_effects():
            for effect in todo:
                self.history.append(effect)
                self._carry_out(effect)

    def _carry_out(self, effect: replica_effects.Effect) -> None:
        match effect:
            case replica_effects.AnswerProduce(ticket=ticket):
                assert ticket not in self.answers, "answered twice"
                self.answers[ticket] = effect
                self.cluster.answered(self, effect)
            case replica_effects.SessionReady(session_id=session_id):
                if session_id in self.sessions:
                    self.sessions[session_id].down_ready = True
                elif session_id in self.consumers:
                    self.consumers_ready[session_id] = None
            case replica_effects.SessionRefused(session_id=session_id):
                self.refused.append(session_id)
                if session_id in self.sessions:
                    self.cluster.break_link(self.sessions[session_id])
            case replica_effects.OpenFetcherStream(leader_id=leader_id, broker_epoch=epoch):
                self._close_link(leader_id)
                self.links[leader_id] = Link(self.broker_id, leader_id, epoch)
            case replica_effects.CloseFetcherStream(leader_id=leader_id):
                self._close_link(leader_id)
            case replica_effects.FetcherStreamReady(leader_id=leader_id):
                if leader_id in self.links:
                    self.links[leader_id].up_ready = True
            case replica_effects.ProposeInSyncReplicas():
                self.proposals.append(effect)
            case replica_effects.RegisterPartition():
                self.registrations.append(effect)
            case replica_effects.AnswerMarkers(ticket=ticket, error=error):
                assert ticket not in self.marked, "answered twice"
                self.marked[ticket] = error
            case replica_effects.AnswerDeleteRecords(ticket=ticket):
                assert ticket not in self.deleted, "answered twice"
                self.deleted[ticket] = effect
            case replica_effects.PartitionOffline(key=key, reason=reason):
                self.offline[key] = reason
            case replica_effects.ReadRun():
                self.reads.append(effect)
            case replica_effects.StableOffsetMoved():
                pass  # a test reads it in the history
            case _:
                self.disk.append(lambda: self._work(effect))

    def list_offsets(self, entry: metadata_pb2.ListOffsetsEntry) -> metadata_pb2.ListOffsetsResult:
        """As a client is answered."""
        result = self.manager.list_offsets(entry, self.cluster.now_ms)
        if is_looked_up(entry) and not result.HasField("error"):
            assert look_up_all([(self.logs[PartitionKey.of(entry.partition_id)], entry, result)]) == [None]
        return result

    def next_message(self, session_id: int) -> StreamMessage[Any] | None:
        """What a session here says next: what is in memory of it is read at once, the rest by the disk."""
        manager, now_ms = self.manager, self.cluster.now_ms
        while (asked := manager.next_read(session_id, now_ms)) is not None:
            log = self.logs.get(asked.key)
            batches = b"" if log is None else read_run_now(log, asked)
            if batches is None:
                manager.run_not_in_memory(asked)
            else:
                manager.run_read(asked, batches, now_ms)
        message = manager.next_message(session_id, now_ms)
        self.run()
        return message

    def _close_link(self, leader_id: int) -> None:
        link = self.links.pop(leader_id, None)
        if link is not None:
            self.cluster.break_link(link, tell_follower=False)

    def _work(self, effect: replica_effects.Effect) -> None:
        """What the disk thread does."""
        now_ms, manager = self.cluster.now_ms, self.manager
        self.version += 1
        match effect:
            case replica_effects.OpenLog(key=key):
                self.logs[key] = self._open(key)
                manager.log_opened(key, self.logs[key], ProducerState(), now_ms)
            case replica_effects.RecoverLog(key=key, differs_from=differs_from):
                self._recover(key, differs_from)
            case replica_effects.CheckCopy(key=key, offset=offset, max_bytes=max_bytes):
                log = self.logs.get(key)
                error = None if log is None else check_copy(log, *key, offset, max_bytes)
                manager.copy_checked(key, offset, error, now_ms)
            case replica_effects.ConfigureLog(key=key, config=config):
                self.logs[key].configure(LogSettings(flush_on_append=config.flush_on_append))
                manager.log_configured(key, config, now_ms)
            case replica_effects.DeleteLog(key=key):
                self.logs.pop(key, None)
                self.let_go[key] += 1
            case replica_effects.AppendToLog(key=key, batches=batches):
                self._append(key, batches)
            case replica_effects.RecordEpochStart(key=key, leader_epoch=epoch, start_offset=start):
                self.logs[key].assign_epoch(epoch, start)
            case replica_effects.TruncateLog(key=key, end_offset=end_offset):
                try:
                    self.logs[key].truncate_to(end_offset)
                except OSError as error:
                    manager.log_failed(key, error, now_ms)
                else:
                    manager.log_truncated(key, recover_producer_state(self.logs[key]), now_ms)
            case replica_effects.StartLogAt(key=key, offset=offset):
                self.logs[key].truncate_fully_and_start_at(offset)
                manager.log_truncated(key, recover_producer_state(self.logs[key]), now_ms)
            case replica_effects.AdvanceLogStart(key=key):
                self.logs[key].delete_records(effect.offset, effect.snapshot_offset, effect.snapshot)
                manager.log_start_moved(key, now_ms)
            case replica_effects.BeginCompaction(key=key, point=point):
                self.logs[key].begin_compaction(point, effect.snapshot_offset, effect.snapshot)
            case replica_effects.FindBatch(key=key, leader_epoch=leader_epoch, offset=offset):
                try:
                    base = self.logs[key].batch_base(offset)
                except OffsetOutOfRange:
                    base = GONE
                manager.batch_found(key, leader_epoch, offset, base, now_ms)
            case replica_effects.FindEnds(key=key):
                search = EndsSearch(effect.producer_ids, effect.within)
                while not search.finished:
                    search.step(self.logs[key])
                manager.ends_found(key, effect.number, search.ends)
            case replica_effects.WriteProducerSnapshot(key=key, offset=offset, snapshot=snapshot):
                self.logs[key].write_producer_snapshot(offset, snapshot)
            case replica_effects.AbortUnmarked(key=key, below=below, offset=offset, snapshot=snapshot):
                self.logs[key].write_lasting_producer_snapshot(offset, snapshot)
                manager.transactions_aborted(key, below, now_ms)

    def _recover(self, key: PartitionKey, differs_from: int | None) -> None:
        """A log that was found damaged in this life."""
        log = self.logs[key]
        mark_damaged(self.files, log.directory, self.offline[key])
        log.close(clean=False)
        self.logs[key] = self._open(key, unclean=True)
        if differs_from is not None:
            self.logs[key].truncate_to(differs_from)
        del self.offline[key]
        self.manager.log_opened(key, self.logs[key], recover_producer_state(self.logs[key]), self.cluster.now_ms)

    def _append(self, key: PartitionKey, batches: replica_effects.PlacedBatches) -> None:
        log = self.logs[key]
        if log.log_end_offset != batches.first_offset:
            return  # an append in front of it failed, which was told
        try:
            log.append(batches)
        except OSError as error:
            self.manager.log_failed(key, error, self.cluster.now_ms)
            return
        self.dirty[key] = None
        self.manager.log_appended(key, batches.end_offset, self.cluster.now_ms)

    def work(self) -> None:
        """The disk's next command."""
        self.disk.popleft()()
        self.run()

    def read(self) -> None:
        """The disk reads the next run that waits for it: what it finds now is told later."""
        self.found.append(self._read(self.reads.popleft()))

    def _read(self, asked: replica_effects.ReadRun) -> Callable[[], None]:
        manager, cluster = self.manager, self.cluster
        log = self.logs.get(asked.key)
        try:
            batches = b"" if log is None else read_run(log, asked)
        except (OSError, MinilogError) as error:
            failure = error
            return lambda: manager.read_failed(asked, failure, cluster.now_ms)
        return lambda: manager.run_read(asked, batches, cluster.now_ms)

    def tell_of_read(self) -> None:
        """What was read first is told."""
        self.found.popleft()()
        self.run()

    def flush(self) -> None:
        """Sync what was written (the disk thread's group commit)."""
        dirty, self.dirty = self.dirty, {}
        self.version += 1
        for key in dirty:
            if key not in self.logs:
                continue
            try:
                self.logs[key].flush()
            except OSError as error:
                self.manager.log_failed(key, error, self.cluster.now_ms)
            else:
                self.manager.log_flushed(key, self.logs[key].durable_end_offset, self.cluster.now_ms)
        self.run()

    def flip_bit(self, position: int = -1, key: PartitionKey = KEY) -> None:
        """A bit of its copy is not what was written; a position below 0 counts from the end."""
        path = SegmentName(0).path(self.logs[key].directory)
        self.files.flip_bit(path, position % self.files.size(path), 0)

    # -- views for tests

    def leader(self, key: PartitionKey = KEY) -> LeaderPartition | None:
        return next((led for led in self.manager.led_partitions() if led.key == key), None)

    def headers(self, key: PartitionKey = KEY) -> list[BatchHeader]:
        log = self.logs[key]
        return [header for header, _ in log.replay(log.log_start_offset)]

    def headers_below(self, key: PartitionKey, end_offset: int) -> list[BatchHeader]:
        return [header for header in self.headers(key) if header.next_offset <= end_offset]

    def ends(self, key: PartitionKey = KEY) -> tuple[int, int, int]:
        """(high watermark, durable end, end)."""
        log = self.logs[key]
        return log.high_watermark, log.durable_end_offset, log.log_end_offset
