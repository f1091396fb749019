"""What a replica sends: batches left out only where no row can be wanted, few bytes of the others, none of it believed
before its checksum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage, InvalidArgument, NarrowSchemaVersion, UnknownSchemaVersion
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.header import Attributes, check_crc, decode_header, iterate_headers
from minilog.record_batch.reader import offsets_of, read_records
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.batch import ROW_BYTES, TypedRows
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.evolution import add_column, drop_column, loosen_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.sessions.scanner import BATCH_WORK, HeaderScanner, Scanner
from tests.unit.client.typed_batches import KEY, build, extension_of, forged, validate
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset, full_batch

SCHEMA = first_version(parse_ddl("n int, f float, d double, name string NOT NULL, at timestamp"))


def typed(schema: TopicSchema, *said: dict[str, Any], **options: Any) -> bytes:
    rows = pa.RecordBatch.from_pylist(list(said), schema.arrow_schema)
    batch = at_offset(build(TypedRows(schema, rows), statistics_columns=schema.names, **options), 10)
    validate(batch, TopicSchemas((*[SCHEMA] * (schema.version - 1), schema)))
    return batch


def row(**values: Any) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {"name": "x"} | values


def asked(schema: TopicSchema, where: str | None, *columns: str) -> TypedSelection:
    return TypedSelection(schema, columns, None if where is None else parse_where(where, schema))


def cut(selection: TypedSelection, schemas: TopicSchemas, run: bytes) -> bytes:
    return Scanner(selection.to_wire(), schemas).scan(KEY, run, UNLIMITED).batches


def test_a_run_is_cut_as_far_as_the_work_allows_and_its_first_batch_always() -> None:
    schemas, batch = TopicSchemas((SCHEMA,)), typed(SCHEMA, row(n=1))
    run = batch * 100
    short, long = (asked(SCHEMA, f"n = 0{' and d = 1' * terms}", "n") for terms in (0, 180))
    for selection, work in ((short, BATCH_WORK + 1), (long, BATCH_WORK + 182)):
        cutting = Scanner(selection.to_wire(), schemas)
        for most, count in ((0, 1), (1, 1), (work, 1), (work + 1, 2), (10 * work, 10), (UNLIMITED, 100)):
            found = cutting.scan(KEY, run, most)
            assert (found.end, found.work) == (count * len(batch), count * work)
            assert len(list(iterate_headers(found.batches))) == count


def is_left_out(piece: bytes) -> bool:
    return decode_header(piece).record_count == 0


def found(selection: TypedSelection, schemas: TopicSchemas, piece: bytes) -> list[dict[str, Any]]:
    header = decode_header(piece)
    rows = TypedReader(schemas, selection).rows(piece, header, header.base_offset, header.next_offset)
    return [] if rows is None else list(rows.to_pylist())


UNLIMITED = 1 << 30
FLOAT_OF_03 = 0.30000001192092896  # what a float makes of 0.3: it is above it


@pytest.mark.parametrize(
    ("where", "values", "leaves_out"),
    [
        ("n > 5", {"n": 5}, True),
        ("n >= 5", {"n": 5}, False),
        ("n <= 5", {"n": 5}, False),
        ("n < 5", {"n": 5}, True),
        ("not n <= 5", {"n": 5}, True),
        ("n > 5", {"n": None}, True),
        ("n is null", {"n": None}, False),
        ("n is not null", {"n": None}, True),
        ("n > 3000000000", {"n": 2**31 - 1}, True),
        ("f > 0.3", {"f": FLOAT_OF_03}, False),
        ("f <= 0.3", {"f": FLOAT_OF_03}, True),
        ("f = 0.3", {"f": FLOAT_OF_03}, True),
        ("d = 0.0", {"d": -0.0}, False),
        ("d > 1e300", {"d": float("nan")}, False),
        ("d < 1e300", {"d": float("nan")}, True),
        ("name like 'ab%'", {"name": "abc"}, False),
        ("name like 'ab%'", {"name": "ac"}, True),
        ("name = 'x'", {"name": "x" * 40}, True),
        (f"name > '{'x' * 39}'", {"name": "x" * 40}, False),
        (f"name like '{'é' * 30}%'", {"name": "é" * 40}, False),
        ("n > 5 or f > 0.3", {"n": 5, "f": FLOAT_OF_03}, False),
        ("n > 5 and f > 0.3", {"n": 5, "f": FLOAT_OF_03}, True),
        ("null", {"n": 5}, True),
    ],
)
def test_skipped_batches_have_no_wanted_row(where: str, values: dict[str, Any], leaves_out: bool) -> None:
    schemas = TopicSchemas((SCHEMA,))
    batch = typed(SCHEMA, row(**values))
    selection = asked(SCHEMA, where, "name")
    piece = cut(selection, schemas, batch)
    assert is_left_out(piece) is leaves_out
    assert found(selection, schemas, piece) == found(selection, schemas, batch)
    assert bool(found(selection, schemas, batch)) is not leaves_out


def test_nan_is_above_all_numbers_beside_it() -> None:
    batch = typed(SCHEMA, row(d=1.0), row(d=float("nan")), row(d=None))
    selection = asked(SCHEMA, "d > 2", "n")
    piece = cut(selection, TopicSchemas((SCHEMA,)), batch)
    assert [each["_offset"] for each in found(selection, TopicSchemas((SCHEMA,)), piece)] == [11]


def test_time_stamps_and_headers_are_sent_where_they_were_asked_for() -> None:
    stamps = pa.array([NOW_US, NOW_US + 1], TIMESTAMP)
    headers = pa.array([[{"key": "k", "value": b"v"}], None], HEADERS)
    rows = pa.RecordBatch.from_pylist([row(n=1), row(n=2)], SCHEMA.arrow_schema)
    stamped = at_offset(build(TypedRows(SCHEMA, rows, stamps, headers)), 10)
    by_column = replace(SCHEMA, timestamp_column="at")
    of_column = typed(by_column, row(n=1, at=NOW_US), row(n=2, at=NOW_US + 1))
    for schema, batch in ((SCHEMA, stamped), (by_column, of_column)):
        for with_stamps, with_headers in ((False, False), (True, False), (False, True), (True, True)):
            selection = TypedSelection(schema, ("n",), None, with_stamps, False, with_headers)
            piece = cut(selection, TopicSchemas((schema,)), batch)
            read = found(selection, TopicSchemas((schema,)), piece)
            assert read == found(selection, TopicSchemas((schema,)), batch)
            has_stamps = extension_of(piece).has_timestamps or schema.column("at").id in extension_of(piece).field_ids
            assert has_stamps is with_stamps
            assert ("_timestamp" in read[0], "_headers" in read[0]) == (with_stamps, with_headers)
            has_headers = bool(decode_header(piece).attributes & Attributes.HAS_HEADERS)
            assert has_headers is (with_headers and schema is SCHEMA)


def test_a_left_out_batch_keeps_its_place_and_nothing_else() -> None:
    batch = typed(SCHEMA, row(n=1), row(n=2), compression="zstd", producer_id=3, producer_epoch=0, base_sequence=4)
    piece = cut(asked(SCHEMA, "n > 2", "n"), TopicSchemas((SCHEMA,)), batch)
    header, stored = decode_header(piece), decode_header(batch)
    check_crc(TOPIC_ID, PARTITION, piece, header)
    assert len(piece) == 80
    assert header.attributes == Attributes.TYPED | Attributes.PROJECTED | Attributes.COMPACTED
    assert (header.base_offset, header.next_offset, header.base_sequence) == (10, 12, stored.base_sequence)


def test_a_column_that_a_version_does_not_have_is_null_in_all_of_its_rows() -> None:
    newer = add_column(SCHEMA, Field("extra", Primitive("int")))
    schemas = TopicSchemas((SCHEMA, newer))
    batch = typed(SCHEMA, row(n=1))
    for where, leaves_out in (("extra > 0", True), ("extra is null", False), ("extra is null and n = 2", True)):
        selection = asked(newer, where, "n", "extra")
        assert is_left_out(cut(selection, schemas, batch)) is leaves_out
        assert bool(found(selection, schemas, batch)) is not leaves_out


def test_a_field_of_the_same_name_is_another_field() -> None:
    """Dropped and added again: what was written under the old id is not read as the new one."""
    again = add_column(drop_column(SCHEMA, "n"), Field("n", Primitive("int")))
    versions = TopicSchemas((SCHEMA, drop_column(SCHEMA, "n"), again))
    batch = typed(SCHEMA, row(n=1))
    assert found(asked(again, None, "n"), versions, batch) == [{"n": None, "_offset": 10}]
    piece = cut(asked(again, None, "n"), versions, batch)
    assert found(asked(again, None, "n"), versions, piece) == [{"n": None, "_offset": 10}]
    assert list(extension_of(piece).field_ids) == []
    assert is_left_out(cut(asked(again, "n = 1", "n"), versions, batch))
    with pytest.raises(InvalidArgument, match="no column with the id"):
        Scanner(typed_pb2.Selection(schema_version=3, field_ids=[SCHEMA.column("n").id]), versions)


def test_a_field_of_the_same_name_and_type_in_a_struct_is_another_field() -> None:
    first = first_version(parse_ddl("place struct<x: int, y: int>"))
    without = drop_column(first, "place.x")
    again = add_column(without, Field("x", Primitive("int")), "place", after="first")
    assert again.arrow_schema == first.arrow_schema
    schemas = TopicSchemas((first, without, again))
    batch = typed(first, {"place": {"x": 1, "y": 2}})
    assert found(asked(again, None, "place"), schemas, batch)[0]["place"] == {"x": None, "y": 2}


def test_widened_columns_are_not_skipped_by_bounds_of_the_narrow_type() -> None:
    """An int is never above 3e9, and so the condition knows no value; by now it is a long."""
    wide = widen_column(SCHEMA, "n", Primitive("long"))
    schemas = TopicSchemas((SCHEMA, wide))
    batch = typed(wide, row(n=4_000_000_000))
    selection = asked(SCHEMA, "n > 3000000000", "n")
    piece = cut(selection, schemas, batch)
    assert not is_left_out(piece)
    for each in (piece, batch):
        with pytest.raises(NarrowSchemaVersion, match="newest schema"):
            found(selection, schemas, each)
    assert found(asked(wide, "n > 3000000000", "n"), schemas, batch) == [{"n": 4_000_000_000, "_offset": 10}]
    assert is_left_out(cut(asked(wide, "n > 5000000000", "n"), schemas, batch))


@pytest.mark.parametrize(("value", "fits"), [(0.5, True), (0.3, False), (1e300, False), (float("nan"), True)])
def test_a_double_is_a_float_again_only_where_nothing_is_lost(value: float, fits: bool) -> None:
    wide = widen_column(SCHEMA, "f", Primitive("double"))
    schemas = TopicSchemas((SCHEMA, wide))
    batch = typed(wide, row(f=value))
    if fits:
        assert str(found(asked(SCHEMA, None, "f"), schemas, batch)[0]["f"]) == str(value)
    else:
        with pytest.raises(NarrowSchemaVersion, match="column 'f' is double now"):
            found(asked(SCHEMA, None, "f"), schemas, batch)


def test_a_null_where_a_reader_knows_none_needs_a_wider_version() -> None:
    loose, gone = loosen_column(SCHEMA, "name"), drop_column(SCHEMA, "name")
    for newer, said in ((loose, {"name": None}), (gone, {})):
        schemas = TopicSchemas((SCHEMA, newer))
        batch = typed(newer, {"n": 1, **said})
        assert found(asked(newer, None, "n"), schemas, batch)
        assert found(asked(SCHEMA, None, "n"), schemas, batch)
        for piece in (batch, cut(asked(SCHEMA, None, "name"), schemas, batch)):
            with pytest.raises(NarrowSchemaVersion, match="newest schema"):
                found(asked(SCHEMA, None, "name"), schemas, piece)
    batch = typed(loose, row(name="a"))
    assert found(asked(SCHEMA, None, "name"), TopicSchemas((SCHEMA, loose)), batch)[0]["name"] == "a"


def test_batches_of_two_versions_in_one_run_are_each_cut_by_their_own() -> None:
    newer = rename_column(add_column(SCHEMA, Field("extra", Primitive("long")), after="first"), "n", "number")
    moved = TopicSchemas((SCHEMA, add_column(SCHEMA, Field("extra", Primitive("long")), after="first"), newer))
    run = typed(SCHEMA, row(n=1)) + typed(newer, {"number": 2, "extra": 3, "name": "x"}) + typed(SCHEMA, row(n=4))
    selection = asked(newer, None, "extra", "number")
    pieces = cut(selection, moved, run)
    rows = [
        each
        for place, header in iterate_headers(pieces)
        for each in found(selection, moved, pieces[place : place + header.length])
    ]
    assert [(each["extra"], each["number"]) for each in rows] == [(None, 1), (3, 2), (None, 4)]


def test_a_version_that_is_not_known_yet_is_sent_as_it_is() -> None:
    newer = add_column(SCHEMA, Field("extra", Primitive("int")))
    batch = typed(newer, row(n=1, extra=5))
    selection = asked(SCHEMA, "n > 1", "n")
    assert cut(selection, TopicSchemas((SCHEMA,)), batch) == batch
    with pytest.raises(UnknownSchemaVersion):
        found(selection, TopicSchemas((SCHEMA,)), batch)
    for version in (0, 2, -1):
        with pytest.raises(UnknownSchemaVersion):
            Scanner(typed_pb2.Selection(schema_version=version), TopicSchemas((SCHEMA,)))


def test_of_a_topic_without_a_schema_the_headers_of_batches_are_sent_and_markers_as_they_are() -> None:
    stored = at_offset(full_batch(10, compression="zstd", producer_id=3, producer_epoch=0, base_sequence=4), 10)
    marker = at_offset(build_control_batch(TOPIC_ID, PARTITION, b"end", timestamp_us=NOW_US), 20)
    cut_run = HeaderScanner().scan(KEY, stored + marker, UNLIMITED)
    assert (cut_run.end, cut_run.batches[72:]) == (len(stored + marker), marker)
    header, whole = decode_header(cut_run.batches), decode_header(stored)
    check_crc(TOPIC_ID, PARTITION, cut_run.batches[:72], header)
    assert header == replace(whole, length=72, crc=header.crc, attributes=Attributes.PROJECTED)
    for run in (stored + marker, cut_run.batches):  # an older replica sends whole batches
        [rows] = read_records(run, *KEY, rows_of=offsets_of, start_offset=13)
        assert rows.to_pydict() == {"offset": list(range(13, 20))}
    with pytest.raises(CorruptMessage, match="crc"):
        HeaderScanner().scan(KEY, bytes(stored[:-1]) + b"?", UNLIMITED)
    with pytest.raises(CorruptMessage):  # nobody takes what is left for records without values
        read_records(cut_run.batches, *KEY)


def test_a_damaged_batch_is_not_sent_under_a_new_checksum() -> None:
    batch = bytearray(typed(SCHEMA, row(n=1)))
    batch[-20] ^= 1
    for where in (None, "n > 1"):
        with pytest.raises(CorruptMessage, match="crc"):
            cut(asked(SCHEMA, where, "n"), TopicSchemas((SCHEMA,)), bytes(batch))


def test_a_projection_of_columns_that_were_not_asked_for_is_refused_by_a_reader() -> None:
    schemas = TopicSchemas((SCHEMA,))
    piece = cut(asked(SCHEMA, None, "n"), schemas, typed(SCHEMA, row(n=1)))
    assert found(asked(SCHEMA, None, "n"), schemas, piece)
    with pytest.raises(CorruptMessage, match="does not have column 'f'"):
        found(asked(SCHEMA, None, "f"), schemas, piece)
    for ids in ([99], [SCHEMA.column("f").id, SCHEMA.column("n").id], [SCHEMA.column("n").id] * 2, [-1], [1] * 9_000):
        lie = typed_pb2.TypedBatch(schema_version=1, field_ids=ids).SerializeToString()
        with pytest.raises(CorruptMessage) as raised:
            found(asked(SCHEMA, None, "n"), schemas, forged(piece, extension=lie))
        assert len(str(raised.value)) < 500
    two = cut(asked(SCHEMA, None, "n", "f"), schemas, typed(SCHEMA, row(n=1)))
    told = typed_pb2.TypedBatch(schema_version=1, field_ids=[SCHEMA.column("f").id, SCHEMA.column("n").id])
    with pytest.raises(CorruptMessage, match="in this order"):
        found(asked(SCHEMA, None, "n"), schemas, forged(two, extension=told.SerializeToString()))


def test_a_reader_makes_no_rows_that_nothing_was_sent_for() -> None:
    """A projection without columns has no payload: how many rows it has is said by its header alone."""
    schemas = TopicSchemas((SCHEMA,))
    selection = asked(SCHEMA, None)
    piece = cut(selection, schemas, typed(SCHEMA, row(n=1)))
    most = 2**28 // ROW_BYTES
    many = forged(piece, record_count=most + 1, last_offset_delta=most)
    with pytest.raises(CorruptMessage, match="rows of at least"):
        found(selection, schemas, many)
    with pytest.raises(CorruptMessage, match="no columns, and a payload"):
        found(selection, schemas, forged(piece, payload=bytes(8)))


def test_a_batch_without_rows_is_not_read_as_one() -> None:
    schemas, selection = TopicSchemas((SCHEMA,)), asked(SCHEMA, None, "n")
    batch = typed(SCHEMA, row(n=1))
    with pytest.raises(CorruptMessage, match="not read as rows"):
        found(selection, schemas, full_batch())
    assert found(selection, schemas, forged(batch, attributes=Attributes.TYPED | Attributes.CONTROL)) == []
