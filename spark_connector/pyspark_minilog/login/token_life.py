"""When a job renews its delegation token, and when it creates another one. Pure.

    less than half of its first life is over      the job hands the token on
    more, and a renewal gives it as much again    the job renews it, and the tasks keep the same token
    more, and its maximum is near; or it is gone  the job creates another token for the tasks that it plans after that

Times are milliseconds since 1970, by this machine's clock. The difference of both clocks at the creation of the token
converts a broker's times.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from minilog.security.secret import Secret

if TYPE_CHECKING:
    from minilog.admin.security import DelegationToken


class Step(enum.Enum):
    """The step before the job hands the token on."""

    KEEP = enum.auto()
    RENEW = enum.auto()
    CREATE = enum.auto()


@dataclass(frozen=True, slots=True)
class KeptToken:
    """A token of a job, with its secret. `period_ms` is its first life time."""

    token_id: str
    hmac: Secret
    period_ms: int
    expiry_ms: int
    max_ms: int
    skew_ms: int
    """How far the broker's clock was ahead of this machine's clock."""

    @classmethod
    def of(cls, made: DelegationToken, now_ms: int) -> Self:
        """The kept form of a token that was created just now."""
        information = made.information
        skew_ms = information.issue_timestamp_ms - now_ms
        return cls(
            token_id=information.token_id,
            hmac=made.hmac,
            period_ms=information.expiry_timestamp_ms - information.issue_timestamp_ms,
            expiry_ms=information.expiry_timestamp_ms - skew_ms,
            max_ms=information.max_timestamp_ms - skew_ms,
            skew_ms=skew_ms,
        )

    @property
    def renew_at_ms(self) -> int:
        """The time at which half of its life is left."""
        return self.expiry_ms - self.period_ms // 2

    def step(self, now_ms: int) -> Step:
        """The next step for the token."""
        if now_ms < self.renew_at_ms:
            return Step.KEEP
        gains = min(self.max_ms, now_ms + self.period_ms) - self.period_ms // 2 > now_ms
        return Step.RENEW if now_ms < self.expiry_ms and gains else Step.CREATE

    def renewed(self, expiry_timestamp_ms: int) -> Self:
        """The token with the new end that the broker answered."""
        return replace(self, expiry_ms=expiry_timestamp_ms - self.skew_ms)

    def to_json(self) -> str:
        """JSON with the secret, for a file that only its owner can read."""
        fields = {name: getattr(self, name) for name in ("token_id", *_NUMBERS)}
        return json.dumps(fields | {"hmac": self.hmac.reveal()})

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """The token of this JSON, or None if the text has another form."""
        try:
            fields = json.loads(text)
            return cls(
                str(fields["token_id"]), Secret(fields["hmac"]), **{name: int(fields[name]) for name in _NUMBERS}
            )
        except (ValueError, KeyError, TypeError):
            return None


_NUMBERS = ("period_ms", "expiry_ms", "max_ms", "skew_ms")
