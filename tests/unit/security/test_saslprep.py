"""RFC 4013: what was typed in two ways is one name, and what cannot be typed again is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.security.saslprep import UnpreparedText, saslprep


def prepared(text: str, *, stored: bool = False) -> str:
    return saslprep(text, what="the name", stored=stored)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I\u00adX", "IX"),  # RFC 4013 section 3: SOFT HYPHEN is mapped to nothing
        ("user", "user"),
        ("USER", "USER"),  # case is kept
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("e\u0301", "\u00e9"),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("pass word", "pass word"),
    ],
)
def test_texts_come_into_their_normal_form(text: str, expected: str) -> None:
    assert prepared(text) == expected
    assert prepared(text, stored=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\u00ad",
        "\u0007",
        "a\0b",
        "line\nbreak",
        "\x7f",
        "\u0627\u0031",  # RFC 4013 section 3: the bidirectional check
        "\u0627a\u0628",
        "\ue000",
        chr(0xD800),
        "\ufffd",
        "\u2028",
    ],
)
def test_names_that_cannot_be_typed_again_are_refused(text: str) -> None:
    with pytest.raises(UnpreparedText, match="the name"):
        prepared(text)


def test_an_emoji_may_be_asked_for_and_not_be_stored() -> None:
    assert prepared("a\U0001f512") == "a\U0001f512"
    with pytest.raises(UnpreparedText, match=r"newer than Unicode 3\.2"):
        prepared("a\U0001f512", stored=True)


def test_a_refusal_does_not_show_the_text() -> None:
    with pytest.raises(UnpreparedText) as refused:
        prepared("swordfish\0")
    assert "swordfish" not in str(refused.value)


@settings(deadline=None)
@given(st.text(alphabet=st.characters()))
def test_a_form_that_was_stored_is_found_by_itself(text: str) -> None:
    try:
        stored = prepared(text, stored=True)
    except UnpreparedText:
        return
    assert prepared(stored) == stored == prepared(text)


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_printable_ascii_stays_as_it_is(text: str) -> None:
    assert prepared(text, stored=True) == text
