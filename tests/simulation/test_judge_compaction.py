"""The judge of compaction against copies that are right or wrong, also where it has judged a right one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from minilog.record_batch.gaps import gap_batch
from minilog.record_batch.header import decode_header
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.evolution import add_column, as_next_version, rename_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from tests.judges.compaction import CompactedPartition, JudgedPoint
from tests.judges.views import View
from tests.unit.record_batch.batches import NOW_US
from tests.unit.storage.compaction.keyed_logs import KEY, KeyedLog, cleaned
from tests.world.disk import Inode

NAME = f"{0:020}.log"
FIRST = first_version(parse_ddl("part string NOT NULL, shard int, note string NOT NULL"), ("part", "shard"))
RENAMED = as_next_version(FIRST, rename_column(FIRST, "note", "remark"))
SCHEMAS = TopicSchemas((FIRST, RENAMED, add_column(RENAMED, Field("more", Primitive("int")), after="first")))


@dataclass
class Judged:
    """What is committed of a log, and a copy of it."""

    log: KeyedLog
    partition: CompactedPartition = field(init=False)
    view: View = field(default_factory=lambda: View(durable=False))

    def __post_init__(self) -> None:
        fates = {number: number not in self.log.aborted for ended in self.log.markers.values() for number in ended}
        self.partition = CompactedPartition(KEY, fates, SCHEMAS.version)
        for batch in self.log.batches:
            self.partition.committed(decode_header(batch), batch)
        self.copy(self.log.batches)

    def copy(self, batches: Iterable[bytes]) -> None:
        """The copy is another file, with these batches."""
        self.files({NAME: batches})

    def files(self, files: Mapping[str, Iterable[bytes]]) -> None:
        """The copy has these files of segments."""
        self.view.look({name: Inode(b"".join(batches)) for name, batches in files.items()}, 0)

    def clean(self, clean_to: int, deletes_before: int) -> list[bytes]:
        """The batches of a copy that has carried out this point, which some copy has begun."""
        self.partition.point = self.partition.point.joined(JudgedPoint(clean_to, deletes_before))
        schemas = SCHEMAS if decode_header(self.log.batches[0]).is_typed else None
        aborted = self.log.aborted
        return cleaned(self.log.batches, clean_to, aborted=aborted, deletes_before=deletes_before, schemas=schemas)

    def wrong(self) -> tuple[str | None, int | None]:
        """By which rule the copy is wrong, and what it lacks."""
        found = self.partition.first_wrong(self.view, 0, self.partition.point.clean_to)
        headers = [decode_header(batch) for batch in self.log.batches]
        return None if found is None else found.rule, self.partition.first_lack(headers, self.view, self.log.end)

    def not_done(self, clean_to: int, deletes_before: int) -> str | None:
        found = self.partition.first_not_done(self.view, 0, JudgedPoint(clean_to, deletes_before))
        return None if found is None else found.rule


def keyed() -> Judged:
    """0 a, 1 b | 2 a is deleted, 3 c | a transaction: 4 b, 5 its marker | an aborted one: 6 c, 7 its marker | 8 d."""
    log = KeyedLog()
    log.write([(b"a", b"0"), (b"b", b"1")])
    log.write([(b"a", None), (b"c", b"3")])
    log.write([(b"b", b"4")], producer_id=100, transactional=True)
    log.mark(100, committed=True)
    log.write([(b"c", b"6")], producer_id=101, transactional=True)
    log.mark(101, committed=False)
    log.write([(b"d", b"8")])
    return Judged(log)


def typed() -> Judged:
    """0 (x, null), 1 (x, 1) | 2 (x, null) by the second version | 3 (x, 1) is deleted, 4 (y, 1)."""
    log = KeyedLog()
    rows = (
        (1, [("x", None, "0"), ("x", 1, "1")], [False, False]),
        (2, [("x", None, "2")], [False]),
        (3, [("x", 1, None), ("y", 1, "4")], [True, False]),
    )
    for version, of_batch, deletions in rows:
        schema = SCHEMAS.version(version)
        named = [dict(zip(("part", "shard", schema.by_id[3].name), row, strict=True)) for row in of_batch]
        columns = pa.RecordBatch.from_pylist(
            named, schema=pa.schema([each.with_nullable(True) for each in schema.arrow_schema])
        )
        columns = pa.RecordBatch.from_arrays(columns.columns, schema=schema.arrow_schema)
        given = TypedRows(schema, columns, deletions=pa.array(deletions) if any(deletions) else None)
        batch = build_typed_batch(*KEY, given, timestamp_us=NOW_US)
        log.place(batch, [row[:2] for row in of_batch], deletions)
    return Judged(log)


@pytest.mark.parametrize("make", [keyed, typed])
@pytest.mark.parametrize("deletes_before", [0, 3, 9])
def test_a_copy_that_is_cleaned_by_the_rule_is_right(make: Callable[[], Judged], deletes_before: int) -> None:
    judged, end = make(), make().log.end
    assert judged.wrong() == (None, None)
    judged.copy(judged.clean(end, min(deletes_before, end)))
    assert judged.wrong() == (None, None)
    assert judged.not_done(end, min(deletes_before, end)) is None


def test_a_cleaning_is_what_the_rule_says() -> None:
    judged = keyed()
    judged.copy(judged.clean(9, 3))
    assert judged.not_done(9, 3) is None
    assert judged.not_done(9, 0) == "K5"
    judged.copy(judged.log.batches)
    assert judged.not_done(9, 3) == "K5"


def test_the_key_of_a_row_is_its_key_columns_by_whatever_version_it_was_written() -> None:
    judged = typed()
    assert [record.key for record in judged.partition.records.values()] == [
        ("x", None), ("x", 1), ("x", None), ("x", 1), ("y", 1)
    ]  # fmt: skip
    assert [record.is_deletion for record in judged.partition.records.values()] == [False, False, False, True, False]
    assert judged.partition.records[2].content[0] == ((1, "x"), (3, "2"))
    judged.clean(5, 5)
    assert [offset for offset in range(5) if judged.partition.may_miss(offset)] == [0, 1, 3]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("gone", "rule"), [([2], "K1"), ([6, 7], None)])
def test_a_record_that_stays_is_missed(gone: list[int], rule: str | None, *, warm: bool) -> None:
    """3 c is the newest of its key, since 6 was aborted."""
    judged = keyed()
    right = judged.clean(9, 9)
    if warm:
        judged.copy(right)
        assert judged.wrong() == (None, None)
    gaps = {at: gap_batch(*KEY, decode_header(judged.log.batches[number])) for number, at in ((1, 2), (4, 6), (5, 7))}
    batches = {decode_header(batch).base_offset: batch for batch in judged.log.batches}
    judged.copy((batches | {at: gaps[at] for at in gone}).values())
    assert judged.wrong()[0] == rule


def test_a_record_that_has_changed_is_seen_behind_one_that_has_not() -> None:
    judged, other = keyed(), KeyedLog()
    other.write([(b"a", b"0"), (b"b", b"another")])
    judged.clean(9, 0)
    assert judged.wrong() == (None, None)
    judged.copy([*other.batches, *judged.log.batches[1:]])
    assert judged.wrong() == ("K2", 0)


def test_a_deletion_goes_behind_what_it_deletes() -> None:
    judged = keyed()
    right = judged.clean(9, 3)
    judged.copy(right)
    assert judged.wrong() == (None, None)
    judged.copy([judged.log.batches[0], *(batch for batch in right if decode_header(batch).base_offset >= 2)])
    assert judged.wrong()[0] == "K3"


def test_a_marker_goes_behind_its_records() -> None:
    judged = keyed()
    judged.copy(judged.clean(9, 9))
    assert judged.wrong() == (None, None)
    cut = [batch for batch in judged.log.batches if decode_header(batch).base_offset != 7]
    judged.copy(cut[:-1])
    judged.partition.point = JudgedPoint(8, 8)
    assert judged.partition.first_wrong(judged.view, 0, 8) == (
        "K4",
        "the markers at 7 are gone, the record at 6 is left",
    )


def test_a_record_without_its_marker_counts_as_aborted_and_goes() -> None:
    judged = keyed()
    judged.partition.point = JudgedPoint(8, 8)
    for marker, is_right in ((7, True), (5, False)):
        judged.copy([batch for batch in judged.log.batches if decode_header(batch).base_offset != marker])
        assert judged.partition.first_wrong(judged.view, 0, 8) is not None
        wrong = judged.partition.first_wrong(judged.view, 0, 8, lambda *_: True)
        text = "the markers at 5 are gone, and the record at 4, which stays, is hidden"
        assert wrong == (None if is_right else ("K4", text))


def test_retention_may_delete_what_is_old() -> None:
    partition = keyed().partition
    written_s = NOW_US / 1e6
    assert partition.first_younger(0, 9, written_s + 1) is None
    young = partition.first_younger(1, 9, written_s - 1)
    assert young is not None
    assert young.offset == 1


def test_a_view_says_from_where_on_it_has_changed() -> None:
    judged = keyed()
    judged.view.unchanged_to = 9
    judged.copy([*judged.log.batches[:2], *judged.log.batches[2:]])
    assert judged.view.unchanged_to == 0


@pytest.mark.parametrize("generation", [1, 2, 10])
def test_a_swapped_segment_counts_in_the_place_of_all_that_begin_inside_of_it(generation: int) -> None:
    """Two former segments are still there, and the first one ends between the record at 0 and its marker at 2. No copy
    is that record and behind it the new segment, which has neither."""
    log = KeyedLog()
    log.write([(b"a", b"0")], producer_id=100, transactional=True)
    log.write([(b"b", b"1")], producer_id=101, transactional=True)
    log.mark(100, committed=True)
    log.mark(101, committed=True)
    log.write([(b"a", b"4")])
    judged = Judged(log)
    first, second = {name_of(0, generation - 1): log.batches[:2]}, {name_of(2, 3): log.batches[2:]}
    judged.files(first | second)
    assert judged.wrong() == (None, None)
    compacted = {name_of(0, generation): judged.clean(5, 5)}
    for files in (first | second | compacted, second | compacted, compacted):
        judged.files(files)
        assert judged.wrong() == (None, None)
        assert judged.not_done(5, 5) is None
        assert judged.view.end == 5


def test_a_swapped_segment_is_judged_before_the_former_one_is_gone() -> None:
    judged = keyed()
    judged.clean(9, 3)
    gap = gap_batch(*KEY, decode_header(judged.log.batches[-1]))
    for generation in (9, 10):
        former = {name_of(0, generation - 1): judged.log.batches}
        judged.files(former)
        assert judged.wrong() == (None, None)
        judged.files(former | {name_of(0, generation): [*judged.log.batches[:-1], gap]})
        assert judged.wrong() == ("K1", 8)


def name_of(base_offset: int, generation: int) -> str:
    """The name of a segment's file."""
    return f"{base_offset:020}.{generation}.log" if generation else f"{base_offset:020}.log"
