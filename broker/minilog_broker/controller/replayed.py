"""How far each broker has replayed the metadata log, as it says with its heartbeats, and how late that is.

A broker goes by users and rules that it knows. What was taken away lately holds there until it has replayed that: who
has taken it away is told which brokers have not (`Admin.not_heard_by`). `cluster health` names those that stay behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Broker:
    offset: int
    wanted_offset: int  # the end of the log at some time ...
    wanted_since_ms: float  # ... which it has not told to have reached since


class Replayed:
    """Of one term of a controller; times are its monotonic clock's."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}

    def told(self, broker_id: int, offset: int, log_end_offset: int, now_ms: float) -> None:
        """It has replayed all below `offset`."""
        known = self._brokers.get(broker_id)
        if known is None or offset >= known.wanted_offset:
            self._brokers[broker_id] = _Broker(offset, log_end_offset, now_ms)
        else:
            known.offset = offset

    def forget(self, broker_id: int) -> None:
        """Drop a broker that is registered no more."""
        self._brokers.pop(broker_id, None)

    def offsets(self) -> dict[int, int]:
        """Of those that were heard in this term."""
        return {broker_id: each.offset for broker_id, each in self._brokers.items()}

    def late(self, limit_ms: float, now_ms: float) -> Iterable[int]:
        """Those that lack what was decided longer ago than `limit_ms`, or have not said otherwise."""
        return (each for each, known in self._brokers.items() if now_ms - known.wanted_since_ms > limit_ms)
