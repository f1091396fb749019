"""The records that `minilog produce` writes, and the output of `minilog consume -f`."""

from __future__ import annotations

import pathlib

import pytest
import typer

from minilog.types import Record
from minilog_tools.cli.given_records import RecordOptions, parse_headers
from minilog_tools.cli.record_text import for_terminal, parse_format

RECORD = Record("t", 2, 7, 1000, b"k", b"\x1bvalue", [("a", b"1"), ("b", None)])


def test_headers_are_split_at_the_first_equals_sign_and_may_come_twice() -> None:
    assert parse_headers(["a=1", "a=x=y", "b="]) == (("a", b"1"), ("a", b"x=y"), ("b", b""))
    for wrong in ("a", "=1"):
        with pytest.raises(typer.BadParameter, match="expected key=value"):
            parse_headers([wrong])


def test_a_file_is_a_value_or_a_key_to_the_last_byte(tmp_path: pathlib.Path) -> None:
    (tmp_path / "f").write_bytes(b"\x00\n")
    assert RecordOptions(key_file=tmp_path / "f").fixed_key() == b"\x00\n"
    assert RecordOptions(value_files=[tmp_path / "f"]).records(b"k") == [(b"k", b"\x00\n")]
    with pytest.raises(typer.BadParameter, match="give either --key or --key-file"):
        RecordOptions(key="k", key_file=tmp_path / "f").fixed_key()


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t-%p@%o %T\n", b"t-2@7 1000\n"),
        (r"%k=%s;%K,%S", b"k=\x1bvalue;1,6"),
        (r"%h\t%%\x41\\", b"a=1,b=\t%A\\"),
        ("no field", b"no field"),
    ],
)
def test_a_format_has_fields_and_escapes(text: str, printed: bytes) -> None:
    assert parse_format(text, bytes)(RECORD) == printed


def test_a_null_is_nothing_and_its_length_is_minus_one() -> None:
    assert parse_format("%k|%s|%K|%S|%h", bytes)(Record("t", 0, 0, 0, None, None, [])) == b"||-1|-1|"


def test_a_terminal_is_sent_no_escapes_of_a_record() -> None:
    assert parse_format(r"%s\n", for_terminal)(RECORD) == b"\\x1bvalue\n"


@pytest.mark.parametrize("text", ["%x", "%", r"\q", r"\x4"])
def test_names_that_are_no_field_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is none of"):
        parse_format(text, bytes)
