"""The markers of a control batch. A marker commits or aborts one producer in this partition. Pure."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage
from minilog.record_batch.header import BatchHeader, Buffer
from minilog.record_batch.reader import read_control
from minilog.v1 import records_pb2
from minilog.versions import parse_known


class CoordinatorEpoch(NamedTuple):
    """The coordinator that decided a producer's end: its partition of `__transactions`, and its leader epoch there."""

    partition: int
    epoch: int


class Marker(NamedTuple):
    """One producer's end."""

    producer_id: int
    committed: bool
    coordinator: CoordinatorEpoch = CoordinatorEpoch(0, 0)


def read_markers(batch: Buffer, header: BatchHeader) -> tuple[Marker, ...]:
    """The markers of a control batch. Empty if the control batch is of another kind.

    Raises CorruptMessage if its record cannot be read, UnsupportedVersion if a later version wrote it."""
    try:
        what = f"the control batch at offset {header.base_offset}"
        record = parse_known(records_pb2.ControlRecord, read_control(batch, header), what)
    except DecodeError as error:
        raise CorruptMessage(
            f"the control batch at offset {header.base_offset} has no record that can be read: {error}"
        ) from error
    content = record.transaction_markers
    coordinator = CoordinatorEpoch(content.coordinator_partition, content.coordinator_epoch)
    return tuple(Marker(marker.producer_id, marker.committed, coordinator) for marker in content.markers)
