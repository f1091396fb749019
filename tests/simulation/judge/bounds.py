"""How often a member comes back into an ISR: who is put out and taken in again and again is neither in nor out. V19.

Of one life of one broker, whatever befalls the cluster. Measured over seeds with faults: three times within ten seconds
at most.
"""

from __future__ import annotations

from collections import deque

from minilog.partition_key import PartitionKey
from tests.simulation.judge.metadata import JudgedChange
from tests.simulation.judge.registrations import Registrations
from tests.simulation.violation import Violation

WINDOW_S = 10.0
MOST_JOINS = 6


class Joins:
    """See the module's text."""

    def __init__(self) -> None:
        self._joined_s: dict[tuple[PartitionKey, int, int], deque[float]] = {}

    def changed(self, change: JudgedChange, registrations: Registrations, now_s: float) -> None:
        """A state was committed."""
        before = change.before
        if before is None:
            return
        for number in set(change.state.in_sync_replicas) - set(before.in_sync_replicas):
            times = self._joined_s.setdefault((change.key, number, registrations.broker_epoch(number)), deque())
            times.append(now_s)
            while times[0] < now_s - WINDOW_S:
                times.popleft()
            if len(times) > MOST_JOINS:
                text = f"b{number} has joined the ISR of partition {change.key.partition} {len(times)} times within "
                raise Violation("V19", f"{text}{WINDOW_S:.0f} s, in one life", nodes=(number,), key=change.key)
