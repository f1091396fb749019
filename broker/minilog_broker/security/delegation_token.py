"""A delegation token (Kafka's KIP-48), as all brokers keep it: whose it is, until when, and what its secret is verified
by. The secret itself is told once, to who asked for the token, and is in no log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog.security.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """`owner` and `renewers` are principals, `User:alice`. Times are milliseconds since 1970."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    credentials: Mapping[ScramMechanism, ScramCredential] = field(repr=False)
    """Of each mechanism one: with both the secret in base64 is the password."""

    def is_expired(self, wall_ms: float) -> bool:
        """Whether it is good for nothing any more."""
        return wall_ms >= self.expiry_timestamp_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Its owner and its renewers may renew it, expire it, and see it."""
        return principal == self.owner or principal in self.renewers
