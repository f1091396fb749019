"""What the tests of typed batches share: random histories of a schema, rows for them, and what a reader must get.

A row is a dict by field id, and so is each struct in it: what a version calls its fields is added by `named`, for what
is written and for what is read. So the expected rows never go through the code that they judge.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from minilog.errors import InvalidSchema
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import HEADER_BYTES, BatchHeader, decode_header, encode_header
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema import evolution
from minilog.typed.schema.fields import Array, Decimal, Field, FieldType, Map, Primitive, Struct, walk
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.leader.typed_validation import validate_topic_batch
from tests.unit.client.test_typed_keys import encoded, joined
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset, sealed

KEY = PartitionKey(TOPIC_ID, PARTITION)
MOST_BYTES = 1 << 20
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
WIDER = {"byte": "short", "short": "int", "int": "long", "float": "double"}
KEY_NAMES = {"string", "binary", "boolean", "byte", "short", "int", "long", "date", "timestamp"}
STAMPS = [EPOCH + datetime.timedelta(microseconds=steps) for steps in (-1, 0, 1, NOW_US, NOW_US + 1)]
VALUES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "float": [0.0, -0.0, 0.5, float("inf"), float("nan"), *struct.unpack("<ff", struct.pack("<ff", 0.3, -1e30))],
    "double": [0.0, -0.0, 0.5, 0.3, float("-inf"), float("nan"), 1e300],
    "string": ["", "a", "ab", "é", "\U0001f600", "long " * 9, "\U0010ffff" * 12],
    "binary": [b"", b"\0", b"\xff" * 40, b"long " * 9],
    "date": [EPOCH.date() + datetime.timedelta(days) for days in (-400, 0, 1, 20_000)],
    "timestamp": STAMPS,
    "timestamp_ntz": [each.replace(tzinfo=None) for each in STAMPS],
}
Row = dict[int, Any]


class Unreadable(Exception):
    """A reader's version cannot say what a newer one wrote."""


# -- schemas


def history(chance: random.Random, fields: tuple[Field, ...], changes: int) -> TopicSchemas:
    """All versions of a schema: the first has these fields, each other one change of any kind that is allowed."""
    if chance.random() < 0.5:
        fields = (*fields, Field("at", Primitive("timestamp"), chance.random() < 0.5))
    keys = [each.name for each in fields if isinstance(each.type, Primitive) and each.type.name in KEY_NAMES]
    stamps = [each.name for each in fields if each.type == Primitive("timestamp")]
    schema = first_version(
        fields,
        chance.sample(keys, chance.randint(0, min(2, len(keys)))),
        chance.choice([*stamps, None]),
    )
    schemas = TopicSchemas((schema,))
    for _ in range(changes):
        schemas = schemas.followed_by(_changed(chance, schemas.latest))
    return schemas


def _changed(chance: random.Random, schema: TopicSchema) -> TopicSchema:
    while True:
        with contextlib.suppress(InvalidSchema):
            return _with_a_change(chance, schema)


def _with_a_change(chance: random.Random, schema: TopicSchema) -> TopicSchema:
    path, field = chance.choice(list(walk(schema.fields)))
    name = chance.choice([f"n{schema.version}", "x", "y"])  # of a field that was dropped, too
    kinds: list[FieldType] = [Primitive("int"), Primitive("string"), Struct((Field("x", Primitive("float")),))]
    added = Field(name, chance.choice(kinds))
    changes: list[Callable[[], TopicSchema]] = [
        lambda: evolution.add_column(schema, added, after=chance.choice([evolution.FIRST, evolution.LAST])),
        lambda: evolution.add_column(schema, added, path),
        lambda: evolution.drop_column(schema, path),
        lambda: evolution.rename_column(schema, path, name),
        lambda: evolution.widen_column(schema, path, _wider(field.type)),
        lambda: evolution.loosen_column(schema, path),
        lambda: evolution.move_column(schema, path, after=evolution.FIRST),
    ]
    return chance.choice(changes)()


