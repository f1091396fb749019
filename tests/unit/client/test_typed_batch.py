"""Typed batches from the rows of one version to those of another: built, validated, cut and read, against a reference
in plain Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.errors import NarrowSchemaVersion
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.header import BatchHeader, check_crc, decode_header, iterate_headers
from minilog.typed.conditions.predicate import Predicate, evaluate, field_ids
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.fields import Field, Primitive, quoted
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.v1 import typed_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.client.test_topic_schema import columns, types
from tests.unit.client.typed_batches import (
    BITS,
    KEY,
    Unreadable,
    Written,
    history,
    named,
    plain,
    validate,
    written,
)
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset

CODECS = ("none", "lz4", "zstd")
NUMBERS = ("0", "1", "-1", "127", "128", "-129", "32768", "3000000000", "9223372036854775807")
CONSTANTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BITS, NUMBERS),
    "float": ("0.3", "0", "0.5"),
    "double": ("0.3", "0", "1e300"),
    "string": ("'a'", "'ab'", "'é'", "'long long'"),
    "binary": ("X'00'", "X'ff'"),
    "boolean": ("true", "false"),
}


def condition(chance: random.Random, schema: TopicSchema, depth: int = 2) -> str:
    """Of the columns that have constants. What a condition means is the subject of test_recorded_conditions.py."""
    if depth and chance.random() < 0.5:
        left, right = (condition(chance, schema, depth - 1) for _ in range(2))
        return chance.choice((f"({left}) and ({right})", f"({left}) or ({right})", f"not ({left})"))
    field = chance.choice(schema.fields)
    if not isinstance(field.type, Primitive) or field.type.name not in CONSTANTS or chance.random() < 0.2:
        return f"{quoted(field.name)} is null"
    return f"{quoted(field.name)} {chance.choice(('=', '<>', '<', '<=', '>', '>='))} " + chance.choice(
        CONSTANTS[field.type.name]
    )


def selection(chance: random.Random, schema: TopicSchema) -> TypedSelection:
    names = chance.sample(schema.names, chance.randint(0, len(schema.names)))
    where = parse_where(condition(chance, schema), schema) if chance.random() < 0.6 else None
    timestamps, keys, headers, deletions = (chance.random() < 0.5 for _ in range(4))
    return TypedSelection(
        schema, tuple(names), where, timestamps=timestamps, keys=keys, headers=headers, deletions=deletions
    )


def is_true(where: Predicate, schema: TopicSchema, seen: dict[str, Any]) -> bool:
    """Of one row, for the columns that the condition looks at."""

    def column(field_id: int) -> pa.Array:
        field = schema.by_id[field_id]
        return pa.array([seen[field.name]], schema.arrow_schema.field(field.name).type)

    return bool(evaluate(where, column, 1).to_pylist() == [True])


def expected_rows(one: Written, asked: TypedSelection, first: int, end: int) -> list[dict[str, Any]]:
    """Raises Unreadable where the asked version cannot say a value of a column that is looked at."""
    found = []
    looked_at = {each.name: each for each in asked.fields}
    if asked.where is not None:
        looked_at |= {each.name: each for each in asked.schema.fields if each.id in field_ids(asked.where)}
    if asked.keys:
        looked_at |= {name: asked.schema.column(name) for name in asked.schema.key_columns}
    base = one.header.base_offset
    for offset in range(first, end):
        row, is_deletion = one.rows[offset - base], one.deletions[offset - base]
        if is_deletion and not asked.deletions:
            continue
        of_key = one.schema.key_field_ids
        seen = {
            name: None if is_deletion and each.id not in of_key else named(row.get(each.id), each)
            for name, each in looked_at.items()
        }
        told = {name: seen[name] for name in asked.columns}
        told |= {"_timestamp": one.timestamps[offset - base]} if asked.timestamps else {}
        told |= {"_key": one.keys()[offset - base]} if asked.keys else {}
        told |= {"_headers": one.headers[offset - base]} if asked.headers else {}
        told |= {"_deleted": is_deletion} if asked.deletions else {}
        if asked.where is None or is_deletion or is_true(asked.where, asked.schema, seen):
            found.append(told | {"_offset": offset})
    return found


def read(reader: TypedReader, batch: bytes | memoryview, first: int, end: int) -> list[dict[str, Any]]:
    found = reader.rows(batch, decode_header(batch), first, end)
    if found is None:
        return []
    found.validate(full=True)
    assert found.schema == reader.selection.arrow_schema
    assert found.num_rows
    return list(found.to_pylist())


def same_place(stored: BatchHeader, cut: BatchHeader) -> None:
    for name in (
        "base_offset",
        "next_offset",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "base_timestamp_us",
        "max_timestamp_us",
        "is_transactional",
        "is_control",
        "is_typed",
    ):
        assert getattr(stored, name) == getattr(cut, name), name


@pytest.mark.dear("it tries many drawn batches")
@settings(max_examples=250)
@given(columns(types()), st.integers(0, 2**32), st.integers(0, 5), st.sampled_from(CODECS), st.booleans())
def test_a_typed_batch_gives_back_its_rows_in_each_version(
    fields: tuple[Field, ...], seed: int, changes: int, codec: str, transactional: bool
) -> None:
    chance = random.Random(seed)
    schemas = history(chance, fields, changes)
    options: dict[str, Any] = {"compression": codec}
    if transactional:
        options |= {"transactional": True, "producer_id": 5, "producer_epoch": 1, "base_sequence": 9}
    run, stored, offset = b"", list[Written](), 2**40
    for _ in range(3):
        one = written(chance, chance.choice(schemas.versions), chance.randint(1, 20), deletes=True, **options)
        header = validate(one.batch, schemas)
        assert header.record_count == len(one.rows)
        assert header.has_deletions == any(one.deletions)
        stored.append(one.at(offset))
        run += stored[-1].batch
        marker = build_control_batch(TOPIC_ID, PARTITION, b"m", timestamp_us=NOW_US, producer_id=5)
        run += at_offset(marker, offset + header.record_count)
        offset += header.record_count + 1
    asked = selection(chance, chance.choice(schemas.versions))
    wire = typed_pb2.Selection.FromString(asked.to_wire().SerializeToString())
    cut = Scanner(wire, schemas).scan(KEY, run, 1 << 30).batches
    reader = TypedReader(schemas, asked)
    for (at, whole), (place, header) in zip(iterate_headers(run), iterate_headers(cut), strict=True):
        same_place(whole, header)
        piece = memoryview(cut)[place : place + header.length]
        check_crc(TOPIC_ID, PARTITION, piece, header)
        if header.is_control:
            assert bytes(piece) == run[at : at + whole.length]
            assert read(reader, piece, header.base_offset, header.next_offset) == []
            continue
        one = next(each for each in stored if each.header.base_offset == whole.base_offset)
        ends = sorted(chance.sample(range(whole.base_offset, whole.next_offset + 1), 2))
        for first, end in ((whole.base_offset, whole.next_offset), (ends[0], ends[1])):
            try:
                wanted = plain(expected_rows(one, asked, first, end))
            except Unreadable:
                with pytest.raises(NarrowSchemaVersion):
                    read(reader, one.batch, first, end)
                if header.record_count or asked.where is None:
                    with pytest.raises(NarrowSchemaVersion):
                        read(reader, piece, first, end)
                continue
            assert plain(read(reader, one.batch, first, end)) == wanted
            assert plain(read(reader, piece, first, end)) == wanted
