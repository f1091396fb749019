"""The metadata log's batches. Each holds one decision: MetadataRecords as the values of an ordinary record batch.

The log is partition 0 of the topic `__cluster_metadata`. A batch's checksum covers that topic id, so a broker refuses a
batch of another log. A leader change is a control batch and carries no MetadataRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, build_control_batch, records_to_columns
from minilog.record_batch.header import PLACEMENT_BYTES, Buffer, check_crc, decode_header, iterate_headers, placement
from minilog.record_batch.reader import read_control, read_payload
from minilog.v1 import peer_pb2, records_pb2
from minilog.versions import parse_known
from minilog_broker.replication.replica_effects import PlacedBatches

CLUSTER_METADATA_TOPIC_NAME = "__cluster_metadata"
CLUSTER_METADATA_TOPIC_ID = bytes(15) + b"\x01"  # as in Kafka: no random topic id can be it
METADATA_KEY = PartitionKey(CLUSTER_METADATA_TOPIC_ID, 0)
_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed decision, of `size_bytes` in the log. `records` stand at `base_offset` and after it. A leader
    change has none."""

    base_offset: int
    end_offset: int
    epoch: int
    records: tuple[records_pb2.MetadataRecord, ...]
    size_bytes: int = 0


def encode_records(records: Sequence[records_pb2.MetadataRecord], timestamp_us: int) -> bytes:
    """The batch of one decision, without a place in the log yet. `timestamp_us`: of the wall clock."""
    columns = records_to_columns([record.SerializeToString() for record in records])
    return build_batch(*METADATA_KEY, columns, timestamp_us=timestamp_us)


def encode_leader_change(
    leader_id: int, epoch: int, voters: Sequence[peer_pb2.VoterAddress], timestamp_us: int
) -> bytes:
    """The control batch that is the first entry of a quorum leader's epoch."""
    change = records_pb2.LeaderChangeRecord(leader_id=leader_id, leader_epoch=epoch, voters=voters)
    payload = records_pb2.ControlRecord(leader_change=change).SerializeToString()
    return build_control_batch(*METADATA_KEY, payload, timestamp_us=timestamp_us)


def place(batch: bytes, base_offset: int, epoch: int) -> PlacedBatches:
    """`batch` at its place in the log."""
    placed = placement(batch, base_offset, epoch) + batch[PLACEMENT_BYTES:]
    return PlacedBatches((decode_header(placed),), (placed,))


def decode_run(run: Buffer) -> Iterator[CommittedBatch]:
    """The decisions in a run of whole batches. Raises CorruptMessage if a batch or a record is damaged. Raises
    UnsupportedVersion if a later version wrote one: it is never skipped."""
    view = memoryview(run)
    for position, header in iterate_headers(view):
        batch = view[position : position + header.length]
        check_crc(*METADATA_KEY, batch, header)
        records: tuple[records_pb2.MetadataRecord, ...] = ()
        if not header.is_control:
            values = read_payload(batch, header).column("value").to_pylist()
            kind, offset = records_pb2.MetadataRecord, header.base_offset
            records = tuple(_decoded(kind, value, "record", offset) for value in values)
        yield CommittedBatch(
            header.base_offset, header.next_offset, header.partition_leader_epoch, records, header.length
        )


def decode_leader_change(batch: Buffer) -> records_pb2.LeaderChangeRecord:
    """The content of a control batch of this log. Raises CorruptMessage."""
    offset = decode_header(batch).base_offset
    return _decoded(records_pb2.ControlRecord, read_control(batch), "control", offset).leader_change


def _decoded(kind: type[_Message], value: bytes | None, kinds: str, offset: int) -> _Message:
    """A record of ours, one of `kinds`. Its batch's checksums fit, so a record that cannot be read was written
    wrong."""
    what = f"a record in the metadata log's batch at offset {offset}"
    try:
        record = parse_known(kind, value or b"", what)
    except DecodeError as error:
        raise CorruptMessage(f"the metadata log's batch at offset {offset} has a record that cannot be read") from error
    if record.WhichOneof(kinds) is None:
        raise CorruptMessage(f"{what} is empty")
    return record
