"""Failed logins slow down the address that they come from. The brokers see the console's address alone, and would slow
down all its viewers. A core: the time comes in.

The first failure makes an address wait FIRST_S, each further one twice as long, up to LONGEST_S. The console forgets an
address FORGOTTEN_S after its last failure. It remembers at most MOST_ADDRESSES: the oldest makes room.
"""

from __future__ import annotations

FIRST_S = 1.0
LONGEST_S = 60.0
FORGOTTEN_S = 900.0
MOST_ADDRESSES = 1_000
_MOST_DOUBLINGS = 16


class LoginAttempts:
    """The failed logins of each address, and the time that an address must wait before its next login."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row, and when the last one was

    def wait_s(self, address: str, now_s: float) -> float:
        """How long the address has to wait before its next attempt, 0 where it need not wait."""
        count, last_s = self._failures.get(address, (0, 0.0))
        if not count or now_s - last_s >= FORGOTTEN_S:
            return 0.0
        pause_s = min(LONGEST_S, FIRST_S * 2.0 ** min(count - 1, _MOST_DOUBLINGS))
        return max(0.0, last_s + pause_s - now_s)

    def failed(self, address: str, now_s: float) -> None:
        count, last_s = self._failures.pop(address, (0, now_s))
        if now_s - last_s >= FORGOTTEN_S:
            count = 0
        while len(self._failures) >= MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = (count + 1, now_s)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)
