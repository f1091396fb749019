"""Bearer tokens. A JWT (RFC 7519) names the user of a client, and an issuer that the cluster trusts has signed it.

- The keys are the issuer's JWKS (RFC 7517), given as text. Without a key every token is refused. The check never uses a
  token's own words on the place of its key (`jku`, `x5u`, `jwk`). The token's `kid` chooses among the issuer's keys.
- Only signatures by a private key count: RS256, PS256, ES256, EdDSA. `none` and the HMACs do not exist here, so that no
  public key serves as a shared secret. The key decides which algorithms it may sign with, not the token.
- Issuer and audience have to match. `exp` is required. `nbf` and `iat` are checked where a token has them.
- A refusal has a sentence for the log. The client gets REFUSAL, whatever the reason.

PyJWT checks signatures. The times are checked here, since PyJWT takes no clock. The guide is RFC 8725.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from minilog_broker.security.principal import ANONYMOUS, EVERYBODY, USER, Principal

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
MAX_TOKEN_BYTES = 16 << 10  # about the limit of gRPC's headers; tokens of issuers are far smaller
MAX_KEYS = 32  # an issuer that changes its keys each week has two or three
MAX_JWKS_BYTES = 256 << 10
MAX_NAME_CHARACTERS = 255
MIN_RSA_BITS = 2_048  # RFC 7518 section 3.3
MAX_RSA_BITS = 8_192  # each bit makes a check slower
DEFAULT_SKEW_S = 30.0
MAX_SKEW_S = 300.0
REFUSAL: Final = "the token was refused: ask its issuer for a new one, or the operator of the brokers for the reason"

# Three base64url texts: nothing else reaches a parser.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SHOWN_CHARACTERS = 80
_LATEST_S = 1 << 40  # some 35,000 years: a later time is not valid


class BearerRefused(Exception):
    """The token proves nothing. `str` is a sentence for the log, safe for a terminal. The client gets REFUSAL."""


class UnknownKey(BearerRefused):
    """The token names a key that is not here: its issuer may have changed its keys. The token proves nothing."""


class InvalidBearerSettings(ValueError):
    """The settings or keys for the check of tokens cannot be used. The message has the remedy."""


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """The tokens that count. `principal_claim` is the claim with the name of the user."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ALGORITHMS
    principal_claim: str = "sub"
    skew_s: float = DEFAULT_SKEW_S

    def __post_init__(self) -> None:
        for name, value in (("issuer", self.issuer), ("audience", self.audience), ("claim", self.principal_claim)):
            if not value:
                raise InvalidBearerSettings(f"the {name} of tokens is not set: without it any token would be valid")
        unknown = [algorithm for algorithm in self.algorithms if algorithm not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise InvalidBearerSettings(f"algorithms of tokens are some of {', '.join(ALGORITHMS)}, not {unknown}")
        if not 0 <= self.skew_s <= MAX_SKEW_S:
            raise InvalidBearerSettings(f"clocks may differ by 0 to {MAX_SKEW_S:.0f} seconds, not {self.skew_s}")


@dataclass(frozen=True, slots=True)
class BearerIdentity:
    """The principal that a token names, and the end of its time (seconds since 1970, without the skew)."""

    principal: Principal
    expires_s: float


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of the issuer. `algorithms`: the allowed algorithms that it may sign with."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class BearerVerifier:
    """Checks tokens against one issuer's keys. Immutable: new keys make a new one.

    `jwks` is the text of a JWK set. Without keys (None, or an empty set) every token is refused. Raises
    InvalidBearerSettings where a key cannot be used. Such a key is not skipped, since the operator relies on it.
    """

    def __init__(self, settings: BearerSettings, jwks: str | None) -> None:
        self._settings = settings
        self._keys = () if jwks is None else _all_usable(_listed(jwks), settings.algorithms)
        self.passed_over: tuple[str, ...] = ()
        """The reasons why keys of the set are not used, one for each (`of_issuer`)."""

    @classmethod
    def of_issuer(cls, settings: BearerSettings, jwks: str) -> BearerVerifier:
        """The verifier of a set that the issuer publishes. It skips the set's keys for other uses (RFC 7517 section 5).

        Raises InvalidBearerSettings where `jwks` is not a JWK set, or is too large."""
        made = cls(settings, None)
        made._keys, made.passed_over = _usable(_listed(jwks), settings.algorithms)
        return made

    @property
    def key_names(self) -> tuple[str, ...]:
        """The kid of each key, for people: short, on one line."""
        return tuple("(no kid)" if key.kid is None else _shown(key.kid) for key in self._keys)

    def has_keys_of(self, other: BearerVerifier) -> bool:
        """Whether both have the same keys, in any order."""
        return len(self._keys) == len(other._keys) and all(key in other._keys for key in self._keys)

    def verify(self, token: str, now_s: float) -> BearerIdentity:
        """The identity that `token` proves at `now_s` (seconds since 1970). Raises BearerRefused."""
        if not self._keys:
            raise UnknownKey("the broker has no key of an issuer: set one, or do without tokens")
        if len(token) > MAX_TOKEN_BYTES:
            raise BearerRefused(f"the token has {len(token)} characters: the limit is {MAX_TOKEN_BYTES}")
        if _COMPACT.fullmatch(token) is None:
            raise BearerRefused("the token is not a signed JWT of three parts")
        claims = self._claims(token)
        expires_s = self._check_times(claims, now_s)
        return BearerIdentity(self._principal(claims), expires_s)

    def claimed(self, token: str) -> str:
        """The user that a token names, for a log, without any check; empty where the token cannot be read."""
        if len(token) > MAX_TOKEN_BYTES or _COMPACT.fullmatch(token) is None:
            return ""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return ""
        name = claims.get(self._settings.principal_claim)
        return name if isinstance(name, str) else ""

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key, algorithm = self._key_of(header)
            # This checks the signature, the issuer and the audience. `_check_times` and `_principal` check the rest.
            return jwt.decode(
                token,
                key=key.public,
                algorithms=[algorithm],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.PyJWTError as error:
            raise BearerRefused(f"the token is not valid: {_shown(error)}") from None
        except (ValueError, TypeError, RecursionError) as error:
            # The token has hostile JSON: deeply nested, with numbers of a thousand digits, or a list as a name.
            raise BearerRefused(f"the token cannot be read: {type(error).__name__}") from None

    def _key_of(self, header: Mapping[str, Any]) -> tuple[_Key, str]:
        """The key and the algorithm that the token's header names. Raises BearerRefused where the key may not sign with
        that algorithm."""
        if "crit" in header:
            raise BearerRefused("the token demands extensions (crit), and this broker knows none")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise BearerRefused(f"the token is signed with {_shown(algorithm)}, which is not allowed")
        named = [key for key in self._keys if key.kid == kid] if kid is not None else list(self._keys)
        if len(named) != 1:
            refused = UnknownKey if isinstance(kid, str) and not named else BearerRefused
            raise refused(f"the token's kid {_shown(kid)} does not name exactly one key of the issuer")
        if algorithm not in named[0].algorithms:
            raise BearerRefused(f"the key {_shown(kid)} does not sign with {_shown(algorithm)}")
        return named[0], str(algorithm)

    def _check_times(self, claims: Mapping[str, Any], now_s: float) -> float:
        expires_s = _time(claims, "exp")
        if now_s >= expires_s + self._settings.skew_s:
            raise BearerRefused(f"the token expired {now_s - expires_s:.0f} seconds ago")
        for name in ("nbf", "iat"):
            if name in claims and _time(claims, name) > now_s + self._settings.skew_s:
                raise BearerRefused(
                    f"the token is not valid yet: its {name} is {_time(claims, name) - now_s:.0f} s ahead"
                )
        return expires_s

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        claim = self._settings.principal_claim
        name = claims.get(claim)
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARACTERS:
            raise BearerRefused(f"the token's {_shown(claim)} is not a name of 1 to {MAX_NAME_CHARACTERS} characters")
        if not name.isprintable() or name != name.strip() or name in (EVERYBODY, ANONYMOUS.name):
            raise BearerRefused(f"the token's {_shown(claim)} is {_shown(name)}, which no user can have as a name")
        return Principal(USER, name)


def _listed(jwks: str) -> list[Mapping[str, Any]]:
    if len(jwks) > MAX_JWKS_BYTES:
        raise InvalidBearerSettings(f"the JWK set has {len(jwks)} characters: the limit is {MAX_JWKS_BYTES}")
    try:
        document = json.loads(jwks)
    except (ValueError, RecursionError):
        raise InvalidBearerSettings("the JWK set is not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(key, dict) for key in listed):
        raise InvalidBearerSettings('the text is not a JWK set: that is an object with a list of objects, "keys"')
    if len(listed) > MAX_KEYS:
        raise InvalidBearerSettings(f"the JWK set has {len(listed)} keys: the limit is {MAX_KEYS}")
    return listed


def _all_usable(listed: Sequence[Mapping[str, Any]], allowed: Sequence[str]) -> tuple[_Key, ...]:
    keys = tuple(_key(document, number, allowed) for number, document in enumerate(listed))
    kids = [key.kid for key in keys]
    if len(set(kids)) < len(kids):
        raise InvalidBearerSettings(
            "two keys of the JWK set have the same kid, or none: a token could not name one key"
        )
    return keys


def _usable(listed: Sequence[Mapping[str, Any]], allowed: Sequence[str]) -> tuple[tuple[_Key, ...], tuple[str, ...]]:
    """The keys that can be used, and the reasons why others cannot. A token never means a kid that several keys have
    (`_key_of`)."""
    keys, passed_over = [], []
    for number, document in enumerate(listed):
        try:
            keys.append(_key(document, number, allowed))
        except InvalidBearerSettings as error:
            passed_over.append(str(error))
    return tuple(keys), tuple(passed_over)


def _key(document: Mapping[str, Any], number: int, allowed: Sequence[str]) -> _Key:
    """One key of the set. A private or a shared key is refused: it has no business on a broker."""
    kid, kind = document.get("kid"), document.get("kty")
    where = f"key {number} of the JWK set"
    if kid is not None and not isinstance(kid, str):
        raise InvalidBearerSettings(f"{where} has a kid that is not a text")
    if kind == "oct" or "d" in document:
        raise InvalidBearerSettings(f"{where} is secret: give the issuer's public keys only")
    if document.get("use", "sig") != "sig":
        raise InvalidBearerSettings(f"{where} is not for signatures: leave it out")
    try:
        public = jwt.PyJWK(dict(document)).key
    except Exception as error:  # a document from outside may make the libraries raise anything
        raise InvalidBearerSettings(f"{where} cannot be used: {_shown(error)}") from None
    fitting = _algorithms_of(public, where)
    wanted = document.get("alg")
    algorithms = tuple(name for name in fitting if name in allowed and wanted in (None, name))
    if not algorithms:
        raise InvalidBearerSettings(f"{where} signs with none of the allowed algorithms {', '.join(allowed)}")
    return _Key(kid, algorithms, public)


def _algorithms_of(public: object, where: str) -> tuple[str, ...]:
    match public:
        case rsa.RSAPublicKey():
            if not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
                raise InvalidBearerSettings(
                    f"{where} has {public.key_size} bits: a key has {MIN_RSA_BITS} to {MAX_RSA_BITS}"
                )
            return "RS256", "PS256"
        case ec.EllipticCurvePublicKey() if isinstance(public.curve, ec.SECP256R1):
            return ("ES256",)
        case ed25519.Ed25519PublicKey():
            return ("EdDSA",)
        case _:
            raise InvalidBearerSettings(
                f"{where} is of a kind that no algorithm here uses: a key is RSA, P-256 or Ed25519"
            )


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:
        raise BearerRefused(f"the token's {name} is not a time")
    return float(value)


def _shown(value: object) -> str:
    """A value of a token, for a log: short, on one line, and safe for a terminal."""
    text = str(value)
    return (
        ascii(text[:_SHOWN_CHARACTERS]) if len(text) <= _SHOWN_CHARACTERS else ascii(text[:_SHOWN_CHARACTERS] + "...")
    )
