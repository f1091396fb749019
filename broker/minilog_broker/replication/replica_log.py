"""A log from the view of its core. The core knows its own commands to the disk and the disk's answers. It does not look
at the state of the disk's thread.

    log_start <= last_stable_offset <= high_watermark <= durable_end <= appended_end <= end

`end` counts the appends that the disk has not answered yet. The log is readable up to `appended_end`. It survives a
loss of power up to `durable_end`, and only that counts for progress and the high watermark. Under flush.policy=os the
durable end is the appended end. The policy (`flush_on_append`) belongs to the log, and changes in turn with the other
commands. The disk carries commands out in order, so the answers come in order, too.

The state of producers and transactions belongs to the readable log. It changes when the disk has answered an append,
never before. The last stable offset moves only with the high watermark: a transaction begins at or above the high
watermark, and has ended when the high watermark has passed its marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader
from minilog_broker.replication.replica_effects import AbortUnmarked, BeginCompaction
from minilog_broker.storage.compaction_point import NOT_COMPACTED, CompactionPoint
from minilog_broker.storage.markers import Marker
from minilog_broker.storage.producer_state import ProducerState, restored

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """One snapshot of a log's offsets."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    compaction: CompactionPoint = NOT_COMPACTED  # the known point
    done_clean_to: int = 0  # of the point that this copy has carried out


