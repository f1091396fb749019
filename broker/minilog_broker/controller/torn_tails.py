"""Copies whose tail was cut at a start: what brokers say of them with every heartbeat, and for how long it counts.

A torn tail stands above all that the log had recorded. It was never synced, or it was, and the disk has rotted: then
the copy lacks what was acknowledged. Two copies tell, of which one at most is rotten: the longer one has all
(election.py). Where no second one comes back in time the torn one is taken for what it nearly always is.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.partition_key import PartitionKey

End = tuple[int, int]  # (epoch of the last record, -1 where there is none; log end offset)

# Machines that lost power together are back within it of each other, or an operator looks.
PATIENCE_MS = 15_000.0


class TornTails:
    """The torn copies of each broker, with their ends. Times are the controller's monotonic clock, in milliseconds."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[PartitionKey, End]] = {}
        self._since_ms: dict[int, float] = {}  # when each broker came back, as far as this controller knows
        self._trusted: set[int] = set()

    def told(self, broker_id: int, ends: Mapping[PartitionKey, End], now_ms: float, *, anew: bool = False) -> bool:
        """All torn ones of a broker; `anew`: it has just registered. Whether one of them is torn no more."""
        if anew or not ends:
            self._since_ms.pop(broker_id, None)
            self._trusted.discard(broker_id)
        if ends:
            self._since_ms.setdefault(broker_id, now_ms)
        before, self._ends[broker_id] = self._ends.get(broker_id, {}), dict(ends)
        return not before.keys() <= ends.keys()

    def end_of(self, broker_id: int, key: PartitionKey) -> End | None:
        """Where the copy ends, if it is torn and nothing vouches for it; None where it may lead."""
        return None if broker_id in self._trusted else self._ends.get(broker_id, {}).get(key)

    def take_expired(self, now_ms: float) -> list[int]:
        """Brokers whose copies have waited for others long enough: they may lead from now on."""
        waiting = self._since_ms.keys() - self._trusted
        expired = sorted(each for each in waiting if now_ms - self._since_ms[each] >= PATIENCE_MS)
        self._trusted.update(expired)
        return expired
