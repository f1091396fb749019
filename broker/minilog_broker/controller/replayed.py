"""Each broker's end of its replay of the metadata log, from its heartbeats, and its delay.

A broker uses the users and rules in its own image. A right that was taken away holds on a broker until its replay. So
the answer to a removal names the brokers that are not there yet (`Admin.not_heard_by`). `cluster health` names the
brokers that stay behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Broker:
    offset: int
    wanted_offset: int  # the end of the log at some time ...
    wanted_since_ms: float  # ... that it has not reported since


class Replayed:
    """The replay of brokers in one term of a controller. Times are its monotonic clock."""

    def __init__(self) -> None:
        self._brokers: dict[int, _Broker] = {}

    def report(self, broker_id: int, offset: int, log_end_offset: int, now_ms: float) -> None:
        """Note that a broker has replayed all below `offset`."""
        broker = self._brokers.get(broker_id)
        if broker is None or offset >= broker.wanted_offset:
            self._brokers[broker_id] = _Broker(offset, log_end_offset, now_ms)
        else:
            broker.offset = offset

    def forget(self, broker_id: int) -> None:
        """Drop a broker that is registered no more."""
        self._brokers.pop(broker_id, None)

    def offsets(self) -> dict[int, int]:
        """The offsets of brokers that were heard in this term."""
        return {broker_id: broker.offset for broker_id, broker in self._brokers.items()}

    def late(self, limit_ms: float, now_ms: float) -> Iterable[int]:
        """Brokers that have not reported decisions older than `limit_ms`."""
        return (broker_id for broker_id, broker in self._brokers.items() if now_ms - broker.wanted_since_ms > limit_ms)
