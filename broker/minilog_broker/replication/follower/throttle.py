"""The rate at which a broker fetches replicas that are being added. Other replicas have no limit.

A bucket of bytes fills at the rate. A replica asks for one turn's bytes at a time. The received bytes leave the bucket,
which may fall into debt, because one batch of any size may come. The next turn comes when the debt is paid. So the mean
is the rate. All replicas of the same rate share one bucket.
"""

from __future__ import annotations

_FULL_S = 0.2
_TURN_S = 0.1  # fewer and larger turns cost less


class ReplicationThrottle:
    """The bucket of bytes for all replicas with one rate. Times are milliseconds of the process's monotonic clock."""

    __slots__ = ("_available_bytes", "_since_ms", "rate_bytes_per_second")

    def __init__(self, rate_bytes_per_second: int) -> None:
        self.rate_bytes_per_second = rate_bytes_per_second
        self._available_bytes = rate_bytes_per_second * _FULL_S
        self._since_ms: float | None = None

    @property
    def turn_bytes(self) -> int:
        """The bytes to ask for at a time."""
        return max(1, int(self.rate_bytes_per_second * _TURN_S))

    def take(self, size_bytes: int, now_ms: float) -> None:
        """Take received bytes out of the bucket."""
        self._fill(now_ms)
        self._available_bytes -= size_bytes

    def wait_ms(self, now_ms: float) -> float:
        """The time until a replica may ask again. 0 if it may ask now."""
        self._fill(now_ms)
        if self._available_bytes > 0:
            return 0.0
        return max(-self._available_bytes / self.rate_bytes_per_second * 1_000, 1.0)

    def _fill(self, now_ms: float) -> None:
        rate = self.rate_bytes_per_second
        if self._since_ms is not None:
            filled = self._available_bytes + rate * (now_ms - self._since_ms) / 1_000
            self._available_bytes = min(filled, rate * _FULL_S)
        self._since_ms = now_ms
