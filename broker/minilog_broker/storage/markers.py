"""The markers of a control batch: which producers end in this partition, and how. Pure."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage
from minilog.record_batch.header import BatchHeader, Buffer
from minilog.record_batch.reader import read_control
from minilog.v1 import records_pb2


class Marker(NamedTuple):
    """One producer's end."""

    producer_id: int
    committed: bool


def read_markers(batch: Buffer, header: BatchHeader) -> tuple[Marker, ...]:
    """What the control batch ends; nothing where it is of another kind. Raises CorruptMessage where it is none."""
    try:
        record = records_pb2.ControlRecord.FromString(read_control(batch, header))
    except DecodeError as error:
        raise CorruptMessage(
            f"the control batch at offset {header.base_offset} has no record that can be read: {error}"
        ) from error
    return tuple(Marker(each.producer_id, each.committed) for each in record.transaction_markers.markers)
