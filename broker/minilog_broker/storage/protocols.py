"""What storage takes from the layers above it, by shape, so that it imports none of them."""

from __future__ import annotations

from typing import Protocol

from minilog.record_batch.header import BatchHeader, Buffer


class LogKey(Protocol):
    """replication.state.PartitionKey: the topic id (16 bytes) and the partition."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition(self) -> int: ...


class BatchRun(Protocol):
    """replication.effects.PlacedBatches: contiguous batches; the buffers one after another are their bytes."""

    @property
    def headers(self) -> tuple[BatchHeader, ...]: ...

    @property
    def buffers(self) -> tuple[Buffer, ...]: ...
