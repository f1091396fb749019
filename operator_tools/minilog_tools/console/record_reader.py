"""Some records of a topic, for a page: by offset, time, key or condition, within limits.

A look reads until it has the records of its request, and at most SCANNED_RECORDS records, SCANNED_BYTES, and WITHIN_S.
It keeps of a record only the bytes that the page shows, so a large record is in memory for a moment. READERS looks run
at one time, and further ones wait.
"""

from __future__ import annotations

import asyncio
import enum
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from minilog.aio import Admin, Consumer
from minilog.errors import InvalidArgument
from minilog.typed.rows.as_json import rows_as_json
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.types import Record, TopicDescription, TopicPartition
from minilog_tools.console.shown_bytes import Form, ShownBytes, shown_bytes, shown_text

MOST_RECORDS = 100
SCANNED_RECORDS = 200_000
SCANNED_BYTES = 256 * 1024 * 1024
WITHIN_S = 5.0
READERS = 2
CELL_CHARACTERS = 200
HEADERS_SHOWN = 20
_FETCH_BYTES = "1048576"  # of credit: a larger batch comes alone
_POLL_S = 0.5


class Start(enum.Enum):
    """Where a look begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for records. `partition`: None for all. `at`: an offset, or milliseconds since 1970. `key`: the key of
    all records, None for any. `value`: bytes that each value contains, None for any value. `columns` (empty for all)
    and `where` are of typed topics."""

    start: Start
    count: int
    partition: int | None = None
    at: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    form: Form = Form.TEXT
    columns: tuple[str, ...] = ()
    where: str | None = None

    @property
    def is_any(self) -> bool:
        """Whether the request has each record there."""
        return self.key is None and self.value is None and not self.where


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One record, or row. `cells` has the columns of a row, in the order of RecordsFound.columns. `is_deletion`: the
    row deletes its key, and has null in all columns but those of the key."""

    partition: int
    offset: int
    timestamp_ms: int
    key: ShownBytes
    value: ShownBytes
    headers: list[tuple[str, ShownBytes]] = field(default_factory=list)
    headers_left_out: int = 0
    cells: list[str | None] = field(default_factory=list)
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class RecordsFound:
    """The records for a request, in order of their offsets. The latest ones are in order of time, the youngest first.

    `next_offset` and `former_offset`: where the next and the former records of one partition begin, None at its end or
    start, and for several partitions. `limit`: the limit that ended the look early, empty where none did.
    """

    records: list[ShownRecord]
    scanned: int
    columns: list[str] | None = None
    next_offset: int | None = None
    former_offset: int | None = None
    limit: str = ""


@dataclass(slots=True)
class _Scan:
    """What one look has found. `take_records` and `take_rows` run one at a time, on another thread than the loop."""

    wanted: Wanted
    deadline_s: float
    records: list[ShownRecord] = field(default_factory=list)
    columns: list[str] | None = None
    scanned: int = 0
    scanned_bytes: int = 0
    stopped_at: int | None = None  # the offset of the first record that the deadline left out

    def limit(self) -> str:
        if time.monotonic() >= self.deadline_s:
            return f"{WITHIN_S:.0f} s have passed"
        if self.scanned >= SCANNED_RECORDS:
            return f"{self.scanned} records were read"
        return f"{self.scanned_bytes} bytes were read" if self.scanned_bytes >= SCANNED_BYTES else ""

    def take_records(self, records: list[Record]) -> None:
        for record in records:
            if time.monotonic() >= self.deadline_s:
                self.stopped_at = record.offset
                return
            self.scanned += 1
            self.scanned_bytes += len(record.key or b"") + len(record.value or b"")
            if self.is_full() or not self._chooses(record):
                continue
            self.records.append(_shown(record, self.wanted.form))
            self._keep_latest()

    def _chooses(self, record: Record) -> bool:
        key, text = self.wanted.key, self.wanted.value
        return (key is None or record.key == key) and (text is None or text in (record.value or b""))

    def take_rows(self, rows: pa.RecordBatch) -> None:
        self.scanned += rows.num_rows
        self.scanned_bytes += rows.nbytes
        if self.wanted.key is not None:
            rows = rows.filter(
                pa.array([key == self.wanted.key for key in rows.column("_key").to_pylist()], pa.bool_())
            )
        if self.wanted.start is Start.LATEST:
            rows = rows.slice(max(0, rows.num_rows - self.wanted.count))
        else:
            rows = rows.slice(0, self.wanted.count - len(self.records))
        columns = list(rows.schema.names[: rows.schema.get_field_index("_topic")])
        self.columns = columns if self.columns is None else self.columns
        self.records += _shown_rows(rows, columns)
        self._keep_latest()

    def is_full(self) -> bool:
        """Whether the request has all its records. A look at the latest ones has them at its end alone."""
        return self.wanted.start is not Start.LATEST and len(self.records) >= self.wanted.count

    def _keep_latest(self) -> None:
        if self.wanted.start is Start.LATEST and len(self.records) >= 4 * self.wanted.count:
            self.records = self.latest()

    def latest(self) -> list[ShownRecord]:
        ordered = sorted(
            self.records, key=lambda record: (record.timestamp_ms, record.partition, record.offset), reverse=True
        )
        return ordered[: self.wanted.count]


class RecordReader:
    """The reader of records for all viewers, which bounds the looks that run at one time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(READERS)

    async def read(
        self, client: Mapping[str, str], admin: Admin, topic: TopicDescription, wanted: Wanted
    ) -> RecordsFound:
        """The records for one request. Raises InvalidArgument for a partition or a column that the topic does not have,
        or a condition with an error in it, and the errors of the client."""
        _check(topic, wanted)
        async with self._places:
            assigned = await _assignment(admin, topic, wanted)
            if not assigned:
                return RecordsFound([], 0)
            async with Consumer({**client, "fetch.max.bytes": _FETCH_BYTES}) as consumer:
                await consumer.assign(assigned)
                return await _scan(consumer, topic, wanted, assigned)


