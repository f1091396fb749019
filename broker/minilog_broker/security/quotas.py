"""Quotas: the bytes and calls of a principal per second. Requests above a quota wait.

Each quota is a bucket of tokens:

- The bucket holds the tokens of WINDOW_S seconds, so that a burst of that size passes at once.
- A charge takes tokens, also below zero: one request may be larger than the bucket.
- Nothing more passes until the bucket is at zero again (ingress/rules/throttle.py). A debt stays whole, however long
  that takes.

Kafka serves a request above its quota, and delays the answer. Here the next request waits before it is served. So a
client gains nothing by many connections at a time, or by hanging up.

The clock comes in, in milliseconds. Where it goes back, that time gives no tokens. The number of buckets is bounded:
the bucket with the oldest charge goes first. If it has a debt, the debt is forgiven. A client would need MAX_BUCKETS
principals to gain by that, and all principals are registered users.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

WINDOW_S = 10.0  # Kafka's quota.window.num x quota.window.size.seconds is 11 s
MAX_BUCKETS = 10_000  # some 3 MB
MIN_RATE_PER_S = 0.001


class QuotaBucket:
    """One bucket: `rate_per_s` bytes or requests a second. Raises ValueError for an invalid rate or window."""

    __slots__ = ("_at_ms", "_capacity", "_rate_per_ms", "_tokens", "rate_per_s")

    def __init__(self, rate_per_s: float, now_ms: float, window_s: float = WINDOW_S) -> None:
        if not MIN_RATE_PER_S <= rate_per_s < math.inf:
            raise ValueError(f"a quota cannot be {rate_per_s} a second: give at least {MIN_RATE_PER_S}, or no quota")
        if not 0 < window_s < math.inf:
            raise ValueError(f"a window cannot have {window_s} seconds: give more than 0")
        self.rate_per_s = rate_per_s
        self._rate_per_ms = rate_per_s / 1_000
        self._capacity = rate_per_s * window_s
        self._tokens = self._capacity
        self._at_ms = now_ms

    def charge(self, amount: float, now_ms: float) -> None:
        """Take `amount` (not below 0) at `now_ms`."""
        if not 0 <= amount < math.inf:
            raise ValueError(f"{amount} cannot be charged: give 0 or more")
        self._fill(now_ms)
        self._tokens -= amount

    def give_back(self, amount: float) -> None:
        """Return a part of a charge."""
        self._tokens = min(self._capacity, self._tokens + amount)

    def owed_ms(self, now_ms: float) -> int:
        """The time until the debt is paid, 0 without a debt."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else math.ceil(-self._tokens / self._rate_per_ms)

    def changed(self, rate_per_s: float, now_ms: float, window_s: float = WINDOW_S) -> QuotaBucket:
        """The bucket under another rate. A debt stays. The rest is at most the content of the new bucket."""
        self._fill(now_ms)
        bucket = QuotaBucket(rate_per_s, self._at_ms, window_s)
        bucket._tokens = min(self._tokens, bucket._capacity)
        return bucket

    def _fill(self, now_ms: float) -> None:
        if now_ms > self._at_ms:
            self._tokens = min(self._capacity, self._tokens + (now_ms - self._at_ms) * self._rate_per_ms)
            self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of a bucket, and the quota's key, such as producer_byte_rate."""

    principal: str
    key: str


class Quotas:
    """The buckets of all principals of one broker. Each charge brings the rate, which the image has."""

    def __init__(self, max_buckets: int = MAX_BUCKETS) -> None:
        if max_buckets < 1:
            raise ValueError(f"{max_buckets} buckets are too few: give 1 or more")
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[_Owner, QuotaBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, principal: str, key: str, rate_per_s: float | None, amount: float, now_ms: float) -> None:
        """Take `amount` from the bucket of `principal` and `key`. Without a rate (None) the bucket is dropped, and
        nothing is counted."""
        if (bucket := self._bucket(_Owner(principal, key), rate_per_s, now_ms)) is not None:
            bucket.charge(amount, now_ms)

    def give_back(self, principal: str, key: str, amount: float) -> None:
        """Return a part of a charge."""
        if (bucket := self._buckets.get(_Owner(principal, key))) is not None:
            bucket.give_back(amount)

    def owed_ms(self, principal: str, key: str, rate_per_s: float | None, now_ms: float) -> int:
        """The time until the debt of `principal` under `key` is paid, 0 without a debt."""
        bucket = self._bucket(_Owner(principal, key), rate_per_s, now_ms)
        return 0 if bucket is None else bucket.owed_ms(now_ms)

    def _bucket(self, owner: _Owner, rate_per_s: float | None, now_ms: float) -> QuotaBucket | None:
        if rate_per_s is None:
            self._buckets.pop(owner, None)
            return None
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = QuotaBucket(rate_per_s, now_ms)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(owner)
            if bucket.rate_per_s != rate_per_s:
                bucket = self._buckets[owner] = bucket.changed(rate_per_s, now_ms)
        return bucket
