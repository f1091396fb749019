"""The server's side of SCRAM (RFC 5802). It checks a client's proof against the verifier of a password.

The exchange does not reveal which names exist. It asks a client with an unknown name for a proof, too. The salt for
such a name is always the same, and the work is the same. At the end the client gets the refusal of a wrong password.
The name decides on iterations and a length of the salt, among those that users have. An unknown token has another salt
than an unknown user of the same name.

That holds where the whole cluster has one `unknown_user_secret`, for good. Else two brokers would send two salts for an
unknown user. Where users have more than MAX_SHAPES kinds of credentials, a user with a rare one stands out.

The states are NEW, then CHALLENGED by `first`, then ENDED by `final`. An error ends the exchange, too.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from minilog.security.saslprep import UnpreparedText, saslprep
from minilog.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism, xor
from minilog.security.scram_messages import (
    MAX_NONCE_CHARACTERS,
    MIN_NONCE_CHARACTERS,
    TOKEN_EXTENSION,
    ScramError,
    attributes_of,
    check_nonce,
    check_own_nonce,
    decoded,
    encoded,
    text_of,
    unescaped_name,
)

MAX_SHAPES = 16  # each costs one HMAC in an exchange
_MIN_SECRET_BYTES = 32
_CLIENT = "the client"
_WRONG: Final = "the user is not known or the password is wrong"

# Finds the credential of a name that SASLprep has prepared; None where the user or this mechanism has none.
FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]


@dataclass(frozen=True, slots=True, order=True)
class CredentialShape:
    """The part of a credential that any client sees, without the salt itself."""

    iterations: int
    salt_bytes: int

    @classmethod
    def of(cls, credential: ScramCredential) -> CredentialShape:
        return cls(credential.iterations, len(credential.salt))


DEFAULT_SHAPE = CredentialShape(DEFAULT_ITERATIONS, SALT_BYTES)


@dataclass(frozen=True, slots=True)
class ProvenUser:
    """The client knows the password of `name`. `answer` goes to the client, and proves that this side has the verifier.
    `is_token`: the name is the id of a delegation token, and the password its secret."""

    name: str
    answer: bytes
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The client has not proven its name. `answer` goes to the client. `reason` is for the log, and has no name in it:
    a person may have typed a password in the place of a name."""

    reason: str
    answer: bytes


class ServerState(enum.Enum):
    """The states of the server's side. WAYS has the methods that lead from one to the next."""

    NEW = enum.auto()
    CHALLENGED = enum.auto()
    ENDED = enum.auto()


WAYS = {
    (ServerState.NEW, ServerState.CHALLENGED): "first",
    (ServerState.NEW, ServerState.ENDED): "first",
    (ServerState.CHALLENGED, ServerState.ENDED): "final",
}


@dataclass(frozen=True, slots=True)
class _Challenge:
    """The state between the two messages of the client."""

    name: str
    gs2_header: str
    first_bare: str
    server_first: str
    nonce: str
    credential: ScramCredential
    is_known: bool
    is_token: bool


