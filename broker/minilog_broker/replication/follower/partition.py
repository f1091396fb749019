"""A replica that follows one leader in one leader epoch: of data, and of the metadata log.

    state       meaning
    IDLE        the follower is new, or the session is lost
    FETCHING    a position is sent or due
    DIVERGED    the leader has named the point where the logs differ. The follower waits for appends under way
    TRUNCATING  the disk truncates, even if the session is lost. A new follower may begin in this state
    PAUSED      the follower drops runs for a while: after a retriable error, a corrupt batch, a full disk

The follower appends a run only if its leader epoch, its position number and the epoch of the record before it are the
follower's current ones, and if it begins at the follower's end. Else the follower drops the run, gives its credit back,
and sends a new position. It sends none for a run of an older position, because the newer position is on its way.
Progress is the durable end and nothing else. The follower adopts the high watermark after truncation, clamped to its
durable end. The rules of committing belong to the leader.
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
from minilog_broker.replication.rules.divergence import NO_COMMON_EPOCH, Diverged, StartAnewAt, TruncateTo, truncation
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.markers import Marker, read_markers
from minilog_broker.storage.producer_state import restored

CORRUPT_TIMES = 3  # the same offset comes damaged this often before the follower asks the leader to check its own copy


class FollowerState(enum.Enum):
    """The states of a replica that follows. WAYS has the transitions."""

    IDLE = enum.auto()
    FETCHING = enum.auto()
    DIVERGED = enum.auto()
    TRUNCATING = enum.auto()
    PAUSED = enum.auto()


WAYS = {
    (FollowerState.IDLE, FollowerState.FETCHING): "connect: a position is due",
    (FollowerState.IDLE, FollowerState.PAUSED): "an earlier append fails, because the disk is full",
    (FollowerState.FETCHING, FollowerState.IDLE): "disconnect",
    (FollowerState.FETCHING, FollowerState.PAUSED): "a retriable error, a corrupt batch, a full disk",
    (FollowerState.FETCHING, FollowerState.DIVERGED): "the leader names the point where the logs differ, or lets a "
    "deletion go that the follower does not have",
    (FollowerState.DIVERGED, FollowerState.TRUNCATING): "all appends under way are answered",
    (FollowerState.DIVERGED, FollowerState.PAUSED): "the same, and nothing is to be cut; or a full disk",
    (FollowerState.TRUNCATING, FollowerState.FETCHING): "truncated: a new position is due",
    (FollowerState.TRUNCATING, FollowerState.IDLE): "truncated, without a session",
    (FollowerState.TRUNCATING, FollowerState.PAUSED): "a full disk: nothing was cut",
    (FollowerState.PAUSED, FollowerState.FETCHING): "the pause is over: a new position is due",
    (FollowerState.PAUSED, FollowerState.IDLE): "disconnect, or the pause is over without a session",
}
"""All transitions, each with its cause."""


class Outbox(Protocol):
    """The session to the leader, as its followers see it."""

    def position_due(self, key: PartitionKey) -> None:
        """Ask this follower for its position with the next request."""

    def progress_due(self, key: PartitionKey) -> None:
        """Ask this follower for its progress with the next request."""

    def resume_at(self, key: PartitionKey, due_ms: float) -> None:
        """Call `resume` at `due_ms`."""

    def next_position_number(self) -> int:
        """A number that this life has not used. So an answer to an older position cannot pass for a newer one's."""

    def credit_source(self) -> tuple[int, int]:
        """(leader id, session number) of the session that gets the credit of an append's bytes back."""


