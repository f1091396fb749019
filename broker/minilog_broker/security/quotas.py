"""Quotas: how much a principal may send, read and ask per second; too much is answered late, never refused.

As in Kafka, a request that is above its quota is served, and its answer waits: the delay tells a client that knows it
to hold back, and holds back one that does not. Each quota is a bucket of tokens:

- it holds what WINDOW_S seconds of the rate give, so that a burst of that size passes at once;
- a charge takes tokens, below zero too: one request may be larger than the bucket;
- the delay is the time until the bucket is at zero again, and at most MAX_DELAY_MS an answer. What is above that stays
  owed, and delays the next.

The clock comes in, in milliseconds; where it goes back, nothing is given for that time. How many buckets are kept is
bounded: the one charged longest ago goes first. Where that still owes, its debt is forgiven; a client would need
MAX_BUCKETS principals to gain by it, and names are known users' only.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

WINDOW_S = 10.0  # Kafka's quota.window.num x quota.window.size.seconds is 11 s
MAX_DELAY_MS = 10_000  # below the clients' request.timeout.ms: a delayed answer still is one
MAX_BUCKETS = 10_000  # some 3 MB
MIN_RATE_PER_S = 0.001


class Quota:
    """One bucket: `rate_per_s` bytes or requests a second. Raises ValueError where that is no rate."""

    __slots__ = ("_at_ms", "_capacity", "_rate_per_ms", "_tokens", "rate_per_s")

    def __init__(self, rate_per_s: float, now_ms: float, window_s: float = WINDOW_S) -> None:
        if not MIN_RATE_PER_S <= rate_per_s < math.inf:
            raise ValueError(f"a quota of {rate_per_s} a second is none: give at least {MIN_RATE_PER_S}, or no quota")
        if not 0 < window_s < math.inf:
            raise ValueError(f"a window of {window_s} seconds is none: give more than 0")
        self.rate_per_s = rate_per_s
        self._rate_per_ms = rate_per_s / 1_000
        self._capacity = rate_per_s * window_s
        self._tokens = self._capacity
        self._at_ms = now_ms

    def charge(self, amount: float, now_ms: float) -> int:
        """Take `amount` (not below 0) at `now_ms`; the milliseconds that the answer waits, 0 where it need not."""
        if not 0 <= amount < math.inf:
            raise ValueError(f"{amount} cannot be charged: give 0 or more")
        self._fill(now_ms)
        self._tokens -= amount
        if self._tokens >= 0:
            return 0
        return min(math.ceil(-self._tokens / self._rate_per_ms), MAX_DELAY_MS)

    def changed(self, rate_per_s: float, now_ms: float, window_s: float = WINDOW_S) -> Quota:
        """The bucket under another rate: what is owed stays owed, what is left is no more than the new one holds."""
        self._fill(now_ms)
        bucket = Quota(rate_per_s, self._at_ms, window_s)
        bucket._tokens = min(self._tokens, bucket._capacity)
        return bucket

    def _fill(self, now_ms: float) -> None:
        if now_ms > self._at_ms:
            self._tokens = min(self._capacity, self._tokens + (now_ms - self._at_ms) * self._rate_per_ms)
            self._at_ms = now_ms


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose bucket it is, and of what: the quota's key, such as producer_byte_rate."""

    principal: str
    key: str


class Quotas:
    """The buckets of all principals of one broker. The rates are the image's, and come in with each charge."""

    def __init__(self, max_buckets: int = MAX_BUCKETS) -> None:
        if max_buckets < 1:
            raise ValueError(f"{max_buckets} buckets are too few: give 1 or more")
        self._max_buckets = max_buckets
        self._buckets: OrderedDict[_Owner, Quota] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, principal: str, key: str, rate_per_s: float | None, amount: float, now_ms: float) -> int:
        """Take `amount` from the bucket that `principal` has of `key`; the milliseconds that the answer waits. Without
        a rate (None) nothing is counted, and nothing that was is kept."""
        owner = _Owner(principal, key)
        if rate_per_s is None:
            self._buckets.pop(owner, None)
            return 0
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = Quota(rate_per_s, now_ms)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(owner)
            if bucket.rate_per_s != rate_per_s:
                bucket = self._buckets[owner] = bucket.changed(rate_per_s, now_ms)
        return bucket.charge(amount, now_ms)
