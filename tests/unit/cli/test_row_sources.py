"""Rows read from JSON, CSV and Parquet under a schema: what comes of them, and what is said of what does not fit."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import os
import pathlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from minilog import TopicSchema, schema_from_ddl
from minilog_tools.cli import row_sources
from minilog_tools.cli.json_rows import json_rows
from minilog_tools.cli.produce_rows import RowFormat, check_time_zone
from minilog_tools.cli.row_sources import BLOCK_BYTES, BadRows, Counted, Part, Pipe, ReadRows, first_failing
from minilog_tools.cli.table_rows import csv_rows, parquet_rows

OF_FLIGHT, LATIN = "carrier string NOT NULL, delay int, at timestamp", "n int, s string"
FLIGHTS = schema_from_ddl(OF_FLIGHT, ["carrier"], "at")
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
ALL = schema_from_ddl(
    "b boolean, i8 byte, i16 short, i32 int, i64 long, f float, d double, s string, raw binary, day date, "
    "at timestamp, local timestamp_ntz, cost decimal(9,2)"
)
VALUES = {
    "b": True,
    "i8": -128,
    "i16": 32767,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "f": 0.5,
    "d": 0.1,
    "s": 'Zürich, "x"\nnew',
    "raw": b"\x00\xff",
    "day": datetime.date(1969, 12, 31),
    "at": NOON.replace(microsecond=123456),
    "local": datetime.datetime(2024, 5, 1, 12),
    "cost": decimal.Decimal("-12.50"),
}


def rows(parts: Iterable[Part]) -> list[dict[str, object]]:
    return [row for part in parts for row in part.rows.to_pylist()]


def source(text: str | bytes) -> io.BytesIO:
    return io.BytesIO(text if isinstance(text, bytes) else text.encode())


def from_json(text: str | bytes, schema: TopicSchema = FLIGHTS) -> list[dict[str, object]]:
    return rows(json_rows(source(text), schema))


def from_csv(text: str | bytes, schema: TopicSchema = FLIGHTS) -> list[dict[str, object]]:
    return rows(csv_rows(source(text), schema))


def test_json_of_lists_and_structs_with_times_in_them() -> None:
    schema = schema_from_ddl("stops array<struct<at: timestamp, gate: string>>, days array<date>")
    line = '{"stops":[{"at":"2024-05-01T14:00:00+02:00"},null],"days":["2024-05-01"]}\n'
    assert from_json(line, schema) == [
        {"stops": [{"at": NOON, "gate": None}, None], "days": [datetime.date(2024, 5, 1)]}
    ]


def test_json_of_a_map_holds_all_integers_of_its_type() -> None:
    schema = schema_from_ddl("tags map<string, byte>")
    assert from_json('{"tags":{"a":-128,"b":127}}', schema) == [{"tags": [("a", -128), ("b", 127)]}]


def test_a_struct_that_is_null_needs_no_fields() -> None:
    schema = schema_from_ddl("inner struct<a: int NOT NULL, at: timestamp NOT NULL>")
    line = '{"inner":{"a":1,"at":"2024-05-01T12:00:00Z"}}\n{"inner":null}\n{}\n'
    assert from_json(line, schema) == [{"inner": {"a": 1, "at": NOON}}, {"inner": None}, {"inner": None}]


def test_absent_fields_are_null_and_empty_lines_are_no_rows() -> None:
    parts = list(json_rows(io.BytesIO(b'\n{"carrier":"UA"}\r\n\n  \n{"delay":1,"carrier":"AA"}'), FLIGHTS))
    assert rows(parts) == [
        {"carrier": "UA", "delay": None, "at": None},
        {"carrier": "AA", "delay": 1, "at": None},
    ]
    assert [part.end for part in parts] == [4, 5]
    assert from_json("") == from_json("\n\n") == []


GOOD = '{"carrier":"UA","delay":1}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"carrier":"UA","delay":"late"}', "column 'delay' is int, and 'late' does not fit"),
        ('{"carrier":"UA","delay":3.5}', "column 'delay' is int, and 3.5 does not fit"),
        ('{"carrier":"UA","delay":3000000000}', "column 'delay' is int, and 3000000000 does not fit"),
        ('{"carrier":"UA","gate":"B4"}', "the topic has no column 'gate': it has carrier, delay, at"),
        ('{"delay":1}', "column 'carrier' may not be null"),
        ('{"carrier":null}', "column 'carrier' may not be null"),
        ('{"carrier":"UA",}', "this is not one JSON object"),
        ('{"carrier":"UA"}{"carrier":"AA"}', "this is not one JSON object"),
        ("{", "this is not one JSON object"),
        ("[1]", "this is no JSON object"),
        ("5", "this is no JSON object"),
        ('{"carrier":"UA","carrier":"AA"}', "twice"),
        ('{"carrier":"UA","at":"2024-05-01T12:00:00"}', "column 'at' is timestamp, .* with a zone"),
        ('{"carrier":"UA","at":"noon"}', "column 'at' is timestamp, and 'noon' does not fit"),
        ('{"carrier":"UA","at":5}', "column 'at' is timestamp, and 5 does not fit"),
    ],
)
def test_a_bad_line_is_told_by_its_number_column_and_reason(line: str, reason: str) -> None:
    with pytest.raises(BadRows, match=f"^line 7: .*{reason}"):
        from_json(GOOD * 4 + "\n" + GOOD + line + "\n" + GOOD * 3 + line)


@pytest.mark.parametrize(
    ("columns", "line", "reason"),
    [
        ("local timestamp_ntz", '{"local":"2024-05-01T12:00:00Z"}', "without a zone"),
        ("raw binary", '{"raw":"?"}', "write it in base64"),
        ("f float", '{"f":1e300}', "column 'f' is float, and 1e.300 does not fit"),
        ("cost decimal(5,2)", '{"cost":"1.555"}', r"column 'cost' is decimal\(5,2\), and '1.555' does not fit"),
        ("tags map<string, int>", '{"tags":{"a":"b"}}', "column 'tags.value' is int, and 'b' does not fit"),
        ("tags map<long, int>", '{"tags":{"a":1}}', "column 'tags.key' is long, and 'a' does not fit"),
        ("inner struct<raw: binary>", '{"inner":{"raw":"?"}}', "column 'inner.raw' is binary, and '.' does not fit"),
        ("inner struct<a: int>", '{"inner":{"z":1}}', "column 'inner' has no field 'z'"),
        ("s string", '{"s":"\\ud800"}', "column 's' is string, and .* does not fit"),
        ("inner struct<a: int NOT NULL>", '{"inner":{}}', "column 'inner.a' may not be null, and row 1"),
        ("tags map<string, byte>", '{"tags":{"a":128}}', "column 'tags.value' is byte, and 128 does not fit"),
        ("tags map<string, byte>", '{"tags":{"a":-129}}', "column 'tags.value' is byte, and -129 does not fit"),
        ("cost decimal(3,1)", '{"cost":"100.0"}', r"column 'cost' is decimal\(3,1\), and '100.0' does not fit"),
        ("n int", '{"n":5,"_deleted":true}', "no key columns"),
        (LATIN, '{"n":1,"s":"Zürich"}\n'.encode("latin-1"), "column 's': the byte 0xFC is no UTF-8: save"),
        (LATIN, '{"ü":1}\n'.encode("latin-1"), "the byte 0xFC is no UTF-8: save"),
        (LATIN, '{"n":1}\n'.encode("utf-16"), "the file is in UTF-16: save it as UTF-8"),
    ],
)
def test_json_that_does_not_fit_a_type_is_refused(columns: str, line: str | bytes, reason: str) -> None:
    with pytest.raises(BadRows, match=f"^line 1: .*{reason}"):
        from_json(line, schema_from_ddl(columns))


def test_json_that_is_no_utf_8_is_told_by_its_line() -> None:
    with pytest.raises(BadRows, match=r"^line 3: column 's'"):
        from_json('{"n":1}\n\n{"n":2,"s":"Zürich"}\n'.encode("latin-1"), schema_from_ddl(LATIN))


def test_large_files_are_read_in_parts_and_a_bad_line_costs_only_its_own() -> None:
    line = json.dumps({"carrier": "UA" * 500, "delay": 1}).encode() + b"\n"
    count = 2 * BLOCK_BYTES // len(line) + 100
    parts = json_rows(io.BytesIO(line * count + b"x\n"), FLIGHTS)
    first, second = next(parts), next(parts)
    assert first.rows.num_rows == first.end
    assert second.end == first.end + second.rows.num_rows
    with pytest.raises(BadRows, match=f"line {count + 1}: this is not one JSON object"):
        next(parts)


def test_a_line_without_an_end_is_refused_at_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minilog_tools.cli.json_rows.MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(BadRows, match="a line takes more than 1 MiB"):
        from_json(b"x" * (3 << 20))


def test_csv_of_every_type() -> None:
    names = ",".join(VALUES)
    text = ",".join(
        (
            "true,-128,32767,-2147483648,9223372036854775807,0.5,0.1",
            '"Zürich, ""x""\nnew"',
            base64.b64encode(b"\x00\xff").decode(),
            "1969-12-31,2024-05-01T12:00:00.123456Z,2024-05-01 12:00:00,-12.50",
        )
    )
    empty = "," * (len(VALUES) - 1)
    assert from_csv(f"{names}\n{text}\n{empty}\n", ALL) == [VALUES, dict.fromkeys(VALUES)]


def test_csv_columns_are_matched_by_name_and_quotes_make_an_empty_text() -> None:
    assert from_csv('delay,carrier\n1,UA\n,""\n') == [
        {"carrier": "UA", "delay": 1, "at": None},
        {"carrier": "", "delay": None, "at": None},
    ]
    assert from_csv("carrier\n") == []


@pytest.mark.parametrize(
    ("columns", "text", "reason"),
    [
        ("local timestamp_ntz", "local\n2024-05-01T12:00:00Z\n", "row 2: column 'local'.*without a zone"),
        ("n int, raw binary", "n,raw\n1,AA==\n2,?\n", "row 3: column 'raw' is binary, and '\\?' does not fit"),
        ("n int NOT NULL, f float", "n,f\n1,2\n2,1e300\n", "row 3: column 'f' is float, and 1e.300 does not fit"),
        ("cost decimal(9,2)", "cost\n1\nx\n", r"row 3: column 'cost' is decimal\(9,2\): The string 'x' is not a valid"),
        ("cost decimal(9,2)", "cost\n1.555\n", r"row 2: column 'cost' is decimal\(9,2\): Rescaling"),
        ("tags array<int>", "tags\n1\n", "column 'tags' is array<int>, for which CSV has no place"),
        (OF_FLIGHT, "carrier,delay\nUA,1\nUA,late\n", "row 3: column 'delay' is int: invalid value 'late'"),
        (OF_FLIGHT, "carrier,delay\nUA,1\nUA\n", "row 3: expected 2 columns, got 1: UA"),
        (OF_FLIGHT, "carrier,delay\nUA,1\n,2\n", "column 'carrier' may not be null, and row 3 has no value"),
        (OF_FLIGHT, "carrier,gate\nUA,1\n", "the topic has no column 'gate'"),
        (OF_FLIGHT, "carrier,carrier\nUA,AA\n", "two columns 'carrier'"),
        (OF_FLIGHT, "carrier,at\nUA,2024-05-01T12:00:00\n", "row 2: column 'at' is timestamp, .*with a zone"),
        (OF_FLIGHT, "", "Empty CSV"),
        ("n int", "n\nlate\n".encode("utf-8-sig"), "row 2: column 'n' is int"),
        (LATIN, "n,s\n1,x\n2,Zürich\n".encode("latin-1"), "^row 3: column 's' is string: invalid UTF8 data: save"),
        (LATIN, "n,ü\n1,x\n".encode("latin-1"), "^row 1, which names the columns: the byte 0xFC is no UTF-8: save"),
        (LATIN, "n,s\n1,x\n".encode("utf-16"), "^row 1, which names the columns: the file is in UTF-16: save it"),
    ],
)
def test_csv_that_does_not_fit_is_refused_with_its_row(columns: str, text: str | bytes, reason: str) -> None:
    with pytest.raises(BadRows, match=reason):
        from_csv(text, schema_from_ddl(columns))


@pytest.mark.parametrize("read", [json_rows, csv_rows])
def test_the_mark_of_utf_8_at_the_beginning_is_no_part_of_the_rows(read: ReadRows) -> None:
    text = '{"n":1}\n' if read is json_rows else "n\n1\n"
    assert rows(read(io.BytesIO(text.encode("utf-8-sig")), schema_from_ddl("n int"))) == [{"n": 1}]


def test_parquet_is_read_in_batches_and_shares_are_told(tmp_path: pathlib.Path) -> None:
    count = 150_000
    pq.write_table(pa.table({"carrier": ["UA"] * count, "delay": pa.array(range(count), pa.int64())}), tmp_path / "f")
    told: list[float] = []
    parts = list(parquet_rows(tmp_path / "f", FLIGHTS, told.append))
    assert [part.end for part in parts] == [65_536, 131_072, count]
    assert sum(told) == pytest.approx(1)
    assert rows(parts)[-1] == {"carrier": "UA", "delay": count - 1, "at": None}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"carrier": ["UA", "UA"], "delay": [1, 2**40]}, "column 'delay' is int, and 1099511627776 in row 2 does"),
        ({"carrier": ["UA", None]}, "column 'carrier' may not be null, and row 2 has no value"),
        ({"carrier": ["UA"], "gate": ["B4"]}, "the topic has no column 'gate'"),
        ({"carrier": ["UA"], "delay": ["1"]}, "column 'delay' is int, and the rows have string"),
        (None, "Parquet"),
    ],
)
def test_bad_parquet_is_refused(tmp_path: pathlib.Path, table: dict[str, object] | None, reason: str) -> None:
    (tmp_path / "f").write_bytes(b"carrier,delay\n")
    if table is not None:
        pq.write_table(pa.table(table), tmp_path / "f")
    with pytest.raises(BadRows, match=reason):
        list(parquet_rows(tmp_path / "f", FLIGHTS, lambda _: None))


SUMMER = datetime.datetime(2024, 7, 1, 12)
IN_SPRING = datetime.datetime(2024, 3, 31, 2, 30)


def test_times_of_parquet_without_a_zone_are_of_the_one_that_is_said(tmp_path: pathlib.Path) -> None:
    schema = schema_from_ddl("at timestamp, local timestamp_ntz")
    pq.write_table(pa.table({"at": [SUMMER, None], "local": [SUMMER, SUMMER]}), tmp_path / "f")
    with pytest.raises(
        BadRows, match=r"column 'at' is timestamp, and the times in the file have no zone: .*--time-zone"
    ):
        list(parquet_rows(tmp_path / "f", schema, lambda _: None))
    found = rows(parquet_rows(tmp_path / "f", schema, lambda _: None, "Europe/Berlin"))
    assert found == [
        {"at": SUMMER.replace(hour=10, tzinfo=datetime.UTC), "local": SUMMER},
        {"at": None, "local": SUMMER},
    ]


def test_a_time_that_the_zone_has_not_is_told_with_its_row(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({"at": [SUMMER, IN_SPRING]}), tmp_path / "f")
    with pytest.raises(BadRows, match=r"column 'at': .* in row 2 exists twice or not at all in Europe/Berlin"):
        list(parquet_rows(tmp_path / "f", schema_from_ddl("at timestamp"), lambda _: None, "Europe/Berlin"))


@pytest.mark.parametrize("zone", ["Mars", "", "UTC+25"])
def test_texts_that_are_no_zone_are_refused(zone: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no zone"):
        check_time_zone(zone, RowFormat.PARQUET)
    with pytest.raises(typer.BadParameter, match="it is for --format parquet"):
        check_time_zone("UTC", RowFormat.CSV)
    check_time_zone("UTC", RowFormat.PARQUET)


@pytest.mark.parametrize("bad", range(9))
def test_the_first_that_fails_is_found(bad: int) -> None:
    def check(count: int) -> None:
        if count > bad:
            raise row_sources.BadRows(str(count))

    assert first_failing(9, check) == bad


def test_a_pipe_gives_what_is_there_and_its_end() -> None:
    read, write = os.pipe()
    told: list[int] = []
    source = Counted(Pipe(read), told.append)
    os.write(write, b"abc")
    assert source.read(10) == b"abc"
    os.write(write, b"de")
    assert source.read(1) == b"d"
    os.close(write)
    assert (source.read(10), source.read(10)) == (b"e", b"")
    assert told == [3, 1, 1, 0]
    os.close(read)


# -- deletions

KEYED = schema_from_ddl("id int NOT NULL, n int NOT NULL, at timestamp, tags map<string, int>", ["id"], "at")
PLAIN = schema_from_ddl("id int NOT NULL, n int NOT NULL, at timestamp", ["id"], "at")


@pytest.mark.parametrize("schema", [KEYED, PLAIN])
def test_json_marks_deletions_of_which_key_columns_alone_count(schema: TopicSchema) -> None:
    text = (
        '{"id": 1, "n": 5}\n{"id": 2, "n": "many", "_deleted": true}\n{"id": 3, "_deleted": true}\n'
        '{"id": 4, "n": 6, "_deleted": false}\n{"id": 5, "n": 7, "_deleted": null}\n'
    )
    read = from_json(text, schema)
    assert [row["id"] for row in read] == [1, 2, 3, 4, 5]
    assert [bool(row["_deleted"]) for row in read] == [False, True, True, False, False]
    assert [row["n"] for row in read] == [5, None, None, 6, 7]
    at_once = from_json('{"id": 3, "at": "2024-05-01T12:00:00Z", "_deleted": true}\n{"id": 4, "n": 6}\n', schema)
    assert at_once[0]["at"] == NOON
    assert "_deleted" not in from_json('{"id": 4, "n": 6, "_deleted": false}\n', schema)[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"n": 5, "_deleted": true}', "line 2: the deletion has no value for key column 'id'"),
        ('{"id": null, "_deleted": true}', "column 'id' may not be null, and row 2"),
        ('{"id": 1, "n": 1, "_deleted": 1}', "line 2: '_deleted' is true or false, and 1 is neither"),
        ('{"id": 1, "n": 1, "_deleted": "true"}', "line 2: '_deleted' is true or false"),
        ('{"id": 1, "other": 1, "_deleted": true}', "line 2: the topic has no column 'other'"),
        ('{"id": 1, "_deleted": false}', "column 'n' may not be null, and row 2"),
    ],
)
def test_a_line_that_is_no_deletion_is_named(line: str, message: str) -> None:
    for schema in (KEYED, PLAIN):
        with pytest.raises(BadRows, match=message):
            from_json('{"id": 9, "n": 9}\n' + line + "\n", schema)


def test_csv_and_parquet_mark_deletions_too(tmp_path: pathlib.Path) -> None:
    read = from_csv("id,n,_deleted\n1,5,\n2,,true\n3,7,false\n", PLAIN)
    assert [(row["id"], row["n"], bool(row["_deleted"])) for row in read] == [
        (1, 5, False),
        (2, None, True),
        (3, 7, False),
    ]
    with pytest.raises(BadRows, match=r"row 3.*_deleted|_deleted.*row 3|column 3"):
        from_csv("id,n,_deleted\n1,5,\n2,,yes\n", PLAIN)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2], "n": [5, None], "_deleted": [False, True]}), path)
    read = rows(parquet_rows(path, PLAIN, lambda _: None))
    assert [(row["id"], row["n"], row["_deleted"]) for row in read] == [(1, 5, False), (2, None, True)]
