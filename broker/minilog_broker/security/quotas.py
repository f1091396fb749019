"""Quotas: how much a principal may send, read and ask per second; too much waits.

Each quota is a bucket of tokens:

- it holds what WINDOW_S seconds of the rate give, so that a burst of that size passes at once;
- a charge takes tokens, below zero too: one request may be larger than the bucket;
- nothing more passes until the bucket is at zero again (server/ingress/throttle.py). However long that is, nothing of
  what is owed is given away.

Kafka serves a request above its quota, and lets its answer wait. Here the next request waits before it is served: who
asks on many connections at a time, or hangs up, gains nothing.

The clock comes in, in milliseconds; where it goes back, nothing is given for that time. How many buckets are kept is
bounded: the one charged longest ago goes first. Where that still owes, its debt is forgiven; a client would need
MAX_BUCKETS principals to gain by it, and names are known users' only.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

WINDOW_S = 10.0  # Kafka's quota.window.num x quota.window.size.seconds is 11 s
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

    def charge(self, amount: float, now_ms: float) -> None:
        """Take `amount` (not below 0) at `now_ms`."""
        if not 0 <= amount < math.inf:
            raise ValueError(f"{amount} cannot be charged: give 0 or more")
        self._fill(now_ms)
        self._tokens -= amount

    def give_back(self, amount: float) -> None:
        """Of what was charged."""
        self._tokens = min(self._capacity, self._tokens + amount)

    def owed_ms(self, now_ms: float) -> int:
        """For how long something is owed; 0 where nothing is."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else math.ceil(-self._tokens / self._rate_per_ms)

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

    def charge(self, principal: str, key: str, rate_per_s: float | None, amount: float, now_ms: float) -> None:
        """Take `amount` from the bucket that `principal` has of `key`. Without a rate (None) nothing is counted, and
        nothing that was is kept."""
        if (bucket := self._bucket(_Owner(principal, key), rate_per_s, now_ms)) is not None:
            bucket.charge(amount, now_ms)

    def give_back(self, principal: str, key: str, amount: float) -> None:
        """Of what was charged."""
        if (bucket := self._buckets.get(_Owner(principal, key))) is not None:
            bucket.give_back(amount)

    def owed_ms(self, principal: str, key: str, rate_per_s: float | None, now_ms: float) -> int:
        """For how long `principal` owes something of `key`; 0 where nothing."""
        bucket = self._bucket(_Owner(principal, key), rate_per_s, now_ms)
        return 0 if bucket is None else bucket.owed_ms(now_ms)

    def _bucket(self, owner: _Owner, rate_per_s: float | None, now_ms: float) -> Quota | None:
        if rate_per_s is None:
            self._buckets.pop(owner, None)
            return None
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = Quota(rate_per_s, now_ms)
            if len(self._buckets) > self._max_buckets:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(owner)
            if bucket.rate_per_s != rate_per_s:
                bucket = self._buckets[owner] = bucket.changed(rate_per_s, now_ms)
        return bucket
