"""Bearer tokens: a JWT (RFC 7519), signed by an issuer that the cluster trusts, says who a client is.

- The keys are the issuer's JWKS (RFC 7517), given as text. Without a key nobody is let in. What a token says of where
  its key is (`jku`, `x5u`, `jwk`) is never looked at; its `kid` picks one of the keys that are there.
- Only signatures by a private key count: RS256, PS256, ES256, EdDSA. `none` and the HMACs do not exist here, so that a
  public key is never taken for a shared secret. Which of them a key may sign with is decided by the key, not the token.
- Issuer and audience are compared; `exp` is demanded; `nbf` and `iat` are looked at where they are.
- A refusal has a sentence for the log. The client is told REFUSAL, whatever the reason.

PyJWT checks signatures; times are compared here, since its clock cannot be given. The guide is RFC 8725.
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
MAX_TOKEN_BYTES = 16 << 10  # gRPC's headers end at about this, and no issuer's tokens come near
MAX_KEYS = 32  # an issuer that changes its keys each week has two or three
MAX_JWKS_BYTES = 256 << 10
MAX_NAME_CHARACTERS = 255
MIN_RSA_BITS = 2_048  # RFC 7518 section 3.3
MAX_RSA_BITS = 8_192  # a check is slower with each bit
DEFAULT_SKEW_S = 30.0
MAX_SKEW_S = 300.0
REFUSAL: Final = "the token was refused: ask its issuer for a new one, or the operator of the brokers for the reason"

# Three base64url texts; so nothing else reaches a parser.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_SHOWN_CHARACTERS = 80
_LATEST_S = 1 << 40  # some 35,000 years: a later time is no time


class BearerRefused(Exception):
    """The token proves nothing. `str` is a sentence for the log, which steers no terminal; the client gets REFUSAL."""


class UnknownKey(BearerRefused):
    """The token names a key that is not here: its issuer may have changed its keys. Nothing of it is proven."""


class InvalidBearerSettings(ValueError):
    """What tokens are to be checked against cannot be used. The message says what to do."""


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """Which tokens count. `principal_claim` is the claim that names the user."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ALGORITHMS
    principal_claim: str = "sub"
    skew_s: float = DEFAULT_SKEW_S

    def __post_init__(self) -> None:
        for name, value in (("issuer", self.issuer), ("audience", self.audience), ("claim", self.principal_claim)):
            if not value:
                raise InvalidBearerSettings(f"the {name} of tokens is not set: without it any token would do")
        unknown = [each for each in self.algorithms if each not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise InvalidBearerSettings(f"algorithms of tokens are some of {', '.join(ALGORITHMS)}, not {unknown}")
        if not 0 <= self.skew_s <= MAX_SKEW_S:
            raise InvalidBearerSettings(f"clocks may differ by 0 to {MAX_SKEW_S:.0f} seconds, not {self.skew_s}")


@dataclass(frozen=True, slots=True)
class BearerIdentity:
    """Who the token says that the client is, and until when (seconds since 1970, without the skew)."""

    principal: Principal
    expires_s: float


@dataclass(frozen=True, slots=True)
class _Key:
    """One of the issuer's. `algorithms`: what it may have signed with, of those that are allowed."""

    kid: str | None
    algorithms: tuple[str, ...]
    public: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class BearerVerifier:
    """Checks tokens against one issuer's keys. Immutable: new keys make a new one.

    `jwks` is the text of a JWK set; without one (None, or one without keys) every token is refused. Raises
    InvalidBearerSettings where a key cannot be used: it is not passed over, since its owner believes in it.
    """

    def __init__(self, settings: BearerSettings, jwks: str | None) -> None:
        self._settings = settings
        self._keys = () if jwks is None else _all_usable(_listed(jwks), settings.algorithms)
        self.passed_over: tuple[str, ...] = ()
        """Why keys of the set are not used: see `of_issuer`."""

    @classmethod
    def of_issuer(cls, settings: BearerSettings, jwks: str) -> BearerVerifier:
        """Of what the issuer itself publishes, which has keys for other uses, too: those are passed over (RFC 7517
        section 5). Raises InvalidBearerSettings where it is no JWK set, or too large a one."""
        made = cls(settings, None)
        made._keys, made.passed_over = _usable(_listed(jwks), settings.algorithms)
        return made

    @property
    def key_names(self) -> tuple[str, ...]:
        """The kid of each key, for people: short, on one line."""
        return tuple("(no kid)" if each.kid is None else _shown(each.kid) for each in self._keys)

    def has_keys_of(self, other: BearerVerifier) -> bool:
        """Whether both believe the same keys, in any order."""
        return len(self._keys) == len(other._keys) and all(each in other._keys for each in self._keys)

    def verify(self, token: str, now_s: float) -> BearerIdentity:
        """Who shows `token` at `now_s` (seconds since 1970). Raises BearerRefused."""
        if not self._keys:
            raise UnknownKey("there is no key of an issuer here: set one, or do without tokens")
        if len(token) > MAX_TOKEN_BYTES:
            raise BearerRefused(f"the token has {len(token)} characters, and at most {MAX_TOKEN_BYTES} are read")
        if _COMPACT.fullmatch(token) is None:
            raise BearerRefused("the token is no signed JWT of three parts")
        claims = self._claims(token)
        expires_s = self._check_times(claims, now_s)
        return BearerIdentity(self._principal(claims), expires_s)

    def claimed(self, token: str) -> str:
        """Whom a token names, checked by nothing, for a log; empty where it cannot be read."""
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
            # What is checked of times and names is below: this checks the signature, issuer and audience.
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
            raise BearerRefused(f"the token does not hold: {_shown(error)}") from None
        except (ValueError, TypeError, RecursionError) as error:
            # Its JSON is none: nested without end, numbers of a thousand digits, a name that is a list.
            raise BearerRefused(f"the token cannot be read: {type(error).__name__}") from None

    def _key_of(self, header: Mapping[str, Any]) -> tuple[_Key, str]:
        """The key that the token was signed with, as it says, and the algorithm, if that key may sign so."""
        if "crit" in header:
            raise BearerRefused("the token demands extensions (crit), and none is known here")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise BearerRefused(f"the token is signed with {_shown(algorithm)}, which is not allowed")
        named = [each for each in self._keys if each.kid == kid] if kid is not None else list(self._keys)
        if len(named) != 1:
            refused = UnknownKey if isinstance(kid, str) and not named else BearerRefused
            raise refused(f"no single key of the issuer is meant by the token's kid {_shown(kid)}")
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
            raise BearerRefused(f"the token's {_shown(claim)} is no name of 1 to {MAX_NAME_CHARACTERS} characters")
        if not name.isprintable() or name != name.strip() or name in (EVERYBODY, ANONYMOUS.name):
            raise BearerRefused(f"the token's {_shown(claim)} is {_shown(name)}, which nobody can be called")
        return Principal(USER, name)


def _listed(jwks: str) -> list[Mapping[str, Any]]:
    if len(jwks) > MAX_JWKS_BYTES:
        raise InvalidBearerSettings(f"the JWK set has {len(jwks)} characters: at most {MAX_JWKS_BYTES} are read")
    try:
        document = json.loads(jwks)
    except (ValueError, RecursionError):
        raise InvalidBearerSettings("the JWK set is no JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidBearerSettings('the JWK set is none: it is an object with a list of objects, "keys"')
    if len(listed) > MAX_KEYS:
        raise InvalidBearerSettings(f"the JWK set has {len(listed)} keys: at most {MAX_KEYS} are kept")
    return listed


def _all_usable(listed: Sequence[Mapping[str, Any]], allowed: Sequence[str]) -> tuple[_Key, ...]:
    keys = tuple(_key(each, number, allowed) for number, each in enumerate(listed))
    kids = [each.kid for each in keys]
    if len(set(kids)) < len(kids):
        raise InvalidBearerSettings(
            "two keys of the JWK set have one kid, or none: a token could not say which it means"
        )
    return keys


def _usable(listed: Sequence[Mapping[str, Any]], allowed: Sequence[str]) -> tuple[tuple[_Key, ...], tuple[str, ...]]:
    """Those that can be used, and why others cannot. Of several with one kid none is meant by a token (`_key_of`)."""
    keys, passed_over = [], []
    for number, each in enumerate(listed):
        try:
            keys.append(_key(each, number, allowed))
        except InvalidBearerSettings as error:
            passed_over.append(str(error))
    return tuple(keys), tuple(passed_over)


def _key(document: Mapping[str, Any], number: int, allowed: Sequence[str]) -> _Key:
    """One key of the set. A private or a shared one is refused: it has no business on a broker."""
    kid, kind = document.get("kid"), document.get("kty")
    where = f"key {number} of the JWK set"
    if kid is not None and not isinstance(kid, str):
        raise InvalidBearerSettings(f"{where} has a kid that is no text")
    if kind == "oct" or "d" in document:
        raise InvalidBearerSettings(f"{where} is a secret one: give the issuer's public keys only")
    if document.get("use", "sig") != "sig":
        raise InvalidBearerSettings(f"{where} is not for signatures: leave it out")
    try:
        public = jwt.PyJWK(dict(document)).key
    except Exception as error:  # a document from elsewhere: whatever the libraries for it stumble over
        raise InvalidBearerSettings(f"{where} cannot be used: {_shown(error)}") from None
    fitting = _algorithms_of(public, where)
    wanted = document.get("alg")
    algorithms = tuple(each for each in fitting if each in allowed and wanted in (None, each))
    if not algorithms:
        raise InvalidBearerSettings(f"{where} signs with nothing that is allowed: {', '.join(allowed)} are")
    return _Key(kid, algorithms, public)


def _algorithms_of(public: object, where: str) -> tuple[str, ...]:
    match public:
        case rsa.RSAPublicKey():
            if not MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS:
                raise InvalidBearerSettings(
                    f"{where} has {public.key_size} bits: {MIN_RSA_BITS} to {MAX_RSA_BITS} are taken"
                )
            return "RS256", "PS256"
        case ec.EllipticCurvePublicKey() if isinstance(public.curve, ec.SECP256R1):
            return ("ES256",)
        case ed25519.Ed25519PublicKey():
            return ("EdDSA",)
        case _:
            raise InvalidBearerSettings(
                f"{where} is of a kind that no allowed algorithm has: RSA, P-256 and Ed25519 are"
            )


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_S:
        raise BearerRefused(f"the token's {name} is no time")
    return float(value)


def _shown(value: object) -> str:
    """What came with a token, for a log: short, on one line, without what steers a terminal."""
    text = str(value)
    return (
        ascii(text[:_SHOWN_CHARACTERS]) if len(text) <= _SHOWN_CHARACTERS else ascii(text[:_SHOWN_CHARACTERS] + "...")
    )
