"""Bearer tokens: what is accepted, and everything that has been tried against verifiers of JWTs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.security.bearer import (
    MAX_KEYS,
    MAX_TOKEN_BYTES,
    REFUSAL,
    BearerIdentity,
    BearerRefused,
    BearerSettings,
    BearerVerifier,
    InvalidBearerSettings,
)
from minilog_broker.security.principal import Principal

NOW_S = 1_900_000_000.0
ISSUER, AUDIENCE = "https://issuer.example", "minilog"
SETTINGS = BearerSettings(ISSUER, AUDIENCE)
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

RSA_KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
EC_KEY = ec.derive_private_key(12_345, ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
STRANGER = ec.derive_private_key(54_321, ec.SECP256R1())
KEYS: dict[str, Private] = {"rsa": RSA_KEY, "ec": EC_KEY, "ed": ED_KEY}


def jwk(key: Private, **members: object) -> dict[str, Any]:
    public: Any = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        document = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        document = jwt.algorithms.ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        document = jwt.algorithms.OKPAlgorithm.to_jwk(public, as_dict=True)
    return {name: value for name, value in {**document, **members}.items() if name != "key_ops"}


def jwks(*keys: Mapping[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


ALL_KEYS = jwks(*(jwk(key, kid=kid) for kid, key in KEYS.items()))
VERIFIER = BearerVerifier(SETTINGS, ALL_KEYS)
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW_S + 600, "iat": NOW_S - 5, "nbf": NOW_S - 5}


def token(
    key: Private = EC_KEY, algorithm: str = "ES256", kid: str | None = "ec", claims: object = None, **changed: object
) -> str:
    """Signed by `key`; a claim that is changed to None is left out."""
    merged = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    payload = json.dumps(merged if claims is None else claims).encode()
    headers = {} if kid is None else {"kid": kid}
    return jwt.api_jws.encode(payload, key, algorithm, headers)


def encoded(document: object) -> str:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def refusal(shown: str, verifier: BearerVerifier = VERIFIER, now_s: float = NOW_S) -> str:
    with pytest.raises(BearerRefused) as refused:
        verifier.verify(shown, now_s)
    told = str(refused.value)
    assert told.isprintable()
    assert len(told) < 300
    assert shown not in told
    return told


@pytest.mark.parametrize(("kid", "algorithm"), [("rsa", "RS256"), ("rsa", "PS256"), ("ec", "ES256"), ("ed", "EdDSA")])
def test_a_token_of_the_issuer_says_who_the_client_is(kid: str, algorithm: str) -> None:
    shown = token(KEYS[kid], algorithm, kid)
    assert VERIFIER.verify(shown, NOW_S) == BearerIdentity(Principal("User", "alice"), NOW_S + 600)


def test_another_claim_may_name_the_user() -> None:
    verifier = BearerVerifier(BearerSettings(ISSUER, AUDIENCE, principal_claim="preferred_username"), ALL_KEYS)
    assert verifier.verify(token(preferred_username="bob"), NOW_S).principal == Principal("User", "bob")
    assert "is not a name" in refusal(token(), verifier)


def test_an_audience_of_several_and_a_token_without_iat_and_nbf_are_fine() -> None:
    assert VERIFIER.verify(token(aud=["other", AUDIENCE], iat=None, nbf=None), NOW_S).principal.name == "alice"


@pytest.mark.parametrize("nothing", [None, jwks()])
def test_without_a_key_everybody_is_refused(nothing: str | None) -> None:
    closed = BearerVerifier(SETTINGS, nothing)
    assert "no key" in refusal(token(), closed)
    assert "no key" in refusal("no-token", closed)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"iss": [ISSUER]}, "is not valid|cannot be read"),
        ({"aud": "kafka"}, "udience"),
        ({"aud": None}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {AUDIENCE: 1}}, "is not valid|cannot be read"),
        ({"exp": None}, "exp"),
        ({"exp": NOW_S - 31}, "expired 31 seconds ago"),
        ({"exp": "2040"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": float("nan")}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"exp": 10**400}, "exp is not a time"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": [NOW_S + 600]}, "exp is not a time"),
        ({"nbf": NOW_S + 31}, "nbf is 31 s ahead"),
        ({"iat": NOW_S + 31}, "iat is 31 s ahead"),
        ({"iat": "now"}, "iat is not a time"),
        ({"sub": None}, "is not a name"),
        ({"sub": ""}, "is not a name"),
        ({"sub": 7}, "is not a name"),
        ({"sub": ["alice"]}, "is not a name"),
        ({"sub": "x" * 256}, "is not a name"),
        ({"sub": "*"}, "no user can have as a name"),
        ({"sub": "ANONYMOUS"}, "no user can have as a name"),
        ({"sub": " alice"}, "no user can have as a name"),
        ({"sub": "al\x1b[2Jice"}, "no user can have as a name"),
        ({"sub": "alice\n"}, "no user can have as a name"),
    ],
)
def test_claims_that_do_not_hold_are_refused(changed: dict[str, Any], told: str) -> None:
    found = refusal(token(**changed))
    assert any(each in found for each in told.split("|"))


def test_clocks_may_differ_by_the_skew() -> None:
    late, early = token(exp=NOW_S - 29.0), token(nbf=NOW_S + 29.0, iat=NOW_S + 29.0)
    assert VERIFIER.verify(late, NOW_S).expires_s == NOW_S - 29.0
    assert VERIFIER.verify(early, NOW_S).principal.name == "alice"
    strict = BearerVerifier(BearerSettings(ISSUER, AUDIENCE, skew_s=0), ALL_KEYS)
    assert "expired" in refusal(late, strict)
    assert "not valid yet" in refusal(early, strict)
    assert "expired" in refusal(token(exp=NOW_S), strict)


def test_a_signature_by_another_key_is_refused() -> None:
    assert "is not valid" in refusal(token(STRANGER))
    assert "does not name exactly one key" in refusal(token(STRANGER, kid="stranger"))


def test_a_token_without_kid_counts_where_there_is_one_key() -> None:
    one = BearerVerifier(SETTINGS, jwks(jwk(EC_KEY, kid="ec")))
    assert one.verify(token(kid=None), NOW_S).principal.name == "alice"
    assert "does not name exactly one key" in refusal(token(kid=None))
    assert "does not name exactly one key" in refusal(token(kid="other"), one)


def test_a_key_that_the_token_brings_is_not_looked_at() -> None:
    headers = {"kid": "ec", "jwk": jwk(STRANGER), "jku": "https://evil.example", "x5u": "https://evil.example"}
    forged = jwt.api_jws.encode(json.dumps(CLAIMS).encode(), STRANGER, "ES256", headers)
    assert "is not valid" in refusal(forged)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "nOnE", None, 0, ["ES256"], {"a": 1}])
@pytest.mark.parametrize("signature", ["AA", "", encoded(bytes(64))])
def test_a_token_that_is_not_signed_is_refused(algorithm: object, signature: str) -> None:
    forged = f"{encoded({'alg': algorithm, 'kid': 'ec'})}.{encoded(CLAIMS)}.{signature}"
    refusal(forged)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_public_key_is_never_a_shared_secret(algorithm: str, kid: str) -> None:
    public = KEYS[kid].public_key()
    raw = serialization.PublicFormat.SubjectPublicKeyInfo
    for secret in (
        public.public_bytes(serialization.Encoding.PEM, raw),
        public.public_bytes(serialization.Encoding.DER, raw),
    ):
        signed = f"{encoded({'alg': algorithm, 'kid': kid})}.{encoded(CLAIMS)}"
        signature = hmac.digest(secret, signed.encode(), f"sha{algorithm[2:]}")
        assert "not allowed" in refusal(f"{signed}.{encoded(signature)}")


def test_a_key_signs_only_with_the_algorithms_of_its_kind() -> None:
    for kid, algorithm in (("rsa", "ES256"), ("ec", "RS256"), ("ed", "ES256"), ("ec", "EdDSA")):
        forged = f"{encoded({'alg': algorithm, 'kid': kid})}.{encoded(CLAIMS)}.{encoded(bytes(64))}"
        assert "does not sign with" in refusal(forged)
    bound = BearerVerifier(SETTINGS, jwks(jwk(RSA_KEY, kid="rsa", alg="PS256")))
    assert bound.verify(token(RSA_KEY, "PS256", "rsa"), NOW_S).principal.name == "alice"
    assert "does not sign with" in refusal(token(RSA_KEY, "RS256", "rsa"), bound)


def test_algorithms_that_are_not_allowed_are_refused() -> None:
    narrow = BearerVerifier(BearerSettings(ISSUER, AUDIENCE, algorithms=("ES256",)), jwks(jwk(EC_KEY, kid="ec")))
    assert "not allowed" in refusal(token(RSA_KEY, "RS256", "ec"), narrow)
    assert "not allowed" in refusal(token(RSA_KEY, "RS512", "rsa"))


def test_a_signature_of_zeros_is_none() -> None:
    """CVE-2022-21449: a verifier took r = s = 0 for valid."""
    signed = token().rpartition(".")[0]
    assert "is not valid" in refusal(f"{signed}.{encoded(bytes(64))}")


def test_critical_extensions_and_detached_payloads_are_refused() -> None:
    headers: list[dict[str, object]] = [{"crit": ["b64"], "b64": False}, {"crit": ["exp"]}, {"crit": []}]
    for header in headers:
        refusal(f"{encoded({'alg': 'ES256', 'kid': 'ec', **header})}.{encoded(CLAIMS)}.{encoded(bytes(64))}")


def test_an_extension_is_refused_however_well_it_is_signed() -> None:
    header = {"alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": True}
    signed = f"{encoded(header)}.{encoded(CLAIMS)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(signed.encode(), EC_KEY)
    assert "demands extensions" in refusal(f"{signed}.{encoded(signature)}")


def test_a_token_inside_a_token_is_no_token() -> None:
    inner = token()
    outer = jwt.api_jws.encode(inner.encode(), EC_KEY, "ES256", {"kid": "ec", "cty": "JWT"})
    assert "is not valid" in refusal(outer)


@pytest.mark.parametrize(
    "part", [b"[" * 9_000, b'{"a":' * 1_800, b'{"exp":' + b"9" * 9_000 + b"}", b"\xff", b"null", b"1e999", b""]
)
def test_json_that_is_none_is_refused_wherever_it_stands(part: bytes) -> None:
    refusal(f"{encoded(part)}.{encoded(CLAIMS)}.AA")
    refusal(jwt.api_jws.encode(part, EC_KEY, "ES256", {"kid": "ec"}))


@pytest.mark.parametrize("claims", [[], "text", 7, None, {}])
def test_claims_that_are_no_object_are_refused(claims: object) -> None:
    payload = json.dumps(claims).encode()
    refusal(jwt.api_jws.encode(payload, EC_KEY, "ES256", {"kid": "ec"}))


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", "a..c", "a b.c.d", "a.b.c\n", "\u00e9.b.c", "a.b.c=", "\0.b.c"],
)
def test_a_token_that_is_no_compact_jws_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(BearerRefused, match="not a signed JWT of three parts"):
        VERIFIER.verify(text, NOW_S)


def test_a_token_that_is_too_large_is_not_read() -> None:
    assert "the limit is 16384" in refusal(token(claim="x" * MAX_TOKEN_BYTES))


def test_each_character_of_a_token_counts() -> None:
    whole = token()
    for place in range(0, len(whole), 7):
        if whole[place] != ".":
            refusal(whole[:place] + ("A" if whole[place] != "A" else "Q") + whole[place + 1 :])


HEADERS: st.SearchStrategy[dict[str, object]] = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]),
    st.sampled_from(["ES256", "RS256", "EdDSA", "none", "HS256", "ec", "rsa", None, True, 1.5, [], {}, ["b64"]]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda each: st.lists(each, max_size=3),
)
PAYLOADS = st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "jti"]), VALUES)


@settings(deadline=None)
@given(HEADERS, PAYLOADS, st.binary(max_size=80))
def test_nothing_forged_is_believed_and_nothing_else_is_raised(
    header: dict[str, object], payload: dict[str, object], signature: bytes
) -> None:
    forged = f"{encoded(header)}.{encoded(payload)}.{encoded(signature)}"
    with pytest.raises(BearerRefused):
        VERIFIER.verify(forged, NOW_S)
    assert isinstance(VERIFIER.claimed(forged), str)


@settings(deadline=None)
@given(PAYLOADS)
def test_claims_of_any_kind_raise_nothing_else(payload: dict[str, object]) -> None:
    merged = {**CLAIMS, **payload}
    try:
        found = VERIFIER.verify(token(claims=merged), NOW_S)
    except BearerRefused:
        return
    assert (merged["iss"], found.principal.name) == (ISSUER, merged["sub"])


@settings(deadline=None)
@given(
    st.text(max_size=60)
    | st.from_regex(r"[A-Za-z0-9_-]{1,30}\.[A-Za-z0-9_-]{1,30}\.[A-Za-z0-9_-]{1,30}", fullmatch=True)
)
def test_no_text_is_believed(text: str) -> None:
    with pytest.raises(BearerRefused):
        VERIFIER.verify(text, NOW_S)
    assert isinstance(VERIFIER.claimed(text), str)


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (token(exp=NOW_S - 1_000), "alice"),
        (token(kid="unknown"), "alice"),
        (token(sub=["alice"]), ""),
        (token(sub=None), ""),
        ("no-token", ""),
        ("x" * 1_000_000, ""),
    ],
    ids=["expired", "unknown key", "no name", "none", "no token", "too long"],
)
def test_the_audit_log_can_name_whom_a_token_that_is_refused_names(shown: str, name: str) -> None:
    assert VERIFIER.claimed(shown) == name


def test_the_client_is_told_one_thing() -> None:
    assert REFUSAL.isprintable()
    assert "sub" not in REFUSAL.split()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a list of objects"),
        ("{}", "a list of objects"),
        ('{"keys": {}}', "a list of objects"),
        ('{"keys": ["x"]}', "a list of objects"),
        ('{"keys": [' + ",".join(["{}"] * (MAX_KEYS + 1)) + "]}", f"the limit is {MAX_KEYS}"),
        (" " * (300 << 10), "characters"),
        (jwks({}), "cannot be used"),
        (jwks({"kty": "RSA", "n": "AA", "e": "AA"}), "key 0 of the JWK set"),
        (jwks({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}), "cannot be used"),
        (jwks({"kty": "oct", "k": encoded(b"secret")}), "is secret"),
        (jwks(jwk(EC_KEY, kid=7)), "not a text"),
        (jwks(jwk(EC_KEY, d="AA")), "is secret"),
        (jwks(jwk(EC_KEY, use="enc")), "not for signatures"),
        (jwks(jwk(EC_KEY, alg="ES384")), "key 0 of the JWK set"),
        (jwks(jwk(EC_KEY, alg="HS256")), "cannot be used"),
        (jwks(jwk(ec.derive_private_key(5, ec.SECP384R1()))), "of a kind"),
        (jwks(jwk(rsa.generate_private_key(public_exponent=65_537, key_size=1_024))), "1024 bits"),
        (jwks(jwk(EC_KEY), jwk(ED_KEY)), "the same kid, or none"),
        (jwks(jwk(EC_KEY, kid="a"), jwk(ED_KEY, kid="a")), "the same kid, or none"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_at_the_start(text: str, told: str) -> None:
    with pytest.raises(InvalidBearerSettings, match=told):
        BearerVerifier(SETTINGS, text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": ""},
        {"audience": ""},
        {"principal_claim": ""},
        {"algorithms": ()},
        {"algorithms": ("ES256", "none")},
        {"algorithms": ("HS256",)},
        {"skew_s": -1},
        {"skew_s": 301},
        {"skew_s": float("nan")},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidBearerSettings):
        BearerSettings(**{"issuer": ISSUER, "audience": AUDIENCE, **wrong})


def test_the_tests_own_signature_is_that_of_the_standard() -> None:
    """The attack with a shared secret is made as attackers make it: PyJWT itself believes it of such a secret."""
    signed = f"{encoded({'alg': 'HS256'})}.{encoded(CLAIMS)}"
    secret = hashlib.sha256(b"secret").digest()
    forged = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"
    assert jwt.api_jws.decode(forged, secret, ["HS256"])
