"""Deletions as programs give them: rows with `_deleted`, tables with a column of that name, and keys for `delete`."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidArgument, InvalidRecord, LevelNotReached
from minilog.net.metadata_cache import CachedTopic
from minilog.producer.arguments import columns_of_many, deletion_of
from minilog.producer.typed_rows import checked_row, cut_rows
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
from minilog.scanning.shape import shape_of
from minilog.typed.rows.batch import TypedRows, gathered_rows
from minilog.typed.rows.given_rows import given_rows
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.row_form import DeletedRow
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import Record, RowDeletion
from minilog.v1.metadata_pb2 import TopicMetadata
from tests.unit.client.typed_batches import build, validate

SCHEMA = first_version(
    parse_ddl("id int NOT NULL, region string, name string NOT NULL, at timestamp NOT NULL, counts map<string, int>"),
    ["id", "region"],
    "at",
)
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
ROW: dict[str, Any] = {"id": 1, "region": "eu", "name": "a", "at": NOON, "counts": {"x": 1}}
OWN = TopicSchema((Field("id", Primitive("int"), True, 1), Field("_deleted", Primitive("boolean"), True, 2)), ("id",))


def topic(schema: TopicSchema | None = SCHEMA, level: int = 6) -> CachedTopic:
    schemas = None if schema is None else TopicSchemas((schema,))
    return CachedTopic("t", b"\1" * 16, 3, None, TopicMetadata(), schemas, level)


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{name: row[name] for name in row if name != "counts"} for row in rows])


# -- rows


def test_a_row_with_deleted_has_its_key_alone() -> None:
    row = SCHEMA.row_form.check({**ROW, "name": 5, "counts": "any", "_deleted": True})
    assert type(row.values) is DeletedRow
    assert row.values == (1, "eu", None, None, None)
    assert row.key == SCHEMA.row_form.check(ROW).key
    assert row.timestamp_us == int(NOON.timestamp() * 1_000_000)
    assert SCHEMA.row_form.check({"id": 1, "region": None, "_deleted": True}).timestamp_us is None


@pytest.mark.parametrize("value", [False, None])
def test_a_row_that_is_not_deleted_is_one_like_any_other(value: object) -> None:
    row = SCHEMA.row_form.check({**ROW, "_deleted": value})
    assert row == SCHEMA.row_form.check(ROW)
    assert type(row.values) is tuple
    with pytest.raises(InvalidRecord, match="column 'name' may not be null"):
        SCHEMA.row_form.check({"id": 1, "region": "eu", "_deleted": value})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "_deleted": True}, "no value for key column 'region'"),
        ({"region": "eu", "_deleted": True}, "no value for key column 'id'"),
        ({"id": None, "region": "eu", "_deleted": True}, "column 'id' may not be null"),
        ({"id": "x", "region": "eu", "_deleted": True}, "column 'id' is int"),
        ({"id": 1, "region": "eu", "_deleted": "yes"}, "'_deleted' is true or false, and 'yes' is neither"),
        ({"id": 1, "region": "eu", "other": 1, "_deleted": True}, "no column '_deleted'|no column 'other'"),
        ({"id": 1, "region": "eu", "at": "x", "_deleted": True}, "column 'at' is timestamp"),
    ],
)
def test_a_deletion_that_names_no_key_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        SCHEMA.row_form.check(row)


def test_a_deletion_needs_key_columns_and_a_key() -> None:
    keyless, nullable = first_version(parse_ddl("n int")), first_version(parse_ddl("n int"), ["n"])
    with pytest.raises(InvalidRecord, match="no key columns"):
        keyless.row_form.check({"n": 1, "_deleted": True})
    with pytest.raises(InvalidRecord, match="null in key column 'n'"):
        nullable.row_form.check({"n": None, "_deleted": True})


def test_gathered_rows_know_which_of_them_are_deletions() -> None:
    rows = [ROW, {"id": 2, "region": None, "_deleted": True}]
    values = [SCHEMA.row_form.check(row).values for row in rows]
    gathered = gathered_rows(SCHEMA, values, [9, 9], [None, None], None)
    assert gathered.deletions is not None
    assert gathered.deletions.to_pylist() == [False, True]
    assert validate(build(gathered), TopicSchemas((SCHEMA,))).has_deletions
    assert gathered_rows(SCHEMA, values[:1], [9], [None], None).deletions is None


def test_a_topic_with_a_column_of_that_name_has_no_deletions() -> None:
    row = OWN.row_form.check({"id": 1, "_deleted": True})
    assert (type(row.values), row.values) == (tuple, (1, True))
    assert given_rows(table({"id": 1, "_deleted": True}), OWN).deletions is None
    with pytest.raises(InvalidRecord, match="of its own"):
        deletion_of(topic(OWN), {"id": 1})


# -- keys


def test_a_key_to_delete_is_a_row_of_its_columns_or_bytes() -> None:
    assert deletion_of(topic(), {"id": 5, "region": "eu"}) == ({"id": 5, "region": "eu", "_deleted": True}, None)
    assert deletion_of(topic(None), b"k") == (None, b"k")
    for given, key in ((topic(), b"k"), (topic(None), {"id": 5}), (topic(None), None)):
        with pytest.raises(InvalidRecord, match=r"the key to delete is \w+: give"):
            deletion_of(given, key)


def test_deletions_wait_for_level_6() -> None:
    below, deletion = topic(level=5), {"id": 1, "region": "eu", "_deleted": True}
    for given in (
        lambda: checked_row(below, deletion, None, None),
        lambda: cut_rows(below, SCHEMA, table(deletion), None, 1 << 20),
        lambda: columns_of_many(below, [deletion], None),
    ):
        with pytest.raises(LevelNotReached, match="came with level 6, and the cluster is at level 5"):
            given()
    assert checked_row(below, ROW, None, None)[1].values
    assert cut_rows(below, SCHEMA, table({**ROW, "_deleted": False}), 0, 1 << 20)


def test_many_rows_may_have_deletions_among_them() -> None:
    deletion = {"id": 2, "region": "eu", "_deleted": True}
    columns = columns_of_many(topic(), [ROW, deletion], None)
    assert columns.column("_deleted").to_pylist() == [False, True]
    parts = cut_rows(topic(), SCHEMA, columns, None, 1 << 20)
    assert sum(0 if part.deletions is None else part.deletions.true_count for _, part in parts) == 1
    assert columns_of_many(topic(), [ROW], None).schema.names == list(SCHEMA.names)


# -- tables


def given(*rows: dict[str, Any], schema: TopicSchema = SCHEMA, first_row: int = 0) -> TypedRows:
    return given_rows(table(*rows), schema, first_row=first_row)


def test_a_table_says_by_a_column_which_rows_are_deletions() -> None:
    rows = given({**ROW, "_deleted": None}, {**ROW, "id": 2, "_deleted": True}, {**ROW, "id": 3, "_deleted": False})
    assert rows.deletions is not None
    assert rows.deletions.to_pylist() == [False, True, False]
    assert rows.columns.to_pylist()[1] == {"id": 2, "region": "eu", "name": None, "at": None, "counts": None}
    assert rows.timestamps is not None
    assert rows.timestamps.to_pylist() == [None, NOON, None]
    batch = build(rows)
    header = validate(batch, TopicSchemas((SCHEMA,)))
    assert header.max_timestamp_us == int(NOON.timestamp() * 1_000_000)


def test_values_beside_the_key_of_a_deletion_need_not_fit() -> None:
    names = pa.array(["a", "late"])
    given = pa.table({"id": pa.array([1, 2]), "n": names, "_deleted": pa.array([False, True])})
    schema = first_version(parse_ddl("id int, n string NOT NULL"), ["id"])
    assert given_rows(given, schema).columns.to_pylist() == [{"id": 1, "n": "a"}, {"id": 2, "n": None}]
    big = pa.table({"id": [1, 2], "n": [5, 1 << 40], "_deleted": [False, True]})
    narrow = first_version(parse_ddl("id int, n int NOT NULL"), ["id"])
    assert given_rows(big, narrow).columns.to_pylist() == [{"id": 1, "n": 5}, {"id": 2, "n": None}]
    with pytest.raises(InvalidRecord, match="in row 1 does not fit"):
        given_rows(big.drop_columns(["_deleted"]), narrow)


@pytest.mark.parametrize("deleted", [[True, True, True], [False, True, None], [None, None, None]])
def test_a_column_may_come_in_chunks_or_as_a_batch(deleted: list[bool | None]) -> None:
    whole = pa.table({"id": [1, 2, 3], "_deleted": pa.array(deleted, pa.bool_())})
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    schema = first_version(parse_ddl("id int"), ["id"])
    for given in (whole, chunked, whole.to_batches()[0]):
        rows = given_rows(given, schema)
        assert rows.columns.column("id").to_pylist() == [1, 2, 3]
        expected = [bool(value) for value in deleted]
        assert (None if rows.deletions is None else rows.deletions.to_pylist()) == (expected if any(expected) else None)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROW, "_deleted": "true"}], "column '_deleted' is boolean, and the rows have string"),
        ([{"id": 1, "_deleted": True}], "no key column 'region': give all key columns"),
        ([ROW | {"_deleted": False}, ROW | {"id": None, "_deleted": True}], "column 'id' may not be null, and row 11"),
        (
            [ROW | {"_deleted": True}, ROW | {"name": None, "_deleted": False}],
            "column 'name' may not be null, and row 11",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_row(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        given(*rows, first_row=10)


def test_a_deletion_in_a_table_has_a_key() -> None:
    single = first_version(parse_ddl("id int, n int"), ["id"])
    with pytest.raises(InvalidRecord, match="row 8 deletes its key, and its key column 'id' is null"):
        given({"id": 1, "_deleted": True}, {"id": None, "_deleted": True}, schema=single, first_row=7)
    with pytest.raises(InvalidRecord, match="no key columns"):
        given({"n": 1, "_deleted": True}, schema=first_version(parse_ddl("n int")))


def test_parts_with_deletions_have_a_bounded_number_of_rows() -> None:
    count = MAX_ROWS_WITH_DELETIONS + 1
    schema = first_version(parse_ddl("id int"), ["id"])
    flags = pa.array([True] + [False] * (count - 2) + [True])
    given = pa.table({"id": pa.arange(0, count), "_deleted": flags})
    parts = [part for _, part in cut_rows(topic(schema), schema, given, 0, 1 << 30)]
    assert [part.num_rows for part in parts] == [count // 2, count - count // 2]
    assert [part.deletions is not None for part in parts] == [True, True]
    (whole,) = cut_rows(topic(schema), schema, given.drop_columns(["_deleted"]), 0, 1 << 30)
    assert whole[1].num_rows == count


# -- what is read


def test_a_scan_with_deletes_has_a_last_column_and_nulls() -> None:
    shape = shape_of("t", SCHEMA, ["name", "id"], None, metadata=True, deletes=True)
    assert shape.schema.names[-1] == "_deleted"
    assert [field.name for field in shape.schema if not field.nullable] == ["id", "_deleted"]
    assert shape.selection.deletions
    assert not shape_of("t", SCHEMA, None, None, metadata=False).selection.deletions
    with pytest.raises(InvalidArgument, match="has no schema"):
        shape_of("t", None, None, None, metadata=False, deletes=True)
    with pytest.raises(InvalidArgument, match="of its own"):
        shape_of("t", OWN, None, None, metadata=False, deletes=True)


def test_a_record_without_a_value_deletes_its_key() -> None:
    record = Record("t", 0, 1, 2, b"k", None, [])
    assert record.is_deletion
    assert not record._replace(key=None).is_deletion
    assert not record._replace(value=b"").is_deletion
    deletion = RowDeletion.of(record, b'{"id":5}')
    assert (deletion, deletion.key_columns, deletion.is_deletion) == (record, b'{"id":5}', True)
