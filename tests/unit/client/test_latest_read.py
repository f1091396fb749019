"""The two reads of view=latest over logs that are written by hand, and compacted before, between and behind the reads.

`SimulatedLog` decodes batches as a scan does: what a replica would send of them, by the reader of a consumer.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.consumer.decode import decode
from minilog.consumer.partition import ConsumerSession, FetchedRun
from minilog.consumer.row_selection import RowReaders, RowSelection
from minilog.errors import InvalidArgument, OffsetOutOfRange
from minilog.net.metadata_cache import CachedTopic
from minilog.record_batch.header import decode_header
from minilog.scanning.latest import LatestRead
from minilog.scanning.planned import ScanPlan, ScanRequest, Travelled
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID
from tests.unit.storage.compaction.keyed_logs import KEY, KeyedLog, cleaned, keyed_logs

MEMORY_BYTES = 1 << 20
UNLIMITED = 1 << 30
SCHEMAS = TopicSchemas((first_version(parse_ddl("id int, region string, fare double"), ("id",)),))
TWO_KEYS = TopicSchemas((first_version(parse_ddl("id int, region string, fare double"), ("region", "id")),))
Row = tuple[int | None, str | None, float | None]
"""A row with the fare DELETED deletes its key."""
DELETED = -1.0


@dataclass
class SimulatedLog:
    """One partition. `behind_reads` is called behind each read, and `behind_answers` behind each answer of its
    leader."""

    log: KeyedLog
    schemas: TopicSchemas | None = None
    behind_reads: Callable[[], None] = lambda: None
    behind_answers: Callable[[], None] = lambda: None
    bound: int = 0
    reads: list[RowSelection] = field(default_factory=list)

    def decoded(
        self, assigned: Iterable[TopicPartition], selection: RowSelection, travelled: Travelled | None = None
    ) -> Iterator[tuple[FetchedRun, pa.RecordBatch]]:
        self.reads.append(selection)
        readers = RowReaders()
        readers.select(selection)
        described = metadata_pb2.TopicMetadata()
        reader = readers.reader(CachedTopic("t", TOPIC_ID, 1, None, described, self.schemas))
        for partition in assigned:
            for batch in self.log.batches:
                header = decode_header(batch)
                first = max(header.base_offset, partition.offset or 0)
                end = min(header.next_offset, partition.end_offset or 0)
                if first >= end:
                    continue
                sent: bytes = batch
                if reader is not None and reader.wire_selection is not None and self.schemas is not None:
                    sent = Scanner(reader.wire_selection, self.schemas).scan(KEY, batch, UNLIMITED).batches
                run = FetchedRun(
                    partition,
                    KEY,
                    0,
                    first,
                    end,
                    3,
                    sent,
                    frozenset(self.log.aborted),
                    ConsumerSession(1, 1),
                    reader=reader,
                    headers_only=readers.headers_only,
                )
                if travelled is not None:
                    travelled.add(run)
                for rows in decode(run, UNLIMITED).rows:
                    yield run, rows
        self.behind_reads()

    def clean_to(self, partitions: Iterable[TopicPartition]) -> dict[int, int]:
        bound = self.bound
        self.behind_answers()
        return {partition.partition: bound for partition in partitions}

    def clean(self, clean_to: int, deletes_before: int = 0) -> None:
        """As a broker does, where there is anything below `clean_to`."""
        if clean_to == self.log.start:
            return
        self.bound = max(self.bound, clean_to)
        self.log.batches = cleaned(
            self.log.batches,
            clean_to,
            aborted=self.log.aborted,
            dirty_from=self.log.start,
            deletes_before=deletes_before,
            schemas=self.schemas,
        )

    def read(self, *, end: int | None = None, memory_bytes: int = MEMORY_BYTES, **wanted: Any) -> LatestRead:
        assigned = TopicPartition("t", PARTITION, self.log.start, self.log.end if end is None else end)
        schema = None if self.schemas is None else self.schemas.latest
        plan = ScanPlan(str(uuid.UUID(bytes=TOPIC_ID)), schema, (assigned,), None)
        return LatestRead(self.decoded, self.clean_to, plan, memory_bytes, Travelled())

    def table(self, *, end: int | None = None, memory_bytes: int = MEMORY_BYTES, **wanted: Any) -> list[dict[str, Any]]:
        shape = ScanRequest("t", **wanted, is_latest=True).shape(None if self.schemas is None else self.schemas.latest)
        read = self.read(end=end, memory_bytes=memory_bytes)
        rows = [row for _, found in read.rows(shape) for row in found.to_pylist()]
        if "where" not in wanted:
            assert read.counts.keys - read.counts.deletions == len(rows)
        return rows


def expected(log: KeyedLog, end: int) -> list[int]:
    """The offsets of the table as of `end`, by a dict."""
    newest = {
        record.key: record
        for record in log.records
        if record.key is not None and record.offset < end and not log.is_aborted(record)
    }
    return sorted(record.offset for record in newest.values() if not record.is_deletion)


def offsets(rows: Iterable[dict[str, Any]]) -> list[int]:
    return sorted(row["_offset"] for row in rows)


# -- topics without a schema


@given(st.data(), keyed_logs(), st.sampled_from([MEMORY_BYTES, 100, 30, 1]))
@settings(max_examples=40, deadline=None)
def test_the_table_is_that_of_a_dict_wherever_compaction_below_its_end_comes(
    data: st.DataObject, log: KeyedLog, memory_bytes: int
) -> None:
    end = data.draw(st.sampled_from(log.boundaries()))
    ends = st.sampled_from([offset for offset in log.boundaries() if offset <= end])
    wanted = expected(log, end)
    simulated = SimulatedLog(log)
    simulated.clean(data.draw(ends))
    bound = data.draw(ends)
    simulated.behind_reads = lambda: simulated.clean(bound)
    names = data.draw(st.sampled_from([("_offset",), ("key", "value", "_offset", "_topic"), ("value", "_offset")]))
    rows = simulated.table(end=end, memory_bytes=memory_bytes, columns=names)
    assert offsets(rows) == wanted
    assert simulated.read(end=end, memory_bytes=memory_bytes).count() == len(wanted)
    contents = {record.offset: record.content for record in log.records}
    shown = [name for name in ("key", "value") if name in names]
    assert all(row[name] == contents[row["_offset"]][name] for row in rows for name in shown)


@given(st.data(), keyed_logs())
@settings(max_examples=40, deadline=None)
def test_compaction_at_any_time_ends_the_read_or_hides_no_row(data: st.DataObject, log: KeyedLog) -> None:
    """Before the reads, between two of them, and between the answer of the leader and the next read."""
    places = st.sampled_from(log.boundaries())
    end, *bounds = (data.draw(places) for _ in range(4))
    wanted, simulated = expected(log, end), SimulatedLog(log)

    def clean() -> None:
        if bounds:
            bound = bounds.pop()
            simulated.clean(bound, bound)

    simulated.behind_reads, simulated.behind_answers = (data.draw(st.sampled_from([clean, lambda: None])) for _ in "12")
    if data.draw(st.booleans()):
        clean()
    try:
        rows = simulated.table(
            end=end, columns=("_offset",), memory_bytes=data.draw(st.sampled_from([MEMORY_BYTES, 100, 1]))
        )
    except OffsetOutOfRange:
        assert simulated.bound > end
    else:
        assert offsets(rows) == wanted


def test_records_without_a_key_are_passed_over_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = KeyedLog()
    log.write([(None, b"1"), (b"a", b"2"), (None, None), (b"b", None)])
    log.write([(None, b"3"), (b"c", b"4")])
    simulated = SimulatedLog(log)
    with caplog.at_level(logging.WARNING):
        assert simulated.table(memory_bytes=1) == [{"key": b"a", "value": b"2"}, {"key": b"c", "value": b"4"}]
    assert [record.getMessage() for record in caplog.records] == [
        "3 records of topic t have no key: the newest rows of its keys are without them"
    ]


def test_a_condition_is_for_the_newest_records() -> None:
    log = KeyedLog()
    log.write([(b"a", b"x"), (b"b", b"x"), (b"a", b"y")])
    simulated = SimulatedLog(log)
    assert simulated.table(where="value = X'78'") == [{"key": b"b", "value": b"x"}]
    assert simulated.table(where="_offset < 2", columns=("_offset",)) == [{"_offset": 1}]


def test_the_rows_come_in_parts_where_their_offsets_do_not_fit() -> None:
    log = KeyedLog()
    for start in range(0, 100, 10):
        log.write([(b"%d" % (number % 50), b"%d" % number) for number in range(start, start + 10)])
    simulated = SimulatedLog(log)
    rows = simulated.table(memory_bytes=200)
    assert sorted(int(row["value"]) for row in rows) == list(range(50, 100))
    assert len(simulated.reads) > 8


# -- topics with a schema


def typed(schemas: TopicSchemas, *batches: Sequence[Row]) -> SimulatedLog:
    log = KeyedLog()
    schema = schemas.latest
    for rows in batches:
        keys = [key_of(schema, row) for row in rows]
        deleted = [row[2] == DELETED and key is not None for row, key in zip(rows, keys, strict=True)]
        kept = [
            tuple(
                None if gone and name not in schema.key_columns else row[place]
                for place, name in enumerate(schema.names)
            )
            for row, gone in zip(rows, deleted, strict=True)
        ]
        arrays = [pa.array([row[place] for row in kept], kind) for place, kind in enumerate(schema.arrow_schema.types)]
        columns = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)
        written = TypedRows(schema, columns, deletions=pa.array(deleted) if any(deleted) else None)
        log.place(build_typed_batch(*KEY, written, timestamp_us=NOW_US), keys, deleted)
    return SimulatedLog(log, schemas)


def key_of(schema: TopicSchema, row: Row) -> Any:
    values = tuple(row[schema.names.index(name)] for name in schema.key_columns)
    return values if len(values) > 1 else values[0]


@pytest.mark.parametrize("schemas", [SCHEMAS, TWO_KEYS], ids=["one key column", "two"])
@given(st.data())
@settings(max_examples=30, deadline=None)
def test_rows_have_the_columns_of_their_key(schemas: TopicSchemas, data: st.DataObject) -> None:
    row = st.tuples(
        st.sampled_from([None, 0, 1, -1]), st.sampled_from([None, "", "a"]), st.sampled_from([DELETED, 1.0])
    )
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5))
    simulated = typed(schemas, *batches)
    end = data.draw(st.sampled_from(simulated.log.boundaries()))
    bound = data.draw(st.sampled_from([offset for offset in simulated.log.boundaries() if offset <= end]))
    simulated.behind_reads = lambda: simulated.clean(bound, bound)
    memory_bytes = data.draw(st.sampled_from([MEMORY_BYTES, 40]))
    columns = data.draw(st.sampled_from([("fare", "_offset"), ("_offset",), ("region", "id", "_offset")]))
    rows = simulated.table(end=end, memory_bytes=memory_bytes, columns=columns)
    wanted = expected(simulated.log, end)
    assert offsets(rows) == wanted
    assert offsets(simulated.table(end=end, where="fare = 1", columns=("_offset",))) == [
        offset for offset in wanted if whole_rows(batches)[offset][2] == 1
    ]
    for found in rows:
        row = whole_rows(batches)[found.pop("_offset")]
        assert found == {name: row[schemas.latest.names.index(name)] for name in found}


def whole_rows(batches: Iterable[Sequence[Row]]) -> list[Row]:
    return [row for batch in batches for row in batch]


def test_a_deletion_takes_its_key_out_until_a_row_comes_again() -> None:
    rows: list[Row] = [(1, "a", 5.0), (2, "b", 5.0), (1, None, DELETED), (2, None, DELETED), (2, "c", 6.0)]
    simulated = typed(SCHEMAS, *([row] for row in rows))
    assert simulated.table() == [{"id": 2, "region": "c", "fare": 6.0}]
    assert simulated.table(end=4) == []
    assert simulated.table(end=2, where="fare > 0", columns=("id",)) == [{"id": 1}, {"id": 2}]


def test_the_first_read_has_the_key_columns_alone_and_the_condition_is_in_the_second() -> None:
    simulated = typed(SCHEMAS, [(1, "a", 5.0), (2, "b", 5.0)], [(1, "c", 1.0)])
    assert simulated.table(where="fare > 2", columns=("region",)) == [{"region": "b"}]
    keys, rows, left_out = simulated.reads
    assert (keys.columns, keys.where) == (("id",), None)
    assert (rows.columns, rows.where) == (("region",), "fare > 2")
    assert (left_out.columns, left_out.where) == ((), None)


@pytest.mark.parametrize("where", [None, "fare > 2", "fare > 100"])
def test_a_row_that_compaction_removes_between_the_reads_is_missed_whatever_the_condition(where: str | None) -> None:
    simulated = typed(SCHEMAS, [(1, "a", 5.0), (2, "b", 5.0)], [(1, "c", 6.0)], [(2, "d", 7.0)])
    simulated.behind_answers = lambda: simulated.clean(4)
    with pytest.raises(OffsetOutOfRange, match=r"the row at offset 1 of partition 3 .* as of offset 3 was read"):
        simulated.table(end=3, where=where)


def test_a_table_that_is_older_than_what_compaction_left_is_refused_with_the_bound() -> None:
    simulated = typed(SCHEMAS, [(1, "a", 5.0), (2, "b", 5.0)], [(1, "c", 6.0)], [(2, "d", 7.0)])
    simulated.clean(4)
    for read in (simulated.table, lambda end: simulated.read(end=end).count()):
        with pytest.raises(OffsetOutOfRange, match="no table as of offset 3 any more: below offset 4 compaction"):
            read(end=3)
    assert [row["region"] for row in simulated.table(end=4)] == ["c", "d"]


def test_a_topic_whose_rows_have_no_key_is_refused() -> None:
    schema = first_version(parse_ddl("id int"), ())
    with pytest.raises(InvalidArgument, match="the schema of topic 't' has no key columns"):
        ScanRequest("t", is_latest=True).shape(schema)
