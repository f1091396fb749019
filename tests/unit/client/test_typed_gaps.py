"""Typed batches without some of their rows: whole, projected and under a condition, each row keeps its offset."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage
from minilog.record_batch.header import HEADER_BYTES, Attributes, check_crc, decode_header
from minilog.typed.conditions.statistics import check_statistics
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.compaction import compacted_typed_batch
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.client.typed_batches import KEY, extension_of, forged, history, plain, written
from tests.unit.record_batch.batches import PARTITION, TOPIC_ID

FIELDS = parse_ddl("n int, name string, d double, parts array<int>")
UNLIMITED = 1 << 30


def without(batch: bytes, kept: list[bool], schemas: TopicSchemas) -> bytes:
    return compacted_typed_batch(TOPIC_ID, PARTITION, batch, decode_header(batch), pa.array(kept, pa.bool_()), schemas)


def rows_of(
    selection: TypedSelection, schemas: TopicSchemas, piece: bytes, *, whole: bool = True
) -> list[dict[str, Any]]:
    header = decode_header(piece)
    first, end = header.base_offset + (not whole), header.next_offset - (not whole)
    if first >= end:
        return []
    rows = TypedReader(schemas, selection).rows(piece, header, first, end)
    return [] if rows is None else list(plain(rows.to_pylist()))


def sent(selection: TypedSelection, schemas: TopicSchemas, batch: bytes) -> bytes:
    return Scanner(selection.to_wire(), schemas).scan(KEY, batch, UNLIMITED).batches


def selections(chance: random.Random, schema: TopicSchema) -> list[TypedSelection]:
    names = chance.sample(schema.names, chance.randint(0, len(schema.names)))
    where = parse_where(chance.choice(["n > 0", "n is null", "n <= 0 or name is not null"]), schema)
    timestamps, keys, headers, deletions = (chance.random() < 0.5 for _ in range(4))
    return [
        TypedSelection(
            schema, tuple(names), condition, timestamps=timestamps, keys=keys, headers=headers, deletions=deletions
        )
        for condition in (None, where)
    ]


@pytest.mark.parametrize("seed", range(120))
def test_rows_that_stay_keep_their_offsets_and_all_that_they_have(seed: int) -> None:
    chance = random.Random(seed)
    schemas = history(chance, FIELDS, 0)
    schema = schemas.latest
    count = chance.randint(1, 12)
    codec = chance.choice(["none", "lz4", "zstd"])
    batch = written(chance, schema, count, deletes=True, compression=codec).at(10).batch
    compacted = batch
    left = list(range(decode_header(batch).record_count))
    for _ in range(chance.randint(1, 2)):
        kept = [chance.random() < 0.6 for _ in left]
        left = [place for place, is_kept in zip(left, kept, strict=True) if is_kept]
        compacted = without(compacted, kept, schemas)
        if not left:
            break
    header = decode_header(compacted)
    check_crc(TOPIC_ID, PARTITION, compacted, header)
    assert (header.base_offset, header.next_offset) == (10, decode_header(batch).next_offset)
    if not left:
        assert len(compacted) == HEADER_BYTES
        return
    offsets = {10 + place for place in left}
    for selection in selections(chance, schema):
        expected = [row for row in rows_of(selection, schemas, batch) if row["_offset"] in offsets]
        assert rows_of(selection, schemas, compacted) == expected
        piece = sent(selection, schemas, compacted)
        assert rows_of(selection, schemas, piece) == expected
        inner = [row for row in expected if 10 < row["_offset"] < header.last_offset]
        assert rows_of(selection, schemas, piece, whole=False) == inner


def test_the_statistics_are_those_of_the_rows_that_stay() -> None:
    chance = random.Random(4)
    schemas = history(chance, FIELDS, 0)
    schema = schemas.latest
    seen = 0
    for _ in range(20):
        one = written(chance, schema, 9, deletes=True).at(10)
        batch, count = one.batch, one.header.record_count
        if count < 2 or one.deletions[0]:
            continue
        compacted = without(batch, [True] + [False] * (count - 1), schemas)
        assert not decode_header(compacted).has_deletions
        stored, left = extension_of(batch), extension_of(compacted)
        assert [each.field_id for each in left.statistics] == [each.field_id for each in stored.statistics]
        rows = TypedReader(schemas, TypedSelection(schema, schema.names)).rows(
            compacted, decode_header(compacted), 10, 11
        )
        assert rows is not None
        for statistics in left.statistics:
            field = schema.by_id[statistics.field_id]
            check_statistics(statistics, field, rows.column(field.name))
            seen += 1
    assert seen


def test_a_projection_of_gaps_without_its_deltas_is_damage() -> None:
    chance = random.Random(1)
    schemas = history(chance, FIELDS, 0)
    batch = written(chance, schemas.latest, 8).at(10).batch
    count = decode_header(batch).record_count
    compacted = without(batch, [place % 2 == 0 for place in range(count)], schemas)
    selection = TypedSelection(schemas.latest, ("n",))
    piece = sent(selection, schemas, compacted)
    attributes = decode_header(piece).attributes
    assert attributes & Attributes.GAPS
    with pytest.raises(CorruptMessage, match="do not go together"):
        rows_of(selection, schemas, forged(piece, attributes=attributes & ~Attributes.GAPS))
    ungapped = attributes & ~(Attributes.GAPS | Attributes.COMPACTED)
    with pytest.raises(CorruptMessage, match="columns and buffers"):
        rows_of(selection, schemas, forged(piece, attributes=ungapped, last_offset_delta=(count + 1) // 2 - 1))
