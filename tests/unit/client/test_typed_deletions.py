"""Rows of a typed topic that delete their key: what a leader takes, what a replica sends, and what a reader gets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.consumer.row_selection import AS_RECORDS, RowSelection
from minilog.errors import CorruptMessage, InvalidArgument, InvalidRecord, MessageTooLarge, MinilogError
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
from minilog.record_batch.header import Attributes, decode_header
from minilog.typed.conditions.statistics import MAX_COLUMNS
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.batch import TypedRows
from minilog.typed.rows.compaction import compacted_typed_batch
from minilog.typed.rows.deletions import bitmap_of, deletion_count, deletions_of
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.client.typed_batches import KEY, build, extension_of, forged, validate
from tests.unit.record_batch.batches import PARTITION, TOPIC_ID, at_offset, full_batch

FIELDS = parse_ddl(
    "id int NOT NULL, region string, name string NOT NULL, place struct<x: int NOT NULL> NOT NULL, "
    "counts map<string, int> NOT NULL, tags array<int> NOT NULL, n double"
)
SCHEMA = first_version(FIELDS, ["id"])
SCHEMAS = TopicSchemas((SCHEMA,))
Row = dict[str, Any]


def row(number: int, n: float | None = None) -> Row:
    values: Row = {"id": number, "name": "x", "place": {"x": 1}, "counts": [("a", 1)], "tags": [1], "n": n}
    return dict.fromkeys(SCHEMA.names) | values


def deletion(number: int | None, **values: Any) -> Row:
    return dict.fromkeys(SCHEMA.names) | {"id": number} | values


def typed(rows: list[Row], deletions: list[int], schema: TopicSchema = SCHEMA, **options: Any) -> bytes:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema.arrow_schema]
    given = TypedRows(
        schema,
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema),
        deletions=pa.array([place in deletions for place in range(len(rows))]) if deletions else None,
    )
    return build(given, statistics_columns=schema.names, **options)


def refused(batch: bytes, schemas: TopicSchemas | None = SCHEMAS) -> MinilogError:
    with pytest.raises(MinilogError) as raised:
        validate(batch, schemas)
    return raised.value


MIXED = typed([row(1, 5.0), deletion(2), row(3, 7.0), deletion(1)], [1, 3])


# -- the bitmap


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 9))
def test_a_bitmap_says_what_it_was_made_of(deletions: list[bool], skipped: int) -> None:
    sliced = pa.array([True] * skipped + deletions + [True] * 5).slice(skipped, len(deletions))
    bitmap = bitmap_of(sliced)
    assert len(bitmap) == -(-len(deletions) // 8)
    again = deletions_of(bitmap, len(deletions))
    assert again is not None
    assert again.to_pylist() == deletions
    assert deletion_count(bitmap) == sum(deletions)


def test_the_least_significant_bit_is_the_first_row() -> None:
    assert extension_of(MIXED).deletions == bytes((0b1010,))


@pytest.mark.parametrize(
    ("bitmap", "message"),
    [
        (b"", "4 rows and a bitmap of deletions of 0 bytes: 1 are needed"),
        (b"\x0a\0", "4 rows and a bitmap of deletions of 2 bytes: 1 are needed"),
        (b"\x1a", "deletes a row behind the last one"),
        (b"\0", "deletes no row"),
    ],
)
def test_a_bitmap_that_is_not_one_of_the_rows_is_refused(bitmap: bytes, message: str) -> None:
    extension = extension_of(MIXED)
    extension.deletions = bitmap
    batch = forged(MIXED, extension=extension.SerializeToString())
    error = refused(batch)
    assert type(error) is CorruptMessage
    assert message in str(error)
    with pytest.raises(CorruptMessage, match=r"deletions|delete"):
        found(batch)


def test_a_bitmap_goes_with_the_attribute() -> None:
    attributes = decode_header(MIXED).attributes
    assert "not the attribute" in str(refused(forged(MIXED, attributes=attributes & ~Attributes.DELETES)))
    plain = typed([row(1)], [])
    assert not decode_header(plain).has_deletions
    with_attribute = forged(plain, attributes=decode_header(plain).attributes | Attributes.DELETES)
    assert "bitmap of deletions of 0 bytes" in str(refused(with_attribute))


# -- what a leader takes


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_deletions_may_be_null_where_rows_may_not(codec: str) -> None:
    for rows, deletions in (
        ([row(1), deletion(2)], [1]),
        ([deletion(2)], [0]),
        ([deletion(number) for number in range(17)], list(range(17))),
    ):
        batch = typed(rows, deletions, compression=codec)
        assert validate(batch, SCHEMAS).has_deletions


@pytest.mark.parametrize(
    ("rows", "deletions", "message"),
    [
        ([row(1), deletion(None)], [1], "row 1 deletes its key, and its key column 'id' is null"),
        ([row(1), deletion(2, name="x")], [1], "row 1 deletes its key and has a value in column 'name'"),
        ([deletion(1), deletion(2, n=1.0), deletion(3, n=2.0)], [0, 1, 2], "row 1 deletes its key and has a value"),
        ([row(1), deletion(2)], [0], "row 0 deletes its key and has a value in column 'name'"),
        ([row(1), deletion(2), deletion(3)], [1], "column 'name' may not be null, and row 2"),
        ([row(1), deletion(2) | {"place": {"x": 1}}], [1], "row 1 deletes its key and has a value in column 'place'"),
    ],
)
def test_a_deletion_has_a_key_and_nothing_beside_it(rows: list[Row], deletions: list[int], message: str) -> None:
    error = refused(typed(rows, deletions))
    assert type(error) is InvalidRecord
    assert message in str(error)


def test_a_deletion_without_a_key_is_refused() -> None:
    """Nulls of several key columns are a key."""
    single = first_version(parse_ddl("id int, region string, n int"), ["id"])
    double = first_version(single.fields, ["id", "region"])
    nothing = dict.fromkeys(single.names)
    error = refused(typed([nothing | {"id": 1}, nothing], [0, 1], single), TopicSchemas((single,)))
    assert "row 1 deletes its key, and its key column 'id' is null" in str(error)
    assert validate(typed([nothing], [0], double), TopicSchemas((double,)))


def test_only_topics_with_a_schema_and_a_key_have_deletions() -> None:
    assert type(refused(MIXED, None)) is InvalidRecord
    keyless = first_version(parse_ddl("n int"))
    error = refused(typed([{"n": None}], [0], keyless), TopicSchemas((keyless,)))
    assert type(error) is InvalidRecord
    assert "no key columns" in str(error)
    untyped = forged_attributes(full_batch(), Attributes.DELETES)
    assert type(refused(untyped, None)) is CorruptMessage


def forged_attributes(batch: bytes, more: int) -> bytes:
    return forged(batch, extension=b"", attributes=decode_header(batch).attributes | more)


@pytest.mark.parametrize("wrong", ["of all rows", "of key columns with deletions"])
def test_statistics_pass_deletions_over(wrong: str) -> None:
    by_name = {SCHEMA.by_id[told.field_id].name: told for told in extension_of(MIXED).statistics}
    assert (by_name["n"].null_count, by_name["n"].lowest.number, by_name["n"].highest.number) == (0, 5.0, 7.0)
    assert (by_name["id"].lowest.integer, by_name["id"].highest.integer) == (1, 3)
    batch = typed([row(5), deletion(2)], [1])
    extension = extension_of(batch)
    for told in extension.statistics:
        if told.field_id == SCHEMA.column("id").id and wrong == "of key columns with deletions":
            told.lowest.integer = 2
        if told.field_id == SCHEMA.column("name").id and wrong == "of all rows":
            told.null_count = 1
    error = refused(forged(batch, extension=extension.SerializeToString()))
    assert type(error) is CorruptMessage
    assert "statistics" in str(error)


def test_a_batch_with_deletions_has_so_many_rows_that_its_extension_has_room() -> None:
    """The longest statistics of all beside the longest bitmap."""
    fields = [Field(f"c{number}", Primitive("string"), True) for number in range(MAX_COLUMNS)]
    schema = first_version([Field("id", Primitive("int"), False), *fields], ["id"])
    text = "\U0010fffe" * 12
    alone = dict.fromkeys(schema.names, text) | {"id": 1}
    statistics = len(extension_of(typed([alone], [], schema)).SerializeToString())
    bitmap = bytes(MAX_ROWS_WITH_DELETIONS // 8)
    assert statistics + len(bitmap) + len(typed_pb2.TypedBatch(deletions=bitmap).SerializeToString()) < 2 * 65_535
    assert statistics + 12 + len(bitmap) <= 65_535
    small = first_version(parse_ddl("id int"), ["id"])
    rows = pa.RecordBatch.from_arrays(
        [pa.arange(0, MAX_ROWS_WITH_DELETIONS + 1).cast(pa.int32())], schema=small.arrow_schema
    )
    deletions = pa.repeat(pa.scalar(True), MAX_ROWS_WITH_DELETIONS + 1)
    with pytest.raises(MessageTooLarge, match="262144"):
        build(TypedRows(small, rows, deletions=deletions))
    largest = build(TypedRows(small, rows, deletions=deletions).slice(1, MAX_ROWS_WITH_DELETIONS))
    assert validate_largest(largest, small)
    extension = extension_of(largest)
    extension.deletions = extension.deletions + b"\1"
    longer = forged(
        largest,
        extension=extension.SerializeToString(),
        record_count=MAX_ROWS_WITH_DELETIONS + 1,
        last_offset_delta=MAX_ROWS_WITH_DELETIONS,
    )
    with pytest.raises(CorruptMessage, match="at most 262144"):
        found(longer)


def validate_largest(batch: bytes, schema: TopicSchema) -> bool:
    from minilog_broker.replication.leader.typed_validation import validate_topic_batch

    header = validate_topic_batch(
        TOPIC_ID, PARTITION, batch, max_message_bytes=64 << 20, schemas=TopicSchemas((schema,))
    )
    return header.has_deletions


# -- what is sent and read


def found(batch: bytes, where: str | None = None, *, deletions: bool = False, sent: bool = False) -> list[Row]:
    condition = None if where is None else parse_where(where, SCHEMA)
    selection = TypedSelection(SCHEMA, ("id", "n"), condition, deletions=deletions)
    piece = Scanner(selection.to_wire(), SCHEMAS).scan(KEY, batch, 1 << 30).batches if sent else batch
    header = decode_header(piece)
    rows = TypedReader(SCHEMAS, selection).rows(piece, header, header.base_offset, header.next_offset)
    return [] if rows is None else list(rows.to_pylist())


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    ("where", "rows"), [(None, [1, 3]), ("n > 6", [3]), ("n is null", []), ("id = 1", [1]), ("id = 2", [])]
)
def test_deletions_come_to_readers_that_ask_for_them_alone(where: str | None, rows: list[int], sent: bool) -> None:
    assert [one["id"] for one in found(MIXED, where, sent=sent)] == rows
    with_deletions = found(MIXED, where, deletions=True, sent=sent)
    assert [one["_offset"] for one in with_deletions if one["_deleted"]] == [1, 3]
    assert [one["id"] for one in with_deletions if not one["_deleted"]] == rows
    assert all(one["n"] is None for one in with_deletions if one["_deleted"])


def piece_of(batch: bytes, where: str | None, *, deletions: bool) -> bytes:
    condition = None if where is None else parse_where(where, SCHEMA)
    wire = TypedSelection(SCHEMA, ("n",), condition, deletions=deletions).to_wire()
    return Scanner(wire, SCHEMAS).scan(KEY, batch, 1 << 30).batches


def test_a_batch_of_deletions_is_left_out_for_who_does_not_ask_for_them() -> None:
    batch = at_offset(typed([deletion(1), deletion(2)], [0, 1]), 7)
    for where in (None, "id = 1", "n is null", "id is not null"):
        header = decode_header(piece_of(batch, where, deletions=False))
        assert (header.record_count, header.base_offset, header.next_offset) == (0, 7, 9)
        assert not header.has_deletions
        assert decode_header(piece_of(batch, where, deletions=True)).record_count == 2


def test_statistics_leave_a_batch_out_whatever_its_deletions_are() -> None:
    assert decode_header(piece_of(MIXED, "n > 7", deletions=False)).record_count == 0
    assert decode_header(piece_of(MIXED, "n is null", deletions=False)).record_count == 0
    assert decode_header(piece_of(MIXED, "n > 7", deletions=True)).record_count == 4


def test_a_projection_has_the_bitmap_for_every_reader() -> None:
    for deletions in (False, True):
        piece = piece_of(MIXED, None, deletions=deletions)
        assert extension_of(piece).deletions == extension_of(MIXED).deletions
        assert decode_header(piece).has_deletions


def test_only_key_columns_may_not_be_null_where_deletions_are_asked_for() -> None:
    schema = TypedSelection(SCHEMA, SCHEMA.names, deletions=True).arrow_schema
    assert [field.name for field in schema if not field.nullable] == ["id", "_deleted", "_offset"]
    assert schema.names[-2:] == ["_deleted", "_offset"]


def test_a_topic_with_a_column_of_that_name_is_read_without_deletions() -> None:
    fields = [Field("id", Primitive("int"), False, 1), Field("_Deleted", Primitive("int"), True, 2)]
    older = TopicSchema(tuple(fields), ("id",), None, 1, 2)
    assert not RowSelection().wants_deletions(older)
    assert AS_RECORDS.wants_deletions(older)
    with pytest.raises(InvalidArgument, match="of its own"):
        RowSelection(deletions=True).wants_deletions(older)


def test_the_bitmap_is_filtered_with_the_rows() -> None:
    batch = at_offset(MIXED, 20)
    for kept, bitmap in (
        ([True, True, False, True], b"\x06"),
        ([False, False, False, True], b"\x01"),
        ([True, False, True, False], b""),
    ):
        compacted = compacted_typed_batch(
            TOPIC_ID, PARTITION, batch, decode_header(batch), pa.array(kept, pa.bool_()), SCHEMAS
        )
        assert extension_of(compacted).deletions == bitmap
        assert decode_header(compacted).has_deletions == bool(bitmap)
        expected = [one for one in found(batch, deletions=True) if kept[one["_offset"] - 20]]
        assert found(compacted, deletions=True) == expected
