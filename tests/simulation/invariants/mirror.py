"""What a judge remembers of one replica's log, and how far it agrees with what is committed. V1, V2, V3, V7, V9.

A mirror is kept from life to life: what was durable when a life ended must be there when the next one begins. It is
moved on only by what was appended or cut since it was last looked at, so that looking costs as much as happened.

    first    index in `committed` of the mirror's first entry
    agreed   index in `committed` up to which the log is the same; only ever compared forward, lowered by a cut
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from minilog.errors import CorruptMessage
from minilog.record_batch.header import BatchHeader
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.storage.log import Log
from tests.simulation.invariants.violation import Violation


class Entry(NamedTuple):
    """A batch at its place. `crc` covers topic, partition, producer, sequence and payload, not the place."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    sequence: int
    attributes: int


def entry_of(header: BatchHeader) -> Entry:
    return Entry(
        header.base_offset,
        header.base_offset + header.last_offset_delta + 1,
        header.partition_leader_epoch,
        header.crc,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.attributes,
    )


_NEXT = itemgetter(1)


@dataclass(slots=True)
class Committed:
    """All that any high watermark ever covered of one log: it only grows, and is the same for all (V2, V9)."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0  # where the first entry stands

    @property
    def end_offset(self) -> int:
        return self.entries[-1][1] if self.entries else self.start

    def index_of(self, offset: int) -> int:
        """How many entries end at or below `offset`."""
        return bisect_right(self.entries, offset, key=_NEXT)

    def find(self, base_offset: int) -> Entry | None:
        index = bisect_left(self.entries, (base_offset,))
        found = self.entries[index] if index < len(self.entries) else None
        return found if found is not None and found.base_offset == base_offset else None


@dataclass(slots=True)
class Mirror:
    """See the module's text. `kept_end`: of a dead replica, what its disk still holds for certain."""

    node_id: int
    key: PartitionKey
    committed: Committed
    entries: list[Entry] = field(default_factory=list)
    first: int = 0
    agreed: int = 0
    start: int = 0
    high_watermark: int = 0
    durable_end: int = 0
    end: int = 0
    kept_end: int | None = None  # None: it lives
    life: int = 0
    synced_end: int = 0  # what is durable below it survives a loss of power; under flush.policy=os not all does
    _epochs: object = None
    unreadable: bool = False  # by damage of which nobody knows what stood there
    _former: list[Entry] = field(default_factory=list)  # of a life before, where a fault has damaged the log

    def _fail(self, rule: str, message: str) -> Violation:
        text = f"node {self.node_id} partition {self.key.partition}: {message}"
        return Violation(rule, text, nodes=(self.node_id,), key=self.key)

    # -- the log as it is now

    def look(self, log: Log) -> bool:
        """Take in what changed; whether anything did. Raises Violation of V1, V2, V3."""
        start, high_watermark = log.log_start_offset, log.high_watermark
        self.synced_end = max(start, log.log_end_offset if log.settings.flush_on_append else log._synced_end_offset)
        durable_end, end = log.durable_end_offset, log.log_end_offset
        columns = log.epochs._columns
        if (
            end == self.end
            and durable_end == self.durable_end
            and high_watermark == self.high_watermark
            and start == self.start
            and columns is self._epochs
        ):
            return False
        if not start <= high_watermark <= durable_end <= end:
            raise self._fail("V1", f"log start {start}, HW {high_watermark}, durable end {durable_end}, end {end}")
        if start < self.start and start != end:  # a log that begins anew is empty
            raise self._fail("V1", f"the log start goes back from {self.start} to {start}")
        if columns is not self._epochs:
            self._check_epochs(columns)
            self._epochs = columns
        if end != self.end or start != self.start:
            self._take_entries(log, start, end)
        self.start, self.end, self.durable_end, self.high_watermark = start, end, durable_end, high_watermark
        return True

    def _check_epochs(self, columns: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        for column in columns:
            for before, after in itertools.pairwise(column):
                if before >= after:
                    raise self._fail("V3", f"the epoch cache does not increase: {columns}")

    def _take_entries(self, log: Log, start: int, end: int) -> None:
        entries = self.entries
        while entries and entries[-1].next_offset > end:
            entries.pop()
        if start == end or (start > self.start and (not entries or entries[-1].next_offset <= start)):
            self._begin_at(start)
        # The last one is read again: a cut and an append in one event would show there.
        if entries:
            last = entries[-1]
            if last.base_offset >= start:
                entries.pop()
        self.agreed = min(self.agreed, self.first + len(entries))
        expected, epoch = (entries[-1].next_offset, entries[-1].epoch) if entries else (self._base(start), -1)
        try:
            if not entries and start < end:
                expected = log.batch_base(start)  # a trim may have cut inside of it
            for header in log.headers(expected):
                found = entry_of(header)
                if found.base_offset != expected:
                    raise self._fail("V2", f"a gap: a batch at {found.base_offset}, {expected} comes next")
                if found.epoch < epoch:
                    raise self._fail("V3", f"epoch {found.epoch} at {found.base_offset} follows epoch {epoch}")
                entries.append(found)
                expected, epoch = found.next_offset, found.epoch
        except (CorruptMessage, OSError):
            expected = self._take_former(expected, end)
            self.unreadable = expected != end
            return
        if expected != end:
            raise self._fail("V2", f"the last batch ends at {expected}, the log at {end}")

    def _take_former(self, expected: int, end: int) -> int:
        """A fault damaged a header below: what was there is known from before. Up to where the entries are whole."""
        for entry in self._former:
            if entry.base_offset == expected and entry.next_offset <= end:
                self.entries.append(entry)
                expected = entry.next_offset
        return expected

    def _base(self, start: int) -> int:
        """Where the first entry of an empty mirror stands, at or around `start`."""
        self.first = self.committed.index_of(start)
        self.agreed = self.first
        return start

    def _begin_at(self, start: int) -> None:
        """Everything was dropped, and the log begins anew."""
        self.entries.clear()
        self._base(start)

    # -- against what is committed

    def agree(self) -> int:
        """Compare on; up to where (an offset) the log is the same as what is committed."""
        committed, entries, first = self.committed.entries, self.entries, self.first
        agreed, last = self.agreed, min(len(self.committed.entries), first + len(entries))
        while agreed < last and committed[agreed] == entries[agreed - first]:
            agreed += 1
        self.agreed = agreed
        return committed[agreed - 1].next_offset if agreed else self.committed.start

    def check_high_watermark(self) -> None:
        """V2, V9: all below the high watermark is what is committed."""
        agreed_end = self.agree()
        if self.unreadable:
            return
        if self.high_watermark > max(agreed_end, self.start):
            where = self.agreed - self.first
            own = self.entries[where] if 0 <= where < len(self.entries) else None
            known = self.committed.entries[self.agreed] if self.agreed < len(self.committed.entries) else None
            raise self._fail("V9", f"its HW is {self.high_watermark}; it has {own} where {known} is committed")

    def lacks_durably(self) -> int | None:
        """The first offset of what is committed that this replica's disk does not have; None where it has all."""
        agreed_end = self.agree()
        have = min(agreed_end, max(self.durable_end, self.start))
        return have if have < self.committed.end_offset and not self.unreadable else None

    def durable_epoch(self) -> int:
        """The epoch of the last entry that is durable, -1 where there is none."""
        return next((each.epoch for each in reversed(self.entries) if each.next_offset <= self.durable_end), -1)

    # -- lives

    def died(self, *, power: bool = False) -> None:
        """The process is gone, and with it the power or not. Its disk has what was durable."""
        self.kept_end = min(self.durable_end, self.synced_end) if power else self.durable_end

    def reborn(self, log: Log, life: int, *, damaged: bool, counted: bool) -> None:
        """Another life has opened the log: V7, what was durable of what is committed is there.

        The rest may have been cut in the moment of the end; of a replica that is not `counted` on, all of it."""
        former, kept_end, kept_start = self.entries, self.kept_end, self.start
        if kept_end is not None:
            kept_end = min(kept_end, self.agree()) if counted else None
        self.entries, self.kept_end, self.life = [], None, life
        self._former = former if damaged else []
        self.unreadable = False
        self.first = self.agreed = self.start = self.end = self.high_watermark = self.durable_end = 0
        self._epochs = None
        self.start = log.log_start_offset
        self._base(self.start)
        self.look(log)
        if damaged or kept_end is None:
            return
        if self.start < kept_start:
            raise self._fail("V7", f"its log start was {kept_start} when the last life ended, and is {self.start} now")
        for before in former:
            if before.next_offset > kept_end:
                break
            if before.base_offset < self.start:
                continue
            index = bisect_left(self.entries, (before.base_offset,))
            if index >= len(self.entries) or self.entries[index] != before:
                raise self._fail("V7", f"{before} was durable when the last life ended, and is not in the log now")
