"""What shells tell of what they do, for metrics. Where HTTP is off nobody listens, and each of these does nothing.

On the hot path stand `CallObserver` (one or two updates for each message or batch, none for a record), `appended` (one
for each append), `read_from_memory` (one for each run that is sent) and `synced` (one for each group of the disk's
thread). The cores know none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import PartitionState


class CallObserver(Protocol):
    """Of one kind of call: `Produce`, `GetMetadata`, ..."""

    def took(self, seconds: float) -> None:
        """A request was answered, so long after it had come."""

    def received(self, size_bytes: int) -> None:
        """A message came."""

    def sent(self, size_bytes: int) -> None:
        """A message was handed to gRPC."""


class Observer(Protocol):
    """Of one broker. All on its event loop, but `synced`."""

    def call(self, kind: str) -> CallObserver:
        """The one of a kind of call, for the life of the broker: by name once, not for each message."""

    def appended(self, size_bytes: int, records: int) -> None:
        """A run of batches was given to the disk, of producers or of a leader."""

    def read_from_memory(self, size_bytes: int) -> None:
        """A run was read for a follower or a consumer without waiting for the disk."""

    def read_from_disk(self, size_bytes: int) -> None:
        """The same by a thread that waited for the disk."""

    def synced(self, seconds: float) -> None:
        """What a group of appends wrote was synced. Called on a disk's thread."""

    def partitions_changed(self, states: Iterable[PartitionState]) -> None:
        """Committed states of partitions of which this broker has a replica."""

    def partitions_removed(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that have no replica here any more."""

    def controller_changed(self) -> None:
        """Another leads the metadata quorum, or nobody, as far as this broker knows."""

    def unclean_election(self) -> None:
        """This broker, as the controller, made one."""


class _UnobservedCall:
    def took(self, seconds: float) -> None: ...

    def received(self, size_bytes: int) -> None: ...

    def sent(self, size_bytes: int) -> None: ...


class Unobserved:
    """Nobody listens."""

    def call(self, kind: str) -> CallObserver:
        return UNOBSERVED_CALL

    def appended(self, size_bytes: int, records: int) -> None: ...

    def read_from_memory(self, size_bytes: int) -> None: ...

    def read_from_disk(self, size_bytes: int) -> None: ...

    def synced(self, seconds: float) -> None: ...

    def partitions_changed(self, states: Iterable[PartitionState]) -> None: ...

    def partitions_removed(self, keys: Iterable[PartitionKey]) -> None: ...

    def controller_changed(self) -> None: ...

    def unclean_election(self) -> None: ...


UNOBSERVED_CALL: CallObserver = _UnobservedCall()
UNOBSERVED: Observer = Unobserved()