def _wider(kind: FieldType) -> FieldType:
    match kind:
        case Primitive(name) if name in WIDER:
            return Primitive(WIDER[name])
        case Decimal(precision, scale) if precision < 38:
            return Decimal(precision + 1, scale)
        case _:
            return kind


# -- rows


def value(chance: random.Random, field: Field) -> Any:
    """Something that the field may hold, by ids."""
    if field.nullable and chance.random() < 0.25:
        return None
    match field.type:
        case Primitive(name) if name in BITS:
            most = 2 ** (BITS[name] - 1) - 1
            return chance.choice([0, 1, -1, 5, most, -most - 1])
        case Primitive(name):
            return chance.choice(VALUES[name])
        case Decimal(precision, scale):
            digits = tuple(chance.randrange(10) for _ in range(chance.choice([1, precision])))
            return decimal.Decimal((chance.randrange(2), digits, -scale))
        case Struct(fields):
            return {each.id: value(chance, each) for each in fields}
        case Array(element):
            return [value(chance, element) for _ in range(chance.randrange(3))]
        case Map(key, item):
            return [(value(chance, key), value(chance, item)) for _ in range(chance.randrange(3))]


def named(found: Any, field: Field) -> Any:
    """What a version whose field this is calls a value of its own or of another version. Raises Unreadable."""
    if found is None:
        if not field.nullable:
            raise Unreadable
        return None
    match field.type:
        case Struct(fields):
            return {each.name: named(found.get(each.id), each) for each in fields}
        case Array(element):
            return [named(each, element) for each in found]
        case Map(key, item):
            return [(named(left, key), named(right, item)) for left, right in found]
        case Primitive(name) if name in BITS and not -(2 ** (BITS[name] - 1)) <= found < 2 ** (BITS[name] - 1):
            raise Unreadable
        case Primitive("float") if found == found and not _is_float(found):
            raise Unreadable
        case Decimal(precision, _) if len(found.as_tuple().digits) > precision and abs(found.as_tuple().digits[0]) > 0:
            raise Unreadable
        case _:
            return found


