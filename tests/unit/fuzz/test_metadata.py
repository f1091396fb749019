"""The metadata log's decoders, with whatever a peer or a disk may hold: batches of records, control batches, snapshots.

What cannot be read is CorruptMessage, under right checksums UnsupportedVersion too; what can be read is bounded by what
came.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.record_batch.builder import build_batch, build_control_batch, records_to_columns
from minilog.record_batch.reader import read_control
from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.quorum.records import METADATA_KEY, decode_leader_change, decode_run, encode_records, place
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.unit.fuzz.messages import fuzzing, messages

TOPIC_IDS = (b"a" * 16, b"b" * 16)
PLAUSIBLE = {
    "topic_id": TOPIC_IDS,
    "name": ("t", "u"),
    "broker_id": (1, 2),
    "broker_epoch": (0, 1),
    "partition": (0, 1),
    "replicas": (1, 2),
    "cluster_id": ("c",),
    "directory_id": (b"d" * 16, b"e" * 16),
    "lost_directory_id": (b"d" * 16,),
    "end_offset": (5,),
    "epoch": (1,),
    "record_count": (0, 1, 2, 3),
}
_records = st.lists(messages(records_pb2.MetadataRecord, PLAUSIBLE), min_size=1, max_size=6)
ID = SnapshotId(5, 1)


def some_image() -> MetadataImage:
    image = MetadataImage()
    apply_record(image, 0, records_pb2.MetadataRecord(topic=records_pb2.TopicRecord(name="t", topic_id=TOPIC_IDS[0])))
    apply_record(
        image, 4, records_pb2.MetadataRecord(producer_id_block=records_pb2.ProducerIdBlockRecord(next_producer_id=7))
    )
    return image


def taken_for_nothing_else(content: bytes) -> None:
    with contextlib.suppress(CorruptMessage, UnsupportedVersion):
        decode_snapshot(content, ID)


def control(payload: bytes, offset: int) -> bytes:
    return bytes(place(build_control_batch(*METADATA_KEY, payload, timestamp_us=0), offset, 1).buffers[0])


@fuzzing(200)
@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=4), st.binary(max_size=60))
def test_a_batch_of_anything_is_read_or_corrupt(values: list[bytes | None], tail: bytes) -> None:
    batch = place(build_batch(*METADATA_KEY, records_to_columns(values), timestamp_us=0), 3, 1).buffers[0]
    for run in (bytes(batch), bytes(batch) + tail, tail):
        try:
            for decision in decode_run(run):
                assert len(decision.records) <= len(values)
        except (CorruptMessage, UnsupportedVersion):
            continue


@fuzzing(200)
@given(st.binary(max_size=60))
def test_a_control_batch_of_anything_is_read_or_corrupt(payload: bytes) -> None:
    for batch in (control(payload, 0), payload, control(payload, 0)[:-4]):
        for read in (read_control, decode_leader_change):
            try:
                read(batch)
            except (CorruptMessage, UnsupportedVersion):
                continue


@pytest.mark.dear("it tries many drawn messages")
@fuzzing(300)
@given(_records, messages(records_pb2.ControlRecord, PLAUSIBLE), messages(records_pb2.ControlRecord, PLAUSIBLE))
def test_a_snapshot_of_any_records_is_an_image_or_corrupt(
    records: list[records_pb2.MetadataRecord], header: records_pb2.ControlRecord, footer: records_pb2.ControlRecord
) -> None:
    right_header = records_pb2.ControlRecord(snapshot_header=records_pb2.SnapshotHeaderRecord(end_offset=5, epoch=1))
    right_footer = records_pb2.ControlRecord(
        snapshot_footer=records_pb2.SnapshotFooterRecord(record_count=len(records))
    )
    middle = bytes(place(encode_records(records, 0), 1, 1).buffers[0])
    for first, last in ((right_header, right_footer), (header, right_footer), (right_header, footer)):
        parts = (control(first.SerializeToString(), 0), middle, control(last.SerializeToString(), 1 + len(records)))
        taken_for_nothing_else(b"".join(parts))
        taken_for_nothing_else(b"".join(parts[:2]))
        taken_for_nothing_else(b"".join((*parts, parts[2])))


@fuzzing(300)
@given(st.integers(0), st.integers(0, 7), st.integers(0))
def test_a_damaged_snapshot_is_corrupt(position: int, bit: int, length: int) -> None:
    whole = encode_snapshot(some_image(), 1)
    assert decode_snapshot(whole, ID) == some_image()
    forged = bytearray(whole)
    forged[position % len(whole)] ^= 1 << bit
    for content in (bytes(forged), whole[: length % len(whole)]):
        try:
            decode_snapshot(content, ID)
        except CorruptMessage:
            continue
        raise AssertionError("damage was taken for a snapshot")
