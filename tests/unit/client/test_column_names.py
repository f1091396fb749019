"""Names of columns in one text: what options, the command line and settings share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import InvalidArgument
from minilog.typed.schema.column_names import names_in_words, parse_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("carrier", ("carrier",)),
        ("carrier,delay", ("carrier", "delay")),
        (" carrier , the delay ", ("carrier", "the delay")),
        ("`a,b`,c", ("a,b", "c")),
        ("c, `a``b` ", ("c", "a`b")),
        ("` a `,`c`", (" a ", "c")),
        ("`a`,`,`,````", ("a", ",", "`")),
    ],
)
def test_names_stand_between_commas_and_in_backquotes(text: str, names: tuple[str, ...]) -> None:
    assert parse_names(text) == names


@pytest.mark.parametrize(
    "text", ["", " ", ",", "a,", ",a", "a,,b", "``", "`a", "a`", "a`b", "`a`b", "`a` `b`", "a`b,c`"]
)
def test_texts_that_are_no_names_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"names of columns are missing at .* in `backquotes`"):
        parse_names(text)


@given(st.lists(st.text(st.sampled_from("a, `é.\n"), min_size=1, max_size=5), min_size=1, max_size=4))
def test_names_in_words_are_read_as_the_same(names: list[str]) -> None:
    assert parse_names(names_in_words(names)) == tuple(names)


def test_a_name_without_a_sign_of_its_own_stays_as_it_is() -> None:
    assert names_in_words(("carrier", "the delay", "a,b", "a`b")) == "carrier,the delay,`a,b`,`a``b`"
