"""Copies whose tail was cut at a start: the reports of brokers in their heartbeats, and the time for which they count.

A torn tail stands above the recorded end of the log. Either it was never synced, or it was, and the disk has rotted.
Then the copy lacks acknowledged records. Two copies decide, for at most one of them is rotten: the longer one has all
(election.py). Where no second one comes back in time, the controller trusts the torn one, which is nearly always right.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.partition_key import PartitionKey

End = tuple[int, int]  # (epoch of the last record, -1 where there is none; log end offset)

# Machines that lost power together are back within this time, or an operator has to look.
PATIENCE_MS = 15_000.0


class TornTails:
    """The torn copies of each broker, with their ends. Times are the controller's monotonic clock, in milliseconds."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[PartitionKey, End]] = {}
        self._since_ms: dict[int, float] = {}  # the return of each broker, as far as this controller knows
        self._trusted: set[int] = set()

    def report(self, broker_id: int, ends: Mapping[PartitionKey, End], now_ms: float, *, anew: bool = False) -> bool:
        """Take all torn copies of a broker. `anew`: it has just registered. True where one of them is torn no more."""
        if anew or not ends:
            self._since_ms.pop(broker_id, None)
            self._trusted.discard(broker_id)
        if ends:
            self._since_ms.setdefault(broker_id, now_ms)
        before, self._ends[broker_id] = self._ends.get(broker_id, {}), dict(ends)
        return not before.keys() <= ends.keys()

    def end_of(self, broker_id: int, key: PartitionKey) -> End | None:
        """The end of a copy that is torn and not trusted; None where the copy may lead."""
        return None if broker_id in self._trusted else self._ends.get(broker_id, {}).get(key)

    def take_expired(self, now_ms: float) -> list[int]:
        """Brokers whose copies have waited for others long enough. They may lead from now on."""
        waiting = self._since_ms.keys() - self._trusted
        expired = sorted(broker for broker in waiting if now_ms - self._since_ms[broker] >= PATIENCE_MS)
        self._trusted.update(expired)
        return expired
