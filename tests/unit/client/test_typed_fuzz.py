"""Bytes of a typed batch, changed under right sums: refused with an error of minilog, or a batch for everybody.

What a leader takes has to be cut and read without an error, and the same way: so no poison reaches a reader. A bad
offset would crash the test run, not fail it.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections import Counter

import pyarrow as pa
import pytest

from minilog.errors import MinilogError
from minilog.record_batch.header import HEADER_BYTES, Buffer, decode_header
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.batch import TypedRows
from minilog.typed.rows.deletions import emptied
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.evolution import drop_column
from minilog.typed.schema.topic_schema import schema_from_arrow
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.client.test_projection import SCHEMA as ARROW
from tests.unit.client.test_projection import rows
from tests.unit.client.typed_batches import KEY, build, extension_of, forged, payload_of, plain, validate
from tests.unit.record_batch.batches import NOW_US, counted_memory, sealed

SCHEMA = schema_from_arrow(ARROW, ["name", "id"], "at")
SCHEMAS = TopicSchemas((SCHEMA,)).followed_by(drop_column(SCHEMA, "flag"))
SELECTIONS = (
    TypedSelection(SCHEMA, SCHEMA.names, None, True, True, True),
    TypedSelection(SCHEMAS.latest, ("counts", "fare"), parse_where("fare > 100 or name < 'b'", SCHEMAS.latest), True),
    TypedSelection(SCHEMA, ()),
    TypedSelection(SCHEMA, ("name", "fare"), parse_where("fare > 100", SCHEMA), deletions=True),
)
EDGES = [0, 1, 2, 3, 7, 8, 9, 16, 64, 127, 128, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1]
MOST_BYTES = 1 << 16
_ALLOCATION_LIMIT = 32 << 20  # 16 times what is allowed under MOST_BYTES, and what is made of it; far below a bomb
CUTTINGS = [Scanner(each.to_wire(), SCHEMAS) for each in SELECTIONS]
READERS = [TypedReader(SCHEMAS, each) for each in SELECTIONS]


def batch_of(count: int, codec: str) -> bytes:
    stamps = pa.array([None if number % 3 else NOW_US + number for number in range(count)], TIMESTAMP)
    headers = pa.array([[{"key": "k", "value": None}] if number % 2 else None for number in range(count)], HEADERS)
    deletions = pa.array([number % 5 == 4 for number in range(count)])
    columns = [
        column if name in SCHEMA.key_columns else emptied(column, deletions)
        for name, column in zip(SCHEMA.names, rows(count, 7).columns, strict=True)
    ]
    table = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)
    given = TypedRows(SCHEMA, table, stamps, headers, deletions=deletions)
    return build(given, statistics_columns=("id", "name"), compression=codec)


def changed(chance: random.Random, batch: bytes) -> bytes:
    """One to three changes of any part, its sums right again."""
    found = bytearray(batch)
    header = decode_header(batch)
    metadata_end = min(len(batch) - 8, header.payload_start + 1_500)
    for _ in range(chance.randint(1, 3)):
        kind = chance.randrange(7)
        if kind == 0:
            found[chance.randrange(24, len(found))] ^= 1 << chance.randrange(8)
        elif kind == 1:
            at = chance.randrange(header.payload_start, metadata_end, 4)
            struct.pack_into("<I", found, at, chance.choice([*EDGES, chance.getrandbits(32)]))
        elif kind == 2:
            at = chance.randrange(header.payload_start, len(found) - 8, 8)
            struct.pack_into("<q", found, at, chance.choice([-1, *EDGES, 2**40, 2**62, -(2**63)]))
        elif kind == 3 and header.extension_bytes:
            found[chance.randrange(HEADER_BYTES, header.payload_start)] = chance.randrange(256)
        elif kind == 4:
            struct.pack_into("<I", found, chance.randrange(28, 70), chance.choice(EDGES))
        elif kind == 5 and len(found) > 200:
            del found[chance.randrange(HEADER_BYTES, len(found)) // 8 * 8 :]
            found += bytes(max(0, 200 - len(found)))
            break
        elif kind == 6:
            one, other = (chance.randrange(header.payload_start, len(found) - 8, 8) for _ in range(2))
            found[one : one + 8] = found[other : other + 8]
    return sealed(bytes(found))


def attacked(chance: random.Random, batch: bytes, met: Counter[str]) -> None:
    damaged = changed(chance, batch)
    try:
        validate(damaged, SCHEMAS, MOST_BYTES)
    except MinilogError as error:
        met[type(error).__name__] += 1
        is_taken = False
    else:
        met["taken"] += 1
        is_taken = True
    for cutting, reader in zip(CUTTINGS, READERS, strict=True):
        whole = told(reader, damaged, is_taken=is_taken)
        try:
            piece = cutting.scan(KEY, damaged, 1 << 30).batches
        except MinilogError:
            assert not is_taken, "what was taken cannot be cut"
            continue
        met["cut"] += 1
        assert len(piece) < len(damaged) + 4_000
        found = told(reader, piece, is_taken=is_taken)
        assert not is_taken or found == whole
        if len(piece) > decode_header(piece).payload_start + 200:
            told(reader, changed(chance, piece), is_taken=False)


def told(reader: TypedReader, batch: Buffer, *, is_taken: bool) -> object:
    """Every value of a batch, looked at."""
    try:
        header = decode_header(batch)
        found = reader.rows(batch, header, header.base_offset, header.next_offset)
    except MinilogError:
        assert not is_taken, "what was taken cannot be read"
        return None
    if found is None:
        return None
    found.validate(full=True)
    copied = found.take(pa.arange(0, found.num_rows))
    copied.validate(full=True)
    if not is_taken:
        return None
    with_numbers = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in copied.columns]
    days = [each.cast(pa.int32()) if pa.types.is_date(each.type) else each for each in with_numbers]
    return plain([each.to_pylist() for each in days])


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_changed_batch_is_refused_or_is_one_for_everybody(codec: str) -> None:
    """A seed makes the changes the same every time."""
    chance, met = random.Random(20_261_124), Counter[str]()
    batch = batch_of(20, codec)
    validate(batch, SCHEMAS, MOST_BYTES)
    with counted_memory() as memory:
        for _ in range(800):
            attacked(chance, batch, met)
    assert memory.max_memory() < _ALLOCATION_LIMIT
    assert met["taken"] > 10
    assert met["CorruptMessage"] > 100
    assert met["cut"] > 100


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_part_cut_anywhere_is_refused(codec: str) -> None:
    batch = batch_of(3, codec)
    payload, content = payload_of(batch), extension_of(batch).SerializeToString()
    for length in range(0, len(payload), 8):
        with pytest.raises(MinilogError):
            validate(forged(batch, payload=payload[:length]), SCHEMAS, MOST_BYTES)
    for length in range(len(content)):
        with contextlib.suppress(MinilogError):
            validate(forged(batch, extension=content[:length]), SCHEMAS, MOST_BYTES)


def test_random_bytes_are_no_batch() -> None:
    chance = random.Random(7)
    batch = batch_of(3, "none")
    for _ in range(3_000):
        junk = chance.randbytes(chance.randrange(64) * 8)
        for forgery in (junk, forged(batch, payload=junk), forged(batch, extension=junk[:100])):
            with pytest.raises(MinilogError):
                validate(forgery, SCHEMAS, MOST_BYTES)
            with contextlib.suppress(MinilogError):
                CUTTINGS[0].scan(KEY, forgery, 1 << 30)
