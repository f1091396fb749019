"""The systems that are compared: each a cluster of three brokers on loopback, started here and ended by process id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Running(Protocol):
    """A running cluster."""

    @property
    def name(self) -> str: ...

    @property
    def servers(self) -> str: ...

    @property
    def client_ports(self) -> Sequence[int]:
        """All ports that its clients connect to."""
        ...

    @property
    def pids(self) -> dict[str, int]: ...

    def end(self) -> None: ...


class System(Running, Protocol):
    """One with topics. `create`: a topic with three replicas; `is_synced`: each write is on the disks before it is
    acknowledged. `count`: records in a topic, by what the cluster says."""

    def create(self, topic: str, partitions: int, *, is_synced: bool) -> None: ...

    def delete(self, topic: str) -> None: ...

    def count(self, topic: str, partitions: int) -> int: ...

    def leader(self, topic: str) -> int:
        """Of partition 0; -1 nobody."""
        ...

    def kill(self, broker_id: int) -> None:
        """SIGKILL."""
        ...

    def start(self, broker_id: int) -> None: ...

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        """Until all three replicas of each partition are."""
        ...

    def member_count(self, group: str) -> int:
        """Members of a group; 0 where there is none."""
        ...

    def coordinator(self, group: str) -> int:
        """The id of the broker that is the coordinator of a group with members."""
        ...
