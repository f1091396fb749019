"""A replica that follows one leader in one leader epoch: of data, and of the metadata log.

    state       what it is
    IDLE        made; the session is lost
    FETCHING    a position is sent or due
    DIVERGED    the leader told where our log leaves its own: appends under way are waited for
    TRUNCATING  the disk truncates, whatever the session does; a new one may begin so
    PAUSED      what comes is dropped for a while: a retriable error, a corrupt batch, a full disk

A run is appended only if its leader epoch, its position number and the epoch of the record before it are our own
current ones and it begins at our end. Else it is dropped, its credit goes back, and a new position goes out; a run
sent for an older position is dropped without that, for the newer one is on its way. Progress is the durable end and
nothing else. The high watermark is adopted after truncation, clamped to the durable end. Who commits, and by which
rule, is the leader's matter.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, check_crc, iterate_headers
from minilog.v1 import common_pb2, data_pb2, peer_pb2
from minilog_broker.replication.replica_effects import (
    AppendToLog,
    Effect,
    LaterVersionMet,
    PlacedBatches,
    StartLogAt,
    TruncateLog,
    WriteProducerSnapshot,
)
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.replication.rules.divergence import Diverged, StartAnewAt, truncation
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.markers import Marker, read_markers
from minilog_broker.storage.producer_state import restored

CORRUPT_TIMES = 3  # so often the same offset came damaged before the leader is told to look at its own copy


class FollowerState(enum.Enum):
    """The states of a replica that follows. WAYS has the transitions."""

    IDLE = enum.auto()
    FETCHING = enum.auto()
    DIVERGED = enum.auto()
    TRUNCATING = enum.auto()
    PAUSED = enum.auto()


WAYS = {
    (FollowerState.IDLE, FollowerState.FETCHING): "connect: a position is due",
    (FollowerState.IDLE, FollowerState.PAUSED): "an append of before finds the disk full",
    (FollowerState.FETCHING, FollowerState.IDLE): "disconnect",
    (FollowerState.FETCHING, FollowerState.PAUSED): "a retriable error, a corrupt batch, a full disk",
    (FollowerState.FETCHING, FollowerState.DIVERGED): "the leader says where our log leaves its own",
    (FollowerState.DIVERGED, FollowerState.TRUNCATING): "all appends under way are answered",
    (FollowerState.DIVERGED, FollowerState.PAUSED): "the same, and nothing is to be cut; or a full disk",
    (FollowerState.TRUNCATING, FollowerState.FETCHING): "truncated: a new position is due",
    (FollowerState.TRUNCATING, FollowerState.IDLE): "truncated, without a session",
    (FollowerState.TRUNCATING, FollowerState.PAUSED): "a full disk: nothing was cut",
    (FollowerState.PAUSED, FollowerState.FETCHING): "the pause is over: a new position is due",
    (FollowerState.PAUSED, FollowerState.IDLE): "disconnect, or the pause is over without a session",
}
"""Every way from a state to another."""


class Outbox(Protocol):
    """The session to the leader, as its followers see it."""

    def position_due(self, key: PartitionKey) -> None:
        """Ask this follower for its position with the next request."""

    def progress_due(self, key: PartitionKey) -> None:
        """Ask this follower for its progress with the next request."""

    def resume_at(self, key: PartitionKey, due_ms: float) -> None:
        """Call `resume` then."""

    def next_position_number(self) -> int:
        """One that this life has not used: what was said of an older position stays that, whoever followed then."""

    def credit_source(self) -> tuple[int, int]:
        """(leader id, session number): whom an append's bytes are given back to."""


