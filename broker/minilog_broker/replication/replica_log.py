"""A log as its core knows it: from the commands given and the events that came back, never from the disk's own thread.

    log_start <= last_stable_offset <= high_watermark <= durable_end <= appended_end <= end

`end` counts what was given to the disk and is not answered yet; `appended_end` is readable; `durable_end` survives a
loss of power, and only it counts for progress and the high watermark. Under flush.policy=os it is the appended end: the
policy (`flush_on_append`) is the log's, and changes in its turn, as all that the disk is asked. The disk carries
commands out in order, so the answers come in order too.

What is known of producers and transactions is that of the readable log: it changes when an append was answered, never
before. The last stable offset moves with the high watermark alone: a transaction begins at or above that, and has ended
when that has passed its marker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.record_batch.header import BatchHeader
from minilog_broker.storage.markers import Marker
from minilog_broker.storage.producer_state import ProducerState

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """One snapshot of a log's offsets."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class QueuedAppend:
    """An append on its way to the disk. `credit`: the (leader id, session number) it goes back to; None: our own.
    `markers` are those of its control batches, by their offsets."""

    headers: tuple[BatchHeader, ...]
    size_bytes: int
    credit: tuple[int, int] | None
    markers: Mapping[int, tuple[Marker, ...]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.headers[-1].next_offset


class ReplicaLog:
    """A replica's log, as the commands to the disk and the disk's answers describe it.

    One per replica, shared by whatever role the replica has.
    """

    __slots__ = (
        "appended_end",
        "asked_log_start",
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
        self.cuts = 0  # asked, and done: what is read on both sides of one is not of one log
        self.high_watermark = 0
        self.flush_on_append = log.settings.flush_on_append
        self._adopt_ends()

    def _adopt_ends(self) -> None:
        """What the disk says, at a time when it has nothing to do for this log."""
        self.end = self.appended_end = self.log.log_end_offset
        self.durable_end = min(self.log.durable_end_offset, self.end)
        self.last_epoch: int | None = self.log.epoch_before(self.end)
        self.asked_log_start = self.log_start
        self._set_high_watermark(min(max(self.log.high_watermark, self.log_start), self.durable_end))

    def log_start_moved(self) -> None:
        """The disk has deleted what is below: an emptied log has no record that another could be compared with."""
        if self.log_start == self.end:
            self.last_epoch = None
        self.producers.log_starts_at(self.log_start)

    @property
    def log_start(self) -> int:
        """Durable: the log shows no other."""
        return self.log.log_start_offset

    def ask_log_start(self, offset: int) -> bool:
        """Whether the log start is to be moved up to `offset`, and the disk was not asked yet: now it is."""
        if self.truncating or offset <= max(self.log_start, self.asked_log_start) or offset > self.last_stable_offset:
            return False
        self.asked_log_start = offset
        return True

    def ends(self) -> LogOffsets:
        """As those see it who read below the high watermark."""
        return LogOffsets(
            self.high_watermark,
            self.last_stable_offset,
            min(self.log_start, self.last_stable_offset),
            self.appended_end,
        )

    @property
    def settled(self) -> bool:
        """The disk has answered all it was asked for this log."""
        return not self.queue and not self.truncating

    def queue_append(self, append: QueuedAppend) -> None:
        """An append was given to the disk."""
        self.queue.append(append)
        self.end = append.end_offset
        self.last_epoch = append.headers[-1].partition_leader_epoch

    def appended(self, end_offset: int) -> list[QueuedAppend]:
        """The disk has all up to `end_offset`, and so has the producers' state; returns the appends this answers."""
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
        """All up to `durable_end` is synced; whether that is news."""
        before = self.durable_end
        self.durable_end = max(before, min(durable_end, self.appended_end))
        return self.durable_end > before

    def append_failed(self) -> list[QueuedAppend]:
        """The oldest append failed, or a truncation, and so does all behind it. Returns the appends."""
        failed = list(self.queue)
        self.queue.clear()
        self.truncating = False
        self.end = self.appended_end
        self.last_epoch = self.log.epoch_before(self.end)
        self.asked_log_start = self.log_start  # what was asked behind it was dropped
        return failed

    def begin_truncation(self, end_offset: int) -> None:
        """A truncation is given to the disk: nothing at or above `end_offset` counts from now on."""
        self.truncating = True
        self.cuts += 1
        self._set_high_watermark(min(self.high_watermark, end_offset))

    def truncated(self) -> None:
        """The disk has truncated, and `producers` are those of what is left: start again from its ends."""
        self.truncating = False
        self.cuts += 1
        self._adopt_ends()

    def raise_high_watermark(self, offset: int) -> bool:
        """Adopt a high watermark, clamped to what is durable here; never back. Whether it moved."""
        offset = min(offset, self.durable_end)
        if offset <= self.high_watermark:
            return False
        self._set_high_watermark(offset)
        return True

    def _set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.last_stable_offset = self.producers.transactions.last_stable_offset(offset)
        self.log.set_high_watermark(offset, self.last_stable_offset)
