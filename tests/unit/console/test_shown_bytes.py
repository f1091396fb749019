"""Bytes of records as people read them: any bytes, with a bound, and without control characters."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from minilog_tools.console.shown_bytes import HEX_BYTES, JSON_BYTES, SHOWN_BYTES, Form, _beginning, shown_bytes
from tests.rules import proves

pytestmark = proves("CON.3")


def test_null_is_told_from_nothing() -> None:
    assert shown_bytes(None, Form.TEXT).text is None
    assert shown_bytes(b"", Form.TEXT).text == ""


def test_controls_and_marks_of_direction_are_shown_as_escapes() -> None:
    shown = shown_bytes("\x1b[31mred\u202etxt\x00\x07\u200f\ufeff".encode(), Form.TEXT)
    assert shown.text == "\\x1b[31mred\\u202etxt\\x00\\x07\\u200f\\ufeff"


def test_lines_and_letters_of_all_languages_stay() -> None:
    assert shown_bytes("eins\n\tzwei ü 日本 🙂".encode(), Form.TEXT).text == "eins\n\tzwei ü 日本 🙂"


def test_bytes_that_are_no_utf_8_are_shown_one_by_one() -> None:
    assert shown_bytes(b"a\xff\xfeb", Form.TEXT).text == "a\\xff\\xfeb"


def test_of_a_large_value_the_beginning_is_shown_with_its_size() -> None:
    content = ("ü" * 40_000_000).encode()
    shown = shown_bytes(content, Form.TEXT)
    assert shown.is_cut
    assert shown.size_bytes == len(content)
    assert shown.text == "ü" * (SHOWN_BYTES // 2)


def test_a_character_is_not_cut_in_its_middle() -> None:
    for before in range(4):
        shown = shown_bytes(("a" * before + "🙂" * 2000).encode(), Form.TEXT)
        assert shown.text is not None
        assert "\\x" not in shown.text


def test_json_is_laid_out() -> None:
    assert shown_bytes(b'{"b":1,"a":[2]}', Form.JSON).text == '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'


def test_a_deep_document_is_laid_out_up_to_the_end_of_what_is_shown() -> None:
    """The whole layout has as many spaces as the square of the depth: 64 KB took 1.6 s of CPU time."""
    made = 0

    def pieces() -> Iterator[str]:
        nonlocal made
        for depth in range(100_000):
            made += 1
            yield "\n" + " " * depth

    text, is_cut = _beginning(pieces())
    assert (len(text), is_cut) == (SHOWN_BYTES, True)
    assert made < 100
    assert shown_bytes(b'{"a":' * 900 + b"1" + b"}" * 900, Form.JSON).is_cut


def test_a_value_that_is_no_json_is_text_and_says_so() -> None:
    for content in (b"nothing", b"[" * 100_00, b"1" * 10_000, b'"\xff"', b" " * (JSON_BYTES + 1)):
        shown = shown_bytes(content, Form.JSON)
        assert "text" in shown.note
        assert shown.text is not None


def test_hex_has_addresses_and_letters() -> None:
    shown = shown_bytes(b"\x00minilog<b>\xff", Form.HEX)
    assert shown.text is not None
    assert shown.text.startswith("0000  00 6d 69 6e")
    assert shown.text.endswith(".minilog<b>.")
    assert shown_bytes(bytes(HEX_BYTES + 1), Form.HEX).is_cut


@given(st.binary(max_size=300), st.sampled_from(Form))
def test_whatever_comes_is_printable(content: bytes, form: Form) -> None:
    shown = shown_bytes(content, form)
    assert shown.text is not None
    assert all(character.isprintable() or character in "\n\t" for character in shown.text)


@given(
    st.recursive(
        st.none() | st.text() | st.floats(), lambda children: st.lists(children) | st.dictionaries(st.text(), children)
    )
)
def test_json_is_shown_whatever_it_says(document: object) -> None:
    shown = shown_bytes(json.dumps(document).encode(), Form.JSON)
    assert shown.note == ""
    assert shown.text is not None
