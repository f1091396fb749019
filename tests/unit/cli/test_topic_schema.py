"""`minilog topic schema`, and the columns of `topic create`: what is read, what is refused, what is shown."""

from __future__ import annotations

import pathlib
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from minilog.errors import InvalidSchema
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import as_next_version
from minilog.typed.schema.schema_json import schema_to_json
from minilog_tools.cli import app
from minilog_tools.cli.common import print_table
from minilog_tools.cli.schema_options import ColumnOptions
from minilog_tools.cli.schema_verbs import schema_of
from minilog_tools.cli.topic_schema import Evolution, schema_table
from minilog_tools.cli.topic_schema import _moved as moved
from minilog_tools.cli.topic_schema import _renamed as renamed
from minilog_tools.cli.topic_schema import _typed as typed

FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int, at timestamp", ["carrier"], "at")


def test_columns_come_from_words_a_file_or_a_parquet_file(tmp_path: pathlib.Path) -> None:
    said, table = tmp_path / "flights.json", tmp_path / "flights.parquet"
    said.write_text(schema_to_json(FLIGHTS))
    pq.write_table(FLIGHTS.arrow_schema.empty_table(), table)
    ddl = "carrier string NOT NULL, delay int, at timestamp"
    assert schema_of(ColumnOptions(ddl, key_columns="carrier", timestamp_column="at")) == FLIGHTS
    assert schema_of(ColumnOptions(file=said)) == FLIGHTS
    both = replace(FLIGHTS, key_columns=("carrier", "delay"))
    assert schema_of(ColumnOptions(file=said, key_columns="carrier, delay")) == both
    assert schema_of(ColumnOptions(like=table, key_columns="carrier", timestamp_column="at")) == FLIGHTS
    odd = schema_of(ColumnOptions("`a,b` int, `c``d` int", key_columns="`a,b`,`c``d`"))
    assert odd is not None
    assert odd.key_columns == ("a,b", "c`d")
    assert schema_of(ColumnOptions()) is None


@pytest.mark.parametrize(
    ("option", "content", "complaint"),
    [
        ("--ddl", None, "minilog: cannot read columns at '' (character 2): a type is missing\n"),
        ("--schema", b"\xff", "no text in UTF-8"),
        ("--schema", b"{}", 'has no list "fields"'),
        ("--like", b"no parquet", "is no Parquet file"),
    ],
)
def test_columns_that_cannot_be_read_are_one_line(
    option: str, content: bytes | None, complaint: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "a"
    if content is not None:
        value = str(tmp_path / "file")
        pathlib.Path(value).write_bytes(content)
    assert app.run(["topic", "create", "t", option, value]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["topic", "create", "t", "--schema", "/nowhere.json"]) == 1
    assert capsys.readouterr().err == "minilog: No such file or directory: /nowhere.json\n"


def test_names_are_read_as_ddl_writes_them() -> None:
    assert typed("--add", "`my gate` string COMMENT 'x'")[0] == "my gate"
    path, said = typed("--add", "place.z decimal(10, 2) NOT NULL")
    assert (path, str(said.type), said.nullable) == ("place.z", "decimal(10,2)", False)
    assert renamed("`a=b` = c") == ("a=b", "c")
    assert [moved(text) for text in ("a first", "a  last ", "`a b` after c")] == [
        ("a", "first"),
        ("a", "last"),
        ("a b", "c"),
    ]


def test_steps_go_in_an_order_in_which_names_become_free() -> None:
    change = Evolution(
        renamed=[renamed("delay=late")],
        loosened=["carrier"],
        widened=[typed("--widen", "late long")],
        added=[typed("--add", "delay string")],
        wanted=schema_from_ddl("gate string, late int"),
        moved=[moved("delay first")],
    )
    new = as_next_version(FLIGHTS, change(FLIGHTS))
    assert str(new) == "delay string, carrier string, late long, at timestamp, gate string"
    assert (new.version, new.column("late").id, new.key_columns) == (2, 2, ("carrier",))
    assert str(Evolution(dropped=["delay"], added=[typed("--add", "delay string")])(FLIGHTS)).startswith("carrier")
    assert "late" not in str(Evolution(renamed=[renamed("delay=late")], dropped=["late"])(FLIGHTS))


def test_a_rule_that_is_broken_is_told() -> None:
    with pytest.raises(InvalidSchema, match="cannot become string from int"):
        Evolution(widened=[typed("--widen", "delay string")])(FLIGHTS)
    with pytest.raises(InvalidSchema, match="'gate' has to be nullable"):
        Evolution(added=[typed("--add", "gate int NOT NULL")])(FLIGHTS)
    with pytest.raises(InvalidSchema, match="there is no column 'gate'"):
        Evolution(dropped=["gate"])(FLIGHTS)


def test_a_schema_is_a_table_of_columns_and_their_parts(capsys: pytest.CaptureFixture[str]) -> None:
    schema = schema_from_ddl("a string NOT NULL, at timestamp, s struct<x: int>", ["at", "a"], "at")
    print_table(*schema_table(schema, "t, version 1"))
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if len(line) == 5] == [
        ["1", "a", "string", "no", "key 2"],
        ["2", "at", "timestamp", "yes", "key 1, time stamp"],
        ["3", "s", "struct<x: int>", "yes", ""],
        ["4", "s.x", "int", "yes", ""],
    ]


def test_comments_have_a_column_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(*schema_table(schema_from_ddl(r"a string COMMENT 'two\nlines', b int"), "t, version 1"))
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in capsys.readouterr().out.splitlines()]
    assert [line[-1] for line in lines if len(line) == 6] == ["two lines", ""]