def _is_float(number: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", number))[0] == number)
    except OverflowError:
        return False


def plain(found: Any) -> Any:
    """With NaN as something that is equal to itself."""
    match found:
        case float():
            return "NaN" if found != found else found
        case dict():
            return {name: plain(each) for name, each in found.items()}
        case list() | tuple():
            return [plain(each) for each in found]
        case _:
            return found


@dataclass(frozen=True)
class Written:
    """A batch, and what it was made of."""

    schema: TopicSchema
    rows: list[Row]
    timestamps: list[datetime.datetime]
    headers: list[list[dict[str, Any]] | None]
    batch: bytes
    deletions: list[bool]

    @property
    def header(self) -> BatchHeader:
        return decode_header(self.batch)

    def at(self, offset: int, epoch: int = 7) -> Written:
        return replace(self, batch=at_offset(self.batch, offset, epoch))

    def keys(self) -> list[bytes | None]:
        columns = [self.schema.column(name) for name in self.schema.key_columns]
        values = [[row[each.id] for each in columns] for row in self.rows]
        if len(columns) == 1:
            return [None if each is None else encoded(each) for (each,) in values]
        return [joined(each) if each else None for each in values]


def written(
    chance: random.Random, schema: TopicSchema, count: int, *, deletes: bool = False, **options: Any
) -> Written:
    """A batch of random rows, with time stamps and headers of their own or not; with deletions where they may be."""
    rows = [{each.id: value(chance, each) for each in schema.fields} for _ in range(count)]
    deletions = [deletes and deletes_its_key(chance, schema, row) for row in rows]
    own = chance.choice([None, [chance.choice([None, *STAMPS]) for _ in rows], [STAMPS[3]] * count, [None] * count])
    entries: list[list[dict[str, Any]] | None] = [None, [], [{"key": "a", "value": None}, {"key": "é", "value": b"x"}]]
    headers = chance.choice([None, [chance.choice(entries) for _ in rows]])
    given = TypedRows(
        schema,
        table(rows, schema),
        None if own is None else pa.array(own, TIMESTAMP),
        None if headers is None else pa.array(headers, HEADERS),
        deletions=pa.array(deletions) if any(deletions) else None,
    )
    skipped = chance.randrange(count)
    statistics = chance.choice([None, None, schema.names, ()])
    batch = build(replace(given.slice(skipped, count - skipped), statistics=statistics), **options)
    expected = [_stamp(schema, row, each) for row, each in zip(rows, own or [None] * count, strict=True)]
    entered = (headers or [None] * count)[skipped:]
    return Written(schema, rows[skipped:], expected[skipped:], entered, batch, deletions[skipped:])


def deletes_its_key(chance: random.Random, schema: TopicSchema, row: Row) -> bool:
    """Make a deletion of a row, sometimes, where it has a key: its other columns are null then."""
    keys = [schema.column(name).id for name in schema.key_columns]
    if not keys or (len(keys) == 1 and row[keys[0]] is None) or chance.random() < 0.6:
        return False
    row.update(dict.fromkeys(row.keys() - set(keys)))
    return True


def _stamp(schema: TopicSchema, row: Row, own: datetime.datetime | None) -> datetime.datetime:
    column = None if schema.timestamp_column is None else row[schema.column(schema.timestamp_column).id]
    return own or column or EPOCH + datetime.timedelta(microseconds=NOW_US)


def table(rows: Sequence[Row], schema: TopicSchema) -> pa.RecordBatch:
    named_rows = [
        {each.name: None if row[each.id] is None else named(row[each.id], each) for each in schema.fields}
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(named_rows, schema.arrow_schema)


def build(rows: TypedRows, *, statistics_columns: tuple[str, ...] | None = None, **options: Any) -> bytes:
    rows = rows if statistics_columns is None else replace(rows, statistics=tuple(statistics_columns))
    return build_typed_batch(TOPIC_ID, PARTITION, rows, timestamp_us=NOW_US, **options)


def validate(batch: bytes, schemas: TopicSchemas | None, most_bytes: int = MOST_BYTES) -> BatchHeader:
    return validate_topic_batch(TOPIC_ID, PARTITION, batch, max_message_bytes=most_bytes, schemas=schemas)


# -- forgeries


def payload_of(batch: bytes) -> bytes:
    return batch[decode_header(batch).payload_start :]


def extension_of(batch: bytes) -> typed_pb2.TypedBatch:
    header = decode_header(batch)
    return typed_pb2.TypedBatch.FromString(batch[HEADER_BYTES : HEADER_BYTES + header.extension_bytes])


def forged(
    batch: bytes,
    *,
    extension: bytes | None = None,
    padding: bytes = b"\0",
    payload: bytes | None = None,
    **changes: int,
) -> bytes:
    """`batch` with other parts and other fields of its header, under right sums."""
    header = decode_header(batch)
    told = batch[HEADER_BYTES : HEADER_BYTES + header.extension_bytes] if extension is None else extension
    header = replace(header, **{"extension_bytes": len(told), **changes})
    before = told + padding * (-len(told) % 8)
    return sealed(encode_header(header) + before + (payload_of(batch) if payload is None else payload))


def with_told(batch: bytes, **changes: Any) -> bytes:
    """`batch` whose extension says something else beside what it says."""
    told = extension_of(batch)
    told.MergeFrom(typed_pb2.TypedBatch(**changes))
    return forged(batch, extension=told.SerializeToString())


def with_columns(batch: bytes, columns: pa.RecordBatch) -> bytes:
    """`batch` with other columns behind what it says of them."""
    return forged(batch, payload=columns.serialize().to_pybytes())
