"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password is proven without being sent.

    client                                         server (`minilog_broker/security/scram_server.py`)
    n,,n=alice,r=NONCE                      --->   looks up salt and iterations
                                            <---   r=NONCE+MORE,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+MORE,p=PROOF             --->   checks the proof against the stored key
    checks the signature: it knows the      <---   v=SIGNATURE, or e=REASON
    verifier too, and is no impostor

The server keeps a `ScramCredential`, made of the password once: it cannot prove itself a client with that. Here are the
keys that both sides compute, and the client's side as a state machine: bytes go in and out, the nonce comes in.

No channel binding (`n,,`): it would tie the proof to the TLS connection, and gRPC tells neither side that connection's
binding data. What stands between is TLS itself: the client checks the server's certificate, and sends none of this
over a connection that is not encrypted (`security.protocol` SASL_SSL).
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from minilog.security.saslprep import UnpreparedText, saslprep
from minilog.security.scram_messages import (
    MAX_NAME_CHARACTERS,
    MAX_NONCE_CHARACTERS,
    TOKEN_EXTENSION,
    ScramError,
    ScramRefused,
    attributes_of,
    check_nonce,
    check_own_nonce,
    decoded,
    encoded,
    escaped_name,
    text_of,
)
from minilog.security.secret import Secret

MIN_ITERATIONS = 4_096  # RFC 7677 section 4
# Up to a second of work. A hostile server must not have a client compute for minutes.
MAX_ITERATIONS = 1_000_000
DEFAULT_ITERATIONS = 16_384  # some 10 ms once per connection; what is guessed costs as much per guess
SALT_BYTES = 24  # of new credentials
_MIN_SALT_BYTES, _MAX_SALT_BYTES = 8, 128  # RFC 8018 section 4.1 wants 8; no real salt is longer
MAX_PASSWORD_CHARACTERS = 1_024

_GS2_HEADER = "n,,"  # no channel binding, no authorization identity
_SERVER = "the server"
_ITERATIONS = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
# RFC 5802 section 7; another text of the server is not shown: it may be anything.
_REASONS = frozenset(
    (
        "channel-binding-not-supported",
        "channel-bindings-dont-match",
        "extensions-not-supported",
        "invalid-encoding",
        "invalid-proof",
        "invalid-username-encoding",
        "no-resources",
        "server-does-support-channel-binding",
        "unknown-user",
        "unsupported-channel-binding-type",
    )
)


class ScramMechanism(enum.StrEnum):
    """The mechanisms there are, by their registered names."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The name of the hash in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        """How long each key, proof and signature is."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64

    def digest(self, content: bytes) -> bytes:
        """H of RFC 5802."""
        return hashlib.new(self.hash_name, content).digest()

    def signature(self, key: bytes, message: bytes) -> bytes:
        """HMAC of RFC 5802."""
        return hmac.digest(key, message, self.hash_name)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password: enough to check it, not to be the client. The keys are not shown: passwords
    can be guessed against the first, and a server impersonated with the second."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def derive(cls, mechanism: ScramMechanism, password: Secret, *, salt: bytes, iterations: int) -> Self:
        """Of a new password; `salt` is random. Raises ScramError where the password, the salt or the iterations are not
        allowed."""
        try:
            saslprep(password.reveal(), what="the password", stored=True)
        except UnpreparedText as error:
            raise ScramError(str(error)) from None
        salted = salted_password(mechanism, password, salt, iterations)
        stored_key = mechanism.digest(mechanism.signature(salted, b"Client Key"))
        return cls(mechanism, salt, iterations, stored_key, mechanism.signature(salted, b"Server Key"))


