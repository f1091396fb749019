"""The events of shells for metrics. Where HTTP is off there is no observer, and each of these calls does nothing.

The hot path has `CallObserver` (one or two updates for each message or batch, none for a record), `appended` (one for
each append), `read_from_memory` (one for each run that is sent) and `synced` (one for each group of the disk's thread).
The cores know none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import PartitionState


class CallObserver(Protocol):
    """The observer of one kind of call: `Produce`, `GetMetadata`, ..."""

    def took(self, seconds: float) -> None:
        """Note an answer, and the time since its request."""

    def received(self, size_bytes: int) -> None:
        """Note a message that came."""

    def sent(self, size_bytes: int) -> None:
        """Note a message that was handed to gRPC."""


class BrokerObserver(Protocol):
    """The observer of one broker. All calls are on its event loop, but `synced`."""

    def call(self, kind: str) -> CallObserver:
        """The observer of a kind of call, for the life of the broker. Look it up once, not for each message."""

    def appended(self, size_bytes: int, records: int) -> None:
        """Note a run of batches that was given to the disk, of producers or of a leader."""

    def read_from_memory(self, size_bytes: int) -> None:
        """Note a run that was read for a follower or a consumer without a wait for the disk."""

    def read_from_disk(self, size_bytes: int) -> None:
        """Note a run that was read by a thread that waited for the disk."""

    def synced(self, seconds: float) -> None:
        """Note the sync of a group of appends. Called on a disk's thread."""

    def partitions_changed(self, states: Iterable[PartitionState]) -> None:
        """Note committed states of partitions with a replica on this broker."""

    def partitions_removed(self, keys: Iterable[PartitionKey]) -> None:
        """Note partitions that have no replica here any more."""

    def controller_changed(self) -> None:
        """Note that another broker leads the metadata quorum, or none, as far as this broker knows."""

    def unclean_election(self) -> None:
        """Note an unclean election by this broker as the controller."""


class _UnobservedCall:
    def took(self, seconds: float) -> None: ...

    def received(self, size_bytes: int) -> None: ...

    def sent(self, size_bytes: int) -> None: ...


class Unobserved:
    """The observer that does nothing."""

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
UNOBSERVED: BrokerObserver = Unobserved()
