"""Snapshots: the metadata image as record batches, and back. Pure: storage.snapshot_files has the files.

    batch           content
    control         SnapshotHeaderRecord: cluster id, end offset, epoch
    records         MetadataRecords that build the image when applied in order to an empty one, about a thousand each
    control         SnapshotFooterRecord: the number of the records; without it the snapshot is not whole

Offsets in a snapshot's batches only number its records. The batches keep the checksum rules of any other batch.
"""

from __future__ import annotations

import itertools

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.header import Buffer, check_crc, iterate_headers
from minilog.record_batch.reader import read_control
from minilog.v1 import records_pb2
from minilog.versions import parse_known
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record, records_of
from minilog_broker.quorum.records import METADATA_KEY, decode_run, encode_records, place
from minilog_broker.storage.snapshot_id import SnapshotId

RECORDS_PER_BATCH = 1_000  # far below the largest batch: a partition's record is about a hundred bytes
_NO_TIME = 0  # a snapshot has a state, without the times of its changes


def encode_snapshot(image: MetadataImage, epoch: int) -> bytes:
    """The content of the snapshot (image.end_offset, epoch). `epoch` is that of the last applied record."""
    header = records_pb2.SnapshotHeaderRecord(
        cluster_id=image.cluster_id or "", end_offset=image.end_offset, epoch=epoch
    )
    parts = [_control(records_pb2.ControlRecord(snapshot_header=header), 0, epoch)]
    records, count = records_of(image), 0
    while chunk := list(itertools.islice(records, RECORDS_PER_BATCH)):
        parts += place(encode_records(chunk, _NO_TIME), 1 + count, epoch).buffers
        count += len(chunk)
    footer = records_pb2.SnapshotFooterRecord(record_count=count)
    parts.append(_control(records_pb2.ControlRecord(snapshot_footer=footer), 1 + count, epoch))
    return b"".join(parts)


def _control(record: records_pb2.ControlRecord, offset: int, epoch: int) -> Buffer:
    batch = build_control_batch(*METADATA_KEY, record.SerializeToString(), timestamp_us=_NO_TIME)
    return place(batch, offset, epoch).buffers[0]


def decode_snapshot(content: Buffer, snapshot_id: SnapshotId) -> MetadataImage:
    """The image in a snapshot's file. Raises CorruptMessage where it is damaged, not whole, or another snapshot, and
    UnsupportedVersion where a later version wrote it."""
    image = MetadataImage()
    view, header, footer, count = memoryview(content), None, None, 0
    for position, batch_header in iterate_headers(view):
        batch = view[position : position + batch_header.length]
        check_crc(*METADATA_KEY, batch, batch_header)
        if footer is not None or (header is None) != (position == 0 and batch_header.is_control):
            raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} has its batches out of order")
        if batch_header.is_control:
            control = _read_control(batch)
            if header is None and control.HasField("snapshot_header"):
                header = control.snapshot_header
            elif control.HasField("snapshot_footer"):
                footer = control.snapshot_footer
            else:
                raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} has an extra control batch")
            continue
        count += _apply(image, batch)
    if header is None or footer is None or footer.record_count != count:
        raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} is not whole")
    if SnapshotId(header.end_offset, header.epoch) != snapshot_id:
        raise CorruptMessage(
            f"the snapshot at offset {snapshot_id.end_offset} has the header of one at {header.end_offset}"
        )
    image.end_offset = snapshot_id.end_offset
    image.take_changes()
    return image


def _read_control(batch: Buffer) -> records_pb2.ControlRecord:
    try:
        return parse_known(records_pb2.ControlRecord, read_control(batch), "a control batch of a snapshot")
    except DecodeError as error:
        raise CorruptMessage(f"a control batch of a snapshot cannot be read: {error}") from error


def _apply(image: MetadataImage, batch: Buffer) -> int:
    """Apply the records of one batch, and give their number."""
    count = 0
    try:
        for decision in decode_run(batch):
            for record in decision.records:
                apply_record(image, 0, record)
                count += 1
    except (DecodeError, KeyError) as error:
        raise CorruptMessage(f"a snapshot has an invalid record: {error}") from error
    return count


def check_snapshot(content: Buffer, snapshot_id: SnapshotId) -> None:
    """Check that content from a peer or the disk is that snapshot, and whole. Raises as decode_snapshot."""
    decode_snapshot(content, snapshot_id)
