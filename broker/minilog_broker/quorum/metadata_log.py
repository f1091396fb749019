"""The metadata log as the roles see it: what storage has, and what has been given a place but is not written yet.

Appends are carried out later, on a disk thread; `end_offset` and `last_epoch` count them already, `log` does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from minilog_broker.quorum.effects import QuorumEffect
from minilog_broker.quorum.records import METADATA_KEY, CommittedBatch, decode_run, place
from minilog_broker.replication.effects import AppendToLog, PlacedBatches
from minilog_broker.storage.epoch_cache import EpochCache

READ_BYTES = 1 << 20  # one step of a replay, and about one message of a session


class StoredLog(Protocol):
    """What the quorum uses of storage.log.Log. Reading it is always allowed; changes go through effects."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def durable_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def epochs(self) -> EpochCache: ...
    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> bytes: ...
    def epoch_before(self, offset: int) -> int | None: ...
    def set_high_watermark(self, offset: int) -> None: ...


class MetadataLog:
    """See the module's text. `effects` is the owner's list of effects."""

    def __init__(self, log: StoredLog, effects: list[QuorumEffect]) -> None:
        self.log = log
        self._effects = effects
        self.end_offset = log.log_end_offset
        self.last_epoch = log.epoch_before(self.end_offset)
        self.durable_end_offset = log.durable_end_offset
        self.committed_end_offset = min(log.high_watermark, self.durable_end_offset)

    @property
    def is_settled(self) -> bool:
        """Nothing that was asked for is still to be written."""
        return self.end_offset == self.log.log_end_offset

    def append_batch(self, batch: bytes, epoch: int) -> int:
        """Give `batch` the next place and have it written; the end offset behind it."""
        return self.append(place(batch, self.end_offset, epoch))

    def append(self, batches: PlacedBatches) -> int:
        self._effects.append(AppendToLog(METADATA_KEY, batches))
        self.end_offset = batches.end_offset
        self.last_epoch = batches.headers[-1].partition_leader_epoch
        return self.end_offset

    def flushed(self, durable_end_offset: int) -> None:
        self.durable_end_offset = max(self.durable_end_offset, durable_end_offset)

    def truncated(self) -> None:
        self.end_offset = self.log.log_end_offset
        self.durable_end_offset = min(self.log.durable_end_offset, self.end_offset)
        self.last_epoch = self.log.epoch_before(self.end_offset)

    def commit(self, end_offset: int) -> bool:
        """Committed up to `end_offset`, as far as it is on this disk; whether that is news."""
        end_offset = min(end_offset, self.durable_end_offset)
        if end_offset <= self.committed_end_offset:
            return False
        self.committed_end_offset = end_offset
        self.log.set_high_watermark(end_offset)
        return True

    def decisions(self, offset: int, end_offset: int) -> Iterator[CommittedBatch]:
        """The decisions in [offset, end_offset), which are batch boundaries, read piece by piece."""
        while offset < end_offset:
            for decision in decode_run(self.log.read(offset, READ_BYTES, end_offset)):
                yield decision
                offset = decision.end_offset
