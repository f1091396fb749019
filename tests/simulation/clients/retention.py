"""What retention may have deleted, by what lies on the disks and by what clients were told.

    retention.bytes   whole segments, while so many bytes are left behind them in that copy
    retention.ms      whole segments of which no record is younger: so nothing from the first record on that is, by the
                      clock of the broker that is farthest ahead

All values that were asked for so far count, for nobody knows when one is in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from tests.simulation.clients.history import History, Outcome
from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.host import SimulatedHost

_SEGMENT = re.compile(r"(\d{20})(\.\d+)?\.log")


class Retention:
    """What a topic's settings have ever allowed to be deleted."""

    def __init__(self, cluster: SimulatedCluster, history: History, configs: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._history = history
        self._least_bytes: int | None = None
        self._least_ms: int | None = None
        self._ahead_ms = 0.0
        self._gone: dict[PartitionKey, int] = {}
        self.asked(configs)

    def asked(self, configs: Mapping[str, str]) -> None:
        """Somebody asks for these settings."""
        kept_bytes, kept_ms = (int(configs.get(f"retention.{unit}", -1)) for unit in ("bytes", "ms"))
        if kept_bytes >= 0:
            self._least_bytes = min(kept_bytes, self._least_bytes or kept_bytes)
        if kept_ms >= 0:
            self._least_ms = min(kept_ms, self._least_ms or kept_ms)

    def may_be_gone(self, at: TopicPartition, key: PartitionKey) -> int:
        """The offset below which records may be deleted by now."""
        found = self._gone.get(key, 0)
        if self._least_bytes is not None:
            found = max(found, *(_above(host, at, self._least_bytes) for host in self._cluster.hosts.values()))
        if self._least_ms is not None:
            found = max(found, self._first_young(at, key, self._least_ms))
        self._gone[key] = found
        return found

    def _first_young(self, at: TopicPartition, key: PartitionKey, kept_ms: int) -> int:
        """Where none is young that is known: all segments but the newest; of what is unknown nobody has an offset."""
        offsets = [host.wall_offset_us / 1e3 for host in self._cluster.hosts.values()]
        self._ahead_ms = max(self._ahead_ms, *offsets)
        oldest_ms = self._cluster.now_s * 1e3 - kept_ms + self._ahead_ms
        first: int | None = None
        for write in self._history.writes.values():
            known = write.key == key and write.outcome is Outcome.OK and write.offset >= 0  # acks=0 tells no offset
            if known and write.began_ms >= oldest_ms and (first is None or write.offset < first):
                first = write.offset
        if first is not None:
            return first
        return max(_above(host, at, 0) for host in self._cluster.hosts.values())


def _above(host: SimulatedHost, at: TopicPartition, kept_bytes: int) -> int:
    """The base offset of the segment behind whose end fewer bytes than these are left: those before may be gone."""
    path = f"{DATA_PATH}/{at.topic}-{at.partition}"
    names = host.disk.list(path) if host.disk.exists(path) else []
    total_bytes, base = 0, 0
    for name in sorted((name for name in names if _SEGMENT.fullmatch(name)), reverse=True):
        total_bytes += host.disk.size(f"{path}/{name}")
        base = int(name[:20])
        if total_bytes >= kept_bytes:
            return base
    return 0
