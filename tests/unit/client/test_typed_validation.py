"""What a leader refuses of a typed topic, each for its own reason: every batch here has sums that are right."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    MinilogError,
    UnknownSchemaVersion,
    UnsupportedVersion,
)
from minilog.record_batch.header import Attributes, decode_header
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.typed.conditions.statistics import MAX_COLUMNS
from minilog.typed.rows.batch import ROW_BYTES, TypedRows
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.evolution import add_column, drop_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from tests.unit.client.typed_batches import (
    build,
    extension_of,
    forged,
    payload_of,
    validate,
    with_columns,
    with_told,
)
from tests.unit.record_batch.batches import NOW_US, counted_memory, full_batch, sealed

SCHEMA = first_version(
    parse_ddl(
        "id long NOT NULL, carrier string, at timestamp, tags array<string>, place struct<x: int NOT NULL, y: string>, "
        "counts map<string, int>, fare decimal(5,2)"
    ),
    ["carrier"],
)
SCHEMAS = TopicSchemas((SCHEMA,)).followed_by(add_column(SCHEMA, Field("delay", Primitive("int"))))
ID, CARRIER, X = SCHEMA.column("id").id, SCHEMA.column("carrier").id, 7
ROW: dict[str, Any] = {
    "id": 1,
    "carrier": "UA",
    "at": NOW_US,
    "tags": ["a", None],
    "place": {"x": 1, "y": None},
    "counts": [("a", None)],
    "fare": 1,
}
ROWS = [ROW, dict.fromkeys(ROW) | {"id": 2}, ROW | {"id": 3, "carrier": None}]
STAMPS = pa.array([NOW_US, None, NOW_US + 5], TIMESTAMP)


def typed(schema: TopicSchema = SCHEMA, said: list[dict[str, Any]] = ROWS, **options: Any) -> bytes:
    extras = {name: options.pop(name) for name in ("timestamps", "headers") if name in options}
    return build(TypedRows(schema, pa.RecordBatch.from_pylist(said, schema.arrow_schema), **extras), **options)


GOOD = typed()
STAMPED = typed(timestamps=STAMPS)


def columns(**changes: pa.Array) -> pa.RecordBatch:
    """The columns of GOOD, some of them others."""
    found = pa.RecordBatch.from_pylist(ROWS, SCHEMA.arrow_schema)
    fields = [changes.get(field.name, found.column(field.name)) for field in found.schema]
    return pa.RecordBatch.from_arrays(fields, names=found.schema.names)


def refused(batch: bytes, schemas: TopicSchemas | None = SCHEMAS, **options: Any) -> MinilogError:
    with pytest.raises(MinilogError) as raised:
        validate(batch, schemas, **options)
    assert 20 < len(str(raised.value)) < 800
    return raised.value


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_an_honest_batch_is_taken(codec: str) -> None:
    for batch in (typed(compression=codec), typed(timestamps=STAMPS, compression=codec)):
        assert validate(batch, SCHEMAS) == decode_header(batch)
    assert validate(typed(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), SCHEMAS).is_typed
    assert validate(full_batch(), None).record_count == 10


def test_rows_and_records_are_not_mixed() -> None:
    assert type(refused(full_batch())) is InvalidRecord
    assert type(refused(GOOD, None)) is InvalidRecord


@pytest.mark.parametrize("version", [0, 3, -1, 2**31 - 1])
def test_a_version_that_is_not_known_is_asked_for_again(version: int) -> None:
    told = extension_of(GOOD)
    told.schema_version = version
    error = refused(forged(GOOD, extension=told.SerializeToString()))
    assert type(error) is UnknownSchemaVersion
    assert error.retriable


def test_columns_of_another_version_are_refused() -> None:
    assert "columns" in str(refused(with_told(GOOD, schema_version=2)))
    wider = typed(SCHEMAS.latest, [row | {"delay": 5} for row in ROWS])
    assert validate(wider, SCHEMAS)
    old = extension_of(wider)
    old.schema_version = 1
    assert "columns" in str(refused(forged(wider, extension=old.SerializeToString())))
    without = TopicSchemas((SCHEMA, drop_column(SCHEMA, "fare")))
    assert type(refused(with_told(GOOD, schema_version=2), without)) is CorruptMessage


ENTRIES = pa.struct([("key", pa.string()), ("value", pa.int32())])
BYTES = pa.array([b"\xff\xfe"] * 3)
PLACES = pa.array([{"x": None, "y": "a"}] * 3, pa.struct([("x", pa.int32()), ("y", pa.string())]))
NULL_KEYS = pa.array([[{"key": None, "value": 1}]] * 3, pa.list_(ENTRIES))
NULL_ENTRIES = pa.array([[None]] * 3, pa.list_(ENTRIES))


@pytest.mark.parametrize(
    ("changed", "kind", "complaint"),
    [
        ({"id": pa.array(["1", "2", "3"])}, CorruptMessage, "buffers or columns"),
        ({"id": pa.array([1, 2, 3], pa.int8())}, CorruptMessage, "not valid"),
        ({"id": pa.array([1, None, 3])}, InvalidRecord, "'id' may not be null, and row 1"),
        ({"place": PLACES}, InvalidRecord, r"'place\.x' may not be null"),
        ({"counts": NULL_KEYS}, CorruptMessage, "not valid"),
        ({"counts": NULL_ENTRIES}, CorruptMessage, "not valid"),
        ({"carrier": BYTES}, CorruptMessage, "UTF"),
        ({"tags": pa.array([[b"\xff"]] * 3)}, CorruptMessage, "UTF"),
        ({"counts": pa.array([[{"key": b"\xff", "value": 1}]] * 3)}, CorruptMessage, "UTF"),
        ({"fare": pa.array([100_000] * 3, pa.decimal128(38, 0))}, CorruptMessage, "precision"),
    ],
)
def test_columns_that_the_schema_does_not_have_so_are_refused(
    changed: dict[str, pa.Array], kind: type[MinilogError], complaint: str
) -> None:
    batch = with_columns(without_statistics(), columns(**changed))
    with pytest.raises(kind, match=complaint) as raised:
        validate(batch, SCHEMAS)
    assert type(raised.value) is kind


def without_statistics() -> bytes:
    return forged(GOOD, extension=typed_pb2.TypedBatch(schema_version=1).SerializeToString())


@pytest.mark.parametrize(
    "words",
    [
        "a map<string, struct<x: int NOT NULL>>",
        "a array<struct<x: int NOT NULL>>",
        "a struct<m: map<string, struct<x: int NOT NULL>>>",
        "a map<struct<x: int NOT NULL>, int>",
    ],
)
def test_nulls_are_looked_for_at_any_depth(words: str) -> None:
    strict, loose = (first_version(parse_ddl(each)) for each in (words, words.replace(" NOT NULL", "")))
    kinds: dict[str, Any] = {
        "a map<string": [[("k", {"x": None})]],
        "a array": [[{"x": None}]],
        "a struct<m": [{"m": [("k", {"x": None})]}],
        "a map<struct": [[({"x": None}, 1)]],
    }
    (said,) = (rows for start, rows in kinds.items() if words.startswith(start))
    rows = pa.RecordBatch.from_arrays([pa.array(said, loose.arrow_schema.field(0).type)], schema=loose.arrow_schema)
    batch = build(TypedRows(loose, rows))
    validate(batch, TopicSchemas((loose,)))
    assert "may not be null" in str(refused(batch, TopicSchemas((strict,))))


def test_fields_of_a_null_struct_may_be_null() -> None:
    words = "a struct<x: int NOT NULL, l: array<struct<x: int NOT NULL>> NOT NULL>, m map<int, struct<x: int NOT NULL>>"
    schema = first_version(parse_ddl(words))
    place, counts = (field.type for field in schema.arrow_schema)
    hidden = pa.array([[{"x": None}], None], place.field("l").type)
    parts = [pa.nulls(2, pa.int32()), hidden]
    nothing = pa.StructArray.from_arrays(parts, fields=list(place), mask=pa.array([True, True]))
    rows = pa.record_batch([nothing, pa.array([[(1, None)], None], counts)], schema=schema.arrow_schema)
    assert validate(build(TypedRows(schema, rows)), TopicSchemas((schema,)))


def told(**changes: Any) -> typed_pb2.ColumnStatistics:
    return typed_pb2.ColumnStatistics(**changes)


BOUND = typed_pb2.Bound


@pytest.mark.parametrize(
    "statistics",
    [
        [told(field_id=ID, lowest=BOUND(integer=2), highest=BOUND(integer=3))],
        [told(field_id=ID, lowest=BOUND(integer=0), highest=BOUND(integer=3))],
        [told(field_id=ID, lowest=BOUND(integer=1), highest=BOUND(integer=2))],
        [told(field_id=ID)],
        [told(field_id=ID, null_count=1, lowest=BOUND(integer=1), highest=BOUND(integer=3))],
        [told(field_id=ID, lowest=BOUND(number=1.0), highest=BOUND(number=3.0))],
        [told(field_id=CARRIER, null_count=2, lowest=BOUND(content=b"UA"), highest=BOUND(content=b"UA"))] * 2,
        [told(field_id=CARRIER, null_count=2, lowest=BOUND(content=b"\xff"), highest=BOUND(content=b"\xff"))],
        [told(field_id=99)],
        [told(field_id=0)],
        [told(field_id=X)],
        [told(field_id=ID, null_count=-1)],
        [told(field_id=ID, null_count=4)],
        [told(field_id=CARRIER)] * (MAX_COLUMNS + 1),
        [told(field_id=SCHEMA.column("tags").id, null_count=1, lowest=BOUND(content=b"a"))],
        [told(field_id=SCHEMA.column("fare").id, null_count=1, lowest=BOUND(unscaled=b"\x7f" * 9_000))],
    ],
)
def test_statistics_that_are_not_those_of_the_rows_are_refused(statistics: list[typed_pb2.ColumnStatistics]) -> None:
    extension = typed_pb2.TypedBatch(schema_version=1, statistics=statistics).SerializeToString()
    assert type(refused(forged(GOOD, extension=extension))) is CorruptMessage


def test_more_columns_than_a_batch_may_tell_of_are_cut_by_the_builder() -> None:
    schema = first_version([Field(f"c{number}", Primitive("string"), True) for number in range(1_000)])
    rows = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names, "x" * 40)], schema.arrow_schema)
    batch = build(TypedRows(schema, rows), statistics_columns=schema.names)
    assert validate(batch, TopicSchemas((schema,)))
    assert len(extension_of(batch).statistics) == MAX_COLUMNS


@pytest.mark.parametrize(
    "batch",
    [
        forged(GOOD, base_timestamp_us=NOW_US + 1),
        forged(GOOD, max_timestamp_us=NOW_US + 1),
        forged(STAMPED, base_timestamp_us=0),
        forged(STAMPED, max_timestamp_us=0),
        with_told(GOOD, has_timestamps=True),
        with_columns(STAMPED, pa.RecordBatch.from_arrays([*columns().columns, STAMPS], names=[*SCHEMA.names, "t"])),
    ],
)
def test_time_stamps_that_are_not_those_of_the_rows_are_refused(batch: bytes) -> None:
    assert type(refused(batch)) is CorruptMessage


def test_the_time_stamps_of_a_column_are_those_of_the_header() -> None:
    schema = first_version(SCHEMA.fields, (), "at")
    schemas = TopicSchemas((schema,))
    batch = typed(schema, [ROW])
    assert validate(batch, schemas).base_timestamp_us == NOW_US
    assert not extension_of(batch).has_timestamps
    for lie in (forged(batch, base_timestamp_us=NOW_US + 1), forged(batch, max_timestamp_us=NOW_US + 1)):
        assert type(refused(lie, schemas)) is CorruptMessage
    with_nulls = typed(schema, ROWS)
    assert extension_of(with_nulls).has_timestamps
    assert validate(with_nulls, schemas)


@pytest.mark.parametrize("own", [None, [None, None], [None, NOW_US + 7]])
def test_rows_without_a_time_stamp_are_taken_where_the_column_has_none(own: list[int | None] | None) -> None:
    schema = first_version(parse_ddl("at timestamp"), (), "at")
    stamps = None if own is None else pa.array(own, TIMESTAMP)
    for said in ([None, None], [None, 5], [5, None], [5, 5]):
        batch = typed(schema, [{"at": each} for each in said], timestamps=stamps)
        header = validate(batch, TopicSchemas((schema,)))
        first = NOW_US if said[0] is None else said[0]
        assert header.base_timestamp_us == first


LATER = typed_pb2.TypedBatch(schema_version=1).SerializeToString() + b"\xfa\x07\x01x"
IN_STATISTICS = typed_pb2.TypedBatch(schema_version=1).SerializeToString() + b"\x12\x06\x08\x01\xfa\x07\x01x"


@pytest.mark.parametrize(
    ("batch", "kind", "complaint"),
    [
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.PROJECTED), CorruptMessage, "a client cannot send"),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.CONTROL), CorruptMessage, "a client cannot send"),
        (
            forged(GOOD, attributes=Attributes.TYPED | Attributes.COMPACTED | Attributes.GAPS),
            CorruptMessage,
            "a client cannot send",
        ),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.HAS_KEY), CorruptMessage, "a column of keys"),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.HAS_HEADERS), CorruptMessage, "columns and buffers"),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.LZ4), CorruptMessage, "compression none"),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.LZ4 | Attributes.ZSTD), CorruptMessage, "cannot send"),
        (forged(GOOD, attributes=Attributes.TYPED | Attributes.TRANSACTIONAL), CorruptMessage, "no producer id"),
        (forged(GOOD, attributes=0), UnsupportedVersion, "later version"),
        (with_told(GOOD, field_ids=[ID]), CorruptMessage, "names its columns"),
        (forged(GOOD, extension=LATER), UnsupportedVersion, "later version"),
        (forged(GOOD, extension=IN_STATISTICS), UnsupportedVersion, "later version"),
        (forged(GOOD, extension=b"\xff" * 9), CorruptMessage, "cannot be read"),
        (forged(GOOD, extension=b"\x12\x7f"), CorruptMessage, "cannot be read"),
        (forged(GOOD, extension=b""), CorruptMessage, "no extension"),
        (forged(without_statistics(), padding=b"\1"), CorruptMessage, "padding"),
        (forged(GOOD, record_count=4, last_offset_delta=3), CorruptMessage, "4 records, its payload has 3"),
        (forged(GOOD, record_count=2**32 - 1, last_offset_delta=2**32 - 2), CorruptMessage, "rows of at least"),
        (forged(GOOD, payload=b""), CorruptMessage, "does not start as an Arrow message"),
        (forged(GOOD, payload=payload_of(GOOD)[:-8]), CorruptMessage, "body of"),
        (forged(GOOD, payload=payload_of(GOOD) + bytes(8)), CorruptMessage, "body of"),
        (GOOD + bytes(8), CorruptMessage, "came"),
        (GOOD[:-8], CorruptMessage, "came"),
    ],
)
def test_a_dishonest_batch_is_refused_with_its_reason(batch: bytes, kind: type[MinilogError], complaint: str) -> None:
    with pytest.raises(kind, match=complaint) as raised:
        validate(batch, SCHEMAS)
    assert type(raised.value) is kind


@pytest.mark.parametrize("extension_bytes", [2**16 - 1, len(GOOD), len(GOOD) - 71])
def test_an_extension_beyond_the_batch_is_refused(extension_bytes: int) -> None:
    batch = bytearray(GOOD)
    struct.pack_into("<H", batch, 70, extension_bytes)
    assert type(refused(sealed(bytes(batch)))) is CorruptMessage


def test_an_extension_that_is_cut_or_longer_is_refused() -> None:
    """What is cut between two columns' statistics is a batch that tells of fewer columns."""
    whole = extension_of(GOOD)
    content = whole.SerializeToString()
    fewer = [typed_pb2.TypedBatch(schema_version=1, statistics=whole.statistics[:count]) for count in range(9)]
    honest = {each.SerializeToString() for each in fewer}
    for cut in range(len(content)):
        batch = forged(GOOD, extension=content[:cut])
        if content[:cut] in honest:
            assert validate(batch, SCHEMAS)
        else:
            assert refused(batch)
    assert refused(forged(GOOD, extension=content + b"\x12"))


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    assert validate(GOOD, SCHEMAS, len(GOOD))
    assert type(refused(GOOD, most_bytes=len(GOOD) - 1)) is MessageTooLarge


