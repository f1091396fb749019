"""What the tests of compaction share: logs of keyed records as they come about, and what of them has to stay.

`KeyedLog` writes batches and notes their records. `survivors` is the rule of docs/spec/formats.md § Compaction once
more, over a dict. `cleaned` cleans as a broker does: in passes, and part by part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, build_control_batch, records_to_columns
from minilog.record_batch.header import BatchHeader, decode_header, iterate_headers
from minilog.record_batch.reader import iterate_records
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import coordinator_pb2, records_pb2
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction.newest_offsets import NewestOffsets, NewestOffsetsBuilder
from minilog_broker.storage.compaction.removals import RemovalSearch
from minilog_broker.storage.compaction.rewrite import rewritten_batches
from minilog_broker.storage.compaction.stored_batches import StoredBatch
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset

KEY = PartitionKey(TOPIC_ID, PARTITION)
UNTYPED = KeyReader(KEY, None)
LARGE_BUFFER_BYTES = 1 << 20
COMPRESSIONS = ("none", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    key: Any
    is_deletion: bool
    is_aborted: bool
    producer_id: int
    content: dict[str, Any]
    """As a reader gets it."""


@dataclass
class KeyedLog:
    """A log that grows batch by batch. All of its transactions have ended when it is cleaned."""

    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    markers: dict[int, frozenset[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    epoch: int = 3

    @property
    def end(self) -> int:
        return decode_header(self.batches[-1]).next_offset if self.batches else self.start

    def write(
        self,
        entries: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        compression: str = "none",
    ) -> None:
        """A batch of keys and values. Every third record has a header, and time stamps go up and down."""
        columns = records_to_columns(
            [value for _, value in entries],
            [key for key, _ in entries],
            [NOW_US + (self.end + row) * 7 % 11 for row in range(len(entries))],
            [[("h", b"%d" % row)] if row % 3 == 0 else None for row in range(len(entries))],
        )
        has_producer = producer_id >= 0
        batch = build_batch(
            *KEY,
            columns,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=self.end if has_producer else -1,
            transactional=transactional,
        )
        self.place(batch, [key for key, _ in entries], [value is None for _, value in entries])

    def place(self, batch: bytes, keys: Sequence[Any], are_deletions: Sequence[bool]) -> None:
        """Any data batch, at the end of the log."""
        placed = at_offset(batch, self.end, self.epoch)
        base, header = self.end, decode_header(placed)
        self.batches.append(placed)
        contents = read([placed]) if not header.is_typed else [{}] * header.record_count
        for row, content in enumerate(contents):
            self.records.append(Record(base + row, keys[row], are_deletions[row], False, header.producer_id, content))

    def mark(self, *producer_ids: int, committed: bool) -> None:
        """One control batch that ends what these producers wrote."""
        markers = [coordinator_pb2.ProducerMarker(producer_id=number, committed=committed) for number in producer_ids]
        content = records_pb2.ControlRecord(
            transaction_markers=records_pb2.TransactionMarkersRecord(transactional_id="job", markers=markers)
        )
        self.markers[self.end] = frozenset(producer_ids)
        control = build_control_batch(*KEY, content.SerializeToString(), timestamp_us=NOW_US)
        self.batches.append(at_offset(control, self.end, self.epoch))
        if not committed:
            self.aborted |= set(producer_ids)

    def survivors(self, clean_to: int, deletes_before: int) -> list[Record]:
        """What has to stay."""
        below = [record for record in self.records if record.offset < clean_to and not self.is_aborted(record)]
        newest = {record.key: record.offset for record in below if record.key is not None}
        stay = [
            record
            for record in below
            if record.key is None
            or (
                newest[record.key] == record.offset
                and not (record.is_deletion and record.offset < min(deletes_before, clean_to))
            )
        ]
        return stay + [record for record in self.records if record.offset >= clean_to]

    def markers_left(self, clean_to: int, deletes_before: int) -> list[int]:
        """The offsets of the control batches that have to stay."""
        producers = {record.producer_id: record.offset for record in reversed(self.survivors(clean_to, deletes_before))}
        return [
            offset
            for offset, ended in self.markers.items()
            if offset >= min(clean_to, deletes_before)
            or any(producers.get(number, offset) < offset for number in ended)
        ]

    def is_aborted(self, record: Record) -> bool:
        """Producers of transactions write nothing else here."""
        return record.producer_id in self.aborted

    def boundaries(self) -> list[int]:
        """The offsets at which a batch begins, and the end."""
        return [self.start, *(decode_header(batch).next_offset for batch in self.batches)]


def stored(batches: Iterable[bytes]) -> list[StoredBatch]:
    return [(decode_header(batch), batch) for batch in batches]


def newest_offsets(
    reader: KeyReader,
    batches: Iterable[StoredBatch],
    dirty_from: int,
    aborted: set[int],
    buffer_bytes: int = LARGE_BUFFER_BYTES,
) -> NewestOffsets:
    builder = NewestOffsetsBuilder(reader, dirty_from, aborted, buffer_bytes)
    for header, batch in batches:
        if header.next_offset > dirty_from:
            builder.add(header, batch)
            if builder.is_full:
                break
    return builder.build()


def cleaned(
    batches: Sequence[bytes],
    clean_to: int,
    *,
    aborted: set[int],
    dirty_from: int = 0,
    deletes_before: int = 0,
    buffer_bytes: int = LARGE_BUFFER_BYTES,
    least_lookup_bytes: int = 1 << 20,
    part_batches: int = 1_000,
    schemas: TopicSchemas | None = None,
) -> list[bytes]:
    """The log after a cleaning up to `clean_to`: in as many passes as the buffer needs."""
    reader = UNTYPED if schemas is None else KeyReader(KEY, schemas)
    while batches:
        run = stored(batches)
        below = [(header, batch) for header, batch in run if header.base_offset < clean_to]
        newest = newest_offsets(reader, below, dirty_from, aborted, buffer_bytes)
        search = RemovalSearch(
            reader,
            newest,
            aborted,
            deletes_before,
            log_start_offset=run[0][0].base_offset,
            least_lookup_bytes=least_lookup_bytes,
        )
        written = list[bytes]()
        for start in range(0, len(run), part_batches):
            part = run[start : start + part_batches]
            removals = search.search(part)
            rewritten = [bytes(batch) for _, batch in rewritten_batches(reader, part, removals)]
            assert bool(removals) == (rewritten != [batch for _, batch in part])
            written += rewritten
        batches, dirty_from = written, newest.end_offset
        if dirty_from >= clean_to:
            break
    return list(batches)


def read(batches: Iterable[bytes]) -> list[dict[str, Any]]:
    """The records of batches of keys and values, with their offsets; each checksum is looked at."""
    return [
        row
        for records in iterate_records(b"".join(batches), *KEY)
        if records.rows is not None
        for row in records.rows.to_pylist()
    ]


def headers(batches: Iterable[bytes]) -> list[BatchHeader]:
    return [header for _, header in iterate_headers(b"".join(batches))]


_keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"key-of-some-length"])
_values = st.sampled_from([None, b"", b"v", b"value " * 20])
_entries = st.lists(st.tuples(_keys, _values), min_size=1, max_size=5)
_PRODUCERS = (100, 101, 102)


@st.composite
def keyed_logs(draw: st.DrawFn, most_batches: int = 8) -> KeyedLog:
    """Batches with and without producers, transactions beside and behind each other, and new leader epochs."""
    log = KeyedLog(start=draw(st.sampled_from([0, 40])))
    open_producers = set[int]()
    fresh = iter(range(200, 300))
    for _ in range(draw(st.integers(1, most_batches))):
        kind = draw(st.sampled_from(["plain", "idempotent", "transactional", "transactional", "end", "epoch"]))
        compression = draw(st.sampled_from(COMPRESSIONS))
        if kind == "plain":
            log.write(draw(_entries), compression=compression)
        elif kind == "idempotent":
            log.write(draw(_entries), producer_id=draw(st.sampled_from(_PRODUCERS)), compression=compression)
        elif kind == "transactional":
            producer_id = next(fresh) if not open_producers or draw(st.booleans()) else min(open_producers)
            open_producers.add(producer_id)
            log.write(draw(_entries), producer_id=producer_id, transactional=True, compression=compression)
        elif kind == "end":
            ended = draw(st.sets(st.sampled_from(sorted(open_producers)))) if open_producers else set()
            log.mark(*(ended or {next(fresh)}), committed=draw(st.booleans()))
            open_producers -= ended
        else:
            log.epoch += 1
    if open_producers:
        log.mark(*open_producers, committed=draw(st.booleans()))
    if not log.batches:
        log.write([(b"a", b"v")])
    return log


@st.composite
def cleanings(draw: st.DrawFn, log: KeyedLog) -> dict[str, Any]:
    """How the same cleaning may be carried out: none of it changes what stays."""
    return {
        "buffer_bytes": draw(st.sampled_from([LARGE_BUFFER_BYTES, 120, 30])),
        "least_lookup_bytes": draw(st.sampled_from([LARGE_BUFFER_BYTES, 40, 0])),
        "part_batches": draw(st.integers(1, 1 + len(log.batches))),
    }