class FollowerPartition:
    """Fetches one log from one leader.

    It calls `on_change(now_ms)` when there may be news for readers here, and `follow_log_start(offset)` to delete the
    records that the leader has deleted. `has_readers` is whether consumers read here."""

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
        self.no_space = False  # the disk was full, and no later append or check has found space
        self.log = log
        self.state = FollowerState.TRUNCATING if log.truncating else FollowerState.IDLE
        self.position_number = 0
        self.leader_high_watermark = 0
        self.leader_log_start = 0
        self._stable: tuple[int, int] | None = None  # the leader's high watermark and last stable offset of one moment
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
        self._divergence: tuple[Diverged, int] | None = None
        self._is_overtaken = False  # it begins anew because of compaction, and loses nothing that the leader has
        self._outbox = outbox
        self._emit = emit
        self._settings = settings
        self._partition_id = key.to_wire()

    # -- to the leader

    def connect(self) -> None:
        """Note that the session is open."""
        self._connected = True
        if self.state in (FollowerState.IDLE, FollowerState.FETCHING, FollowerState.PAUSED):
            self._take_position()

    def disconnect(self) -> None:
        """Note that the session is lost. The disk's work goes on."""
        self._connected = self.accepted = False
        if self.state in (FollowerState.FETCHING, FollowerState.PAUSED):
            self.state = FollowerState.IDLE

    def resume(self) -> None:
        """End a pause."""
        if self.state is FollowerState.PAUSED:
            self._take_position()

    def position(self) -> data_pb2.FetchPosition | None:
        """The position from which the leader should send. None while it is not known."""
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
        """The proven end, with the position that it belongs to. None while our log may differ from the leader's."""
        if self.state is not FollowerState.FETCHING and not (self.no_space and self.state is FollowerState.PAUSED):
            return None
        durable_end, self._told_readers = self.log.proven_end, self._has_readers()
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
        """Tell the leader at once that a consumer reads here. The news that the last one has left waits for the next
        progress."""
        if not self._told_readers and self._connected:
            self._outbox.progress_due(self.key)

    def learn(self, partition_epoch: int, *, in_sync: bool) -> None:
        """Take the new committed state. Outside the ISR, only progress under the newest state counts at the leader."""
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
        """Drop all runs, and ask again after `pause_ms`."""
        self.state = FollowerState.PAUSED
        self._outbox.resume_at(self.key, now_ms + pause_ms)

    def found_no_space(self, now_ms: float) -> None:
        """Tell the leader that it need not wait for us, because the disk is full, and try again after a pause."""
        self.no_space = True
        self.pause(now_ms, self._settings.no_space_pause_ms)
        if self._connected:
            self._outbox.progress_due(self.key)

    def disk_changed(self, *, space_is_back: bool) -> None:
        """Tell the leader that the disk answers no more, answers again, or has space again.

        An append would show the space, too. But perhaps no append comes while the leader waits for this follower."""
        self.no_space &= not space_is_back
        if self._connected:
            self._outbox.progress_due(self.key)

    # -- from the leader

    def receive(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> int:
        """Take a run with its batches, or news. Returns the bytes whose credit goes back at once. The credit of
        appended bytes goes back when they are written."""
        returned_bytes = self._receive(run, batches, now_ms)
        self.on_change(now_ms)
        return returned_bytes

    def _receive(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> int:
        size_bytes = len(batches)
        if run.leader_epoch != self.leader_epoch or run.position_number != self.position_number:
            # The run answers an older position or epoch. The newer position is on its way, or waits at the leader.
            return size_bytes
        if self.state is not FollowerState.FETCHING:
            return size_bytes
        if run.error.code:
            self._refused(run, now_ms)
            return size_bytes
        if run.HasField("diverging_epoch"):
            diverged = Diverged(run.diverging_epoch.epoch, run.diverging_epoch.end_offset)
            self._diverged(diverged, run.log_start_offset, now_ms)
            return size_bytes
        if run.HasField("compaction") and not self._learn_compaction(run, now_ms):
            return size_bytes
        if (producers_below := run.producers_below) and not self._take_producers(producers_below, now_ms):
            return size_bytes
        if size_bytes and not self._append(run, batches, now_ms):
            return size_bytes
        if not self.accepted:
            # Repeat the progress. The leader did not count it if it could check the position only later.
            self.accepted = True
            self._outbox.progress_due(self.key)
        self.leader_high_watermark = max(self.leader_high_watermark, run.high_watermark)
        self.leader_log_start = max(self.leader_log_start, run.log_start_offset)
        self._stable = self._stable or (run.high_watermark, run.last_stable_offset)
        self._adopt()
        return 0

    def _learn_compaction(self, run: data_pb2.PartitionRun, now_ms: float) -> bool:
        """Take the leader's compaction point. False if this copy lacks deletions that the leader does not have any
        more: then it begins anew."""
        point = run.compaction
        is_new_leader = not self.accepted
        if self.log.lacks_deletions(point.deletes_before, point.done_clean_to, is_new_leader=is_new_leader):
            self._is_overtaken = True
            self._diverged(Diverged(NO_COMMON_EPOCH, run.log_start_offset), run.log_start_offset, now_ms)
            return False
        self.log.learn_compaction(CompactionPoint(point.clean_to, point.deletes_before))
        return True

    def _take_producers(self, snapshot: bytes, now_ms: float) -> bool:
        """Adopt the leader's state of the producers whose batches the leader's log does not show any more. The disk
        stores a new state before it appends the run."""
        try:
            news = self.log.producers.adopt(restored(snapshot))
        except CorruptFile:
            self.pause(now_ms, self._settings.corrupt_pause_ms)
            return False
        if news:
            self._emit(WriteProducerSnapshot(self.key, self.log.end, self.log.producers.snapshot()))
        return True

    def _adopt(self) -> None:
        """Adopt the leader's high watermark, up to our durable end. Adopt its log start, the ends of its transactions,
        and its compaction point, if our log allows it."""
        self.log.raise_high_watermark(self.leader_high_watermark)
        self._follow_log_start(self.leader_log_start)
        self._abort_unmarked()
        if (begin := self.log.due_compaction(self.key)) is not None:
            self._emit(begin)

    def _abort_unmarked(self) -> None:
        """Abort the transactions whose markers are gone from the leader's log, as soon as this copy has all that the
        leader had below its high watermark at one moment.

        The follower keeps the two ends of that moment until then. Under load newer ends come faster than this copy can
        reach them."""
        if self._stable is None or self.log.aborting or self.log.durable_end < self._stable[0]:
            return
        (_, stable_offset), self._stable = self._stable, None
        if (abort := self.log.due_abort(self.key, stable_offset)) is not None:
            self._emit(abort)

    def log_start_moved(self) -> None:
        """Report our durable log start, for which the leader may wait."""
        if self.state is FollowerState.FETCHING:
            self._outbox.progress_due(self.key)

    def _refused(self, run: data_pb2.PartitionRun, now_ms: float) -> None:
        if run.error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE and run.log_start_offset > self.log.end:
            self._diverged(Diverged(-1, run.log_start_offset), run.log_start_offset, now_ms)
        else:
            self.pause(now_ms, self._settings.retry_pause_ms)

    def _belongs(self, run: data_pb2.PartitionRun) -> bool:
        """Whether the run begins at our end, after a record of the same epoch as our last one.

        An empty log has no last record. A leader whose log starts there cannot name one, but has checked the position.
        """
        if run.first_offset != self.log.end:
            return False
        comparable = self.log.last_epoch is not None and run.HasField("previous_epoch")
        return not comparable or run.previous_epoch == self.log.last_epoch

    def _append(self, run: data_pb2.PartitionRun, batches: Buffer, now_ms: float) -> bool:
        """Append a run, or drop it (False)."""
        if not self._belongs(run):
            self._take_position()
            return False
        headers, markers, good_bytes, corrupt = self._check_batches(batches)
        if headers:
            # If the whole run is good, its bytes go to the disk without a copy.
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
        """Ask again after a pause for the batch that came damaged. The third time, the leader hears of it."""
        if self._corrupt_at == self.log.end:
            self._corrupt_times += 1
        else:
            self._corrupt_at, self._corrupt_times = self.log.end, 1
        if self._corrupt_times >= CORRUPT_TIMES:
            self.corrupt_offset = self._corrupt_at
        self.pause(now_ms, self._settings.corrupt_pause_ms)

    # -- truncation: first this, then the high watermark

    def _diverged(self, diverged: Diverged, leader_log_start: int, now_ms: float) -> None:
        self.state, self.accepted = FollowerState.DIVERGED, False
        self._divergence = (diverged, leader_log_start)
        self.settled(now_ms)

    def settled(self, now_ms: float) -> None:
        """Begin a truncation that waited until the disk had answered all commands."""
        if self.state is not FollowerState.DIVERGED or self._divergence is None or not self.log.settled:
            return
        (diverged, leader_log_start), self._divergence = self._divergence, None
        log = self.log
        what = truncation(
            log.log.epochs,
            log_start=log.log_start,
            log_end=log.end,
            diverged=diverged,
            leader_log_start=leader_log_start,
        )
        match what:
            case StartAnewAt(offset=offset):
                lost = 0 if self._is_overtaken else max(0, log.high_watermark - max(offset, log.log_start))
                self._is_overtaken = False
                log.begin_truncation(offset)
                self._emit(StartLogAt(self.key, offset, lost))
            case TruncateTo(end_offset=end_offset) if end_offset < log.asked_compaction.clean_to:
                # Without the records above the cut, older records of their keys would be missing below it.
                lost = max(0, log.high_watermark - end_offset)
                log.begin_truncation(leader_log_start)
                self._emit(StartLogAt(self.key, leader_log_start, lost))
            case _ if what.end_offset == log.end:
                self.pause(now_ms, self._settings.retry_pause_ms)  # nothing to cut: ask again after a pause
                return
            case _:
                lost = max(0, log.high_watermark - what.end_offset)
                log.begin_truncation(what.end_offset)
                self._emit(TruncateLog(self.key, what.end_offset, lost))
        self.state = FollowerState.TRUNCATING
        self.leader_high_watermark = self.leader_log_start = 0
        self._stable = None

    def truncated(self) -> None:
        """Ask again from the new end, because the disk has truncated (log.truncated() was called)."""
        if self.state is FollowerState.TRUNCATING:
            self._take_position()

    def flushed(self) -> None:
        """Note that the disk has space, and that the durable end moved."""
        self.no_space = False
        self.proven_end_moved()

    def proven_end_moved(self) -> None:
        """Adopt the leader's ends and report progress, because more is durable, or a transaction without a marker has
        ended."""
        self._adopt()
        if self.state is FollowerState.FETCHING:
            self._outbox.progress_due(self.key)
