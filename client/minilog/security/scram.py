"""SCRAM credentials (RFC 5802, RFC 7677): what a broker keeps of a password, derived where the password is typed.

    SaltedPassword = PBKDF2-HMAC(password, salt, iterations)
    ClientKey, ServerKey = HMAC(SaltedPassword, "Client Key" | "Server Key")
    StoredKey = H(ClientKey)

No password crosses the wire when a user is made: the salt, the iterations, StoredKey and ServerKey do.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Self

from minilog.errors import UnacceptableCredential

MIN_ITERATIONS, DEFAULT_ITERATIONS = 4_096, 4_096  # RFC 7677, section 4, and Kafka's
MAX_ITERATIONS = 1_000_000  # half a second of a client's work, with each connection
SALT_BYTES = 16  # of new credentials


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
        """How long each key is."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker keeps of a password. The keys are not shown: passwords can be guessed against the first, and a
    broker impersonated with the second."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def derive(cls, mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int) -> Self:
        """Of a new password; `salt` is random. Raises UnacceptableCredential for an empty password, or iterations that
        are not allowed."""
        if not password:
            raise UnacceptableCredential("the password is empty: give one")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise UnacceptableCredential(f"{iterations} iterations: give {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        name = mechanism.hash_name
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(mechanism, salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))
