"""The server's side of SCRAM (RFC 5802): a proof is checked against what is kept of a password.

It does not tell which names exist. A name that is not known is asked for a proof as others are: with a salt that is
always the same for that name, after the same work, and is refused at the end with the words of a wrong password. Its
iterations, and the length of its salt, are some that users have, by its name. A name that is no token has another salt
than the same name as a user.

That holds where `unknown_user_secret` is one for the whole cluster, and stays: else two brokers tell two salts of an
unknown user. Who has iterations of his own stands out where users have more than MAX_SHAPES kinds of credentials.

The states: NEW, then CHALLENGED by `first`, then ENDED by `final`; an error ends it as well.
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

MAX_SHAPES = 16  # each costs an exchange one HMAC
_MIN_SECRET_BYTES = 32
_CLIENT = "the client"
_WRONG: Final = "the user is not known or the password is wrong"

# Of a name as SASLprep gives it; None where there is no such user, or none for this mechanism.
FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What anybody is told of a credential, apart from the salt itself."""

    iterations: int
    salt_bytes: int

    @classmethod
    def of(cls, credential: ScramCredential) -> Shape:
        return cls(credential.iterations, len(credential.salt))


DEFAULT_SHAPE = Shape(DEFAULT_ITERATIONS, SALT_BYTES)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client knows the password of `name`; `answer` goes to it, and proves that this side knows the verifier.
    `is_token`: the name is the id of a delegation token, and the password its secret."""

    name: str
    answer: bytes
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is not who it says; `answer` goes to it. `reason` is for the log, and tells no more than the client
    knows: what is typed as a name may be a password."""

    reason: str
    answer: bytes


class ServerState(enum.Enum):
    """Where the server's side stands; what leads from one to the next is in WAYS."""

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
    """What the last message is checked against."""

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

    `nonce` is random, drawn for this exchange alone. `find_token` finds what a delegation token has, by its id: asked
    where the client says that it shows one. `shapes`: those of users' credentials for this mechanism; where there are
    none, and of tokens, it is DEFAULT_SHAPE. `tried`: whom the client says that it is, empty before. Both methods raise
    ScramError where a message is malformed or out of order; the exchange has ended then, and so has the client's right
    to another try in it.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find_credential: FindCredential,
        nonce: str,
        unknown_user_secret: bytes,
        find_token: FindCredential = lambda mechanism, token_id: None,
        shapes: Sequence[Shape] = (),
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
        """Whom a client's first message names, as `tried` has it; empty where it is none."""
        try:
            values, is_token = _values_of_first(_parts_of_first(text_of(message, _CLIENT))[2])
            return _shown(_prepared(unescaped_name(values["n"], _CLIENT)), is_token=is_token)
        except ScramError:
            return ""

    def final(self, message: bytes) -> Accepted | Refused:
        """Whether the client has proven who it is."""
        self._expect(ServerState.CHALLENGED)
        challenge, self._challenge = self._challenge, None
        self._state = ServerState.ENDED
        assert challenge is not None  # CHALLENGED says so
        return self._judged(challenge, message)

    def _expect(self, state: ServerState) -> None:
        if self._state is not state:
            raise ScramError(f"the exchange stands at {self._state.name}, not {state.name}: begin a new one")

    def _challenged(self, message: bytes) -> _Challenge:
        gs2_header, authorized, first_bare = _parts_of_first(text_of(message, _CLIENT))
        values, is_token = _values_of_first(first_bare)
        check_nonce(values["r"], MAX_NONCE_CHARACTERS, _CLIENT)
        if len(values["r"]) < MIN_NONCE_CHARACTERS:
            raise ScramError(f"the client's nonce has fewer than {MIN_NONCE_CHARACTERS} characters")
        sent = unescaped_name(values["n"], _CLIENT)
        if authorized and unescaped_name(authorized, _CLIENT) != sent:
            raise ScramError("the client wants to act as somebody else: there is no authorization identity here")
        name = _prepared(sent)
        self.tried = _shown(name, is_token=is_token)
        found = (self._find_token if is_token else self._find_credential)(self.mechanism, name)
        fake = self._unknown_token(name) if is_token else self._unknown_user(name)  # always, so that it takes as long
        is_known = found is not None and found.mechanism is self.mechanism
        credential = found if found is not None and is_known else fake
        nonce = values["r"] + self._nonce
        server_first = f"r={nonce},s={encoded(credential.salt)},i={credential.iterations}"
        return _Challenge(name, gs2_header, first_bare, server_first, nonce, credential, is_known, is_token)

    def _unknown_user(self, name: str) -> ScramCredential:
        """What a user of this name would have, were there one: no password leads to it. The shape is the one that draws
        the highest, so that a new one changes few names, and is the same with both mechanisms where users have both."""

        def lot(shape: Shape) -> bytes:
            content = f"shape {shape.iterations} {shape.salt_bytes}\0{name}"
            return hmac.digest(self._unknown_user_secret, content.encode(), "sha256")

        return self._unknown(f"{self.mechanism}\0{name}", max(self._shapes, key=lot))

    def _unknown_token(self, token_id: str) -> ScramCredential:
        """The same for a delegation token."""
        return self._unknown(f"{self.mechanism}\0token\0{token_id}", DEFAULT_SHAPE)

    def _unknown(self, whose: str, shape: Shape) -> ScramCredential:
        salt = b""
        for number in range(1 + shape.salt_bytes // self.mechanism.digest_bytes):
            salt += self._drawn(f"salt\0{whose}" if number == 0 else f"salt {number}\0{whose}")
        keys = (self._drawn(f"{each}\0{whose}") for each in ("stored key", "server key"))
        return ScramCredential(self.mechanism, salt[: shape.salt_bytes], shape.iterations, *keys)

    def _drawn(self, what: str) -> bytes:
        return hmac.digest(self._unknown_user_secret, what.encode(), self.mechanism.hash_name)

    def _judged(self, challenge: _Challenge, message: bytes) -> Accepted | Refused:
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
        return Accepted(challenge.name, f"v={encoded(signature)}".encode(), challenge.is_token)


def _parts_of_first(text: str) -> tuple[str, str, str]:
    """The GS2 header, the authorization identity as it is escaped, and what is left of the client's first message."""
    binding, *rest = text.split(",", 2)
    if len(rest) != 2 or (rest[0] and not rest[0].startswith("a=")):
        raise ScramError("the client sent a first message that is none: it begins with n,,")
    if binding.startswith("p="):
        raise ScramError("the client demands channel binding, which gRPC has none of: use the mechanism without -PLUS")
    if binding not in ("n", "y"):  # y: it could bind, and sees that we do not offer it
        raise ScramError("the client sent a first message that is none: it begins with n,,")
    return f"{binding},{rest[0]},", rest[0].removeprefix("a="), rest[1]


def _values_of_first(first_bare: str) -> tuple[dict[str, str], bool]:
    """The attributes of the rest, and whether they are of a delegation token."""
    own_attributes = first_bare.removesuffix(TOKEN_EXTENSION)
    return attributes_of(own_attributes, "nr", _CLIENT), own_attributes != first_bare


def _shown(name: str, *, is_token: bool) -> str:
    return f"delegation-token:{name}" if is_token else f"user:{name}"


def _prepared(name: str) -> str:
    try:
        return saslprep(name, what="the user name", stored=False)
    except UnpreparedText as error:
        raise ScramError(f"the client sent a user name that is none: {error}") from None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8"), other.encode("utf-8"))
