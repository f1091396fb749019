"""What a schema is made of (`--like`, `createTopic`) can be written to the topic, for every type that Arrow has."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidRecord, InvalidSchema
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.topic_schema import schema_from_arrow

DAY, NOON = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)
D = decimal.Decimal
TAKEN: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, None]),
    *((kind, [1, None]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, [1, None]) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    *((kind, [1.5, None]) for kind in (pa.float16(), pa.float32(), pa.float64())),
    *((kind, ["a", None]) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, [b"ab", None]) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))),
    *((kind, [DAY, None]) for kind in (pa.date32(), pa.date64())),
    *((pa.timestamp(unit), [NOON, None]) for unit in ("s", "ms", "us", "ns")),
    *((kind(9, 2), [D("1.50"), None]) for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None]),
    (pa.dictionary(pa.uint32(), pa.string_view()), ["a", None]),
    (pa.dictionary(pa.uint32(), pa.large_string()), ["a", None]),
    (pa.dictionary(pa.int16(), pa.float16()), [1.5, None]),
]
ZONED = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in ("UTC", "Europe/Berlin")]
REFUSED = [
    pa.null(),
    pa.uint64(),
    pa.time32("s"),
    pa.time64("us"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
    pa.decimal256(50, 2),
    pa.decimal128(5, 7),
    pa.decimal128(5, -2),
    pa.run_end_encoded(pa.int32(), pa.int8()),
    pa.list_view(pa.int8()),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.struct([]),
    pa.uuid(),
]


def written(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    table = pa.table({"c": values})
    found = rows_of(table, schema_from_arrow(table.schema))
    found.validate(full=True)
    given: list[Any] = found.column("c").to_pylist()
    return given


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        plain = array(kind.value_type, [each for each in values if each is not None])
        places = iter(range(len(plain)))
        indices = [None if each is None else next(places) for each in values]
        return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), plain)
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "values"), TAKEN, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
class TestEveryType:
    def test_alone_sliced_and_in_chunks(self, kind: pa.DataType, values: list[Any]) -> None:
        given = array(kind, values * 3)
        assert written(given) == values * 3
        assert written(given[1:5]) == (values * 3)[1:5]
        assert written(pa.chunked_array([array(kind, values), array(kind, values[::-1])])) == values + values[::-1]
        assert written(pa.chunked_array([], kind)) == []

    def test_in_lists_structs_and_maps(self, kind: pa.DataType, values: list[Any]) -> None:
        inner = array(kind, values * 2)
        lists = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), inner)
        fixed = pa.FixedSizeListArray.from_arrays(inner, 2)
        large = pa.LargeListArray.from_arrays(pa.array([0, 2, 4], pa.int64()), inner)
        for each in (lists, fixed, large):
            assert written(each) == [values, values]
            assert written(each[1:]) == [values]
        struct = pa.StructArray.from_arrays([inner], names=["x"])
        assert written(struct[1:3]) == [{"x": each} for each in (values * 2)[1:3]]
        maps = pa.MapArray.from_arrays(pa.array([0, 2, 4], pa.int32()), pa.array(["k", "l"] * 2), inner)
        assert written(maps[1:]) == [list(zip(["k", "l"], values, strict=True))]


@pytest.mark.parametrize("kind", ZONED, ids=str)
def test_instants_of_all_units_and_zones(kind: pa.DataType) -> None:
    noon = NOON.replace(tzinfo=datetime.UTC)
    assert written(pa.array([noon, None], kind)) == [noon, None]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_a_type_of_no_topic_is_refused_with_the_name_of_the_column(kind: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="column 'c"):
        schema_from_arrow(pa.schema([("c", kind)]))


def test_lists_of_a_fixed_size_may_be_null() -> None:
    values = [None, [1, 2], None, [3, None]]
    assert written(pa.array(values, pa.list_(pa.int8(), 2))) == values
    assert written(pa.array(values, pa.list_(pa.int8(), 2))[1:]) == values[1:]


def test_the_places_that_pandas_adds_are_left_out() -> None:
    frame = pa.table({"a": [1, 2, 3]}).to_pandas()
    kept = pa.table(frame[frame["a"] > 1])
    assert kept.schema.names == ["a", "__index_level_0__"]
    schema = schema_from_arrow(kept.schema)
    assert schema.names == ("a",)
    assert rows_of(kept, schema).to_pylist() == [{"a": 2}, {"a": 3}]
    with pytest.raises(InvalidRecord, match="no column '__index_level_0__'"):
        rows_of(kept.replace_schema_metadata(None), schema)


def test_text_that_is_no_utf_8_is_refused_with_column_and_row() -> None:
    offsets = pa.py_buffer(pa.array([0, 1, 2, 3], pa.int32()).buffers()[1].to_pybytes()[:16])
    bad = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"a\xff\xfe"))
    schema = schema_from_arrow(pa.schema([("s", pa.string())]))
    with pytest.raises(InvalidRecord, match=r"column 's': row 11 has text that is not UTF-8.*, and 1 more"):
        rows_of(pa.table({"s": bad}), schema, first_row=10)
    inside = pa.StructArray.from_arrays([bad], names=["x"])
    nested = schema_from_arrow(pa.schema([("c", inside.type)]))
    with pytest.raises(InvalidRecord, match="column 'c': row 1 has text"):
        rows_of(pa.table({"c": inside}), nested)
    with pytest.raises(InvalidRecord, match="column 's': row 1 has text"):
        rows_of(pa.table({"s": pa.array([b"a", b"\xff"]).view(pa.string()).dictionary_encode()}), schema)


def test_nanoseconds_that_would_be_lost_are_refused_in_words() -> None:
    times = pa.array([0, 1], pa.timestamp("ns", "UTC"))
    schema = schema_from_arrow(pa.schema([("at", times.type)]))
    with pytest.raises(InvalidRecord, match=r"column 'at' is timestamp, and .* in row 1 does not fit"):
        rows_of(pa.table({"at": times}), schema)


def test_times_without_a_zone_are_no_instants_and_it_is_said_what_to_do() -> None:
    schema = schema_from_arrow(pa.schema([("at", pa.timestamp("us", "UTC"))]))
    with pytest.raises(InvalidRecord, match=r"column 'at' is timestamp, and .*no zone.*tz_localize"):
        rows_of(pa.table({"at": pa.array([0], pa.timestamp("us"))}), schema)
