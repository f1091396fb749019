"""When a job's delegation token is renewed, and when another one takes its place. Pure.

    less than half of its first life is over      it is handed on
    more, and a renewal gives it as much again    it is renewed: tasks go on with what they have
    more, and its maximum is near; or it is gone  another one is created, for the tasks that are planned from then on

Times are milliseconds since 1970, of this machine's clock; what a broker told by its own is moved by what the two
clocks differed when the token was made.
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
    """What is to be done, before the token is handed on."""

    KEEP = enum.auto()
    RENEW = enum.auto()
    CREATE = enum.auto()


@dataclass(frozen=True, slots=True)
class KeptToken:
    """A token of a job, with its secret. `period_ms`: how long it was good at first."""

    token_id: str
    hmac: Secret
    period_ms: int
    expiry_ms: int
    max_ms: int
    skew_ms: int
    """What the broker's clock was ahead of ours."""

    @classmethod
    def of(cls, made: DelegationToken, now_ms: int) -> Self:
        """One that was made just now."""
        told = made.information
        skew_ms = told.issue_timestamp_ms - now_ms
        return cls(
            token_id=told.token_id,
            hmac=made.hmac,
            period_ms=told.expiry_timestamp_ms - told.issue_timestamp_ms,
            expiry_ms=told.expiry_timestamp_ms - skew_ms,
            max_ms=told.max_timestamp_ms - skew_ms,
            skew_ms=skew_ms,
        )

    @property
    def renew_at_ms(self) -> int:
        """When half of its life is left."""
        return self.expiry_ms - self.period_ms // 2

    def step(self, now_ms: int) -> Step:
        """What is to be done with it now."""
        if now_ms < self.renew_at_ms:
            return Step.KEEP
        gains = min(self.max_ms, now_ms + self.period_ms) - self.period_ms // 2 > now_ms
        return Step.RENEW if now_ms < self.expiry_ms and gains else Step.CREATE

    def renewed(self, expiry_timestamp_ms: int) -> Self:
        """As the broker says that it ends now."""
        return replace(self, expiry_ms=expiry_timestamp_ms - self.skew_ms)

    def to_json(self) -> str:
        """With its secret: for a file of its owner alone."""
        told = {name: getattr(self, name) for name in ("token_id", *_NUMBERS)}
        return json.dumps(told | {"hmac": self.hmac.reveal()})

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """None where it is something else."""
        try:
            told = json.loads(text)
            return cls(str(told["token_id"]), Secret(told["hmac"]), **{name: int(told[name]) for name in _NUMBERS})
        except (ValueError, KeyError, TypeError):
            return None


_NUMBERS = ("period_ms", "expiry_ms", "max_ms", "skew_ms")