def _check(topic: TopicDescription, wanted: Wanted) -> None:
    numbers = {partition.partition for partition in topic.partitions}
    if wanted.partition is not None and wanted.partition not in numbers:
        raise InvalidArgument(f"topic {topic.name!r} has no partition {wanted.partition}: it has 0 to {max(numbers)}")
    if wanted.start is Start.OFFSET and (wanted.partition is None or wanted.at is None):
        raise InvalidArgument("an offset is one of a partition: choose both")
    if wanted.start is Start.TIME and wanted.at is None:
        raise InvalidArgument("give the time to begin at, such as 2026-05-01T12:00")
    if topic.schemas is not None and wanted.value is not None:
        raise InvalidArgument(f"topic {topic.name!r} has a schema: choose its rows by a condition")
    if topic.schemas is None and (wanted.columns or wanted.where):
        raise InvalidArgument(f"topic {topic.name!r} has no schema: it has keys and values, and no columns")


async def _assignment(admin: Admin, topic: TopicDescription, wanted: Wanted) -> list[TopicPartition]:
    """The partitions to read, each from its begin to its end of now. Partitions without records there are left out."""
    chosen = [
        TopicPartition(topic.name, partition.partition)
        for partition in topic.partitions
        if wanted.partition in (None, partition.partition)
    ]
    starts = await admin.list_offsets(dict.fromkeys(chosen, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(chosen, "latest"))
    begins: dict[TopicPartition, int] = {}
    match wanted.start:
        case Start.EARLIEST:
            begins = {partition: starts[partition] or 0 for partition in chosen}
        case Start.LATEST:
            # Chosen records may lie further back.
            share = max(1, min(wanted.count if wanted.is_any else SCANNED_RECORDS, SCANNED_RECORDS // len(chosen)))
            begins = {partition: (ends[partition] or 0) - share for partition in chosen}
        case Start.OFFSET:
            begins = dict.fromkeys(chosen, wanted.at or 0)
        case Start.TIME:
            offsets = await admin.list_offsets(dict.fromkeys(chosen, wanted.at or 0))
            begins = {partition: at for partition, at in offsets.items() if at is not None}
    return [
        TopicPartition(
            partition.topic, partition.partition, max(begin, starts[partition] or 0), ends[partition] or 0, topic.id
        )
        for partition, begin in begins.items()
        if max(begin, starts[partition] or 0) < (ends[partition] or 0)
    ]


async def _scan(
    consumer: Consumer, topic: TopicDescription, wanted: Wanted, assigned: list[TopicPartition]
) -> RecordsFound:
    scan = _Scan(wanted, time.monotonic() + WITHIN_S)
    limit = ""
    while not (scan.is_full() or consumer.finished() or limit):
        if topic.schemas is None:
            await asyncio.to_thread(scan.take_records, await consumer.poll(_POLL_S))
        else:
            columns, deletes = list(wanted.columns) or None, not wanted.where  # a where says nothing of a deletion
            for rows in await consumer.poll_arrow(
                _POLL_S, columns=columns, where=wanted.where, metadata=True, deletes=deletes
            ):
                await asyncio.to_thread(scan.take_rows, rows)
        limit = scan.limit()
    limit = "" if scan.is_full() or (consumer.finished() and scan.stopped_at is None) else limit
    records = scan.latest() if wanted.start is Start.LATEST else scan.records
    stopped_at = consumer.position(assigned[0]) if scan.stopped_at is None else scan.stopped_at
    onward, former = _places(stopped_at, wanted, assigned, records, limit=limit)
    return RecordsFound(records, scan.scanned, scan.columns, onward, former, limit)


def _places(
    stopped_at: int | None, wanted: Wanted, assigned: list[TopicPartition], records: list[ShownRecord], *, limit: str
) -> tuple[int | None, int | None]:
    """The next and the former offset of one partition. The next one is behind the last record that is shown. Where a
    limit ended the look, it is behind the last record that the look has read."""
    if len(assigned) != 1 or wanted.partition is None:
        return None, None
    offsets = [record.offset for record in records]
    first = min(offsets, default=assigned[0].offset or 0)
    former = max(0, first - wanted.count) if first > 0 and wanted.is_any else None
    if limit and len(records) < wanted.count:
        return stopped_at, former
    onward = max(offsets, default=-1) + 1
    return (onward if 0 < onward < (assigned[0].end_offset or 0) else None), former


def _shown(record: Record, form: Form) -> ShownRecord:
    headers = [(shown_text(name), shown_bytes(value, form)) for name, value in record.headers[:HEADERS_SHOWN]]
    return ShownRecord(
        record.partition,
        record.offset,
        record.timestamp,
        shown_bytes(record.key, Form.HEX if form is Form.HEX else Form.TEXT),
        shown_bytes(record.value, form),
        headers,
        len(record.headers) - len(headers),
    )


def _shown_rows(rows: pa.RecordBatch, columns: list[str]) -> list[ShownRecord]:
    documents = [json.loads(row) for row in rows_as_json(rows.select(columns))]
    partitions, offsets = rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist()
    times = rows.column("_timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
    keys = rows.column("_key").to_pylist()
    has_deletions = DELETED_COLUMN in rows.schema.names
    deletions = rows.column(DELETED_COLUMN).to_pylist() if has_deletions else [False] * rows.num_rows
    return [
        ShownRecord(
            partition,
            offset,
            timestamp,
            shown_bytes(key, Form.TEXT),
            ShownBytes(None),
            cells=[_cell(document[name]) for name in columns],
            is_deletion=is_deletion,
        )
        for document, partition, offset, timestamp, key, is_deletion in zip(
            documents, partitions, offsets, times, keys, deletions, strict=True
        )
    ]


def _cell(value: object) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    beginning = shown_text(text[:CELL_CHARACTERS])
    return beginning if len(text) <= CELL_CHARACTERS else f"{beginning}… ({len(text)} characters)"