class ScramServer:
    """The server's side of one exchange: `first(...)`, then `final(...)`, each once.

    `nonce` is random, drawn for this exchange alone. `find_token` finds the credential of a delegation token by its id,
    for a client that logs in with a token. `shapes`: those of users' credentials for this mechanism. Without users, and
    for tokens, the shape is DEFAULT_SHAPE. `tried`: the name that the client gives, empty before. Both methods raise
    ScramError where a message is malformed or out of order. The exchange has ended then, without another try.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        nonce: str,
        unknown_user_secret: bytes,
        find_token: FindCredential = lambda mechanism, token_id: None,
        shapes: Sequence[CredentialShape] = (),
    ) -> None:
        check_own_nonce(nonce)
        if len(unknown_user_secret) < _MIN_SECRET_BYTES:
            raise ValueError(f"the secret for unknown users has at least {_MIN_SECRET_BYTES} random bytes")
        self.mechanism = mechanism
        self._find_credential = find_credential
        self._find_token = find_token
        self._nonce = nonce
        self._unknown_user_secret = unknown_user_secret
        self._shapes = tuple(shapes[:MAX_SHAPES]) or (DEFAULT_SHAPE,)
        self.tried = ""
        self._challenge: _Challenge | None = None
        self._state = ServerState.NEW

    def first(self, message: bytes) -> bytes:
        """The salt and the iterations, in answer to the client's first message."""
        self._expect(ServerState.NEW)
        try:
            challenge = self._challenged(message)
        except BaseException:
            self._state = ServerState.ENDED
            raise
        self._challenge, self._state = challenge, ServerState.CHALLENGED
        return challenge.server_first.encode("utf-8")

    @staticmethod
    def named(message: bytes) -> str:
        """The name in a client's first message, in the form of `tried`; empty where the message is not valid."""
        try:
            values, is_token = _values_of_first(_parts_of_first(text_of(message, _CLIENT))[2])
            return _shown(_prepared(unescaped_name(values["n"], _CLIENT)), is_token=is_token)
        except ScramError:
            return ""

    def final(self, message: bytes) -> ProvenUser | Refused:
        """The decision on the client's proof."""
        self._expect(ServerState.CHALLENGED)
        challenge, self._challenge = self._challenge, None
        self._state = ServerState.ENDED
        assert challenge is not None  # in the state CHALLENGED there is one
        return self._judged(challenge, message)

    def _expect(self, state: ServerState) -> None:
        if self._state is not state:
            raise ScramError(f"the exchange is in the state {self._state.name}, not {state.name}: begin a new one")

    def _challenged(self, message: bytes) -> _Challenge:
        gs2_header, authorized, first_bare = _parts_of_first(text_of(message, _CLIENT))
        values, is_token = _values_of_first(first_bare)
        check_nonce(values["r"], MAX_NONCE_CHARACTERS, _CLIENT)
        if len(values["r"]) < MIN_NONCE_CHARACTERS:
            raise ScramError(f"the client's nonce has fewer than {MIN_NONCE_CHARACTERS} characters")
        sent = unescaped_name(values["n"], _CLIENT)
        if authorized and unescaped_name(authorized, _CLIENT) != sent:
            raise ScramError("the client wants to act as another user: brokers support no authorization identity")
        name = _prepared(sent)
        self.tried = _shown(name, is_token=is_token)
        kept = (self._find_token if is_token else self._find_credential)(self.mechanism, name)
        fake = self._unknown_token(name) if is_token else self._unknown_user(name)  # always, so that it takes as long
        is_known = kept is not None and kept.mechanism is self.mechanism
        credential = kept if kept is not None and is_known else fake
        nonce = values["r"] + self._nonce
        server_first = f"r={nonce},s={encoded(credential.salt)},i={credential.iterations}"
        return _Challenge(name, gs2_header, first_bare, server_first, nonce, credential, is_known, is_token)

    def _unknown_user(self, name: str) -> ScramCredential:
        """The credential for an unknown name, which fits no password.

        The shape with the highest lot counts. So a new shape changes few names, and a name has the same shape with both
        mechanisms where users have both."""

        def lot(shape: CredentialShape) -> bytes:
            content = f"shape {shape.iterations} {shape.salt_bytes}\0{name}"
            return hmac.digest(self._unknown_user_secret, content.encode(), "sha256")

        return self._unknown(f"{self.mechanism}\0{name}", max(self._shapes, key=lot))

    def _unknown_token(self, token_id: str) -> ScramCredential:
        """The credential for an unknown delegation token, which fits no password."""
        return self._unknown(f"{self.mechanism}\0token\0{token_id}", DEFAULT_SHAPE)

    def _unknown(self, whose: str, shape: CredentialShape) -> ScramCredential:
        salt = b""
        for number in range(1 + shape.salt_bytes // self.mechanism.digest_bytes):
            salt += self._drawn(f"salt\0{whose}" if number == 0 else f"salt {number}\0{whose}")
        keys = (self._drawn(f"{key}\0{whose}") for key in ("stored key", "server key"))
        return ScramCredential(self.mechanism, salt[: shape.salt_bytes], shape.iterations, *keys)

    def _drawn(self, what: str) -> bytes:
        return hmac.digest(self._unknown_user_secret, what.encode(), self.mechanism.hash_name)

    def _judged(self, challenge: _Challenge, message: bytes) -> ProvenUser | Refused:
        without_proof, comma, proof_text = text_of(message, _CLIENT).rpartition(",p=")
        if not comma:
            raise ScramError("the client sent a message without a proof")
        values = attributes_of(without_proof, "cr", _CLIENT)
        header_is_ours = _equal(values["c"], encoded(challenge.gs2_header.encode("utf-8")))
        nonce_is_ours = _equal(values["r"], challenge.nonce)
        proof = decoded(proof_text, _CLIENT)
        if len(proof) != self.mechanism.digest_bytes:
            raise ScramError(f"the client sent a proof of {len(proof)} bytes: {self.mechanism} has another length")
        exchange = ",".join((challenge.first_bare, challenge.server_first, without_proof)).encode("utf-8")
        credential = challenge.credential
        client_key = xor(proof, self.mechanism.signature(credential.stored_key, exchange))
        proof_is_right = hmac.compare_digest(self.mechanism.digest(client_key), credential.stored_key)
        signature = self.mechanism.signature(credential.server_key, exchange)
        if not header_is_ours:
            return Refused("the channel binding was changed on the way", b"e=channel-bindings-dont-match")
        if not nonce_is_ours:
            return Refused("the nonce belongs to another exchange", b"e=other-error")
        if not (proof_is_right & challenge.is_known):
            return Refused(_WRONG, b"e=invalid-proof")
        return ProvenUser(challenge.name, f"v={encoded(signature)}".encode(), challenge.is_token)


def _parts_of_first(text: str) -> tuple[str, str, str]:
    """The GS2 header, the escaped authorization identity, and the rest of the client's first message."""
    binding, *rest = text.split(",", 2)
    if len(rest) != 2 or (rest[0] and not rest[0].startswith("a=")):
        raise ScramError("the client's first message is malformed: such a message begins with n,,")
    if binding.startswith("p="):
        raise ScramError(
            "the client demands channel binding, which gRPC does not have: use the mechanism without -PLUS"
        )
    if binding not in ("n", "y"):  # y: the client can bind, and knows that the server does not offer it
        raise ScramError("the client's first message is malformed: such a message begins with n,,")
    return f"{binding},{rest[0]},", rest[0].removeprefix("a="), rest[1]


def _values_of_first(first_bare: str) -> tuple[dict[str, str], bool]:
    """The attributes in the rest of a first message, and whether they belong to a delegation token."""
    own_attributes = first_bare.removesuffix(TOKEN_EXTENSION)
    return attributes_of(own_attributes, "nr", _CLIENT), own_attributes != first_bare


def _shown(name: str, *, is_token: bool) -> str:
    return f"delegation-token:{name}" if is_token else f"user:{name}"


def _prepared(name: str) -> str:
    try:
        return saslprep(name, what="the user name", stored=False)
    except UnpreparedText as error:
        raise ScramError(f"the client sent an invalid user name: {error}") from None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8"), other.encode("utf-8"))