@pytest.mark.parametrize("claimed", [2**40, 2**62, 17 * (1 << 20), -2, -(2**63)])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_anything_is_allocated(codec: str, claimed: int) -> None:
    batch = typed(said=ROWS * 500, compression=codec)
    start = decode_header(batch).payload_start
    (metadata_bytes,) = struct.unpack_from("<i", batch, start + 4)
    bomb = bytearray(batch)
    at = next(at for at in range(start + 8 + metadata_bytes, len(bomb), 8) if bomb[at : at + 8] != bytes(8))
    struct.pack_into("<q", bomb, at, claimed)
    with counted_memory() as memory:
        assert type(refused(sealed(bytes(bomb)))) is CorruptMessage
    assert memory.max_memory() == 0


def test_rows_of_a_bit_count_as_what_a_reader_makes_of_them() -> None:
    """A million rows of one boolean are a few bytes, and a reader makes 8 of each of them for each column it lacks."""
    schema = first_version(parse_ddl("flag boolean"))
    count = 1_000_000
    rows = TypedRows(schema, pa.record_batch({"flag": pa.repeat(pa.scalar(True), count)}))
    assert rows.nbytes == ROW_BYTES * count
    with pytest.raises(MessageTooLarge):
        build(rows, compression="zstd", max_bytes=1 << 20)
    batch = build(rows, compression="zstd")
    assert len(batch) < 2_000
    assert validate(batch, TopicSchemas((schema,)), 1 << 23)
    assert "rows of at least" in str(refused(batch, TopicSchemas((schema,)), most_bytes=1 << 20))


def test_buffers_that_overlap_are_refused_since_no_replica_could_cut_them() -> None:
    schema = first_version(parse_ddl("a long, b long"))
    batch = typed(schema, [{"a": 1, "b": 2}], statistics_columns=())
    payload = bytearray(payload_of(batch))
    places = [at for at in range(0, len(payload) - 16, 8) if struct.unpack_from("<qq", payload, at) in ((0, 8), (8, 8))]
    struct.pack_into("<q", payload, places[-1], 0)
    assert "lies in the one before it" in str(refused(forged(batch, payload=bytes(payload)), TopicSchemas((schema,))))


def test_a_header_without_a_key_is_refused() -> None:
    entries = pa.array([[{"key": None, "value": b"x"}]] * 3, HEADERS)
    assert "without a key" in str(refused(typed(headers=entries)))