class FollowerPartition:
    """Fetches one log from one leader.

    `on_change(now_ms)` is told when what may be read here can have changed. `follow_log_start(offset)` is asked to
    delete what the leader has deleted. `has_readers`: whether consumers read here."""

    def __init__(
        self,
        key: PartitionKey,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        log: ReplicaLog,
        outbox: Outbox,
        emit: Callable[[Effect], None],
        settings: ReplicationSettings,
        on_change: Callable[[float], None],
        follow_log_start: Callable[[int], None],
        disk_answers: Callable[[], bool],
        has_readers: Callable[[], bool],
    ) -> None:
        self.key = key
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.no_space = False  # the disk was found full, and neither an append nor a look has found space since
        self.log = log
        self.state = FollowerState.TRUNCATING if log.truncating else FollowerState.IDLE
        self.position_number = 0
        self.leader_high_watermark = 0
        self.leader_log_start = 0
        self.accepted = False  # the leader has accepted a position of ours, in the session that is open
        self.on_change = on_change
        self._follow_log_start = follow_log_start
        self._disk_answers = disk_answers
        self._has_readers = has_readers
        self._told_readers = False
        self.corrupt_offset: int | None = None
        self._corrupt_at = -1
        self._corrupt_times = 0
        self._connected = False
        self._told: tuple[Diverged, int] | None = None
        self._outbox = outbox
        self._emit = emit
        self._settings = settings
        self._partition_id = key.to_wire()

    # -- what goes to the leader

    def connect(self) -> None:
        """The session is open."""
        self._connected = True
        if self.state in (FollowerState.IDLE, FollowerState.FETCHING, FollowerState.PAUSED):
            self._take_position()

    def disconnect(self) -> None:
        """The session is lost; what the disk does goes on."""
        self._connected = self.accepted = False
        if self.state in (FollowerState.FETCHING, FollowerState.PAUSED):
            self.state = FollowerState.IDLE

    def resume(self) -> None:
        """A pause is over."""
        if self.state is FollowerState.PAUSED:
            self._take_position()

    def position(self) -> data_pb2.FetchPosition | None:
        """Where to send from; None while that is not known."""
        if self.state is not FollowerState.FETCHING:
            return None
        return data_pb2.FetchPosition(
            partition_id=self._partition_id,
            position_number=self.position_number,
            fetch_offset=self.log.end,
            leader_epoch=self.leader_epoch,
            last_fetched_epoch=self.log.last_epoch,
        )

    def progress(self) -> peer_pb2.ReplicaProgress | None:
        """The durable end, named by the position it belongs to; None while our log is not known to be the leader's."""
        if self.state is not FollowerState.FETCHING and not (self.no_space and self.state is FollowerState.PAUSED):
            return None
        durable_end, self._told_readers = self.log.durable_end, self._has_readers()
        return peer_pb2.ReplicaProgress(
            partition_id=self._partition_id,
            leader_epoch=self.leader_epoch,
            position_number=self.position_number,
            durable_end_offset=durable_end,
            last_epoch=self.log.last_epoch if durable_end == self.log.end else self.log.log.epoch_before(durable_end),
            corrupt_offset=self.corrupt_offset,
            log_start_offset=self.log.log_start,
            partition_epoch=self.partition_epoch,
            takes_no_records=self.no_space or not self._disk_answers(),
            unsynced=not self.log.flush_on_append,
            no_readers=not self._told_readers,
        )

    def reader_came(self) -> None:
        """A consumer asks here: the leader is to hear of it. That it went is said with the next progress."""
        if not self._told_readers and self._connected:
            self._outbox.progress_due(self.key)

    def learn(self, partition_epoch: int, *, in_sync: bool) -> None:
        """The committed state changed: outside the ISR, the leader counts what is told under the newest one."""
        self.partition_epoch = partition_epoch
        if not in_sync:
            self._outbox.progress_due(self.key)

    def _take_position(self) -> None:
        self.position_number = self._outbox.next_position_number()
        if not self._connected:
            self.state = FollowerState.IDLE
            return
        self.state = FollowerState.FETCHING
        self._outbox.position_due(self.key)
        self._outbox.progress_due(self.key)

    def pause(self, now_ms: float, pause_ms: float) -> None:
        """Drop what comes, and ask again after `pause_ms`."""
        self.state = FollowerState.PAUSED
        self._outbox.resume_at(self.key, now_ms + pause_ms)

    def found_no_space(self, now_ms: float) -> None:
        """The disk is full: the leader is told that it need not wait for us, and it is tried again after a pause."""
        self.no_space = True
        self.pause(now_ms, self._settings.no_space_pause_ms)
        if self._connected:
            self._outbox.progress_due(self.key)

    def disk_changed(self, *, space_is_back: bool) -> None:
        """It answers no more, or again, or has space again: the leader is told. An append would show the space, too;
        but there may be none for as long as we are waited for."""
        self.no_space &= not space_is_back
        if self._connected:
            self._outbox.progress_due(self.key)

    # -- what comes from the leader

    def receive(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> int:
        """Take a run with its batches, or news. Returns the bytes whose credit goes back at once; those appended go
        back when written."""
        returned_bytes = self._receive(run, batches, now_ms)
        self.on_change(now_ms)
        return returned_bytes

    def _receive(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> int:
        size_bytes = len(batches)
        if run.leader_epoch != self.leader_epoch or run.position_number != self.position_number:
            # Sent for an older position, or in an older epoch: ours is on its way, or waits there for our epoch.
            return size_bytes
        if self.state is not FollowerState.FETCHING:
            return size_bytes
        if run.error.code:
            self._refused(run, now_ms)
            return size_bytes
        if run.HasField("diverging_epoch"):
            told = Diverged(run.diverging_epoch.epoch, run.diverging_epoch.end_offset)
            self._diverged(told, run.log_start_offset, now_ms)
            return size_bytes
        if (producers_below := run.producers_below) and not self._take_producers(producers_below, now_ms):
            return size_bytes
        if size_bytes and not self._append(run, batches, now_ms):
            return size_bytes
        if not self.accepted:
            # What came with the position was not counted where the leader could judge it only later: say it again.
            self.accepted = True
            self._outbox.progress_due(self.key)
        self.leader_high_watermark = max(self.leader_high_watermark, run.high_watermark)
        self.leader_log_start = max(self.leader_log_start, run.log_start_offset)
        self._adopt()
        return 0

    def _take_producers(self, snapshot: bytes, now_ms: float) -> bool:
        """Our log is empty and begins here: who wrote below is known to the leader only. What is news is stored, before
        what follows."""
        try:
            news = self.log.producers.adopt(restored(snapshot))
        except CorruptFile:
            self.pause(now_ms, self._settings.corrupt_pause_ms)
            return False
        if news:
            self._emit(WriteProducerSnapshot(self.key, self.log.end, self.log.producers.snapshot()))
        return True

    def _adopt(self) -> None:
        """What the leader says, as far as it is durable here; its log start at once, or not yet."""
        self.log.raise_high_watermark(self.leader_high_watermark)
        self._follow_log_start(self.leader_log_start)

    def log_start_moved(self) -> None:
        """It is durable: the leader may wait for that."""
        if self.state is FollowerState.FETCHING:
            self._outbox.progress_due(self.key)

    def _refused(self, run: data_pb2.PartitionRun, now_ms: float) -> None:
        if run.error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE and run.log_start_offset > self.log.end:
            self._diverged(Diverged(-1, run.log_start_offset), run.log_start_offset, now_ms)
        else:
            self.pause(now_ms, self._settings.retry_pause_ms)

    def _belongs(self, run: data_pb2.PartitionRun) -> bool:
        """Whether the run begins at our end, after a record of the epoch that ours has there.

        An empty log has no record there; a leader whose log starts there has none to name, but checked.
        """
        if run.first_offset != self.log.end:
            return False
        known = self.log.last_epoch is not None and run.HasField("previous_epoch")
        return not known or run.previous_epoch == self.log.last_epoch

    def _append(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> bool:
        """Append a run, or drop it (False)."""
        if not self._belongs(run):
            self._take_position()
            return False
        headers, markers, good_bytes, corrupt = self._check_batches(batches)
        if headers:
            # The whole run where it is good: its bytes go to the disk as they came.
            buffer = batches if good_bytes == len(batches) else memoryview(batches)[:good_bytes]
            credit = self._outbox.credit_source()
            self.log.queue_append(QueuedAppend(headers, len(batches), credit, markers))
            self._emit(AppendToLog(self.key, PlacedBatches(headers, (buffer,))))
        if corrupt:
            self._came_corrupt(now_ms)
        elif self.corrupt_offset is not None or self._corrupt_times:
            self.corrupt_offset, self._corrupt_times = None, 0
        return bool(headers)

    def _check_batches(
        self, batches: Buffer
    ) -> tuple[tuple[BatchHeader, ...], dict[int, tuple[Marker, ...]], int, bool]:
        """(headers of the good batches, the markers among them, their bytes, whether a bad one follows)."""
        headers: list[BatchHeader] = []
        markers: dict[int, tuple[Marker, ...]] = {}
        good_bytes, end, epoch = 0, self.log.end, self.log.last_epoch
        view = memoryview(batches)
        try:
            for position, header in iterate_headers(batches):
                batch = view[position : position + header.length]
                check_crc(self.key.topic_id, self.key.partition, batch, header)
                batch_epoch = header.partition_leader_epoch
                if header.base_offset != end or not (epoch or 0) <= batch_epoch <= self.leader_epoch:
                    raise CorruptMessage(
                        f"the batch at offset {header.base_offset} of epoch {batch_epoch} is out of order"
                    )
                if header.is_control:
                    markers[header.base_offset] = read_markers(batch, header)
                headers.append(header)
                good_bytes, end, epoch = position + header.length, header.next_offset, batch_epoch
        except CorruptMessage:
            return tuple(headers), markers, good_bytes, True
        except UnsupportedVersion as error:
            self._emit(LaterVersionMet(self.key, error))
            return tuple(headers), markers, good_bytes, True
        return tuple(headers), markers, good_bytes, False

    def _came_corrupt(self, now_ms: float) -> None:
        """The batch at our end came damaged: again after a pause, and the third time the leader is told."""
        if self._corrupt_at == self.log.end:
            self._corrupt_times += 1
        else:
            self._corrupt_at, self._corrupt_times = self.log.end, 1
        if self._corrupt_times >= CORRUPT_TIMES:
            self.corrupt_offset = self._corrupt_at
        self.pause(now_ms, self._settings.corrupt_pause_ms)

    # -- truncation: first this, then the high watermark

    def _diverged(self, told: Diverged, leader_log_start: int, now_ms: float) -> None:
        self.state, self.accepted = FollowerState.DIVERGED, False
        self._told = (told, leader_log_start)
        self.settled(now_ms)

    def settled(self, now_ms: float) -> None:
        """Called when the disk has answered all: a truncation that waited for it begins."""
        if self.state is not FollowerState.DIVERGED or self._told is None or not self.log.settled:
            return
        (told, leader_log_start), self._told = self._told, None
        log = self.log
        what = truncation(
            log.log.epochs, log_start=log.log_start, log_end=log.end, diverged=told, leader_log_start=leader_log_start
        )
        match what:
            case StartAnewAt(offset=offset):
                lost = max(0, log.high_watermark - max(offset, log.log_start))
                log.begin_truncation(offset)
                self._emit(StartLogAt(self.key, offset, lost))
            case _ if what.end_offset == log.end:
                self.pause(now_ms, self._settings.retry_pause_ms)  # nothing to cut: ask again, but not in a spin
                return
            case _:
                lost = max(0, log.high_watermark - what.end_offset)
                log.begin_truncation(what.end_offset)
                self._emit(TruncateLog(self.key, what.end_offset, lost))
        self.state = FollowerState.TRUNCATING
        self.leader_high_watermark = self.leader_log_start = 0

    def truncated(self) -> None:
        """The disk has truncated (log.truncated() was called): ask again from the new end."""
        if self.state is FollowerState.TRUNCATING:
            self._take_position()

    def flushed(self) -> None:
        """The durable end moved: adopt what the leader said, and tell it."""
        self.no_space = False
        self._adopt()
        if self.state is FollowerState.FETCHING:
            self._outbox.progress_due(self.key)
