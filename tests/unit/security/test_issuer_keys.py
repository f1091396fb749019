"""The keys that an issuer publishes: when they are fetched, and which of them count meanwhile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.security.bearer import MAX_JWKS_BYTES, MAX_KEYS, BearerRefused, BearerSettings, UnknownKey
from minilog_broker.security.issuer_keys import FetchPauses, IssuerKeys

NOW_S = 1_900_000_000.0
ISSUER, AUDIENCE = "https://issuer.example", "minilog"
SETTINGS = BearerSettings(ISSUER, AUDIENCE)
REFRESH_MS, BACKOFF_MS, BACKOFF_MAX_MS = 3_600_000.0, 100.0, 10_000.0
PAUSES = FetchPauses(REFRESH_MS, BACKOFF_MS, BACKOFF_MAX_MS)
OLD, NEW = ec.derive_private_key(111, ec.SECP256R1()), ec.derive_private_key(222, ec.SECP256R1())
RSA_PUBLIC: Any = rsa.generate_private_key(public_exponent=65_537, key_size=2_048).public_key()


def jwk(key: ec.EllipticCurvePrivateKey, kid: str, **members: object) -> dict[str, Any]:
    return {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **members}


def jwks(*keys: Mapping[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


OLD_SET, NEW_SET = jwks(jwk(OLD, "old")), jwks(jwk(NEW, "new"))


def token(key: ec.EllipticCurvePrivateKey, kid: str) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 600}
    return jwt.encode(claims, key, "ES256", {"kid": kid})


def believed(keys: IssuerKeys) -> set[str]:
    found = set()
    for key, kid in ((OLD, "old"), (NEW, "new")):
        try:
            keys.verifier.verify(token(key, kid), NOW_S)
            found.add(kid)
        except BearerRefused:
            pass
    return found


def fetched(document: str = OLD_SET, now_ms: float = 0.0, keys: IssuerKeys | None = None) -> IssuerKeys:
    made = keys or IssuerKeys(SETTINGS, PAUSES)
    made.began()
    assert made.fetched(document, now_ms).error is None
    return made


def test_the_first_fetch_is_due_at_once_and_without_it_there_is_no_key() -> None:
    keys = IssuerKeys(SETTINGS, PAUSES)
    assert keys.due_ms < -1e9
    assert keys.fetched_ms is None
    with pytest.raises(UnknownKey, match="no key"):
        keys.verifier.verify(token(OLD, "old"), NOW_S)


def test_fetched_keys_count_and_are_fetched_again_when_they_are_old() -> None:
    keys = fetched(now_ms=500.0)
    assert believed(keys) == {"old"}
    assert (keys.due_ms, keys.fetched_ms) == (500.0 + REFRESH_MS, 500.0)


def test_while_a_fetch_is_under_way_none_is_due() -> None:
    keys = fetched()
    keys.began()
    assert keys.due_ms == math.inf
    assert keys.missed(50.0) == 50.0  # that one may bring the key
    assert keys.due_ms == math.inf
    with pytest.raises(AssertionError, match="one fetch at a time"):
        keys.began()


def test_a_key_that_is_not_published_any_more_is_not_believed() -> None:
    keys = fetched(jwks(jwk(OLD, "old"), jwk(NEW, "new")))
    assert believed(keys) == {"old", "new"}
    keys.began()
    ended = keys.fetched(NEW_SET, REFRESH_MS)
    assert believed(keys) == {"new"}
    assert (ended.have_changed, ended.is_news) == (True, True)


def test_an_answer_without_keys_lets_nobody_in() -> None:
    keys = fetched(jwks(), keys=fetched())
    assert believed(keys) == set()


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "<html>",
        "[]",
        "{}",
        '{"keys": 7}',
        '{"keys": ["x"]}',
        "[" * 100_000,
        '{"keys": [' + ",".join(["{}"] * (MAX_KEYS + 1)) + "]}",
        " " * (MAX_JWKS_BYTES + 1),
    ],
)
def test_an_answer_that_is_none_changes_nothing(garbage: str) -> None:
    keys = fetched()
    keys.began()
    ended = keys.fetched(garbage, REFRESH_MS)
    assert ended.error is not None
    assert ended.error.isprintable()
    assert believed(keys) == {"old"}
    assert (keys.due_ms, keys.fetched_ms) == (REFRESH_MS + BACKOFF_MS, 0.0)


def test_the_pause_after_a_failure_doubles_up_to_a_bound_and_is_short_again_after_an_answer() -> None:
    keys, now_ms, pauses = fetched(), REFRESH_MS, []
    for _ in range(60):
        keys.began()
        ended = keys.failed("it is down", now_ms)
        pauses.append(ended.next_in_ms)
        now_ms += ended.next_in_ms
        assert keys.due_ms == now_ms
    assert pauses[:8] == [100.0, 200.0, 400.0, 800.0, 1_600.0, 3_200.0, 6_400.0, 10_000.0]
    assert set(pauses[8:]) == {BACKOFF_MAX_MS}
    assert believed(keys) == {"old"}
    fetched(keys=keys, now_ms=now_ms)
    keys.began()
    assert keys.failed("it is down", now_ms + REFRESH_MS).next_in_ms == BACKOFF_MS


def test_a_failure_is_told_when_it_begins_when_it_changes_and_now_and_then() -> None:
    keys, now_ms, told = fetched(), REFRESH_MS, []
    for reason in ["down"] * 100 + ["garbage"] * 2:
        keys.began()
        ended = keys.failed(reason, now_ms)
        if ended.is_news:
            told.append((reason, now_ms))
        now_ms = keys.due_ms
    assert [reason for reason, _ in told] == ["down", "down", "garbage"]
    assert told[1][1] - told[0][1] >= 600_000
    keys.began()
    assert keys.fetched(OLD_SET, now_ms).is_news  # it answers again
    keys.began()
    assert not keys.fetched(OLD_SET, now_ms + REFRESH_MS).is_news


def test_an_unknown_key_brings_the_next_fetch_forward() -> None:
    keys = fetched()
    assert keys.missed(50.0) == BACKOFF_MS  # not at once behind the last one
    assert keys.due_ms == BACKOFF_MS
    assert keys.missed(5_000.0) == 5_000.0
    keys.began()
    assert keys.fetched(NEW_SET, 5_010.0).have_changed
    assert believed(keys) == {"new"}
    assert keys.missed(5_020.0) == 5_010.0 + BACKOFF_MS  # it was for something: the pause is the short one


def test_no_flood_of_unknown_keys_asks_more_often_than_the_pauses_allow() -> None:
    keys, fetches = fetched(), 0
    for now_ms in range(0, 1_800_000, 5):
        keys.missed(float(now_ms))
        if keys.due_ms <= now_ms:
            fetches += 1
            keys.began()
            keys.fetched(OLD_SET, float(now_ms))
    assert fetches == 7 + (1_800_000 - 12_700) // 10_000
    assert keys.due_ms <= 1_800_000 + BACKOFF_MAX_MS


def test_an_unknown_key_does_not_shorten_the_pause_after_a_failure() -> None:
    keys = fetched()
    keys.began()
    keys.failed("down", 0.0)
    keys.began()
    keys.failed("down", 100.0)
    assert keys.missed(110.0) == 300.0
    assert keys.due_ms == 300.0


def test_keys_for_other_uses_are_passed_over_and_told() -> None:
    encryption = jwk(NEW, "enc", use="enc")
    large = {**jwt.algorithms.RSAAlgorithm.to_jwk(RSA_PUBLIC, as_dict=True), "kid": "oaep", "alg": "RSA-OAEP"}
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}
    strange = {"kty": "PQC", "kid": "later"}
    keys = fetched(jwks(encryption, large, secret, strange, jwk(OLD, "old"), {}))
    assert believed(keys) == {"old"}
    assert keys.verifier.key_names == ("'old'",)
    assert len(keys.verifier.passed_over) == 5
    assert not any("c2VjcmV0" in each for each in keys.verifier.passed_over)


def test_of_two_keys_with_one_kid_none_is_meant() -> None:
    keys = fetched(jwks(jwk(OLD, "old"), jwk(NEW, "old"), jwk(NEW, "new")))
    assert believed(keys) == {"new"}


def test_only_a_kid_that_is_not_there_is_an_unknown_key() -> None:
    """Else each forged token would have the issuer asked."""
    keys = fetched(jwks(jwk(OLD, "old"), jwk(NEW, "new")))
    with pytest.raises(UnknownKey):
        keys.verifier.verify(token(OLD, "other"), NOW_S)
    for refused in (token(NEW, "old"), jwt.encode({}, OLD, "ES256"), "no token"):
        with pytest.raises(BearerRefused) as told:
            keys.verifier.verify(refused, NOW_S)
        assert not isinstance(told.value, UnknownKey)


def test_the_order_of_keys_is_no_change() -> None:
    keys = fetched(jwks(jwk(OLD, "old"), jwk(NEW, "new")))
    keys.began()
    assert not keys.fetched(jwks(jwk(NEW, "new"), jwk(OLD, "old")), 1.0).have_changed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3),
    max_leaves=10,
)
MEMBERS = st.dictionaries(st.sampled_from(["kty", "kid", "alg", "use", "crv", "x", "y", "n", "e", "key_ops"]), JSON)


@settings(deadline=None)
@given(st.lists(MEMBERS, max_size=3), st.dictionaries(st.sampled_from(["kid", "crv", "x", "y", "kty", "n"]), JSON))
def test_documents_of_any_kind_raise_nothing(listed: list[dict[str, Any]], changed: dict[str, Any]) -> None:
    keys = fetched()
    keys.began()
    keys.fetched(json.dumps({"keys": [*listed, {**jwk(NEW, "new"), **changed}]}), 1.0)
    assert keys.due_ms >= 1.0 + BACKOFF_MS
    assert all(each.isprintable() for each in (*keys.verifier.key_names, *keys.verifier.passed_over))
