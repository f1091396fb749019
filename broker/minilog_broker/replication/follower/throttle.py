"""How fast a broker may fetch what it is to have and does not have yet: replicas that are being added, nobody else.

A bucket of bytes, filled at the rate. A replica asks for a turn's worth at a time; what came is taken out, into debt if
need be (one batch of any size may come), and the next turn is when the debt is paid. So the mean is the rate. All that
have the same rate share one bucket.
"""

from __future__ import annotations

_FULL_S = 0.2
_TURN_S = 0.1  # fewer and larger turns cost less


class Throttle:
    """The bucket of bytes for all replicas with one rate. Times are milliseconds of the process's monotonic clock."""

    __slots__ = ("_available_bytes", "_since_ms", "rate_bytes_per_second")

    def __init__(self, rate_bytes_per_second: int) -> None:
        self.rate_bytes_per_second = rate_bytes_per_second
        self._available_bytes = rate_bytes_per_second * _FULL_S
        self._since_ms: float | None = None

    @property
    def turn_bytes(self) -> int:
        """What to ask for at a time."""
        return max(1, int(self.rate_bytes_per_second * _TURN_S))

    def take(self, size_bytes: int, now_ms: float) -> None:
        """So much came."""
        self._fill(now_ms)
        self._available_bytes -= size_bytes

    def wait_ms(self, now_ms: float) -> float:
        """How long to ask for nothing more; 0: not at all."""
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