@dataclass(frozen=True, slots=True)
class QueuedAppend:
    """An append on its way to the disk.

    `credit` is the (leader id, session number) that gets the credit back, None for the broker's own appends. `markers`
    are those of its control batches, by their offsets."""

    headers: tuple[BatchHeader, ...]
    size_bytes: int
    credit: tuple[int, int] | None
    markers: Mapping[int, tuple[Marker, ...]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.headers[-1].next_offset


class ReplicaLog:
    """A replica's log, as the commands to the disk and the disk's answers describe it.

    One per replica. All roles of the replica share it.
    """

    __slots__ = (
        "aborting",
        "appended_end",
        "asked_compaction",
        "asked_log_start",
        "clean_at_start",
        "compaction",
        "cuts",
        "durable_end",
        "end",
        "flush_on_append",
        "high_watermark",
        "last_epoch",
        "last_stable_offset",
        "log",
        "producers",
        "queue",
        "truncating",
    )

    def __init__(self, log: Log, producers: ProducerState | None = None) -> None:
        self.log = log
        self.producers = ProducerState() if producers is None else producers
        self.queue: deque[QueuedAppend] = deque()
        self.truncating = False
        self.cuts = 0  # each cut counts when it begins and when it is done, to tell reads before and after it apart
        self.high_watermark = 0
        self.flush_on_append = log.settings.flush_on_append
        self.compaction = self.asked_compaction = NOT_COMPACTED  # the known point, and the one the disk was given
        self.clean_at_start = 0  # the leader's log was clean up to here when this copy began empty, as far as we know
        self._adopt_ends()

    def _adopt_ends(self) -> None:
        """Take the ends from the disk's log, at a time when the disk has no command for it."""
        self.end = self.appended_end = self.log.log_end_offset
        self.durable_end = min(self.log.durable_end_offset, self.end)
        self.last_epoch: int | None = self.log.epoch_before(self.end)
        self.asked_log_start = self.log_start
        self.asked_compaction = self.log.compaction.begun
        self.aborting = False
        self.compaction = self.compaction.joined(self.asked_compaction)
        self._set_high_watermark(min(max(self.log.high_watermark, self.log_start), self.durable_end))

    def log_start_moved(self) -> None:
        """Note that the disk has deleted the records below the log start. An empty log has no last epoch to compare."""
        if self.log_start == self.end:
            self.last_epoch = None
        self.producers.log_starts_at(self.log_start)

    @property
    def log_start(self) -> int:
        """The durable log start. Readers see no other log start."""
        return self.log.log_start_offset

    def ask_log_start(self, offset: int) -> bool:
        """Whether the disk has to move the log start up to `offset`, and the core has not asked for it yet. If so, note
        the question."""
        if self.truncating or offset <= max(self.log_start, self.asked_log_start) or offset > self.last_stable_offset:
            return False
        self.asked_log_start = offset
        return True

    def learn_compaction(self, point: CompactionPoint) -> None:
        """Note the point that a leader has decided."""
        self.compaction = self.compaction.joined(point)

    def lacks_deletions(self, deletes_before: int, done_clean_to: int, *, is_new_leader: bool) -> bool:
        """Whether this copy may have a record whose deletion it never gets, because its leader let the deletion go.

        It has the deletions below its end. If it began empty, the leader had removed the records of deletions below
        `clean_at_start` before. An empty copy lacks nothing, and notes up to where its leader is clean."""
        if self.end == self.log_start:
            self.clean_at_start = done_clean_to
        elif is_new_leader:
            self.clean_at_start = min(self.clean_at_start, done_clean_to)
        return self.end != self.log_start and deletes_before > max(self.end, self.clean_at_start)

    @property
    def proven_end(self) -> int:
        """The durable end, but not above the first transaction whose marker may be gone from the leader's log. So this
        copy is not in sync before it knows how the transaction ended."""
        first = self.producers.transactions.first_open_offset
        if first is None or first >= self.compaction.deletes_before:
            return self.durable_end
        return min(first, self.durable_end)

    def due_abort(self, key: PartitionKey, stable_offset: int) -> AbortUnmarked | None:
        """The command to abort the transactions whose markers are gone from the leader's log. None if there are none.

        `stable_offset` is the leader's last stable offset at one moment. The log has all that the leader had below its
        high watermark at that moment. All transactions that began below `stable_offset` had ended, and their markers
        were below that high watermark. Compaction removes a marker only below deletes_before, and never before the last
        record of the transaction. So the leader has no record of such a transaction either: it was aborted, or newer
        records of the same keys follow."""
        below = min(stable_offset, self.compaction.deletes_before)
        unmarked = self.producers.transactions.open_below(below)
        if self.truncating or not unmarked:
            return None
        self.aborting = True
        state = restored(self.producers.snapshot())
        state.abort_unmarked(unmarked, self.appended_end)
        return AbortUnmarked(key, below, self.appended_end, state.snapshot())

    def transactions_aborted(self, below: int) -> bool:
        """Note that the disk has stored the producer state of AbortUnmarked. Returns whether the copy has not been cut
        since."""
        if not self.aborting:
            return False
        self.aborting = False
        self.producers.abort_unmarked(self.producers.transactions.open_below(below), self.appended_end)
        self._set_high_watermark(self.high_watermark)
        return True

    def due_compaction(self, key: PartitionKey) -> BeginCompaction | None:
        """The command to begin the known point, if the disk was not given it yet and this copy may carry it out: below
        its last stable offset it knows which transactions were aborted."""
        point = self.compaction
        if point == self.asked_compaction or self.truncating or point.clean_to > self.last_stable_offset:
            return None
        self.asked_compaction = point
        if point.deletes_before > self.log_start:
            self.producers.transactions.forget_between(self.log_start, point.deletes_before)  # their markers may go
        return BeginCompaction(key, point, self.appended_end, self.producers.snapshot())

    def ends(self) -> LogOffsets:
        """The ends of the log for readers below the high watermark."""
        return LogOffsets(
            self.high_watermark,
            self.last_stable_offset,
            min(self.log_start, self.last_stable_offset),
            self.appended_end,
            self.compaction,
            self.log.compaction.done.clean_to,
        )

    @property
    def settled(self) -> bool:
        """Whether the disk has answered all commands for this log."""
        return not self.queue and not self.truncating

    def queue_append(self, append: QueuedAppend) -> None:
        """Note an append that the core has given to the disk."""
        self.queue.append(append)
        self.end = append.end_offset
        self.last_epoch = append.headers[-1].partition_leader_epoch

    def appended(self, end_offset: int) -> list[QueuedAppend]:
        """Note that the disk has these appends up to `end_offset`, and update the producer state. Returns them."""
        done: list[QueuedAppend] = []
        apply = self.producers.apply
        while self.queue and self.queue[0].end_offset <= end_offset:
            append = self.queue.popleft()
            done.append(append)
            for header in append.headers:
                apply(header, append.markers.get(header.base_offset, ()) if append.markers else ())
        self.appended_end = max(self.appended_end, done[-1].end_offset if done else 0)
        return done

    def flushed(self, durable_end: int) -> bool:
        """Note that all records up to `durable_end` are synced. Returns whether the durable end moved."""
        before = self.durable_end
        self.durable_end = max(before, min(durable_end, self.appended_end))
        return self.durable_end > before

    def append_failed(self) -> list[QueuedAppend]:
        """Drop the queue. The oldest append or a truncation failed, and so did all later commands. Returns the dropped
        appends."""
        failed = list(self.queue)
        self.queue.clear()
        self.truncating = False
        self.end = self.appended_end
        self.last_epoch = self.log.epoch_before(self.end)
        self.asked_log_start = self.log_start  # the disk dropped later commands
        self.asked_compaction = self.log.compaction.begun
        self.aborting = False
        return failed

    def begin_truncation(self, end_offset: int) -> None:
        """Note a truncation that the core gave to the disk. From now on no record at or above `end_offset` counts."""
        self.truncating = True
        self.cuts += 1
        self._set_high_watermark(min(self.high_watermark, end_offset))

    def truncated(self) -> None:
        """Note that the disk has truncated the log, and take its ends. `producers` is already the state of the rest."""
        self.truncating = False
        self.cuts += 1
        self._adopt_ends()

    def raise_high_watermark(self, offset: int) -> bool:
        """Adopt a high watermark, at most the durable end, and never move it back. Returns whether it moved."""
        offset = min(offset, self.durable_end)
        if offset <= self.high_watermark:
            return False
        self._set_high_watermark(offset)
        return True

    def _set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.last_stable_offset = self.producers.transactions.last_stable_offset(offset)
        self.log.set_high_watermark(offset, self.last_stable_offset)
