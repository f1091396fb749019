"""What the sender wants done; the shell does it and reports back as each says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from minilog.errors import MinilogError
from minilog.limits import MAX_PRODUCE_ENTRIES
from minilog.producer.batch import Batch
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2

_MESSAGE_BYTES = 4 * 1024 * 1024  # what one stream message carries, about


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a produce stream to this broker; answer with connection_opened or connection_lost."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message on the open stream to this broker, after those before it."""

    broker_id: int
    request: StreamMessage[data_pb2.ProduceRequest]


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Ask for metadata; answer with metadata_changed."""


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """Call InitProducerId; answer with producer_id_given or producer_id_refused."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Complete the batch. base_offset is -1 under acks=0."""

    batch: Batch
    base_offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Complete the batch with an error."""

    batch: Batch
    error: MinilogError


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records that were reported as sent under acks=0 were refused."""

    error: MinilogError


Effect: TypeAlias = Connect | Send | RefreshMetadata | NeedProducerId | Delivered | Failed | LostRecords


def messages(
    entries: Iterable[tuple[data_pb2.ProduceEntry, bytes]],
) -> Iterator[list[tuple[data_pb2.ProduceEntry, bytes]]]:
    """Entries with their batches in order, in messages of about 4 MiB and no more entries than one may have; a larger
    one goes alone."""
    part: list[tuple[data_pb2.ProduceEntry, bytes]] = []
    size = 0
    for entry, batch in entries:
        if part and (size + len(batch) > _MESSAGE_BYTES or len(part) == MAX_PRODUCE_ENTRIES):
            yield part
            part, size = [], 0
        part.append((entry, batch))
        size += len(batch)
    if part:
        yield part
