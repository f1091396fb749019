"""The compaction of typed topics: rows have the key columns of their schema's version as their key."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.errors import InvalidSchema, UnknownSchemaVersion
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema import evolution
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.storage.compaction.key_reader import KeyReader
from tests.unit.record_batch.batches import NOW_US
from tests.unit.storage.compaction.keyed_logs import COMPRESSIONS, KEY, KeyedLog, cleaned, cleanings, headers, stored

FIELDS = "id int, name string, raw binary, flag boolean, big long, fare decimal(20,2), day date, at timestamp, n int"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Values that are near each other as bytes: a key is no mere row of them.
VALUES: dict[str, tuple[Any, ...]] = {
    "id": (None, 0, 1, -1, 256),
    "name": (None, "", "a", "ab", "b", "\0"),
    "raw": (None, b"", b"a", b"\xff\xff\xff\xff"),
    "flag": (None, False, True),
    "big": (None, 0, 1, 2**62),
    "fare": (None, decimal.Decimal("0.00"), decimal.Decimal("0.10"), decimal.Decimal("-0.10")),
    "day": (None, EPOCH.date(), EPOCH.date() + datetime.timedelta(1)),
    "at": (None, EPOCH, EPOCH + datetime.timedelta(microseconds=1)),
}
KEYS: tuple[tuple[str, ...], ...] = (
    ("id",),
    ("name",),
    ("flag",),
    ("id", "name"),
    ("name", "raw"),
    ("big", "day"),
    ("at", "fare", "raw"),
    (),
)


def versions(key_columns: tuple[str, ...]) -> TopicSchemas:
    """Four: a column is renamed, moved, widened, added."""
    first = first_version(parse_ddl(FIELDS), key_columns)
    moved = evolution.move_column(evolution.rename_column(first, "name", "label"), "id", after=evolution.LAST)
    second = evolution.as_next_version(first, moved)
    third = evolution.widen_column(second, "n", Primitive("long"))
    fourth = evolution.add_column(third, Field("offset_delta", Primitive("int")), after=evolution.LAST)
    schemas = TopicSchemas((first,))
    for schema in (second, third, fourth):
        schemas = schemas.followed_by(schema)
    return schemas


SCHEMAS = {key_columns: versions(key_columns) for key_columns in KEYS}


@dataclass
class TypedLog:
    log: KeyedLog
    schemas: TopicSchemas
    key_columns: tuple[str, ...]

    def write(
        self,
        rows: list[dict[str, Any]],
        version: int = 1,
        *,
        compression: str = "none",
        deletions: list[bool] | None = None,
        **options: Any,
    ) -> None:
        schema = self.schemas.version(version)
        deleted = deletions or [False] * len(rows)
        for row, is_deletion in zip(rows, deleted, strict=True):
            if is_deletion:
                row.update(dict.fromkeys(row.keys() - set(self.key_columns)))
        named = [{("label" if name == "name" and version > 1 else name): row[name] for name in row} for row in rows]
        columns = pa.RecordBatch.from_pylist(named, schema=schema.arrow_schema)
        given = TypedRows(schema, columns, deletions=pa.array(deleted) if any(deleted) else None)
        batch = build_typed_batch(*KEY, given, compression=compression, timestamp_us=NOW_US + self.log.end, **options)
        self.log.place(batch, [self.key_of(row) for row in rows], deleted)

    def key_of(self, row: dict[str, Any]) -> Any:
        values = tuple(row[name] for name in self.key_columns)
        return None if not values or values == (None,) else values

    def clean(self, clean_to: int, **options: Any) -> list[bytes]:
        return cleaned(self.log.batches, clean_to, aborted=self.log.aborted, schemas=self.schemas, **options)

    def read(self, batches: list[bytes]) -> list[dict[str, Any]]:
        schema = self.schemas.latest
        selection = TypedSelection(schema, schema.names, timestamps=True, headers=True, deletions=True)
        reader = TypedReader(self.schemas, selection)
        parts = [
            reader.rows(batch, header, header.base_offset, header.next_offset) for header, batch in stored(batches)
        ]
        return [row for part in parts if part is not None for row in part.to_pylist()]


@st.composite
def typed_logs(draw: st.DrawFn) -> TypedLog:
    key_columns = draw(st.sampled_from(KEYS))
    typed = TypedLog(KeyedLog(), SCHEMAS[key_columns], key_columns)
    for _ in range(draw(st.integers(1, 6))):
        rows: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(1, 4))):
            row = {name: values[0] for name, values in VALUES.items()}
            row |= {name: draw(st.sampled_from(VALUES[name])) for name in key_columns}
            rows.append({**row, "n": typed.log.end + len(rows)})
        producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        typed.write(
            rows,
            draw(st.integers(1, 4)),
            deletions=[typed.key_of(row) is not None and draw(st.booleans()) for row in rows],
            compression=draw(st.sampled_from(COMPRESSIONS)),
            **draw(st.sampled_from([{}, {}, producer])),
        )
    typed.log.mark(9, committed=draw(st.booleans()))
    return typed


@settings(max_examples=60)
@given(st.data())
def test_the_newest_row_of_each_key_stays_in_all_versions_of_a_schema(data: st.DataObject) -> None:
    typed = data.draw(typed_logs())
    clean_to = data.draw(st.sampled_from(typed.log.boundaries()))
    deletes_before = data.draw(st.integers(0, typed.log.end))
    how = {**data.draw(cleanings(typed.log)), "deletes_before": deletes_before}
    after = typed.clean(clean_to, **how)
    left = {record.offset for record in typed.log.survivors(clean_to, deletes_before)}
    assert typed.read(after) == [row for row in typed.read(typed.log.batches) if row["_offset"] in left]
    assert headers(after)[-1].next_offset == typed.log.end
    how = {**how, "part_batches": 1_000}
    once = typed.clean(clean_to, **how)
    again = replace(typed, log=replace(typed.log, batches=once))
    assert again.clean(clean_to, **how) == once


def of(key_columns: tuple[str, ...], *rows: dict[str, Any]) -> TypedLog:
    """A log with a batch for each row."""
    typed = TypedLog(KeyedLog(), SCHEMAS[key_columns], key_columns)
    for number, row in enumerate(rows):
        typed.write([{**{name: values[0] for name, values in VALUES.items()}, **row, "n": number}])
    return typed


def left_of(typed: TypedLog) -> list[int]:
    return [row["_offset"] for row in typed.read(typed.clean(typed.log.end))]


def test_a_row_whose_only_key_column_is_null_has_no_key() -> None:
    assert left_of(of(("id",), {"id": None}, {"id": None}, {"id": 1}, {"id": 1})) == [0, 1, 3]


def test_nulls_of_several_key_columns_are_values_of_the_key() -> None:
    none, some = {"id": None, "name": None}, {"id": None, "name": "a"}
    assert left_of(of(("id", "name"), none, some, none, some, {"id": 1, "name": None})) == [2, 3, 4]


def test_rows_whose_columns_only_join_to_the_same_bytes_have_different_keys() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "ab", "raw": b"a"},
        {"name": "a", "raw": b"ba"},
        {"name": "", "raw": b"aba"},
        {"name": "aba"},
    ]
    assert left_of(of(("name", "raw"), *rows)) == [0, 1, 2, 3]


def test_a_key_is_the_same_in_a_version_that_names_and_orders_its_columns_otherwise() -> None:
    typed = of(("id", "name"), {"id": 1, "name": "a"}, {"id": 2, "name": "a"})
    row = {name: values[0] for name, values in VALUES.items()}
    typed.write([{**row, "id": 1, "name": "a", "n": 9}], version=2)
    assert left_of(typed) == [1, 2]


def test_a_topic_without_key_columns_loses_nothing() -> None:
    typed = of((), {"id": 1}, {"id": 1})
    assert typed.clean(typed.log.end) == typed.log.batches


@pytest.mark.parametrize("kind", ["float", "double"])
def test_no_key_column_is_a_float(kind: str) -> None:
    """NaN and -0.0 are the reason, and the key reader relies on it."""
    with pytest.raises(InvalidSchema, match="without one form to hash"):
        first_version(parse_ddl(f"x {kind}"), ("x",))


def test_a_version_that_metadata_does_not_have_yet_ends_the_cleaning() -> None:
    typed = of(("id",), {"id": 1})
    typed.write([{**{name: values[0] for name, values in VALUES.items()}, "id": 1, "n": 5}], version=4)
    older = replace(typed, schemas=TopicSchemas(typed.schemas.versions[:2]))
    with pytest.raises(UnknownSchemaVersion, match="version 4"):
        older.clean(typed.log.end)


def test_columns_named_as_those_of_minilog_are_not_taken_for_them() -> None:
    """A column `offset_delta` of the schema stands beside the one that a batch with gaps has."""
    typed = of(("id",), {"id": 1})
    row = {name: values[0] for name, values in VALUES.items()}
    typed.write([{**row, "id": number % 3, "n": number, "offset_delta": 7} for number in range(5)], version=4)
    typed.write([{**row, "id": 2, "n": 9, "offset_delta": 7}], version=4)
    after = typed.clean(typed.log.end)
    assert [row["_offset"] for row in typed.read(after)] == [4, 5, 6]
    (_, gapped, _) = stored(after)
    records = KeyReader(KEY, typed.schemas).read(*gapped)
    assert records is not None
    assert records.offsets.to_pylist() == [4, 5]


def test_a_deletion_ends_its_key_and_goes_when_it_has_expired() -> None:
    typed = of(("id",), {"id": 1}, {"id": 2})
    row = {name: values[0] for name, values in VALUES.items()}
    typed.write(
        [{**row, "id": 1, "n": 9}, {**row, "id": 2, "n": 9}, {**row, "id": 3, "n": 9}], deletions=[True, False, True]
    )
    assert left_of(typed) == [2, 3, 4]
    expired = typed.clean(typed.log.end, deletes_before=3)
    assert [row["_offset"] for row in typed.read(expired)] == [3, 4]
    gone = typed.clean(typed.log.end, deletes_before=5)
    assert [(row["_offset"], row["_deleted"]) for row in typed.read(gone)] == [(3, False)]
