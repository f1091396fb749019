"""A delegation token (Kafka's KIP-48), as all brokers keep it: its owner, its end, and the verifiers of its secret.

The client that creates the token gets the secret once. No log has the secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog.security.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """`owner` and `renewers` are principals, `User:alice`. Times are milliseconds since 1970."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    credentials: Mapping[ScramMechanism, ScramCredential] = field(repr=False)
    """One credential for each mechanism. The password of both is the secret in base64."""

    def is_expired(self, wall_ms: float) -> bool:
        """Whether the token's time is over."""
        return wall_ms >= self.expiry_timestamp_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether a principal may renew, expire and see the token: its owner and its renewers may."""
        return principal == self.owner or principal in self.renewers
