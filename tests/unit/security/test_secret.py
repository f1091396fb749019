"""A secret is not seen by accident, wherever an object that holds one is shown."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import pprint
import traceback
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.security.secret import HIDDEN, Secret

TEXT = "correct horse battery staple"


@dataclasses.dataclass(frozen=True)
class Settings:
    user: str
    password: Secret


SHOWN: list[Callable[[Secret], str]] = [
    repr,
    str,
    format,
    pprint.pformat,
    lambda secret: f"{secret}",
    lambda secret: f"{secret!r} {secret!s} {secret!a} {secret:>40}",
    lambda secret: f"{secret=}",
    lambda secret: "{} {:10}".format(secret, secret),  # noqa: UP032 -- the method itself is tried
    lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 -- the operator itself is tried
    lambda secret: repr([secret, {secret: secret}, (secret,)]),
    lambda secret: repr(Settings("alice", secret)),
    lambda secret: repr(dataclasses.asdict(Settings("alice", secret))),
    lambda secret: json.dumps({"password": secret}, default=str),
]


@pytest.mark.parametrize("show", SHOWN)
def test_a_secret_shows_itself_as_stars(show: Callable[[Secret], str]) -> None:
    shown = show(Secret(TEXT))
    assert HIDDEN in shown
    assert TEXT not in shown


def test_a_secret_is_revealed_on_demand() -> None:
    assert Secret(TEXT).reveal() == TEXT


WRITTEN: list[Callable[[Secret], object]] = [
    json.dumps,
    lambda secret: json.dumps(Settings("alice", secret), default=dataclasses.asdict),
    msgspec.json.encode,
    pickle.dumps,
    lambda secret: pickle.dumps(Settings("alice", secret)),
    lambda secret: "".join([secret]),  # type: ignore[list-item]
    lambda secret: "password=" + secret,  # type: ignore[operator]
    len,  # type: ignore[list-item]
    bytes,  # type: ignore[list-item]
]


@pytest.mark.parametrize("write", WRITTEN)
def test_a_secret_is_no_text_and_is_not_serialized(write: Callable[[Secret], object]) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        write(Secret(TEXT))
    assert TEXT not in str(refused.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_protocol_of_pickle_takes_it(protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(TEXT), protocol)


def test_a_traceback_with_its_variables_does_not_tell_it() -> None:
    password = Secret(TEXT)
    try:
        raise ValueError(f"{password} was refused")
    except ValueError as error:
        told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "password = ***" in told
    assert TEXT not in told


def test_a_secret_has_no_dictionary() -> None:
    with pytest.raises(TypeError):
        vars(Secret(TEXT))


@settings(deadline=None)
@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters()))
def test_two_are_equal_where_their_texts_are(one: str, other: str) -> None:
    assert (Secret(one) == Secret(other)) == (one == other)
    assert Secret(one) == Secret(one)
    assert hash(Secret(one)) == hash(Secret(one))


def test_a_secret_equals_no_plain_text() -> None:
    assert Secret(TEXT) != TEXT
    assert Secret(TEXT) != TEXT.encode()


def test_surrogates_of_the_environment_are_compared_like_others() -> None:
    assert Secret("\udcff") == Secret("\udcff")
    assert Secret("\udcff") != Secret("\udcfe")


def test_a_copy_is_the_secret_itself_and_cannot_be_changed() -> None:
    secret = Secret(TEXT)
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret
    with pytest.raises(AttributeError, match="does not change"):
        secret._text = "other"
    with pytest.raises(AttributeError, match="does not change"):
        del secret._text
    assert secret.reveal() == TEXT


@pytest.mark.parametrize("wrong", [b"bytes", None, 5, Secret("x")])
def test_a_secret_is_made_of_text_only(wrong: object) -> None:
    with pytest.raises(TypeError, match="a secret is text"):
        Secret(wrong)  # type: ignore[arg-type]