def salted_password(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Hi of RFC 5802: the slow step, some 0.6 us an iteration. The same for the same arguments, so a client that
    connects often may keep the result by (salt, iterations); it is worth as much as the password. Raises ScramError."""
    _check_salt(salt, iterations, _SERVER)
    if len(password.reveal()) > MAX_PASSWORD_CHARACTERS:
        raise ScramError(f"the password is longer than {MAX_PASSWORD_CHARACTERS} characters: give a shorter one")
    try:
        prepared = saslprep(password.reveal(), what="the password", stored=False)
    except UnpreparedText as error:
        raise ScramError(str(error)) from None
    return hashlib.pbkdf2_hmac(mechanism.hash_name, prepared.encode("utf-8"), salt, iterations)


def xor(one: bytes, other: bytes) -> bytes:
    """Bit by bit, of two that are equally long."""
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


SaltPassword = Callable[[ScramMechanism, Secret, bytes, int], bytes]


class LoginKind(enum.Enum):
    """What name and password are."""

    PASSWORD = enum.auto()
    DELEGATION_TOKEN = enum.auto()  # the token's id, and its hmac in base64


class ClientState(enum.Enum):
    """Where the client's side stands; what leads from one to the next is in WAYS."""

    NEW = enum.auto()
    FIRST_SENT = enum.auto()
    FINAL_SENT = enum.auto()
    DONE = enum.auto()  # the server is who knows the verifier
    FAILED = enum.auto()


WAYS = {
    (ClientState.NEW, ClientState.FIRST_SENT): "first_message",
    (ClientState.FIRST_SENT, ClientState.FINAL_SENT): "answer",
    (ClientState.FIRST_SENT, ClientState.FAILED): "answer",
    (ClientState.FINAL_SENT, ClientState.DONE): "check",
    (ClientState.FINAL_SENT, ClientState.FAILED): "check",
}


class ScramClient:
    """The client's side of one exchange: `first_message()`, `answer(...)`, `check(...)`, each once, in this order.

    `nonce` is random, drawn for this exchange alone. `salt_password` is asked for the salted password: a caller may
    give one that remembers. `kind`: what name and password are. Each method raises ScramError; nothing but `check`
    returning says that all is well.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: Secret,
        nonce: str,
        salt_password: SaltPassword = salted_password,
        kind: LoginKind = LoginKind.PASSWORD,
    ) -> None:
        check_own_nonce(nonce)
        self.mechanism = mechanism
        self.username = _prepared_name(username)
        self._password = password
        self._nonce = nonce
        self._salt_password = salt_password
        extension = TOKEN_EXTENSION if kind is LoginKind.DELEGATION_TOKEN else ""
        self._first_bare = f"n={escaped_name(self.username)},r={nonce}{extension}"
        self._server_signature = b""
        self._state = ClientState.NEW

    @property
    def is_done(self) -> bool:
        """Whether the server has proven that it knows the verifier."""
        return self._state is ClientState.DONE

    def first_message(self) -> bytes:
        """What the client says first."""
        self._expect(ClientState.NEW)
        self._state = ClientState.FIRST_SENT
        return (_GS2_HEADER + self._first_bare).encode("utf-8")

    def answer(self, server_first: bytes) -> bytes:
        """The proof, in answer to the server's first message. Costs `iterations` rounds: up to a second."""
        self._expect(ClientState.FIRST_SENT)
        try:
            proof = self._proof(server_first)
        except BaseException:
            self._state = ClientState.FAILED
            raise
        self._state = ClientState.FINAL_SENT
        return proof

    def check(self, server_final: bytes) -> None:
        """The server's last message. Raises ScramRefused where it refuses, ScramError where it is an impostor."""
        self._expect(ClientState.FINAL_SENT)
        try:
            self._check(server_final)
        except BaseException:
            self._state = ClientState.FAILED
            raise
        self._state = ClientState.DONE

    def _expect(self, state: ClientState) -> None:
        if self._state is not state:
            raise ScramError(f"the exchange stands at {self._state.name}, not {state.name}: begin a new one")

    def _proof(self, server_first: bytes) -> bytes:
        text = text_of(server_first, _SERVER)
        self._raise_refusal(text)
        values = attributes_of(text, "rsi", _SERVER)
        nonce = values["r"]
        check_nonce(nonce, 2 * MAX_NONCE_CHARACTERS, _SERVER)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the server's nonce does not add to ours: its message belongs to another exchange")
        if _ITERATIONS.fullmatch(values["i"]) is None:
            raise ScramError("the server sent a number of iterations that is none")
        salt, iterations = decoded(values["s"], _SERVER), int(values["i"])
        _check_salt(salt, iterations, _SERVER)
        salted = self._salt_password(self.mechanism, self._password, salt, iterations)
        without_proof = f"c={encoded(_GS2_HEADER.encode())},r={nonce}"
        exchange = ",".join((self._first_bare, text, without_proof)).encode("utf-8")
        client_key = self.mechanism.signature(salted, b"Client Key")
        client_signature = self.mechanism.signature(self.mechanism.digest(client_key), exchange)
        server_key = self.mechanism.signature(salted, b"Server Key")
        self._server_signature = self.mechanism.signature(server_key, exchange)
        return f"{without_proof},p={encoded(xor(client_key, client_signature))}".encode()

    def _check(self, server_final: bytes) -> None:
        text = text_of(server_final, _SERVER)
        self._raise_refusal(text)
        signature = decoded(attributes_of(text, "v", _SERVER)["v"], _SERVER)
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError(
                "the server's signature is wrong: it does not know this user's verifier, so it is no broker of ours"
            )

    def _raise_refusal(self, text: str) -> None:
        if not text.startswith("e="):
            return
        reason = attributes_of(text, "e", _SERVER)["e"]
        shown = reason if reason in _REASONS else "other-error"
        raise ScramRefused(f"the server refused user {self.username!a} ({shown}): check the name and the password")


def _prepared_name(username: str) -> str:
    if len(username) > MAX_NAME_CHARACTERS:
        raise ScramError(f"the user name is longer than {MAX_NAME_CHARACTERS} characters: give a shorter one")
    try:
        prepared = saslprep(username, what="the user name", stored=False)
    except UnpreparedText as error:
        raise ScramError(str(error)) from None
    if len(prepared) > MAX_NAME_CHARACTERS:  # a character may become eighteen
        raise ScramError(f"the user name is longer than {MAX_NAME_CHARACTERS} characters: give a shorter one")
    return prepared


def _check_salt(salt: bytes, iterations: int, source: str) -> None:
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ScramError(f"{source} has {iterations} iterations: {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted")
    if not _MIN_SALT_BYTES <= len(salt) <= _MAX_SALT_BYTES:
        raise ScramError(
            f"{source} has a salt of {len(salt)} bytes: {_MIN_SALT_BYTES} to {_MAX_SALT_BYTES} are accepted"
        )
