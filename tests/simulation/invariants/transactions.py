"""The truth about the transactions of one partition: what its committed log says, read by the judge. V1, V15.

Of a producer there are in the log its batches and then one marker, and nothing behind that. The last stable offset of a
replica is at most the first offset of the earliest producer whose marker is not below that replica's high watermark;
that is reckoned here from what is committed, not from the product's index.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from minilog.errors import CorruptMessage
from minilog.record_batch.header import Attributes, decode_header
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.storage.log import Log
from minilog_broker.storage.markers import Marker, read_markers
from tests.simulation.invariants.mirror import Committed, Entry
from tests.simulation.invariants.violation import Violation

_CONTROL, _TRANSACTIONAL = int(Attributes.CONTROL), int(Attributes.TRANSACTIONAL)  # plain: this is asked often
_BATCH_BYTES = 1 << 20  # of a control batch, at least


@dataclass(slots=True)
class _Span:
    """One producer's batches, each from its first offset to behind its last, and where its marker ends."""

    bases: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    marked: float = math.inf

    def first_from(self, log_start: int) -> float:
        """The first offset that a log which starts there has of it."""
        at = bisect.bisect_right(self.ends, log_start)
        return max(self.bases[at], log_start) if at < len(self.ends) else math.inf


@dataclass(slots=True)
class TransactionTruth:
    """See the module's text. `fates`: of producers that are marked here, whether they were committed."""

    key: PartitionKey
    committed: Committed
    fates: dict[int, bool] = field(default_factory=dict)
    may_write: Callable[[int, PartitionKey], None] = lambda producer_id, key: None  # raises Violation where not
    _spans: dict[int, _Span] = field(default_factory=dict)
    _done: int = 0  # entries that were taken in
    _known_end: int = 0
    _checked: dict[int, tuple[int, int]] = field(default_factory=dict)  # node: HW and LSO as of the last look

    def _fail(self, rule: str, text: str, *nodes: int) -> Violation:
        return Violation(rule, f"partition {self.key.partition}: {text}", nodes=nodes, key=self.key)

    def advance(self, log: Log) -> list[Marker]:
        """Take in what was committed since. `log` has it; where it is damaged another one is read at its turn."""
        found: list[Marker] = []
        entries = self.committed.entries
        while self._done < len(entries):
            entry = entries[self._done]
            if entry.attributes & _CONTROL:
                markers = _markers_at(log, entry)
                if markers is None:
                    return found
                self._mark(entry, markers)
                found.extend(markers)
            elif entry.attributes & _TRANSACTIONAL:
                self._written(entry)
            self._done += 1
            self._known_end = entry.next_offset
        return found

    @property
    def knows_all(self) -> bool:
        """Of what is committed."""
        return self._done == len(self.committed.entries)

    def _written(self, entry: Entry) -> None:
        producer_id = entry.producer_id
        if producer_id in self.fates:
            raise self._fail("V15", f"producer {producer_id} has ended, and writes at {entry.base_offset}")
        self.may_write(producer_id, self.key)
        span = self._spans.setdefault(producer_id, _Span())
        span.bases.append(entry.base_offset)
        span.ends.append(entry.next_offset)

    def _mark(self, entry: Entry, markers: tuple[Marker, ...]) -> None:
        for producer_id, committed, _ in markers:
            if producer_id in self.fates:
                raise self._fail("V15", f"producer {producer_id} is marked again at {entry.base_offset}")
            self.fates[producer_id] = committed
            if (span := self._spans.get(producer_id)) is not None:
                span.marked = entry.next_offset

    # -- the last stable offset

    def check_stable(self, node_id: int, high_watermark: int, stable: int, log_start: int = 0) -> None:
        """V1, and nothing of an open transaction, or of one whose marker is not committed, is in the log below it: who
        begins anew where records were deleted has never had what is below its start."""
        if self._checked.get(node_id) == (high_watermark, stable):
            return
        self._checked[node_id] = (high_watermark, stable)
        if stable > high_watermark:
            raise self._fail("V1", f"node {node_id}: LSO {stable} is above HW {high_watermark}", node_id)
        if high_watermark > self._known_end:
            return
        open_spans = (span for span in self._spans.values() if span.marked > high_watermark)
        most = min((span.first_from(log_start) for span in open_spans), default=math.inf)
        if stable > most:
            text = f"node {node_id}: LSO {stable} with HW {high_watermark}; a transaction is open from {most} on"
            raise self._fail("V15", text, node_id)

    # -- readers

    def why_not_skipped(self, start: int, end: int, *, committed: bool) -> str | None:
        """See history.WhyNotSkipped: markers, and of who reads what is committed, batches of aborted producers."""
        entries = self.committed.entries
        for index in range(self.committed.index_of(start), len(entries)):
            entry = entries[index]
            if entry.base_offset >= end:
                break
            if entry.attributes & _CONTROL:
                continue
            aborted = entry.attributes & _TRANSACTIONAL and not self.fates.get(entry.producer_id, False)
            if not (committed and aborted):
                return f"({entry})"
        return None


def _markers_at(log: Log, entry: Entry) -> tuple[Marker, ...] | None:
    """None where this copy cannot be read."""
    try:
        run = log.read(entry.base_offset, _BATCH_BYTES, entry.next_offset)
        header = decode_header(run)
        return read_markers(run, header) if header.crc == entry.crc else None
    except (CorruptMessage, OSError):
        return None
