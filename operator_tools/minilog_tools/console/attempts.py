"""Failed logins slow down the address that they come from, and guesses at one name have a limit. The brokers see the
console's address alone, and would slow down all its viewers. A core: the time comes in.

The first failure makes an address wait FIRST_S, each further one twice as long, up to LONGEST_S. The console forgets an
address FORGOTTEN_S after its last failure. It remembers at most MOST_ADDRESSES: the oldest makes room.

A name has NAME_GUESSES places for attempts, and gets one more every 60 s / NAME_GUESSES. An attempt takes its place
when it begins, so the limit holds for attempts at the same time. Only the success of that attempt gives the place back,
so no other login lifts the limit. Names share NAME_SLOTS by a hash that is new in each process. So made-up names take
no memory, and push no name out.
"""

from __future__ import annotations

FIRST_S = 1.0
LONGEST_S = 60.0
FORGOTTEN_S = 900.0
MOST_ADDRESSES = 1_000
NAME_GUESSES = 10
NAME_SLOTS = 4_096
_MOST_DOUBLINGS = 16


class LoginAttempts:
    """The failed logins of each address, and the time that an address must wait before its next login."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row, and when the last one was
        self._free = [(float(NAME_GUESSES), 0.0)] * NAME_SLOTS  # places of a slot, and when that was so

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

    def succeeded(self, address: str, name: str, now_s: float) -> None:
        self._failures.pop(address, None)
        slot = hash(name) % NAME_SLOTS
        self._free[slot] = (min(NAME_GUESSES, self._free_places(slot, now_s) + 1.0), now_s)

    def begin_guess(self, name: str, now_s: float) -> float:
        """Take a place for an attempt at this name. 0, or how long the name has to wait for one."""
        slot = hash(name) % NAME_SLOTS
        free = self._free_places(slot, now_s)
        if free < 1.0:
            return (1.0 - free) * 60.0 / NAME_GUESSES
        self._free[slot] = (free - 1.0, now_s)
        return 0.0

    def _free_places(self, slot: int, now_s: float) -> float:
        free, at_s = self._free[slot]
        return min(NAME_GUESSES, free + (now_s - at_s) * NAME_GUESSES / 60.0)
