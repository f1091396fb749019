"""Snapshots: the metadata image as record batches, and back. Pure; the files are storage.snapshot_files' matter.

    batch           what is in it
    control         SnapshotHeaderRecord: cluster id, end offset, epoch
    records         MetadataRecords that build the image when applied in order to an empty one, about a thousand each
    control         SnapshotFooterRecord: how many those were; without it the snapshot is not whole

A broker's registration carries its broker epoch, for its offset in the snapshot is not the one it was committed at.
Offsets in a snapshot's batches only number its records, which keep the checksum rules of any other batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.header import Buffer, check_crc, iterate_headers
from minilog.record_batch.reader import read_control
from minilog.typed.topic_schemas import schemas_to_wire
from minilog.v1 import common_pb2, records_pb2
from minilog.versions import parse_known
from minilog_broker.controller.image import BrokerRegistration, MetadataImage, record_of
from minilog_broker.controller.security_records import security_records
from minilog_broker.quorum.cluster import level_record
from minilog_broker.quorum.records import METADATA_KEY, decode_run, encode_records, place
from minilog_broker.storage.snapshot_files import SnapshotId

RECORDS_PER_BATCH = 1_000  # far below the largest batch: a partition's record is about a hundred bytes
_NO_TIME = 0  # a snapshot says what is, not when it was said


def image_records(image: MetadataImage) -> Iterator[records_pb2.MetadataRecord]:
    """Records that build `image` when they are applied in this order to an empty one."""
    if image.cluster_id is not None:
        yield level_record(image.level)  # first: whoever does not support it need not look at what follows
        voters = [
            records_pb2.Voter(broker_id=v.broker_id, directory_id=v.directory_id, host=v.host, port=v.port)
            for v in image.voters
        ]
        yield records_pb2.MetadataRecord(cluster=records_pb2.ClusterRecord(cluster_id=image.cluster_id, voters=voters))
    for _, broker in sorted(image.brokers.items()):
        yield from _broker_records(broker)
    for topic_id, topic in sorted(image.topics.items()):
        yield records_pb2.MetadataRecord(
            topic=records_pb2.TopicRecord(
                name=topic.name,
                topic_id=topic_id,
                internal=topic.internal,
                defaults=[records_pb2.TopicDefault(name=name, value=value) for name, value in topic.defaults],
            )
        )
        for schema in schemas_to_wire(image.schemas.get(topic_id)):
            told = records_pb2.TopicSchemaRecord(topic_id=topic_id, schema=schema)
            yield records_pb2.MetadataRecord(topic_schema=told)
        for name, value in sorted(image.configs.get(topic_id, {}).items()):
            yield records_pb2.MetadataRecord(
                topic_config=records_pb2.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
            )
        for key in topic.partition_keys():
            yield record_of(image.partitions[key])
    if image.next_producer_id:
        block = records_pb2.ProducerIdBlockRecord(broker_id=-1, next_producer_id=image.next_producer_id)
        if image.producer_key is not None:
            block.proof_key, block.first_proven_id = image.producer_key.key, image.producer_key.first_id
        yield records_pb2.MetadataRecord(producer_id_block=block)
    yield from security_records(image.users, image.access_rules, image.quotas, image.tokens)


def _broker_records(broker: BrokerRegistration) -> Iterator[records_pb2.MetadataRecord]:
    yield records_pb2.MetadataRecord(
        broker_registration=records_pb2.BrokerRegistrationRecord(
            broker_id=broker.broker_id,
            directory_id=broker.directory_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            failure_domain=broker.failure_domain,
            kernel_boot_id=broker.kernel_boot_id,
            broker_epoch=broker.broker_epoch,
            levels=broker.levels.to_wire(),
            version=broker.version,
            clean_stop_broker_epoch=broker.clean_stop_broker_epoch,
            peer_host=None if broker.own_peer_address is None else broker.own_peer_address[0],
            peer_port=0 if broker.own_peer_address is None else broker.own_peer_address[1],
            host_label=broker.host_label,
            listeners=[
                common_pb2.ListenerAddress(name=name, host=host, port=port) for name, (host, port) in broker.listeners
            ],
        )
    )
    if not broker.fenced or broker.stopping:
        yield records_pb2.MetadataRecord(
            broker_state=records_pb2.BrokerStateRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                fenced=broker.fenced,
                stopping=broker.stopping,
            )
        )


def encode_snapshot(image: MetadataImage, epoch: int) -> bytes:
    """The content of the snapshot (image.end_offset, epoch): `epoch` is that of the last record applied."""
    header = records_pb2.SnapshotHeaderRecord(
        cluster_id=image.cluster_id or "", end_offset=image.end_offset, epoch=epoch
    )
    parts = [_control(records_pb2.ControlRecord(snapshot_header=header), 0, epoch)]
    records, count = image_records(image), 0
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
    """The image in a snapshot's file. Raises CorruptMessage where it is damaged, not whole, or another snapshot;
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
                raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} has a control batch too many")
            continue
        count += _apply(image, batch)
    if header is None or footer is None or footer.record_count != count:
        raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} is not whole")
    if SnapshotId(header.end_offset, header.epoch) != snapshot_id:
        raise CorruptMessage(f"the snapshot at offset {snapshot_id.end_offset} says it is one at {header.end_offset}")
    image.end_offset = snapshot_id.end_offset
    image.take_changes()
    return image


def _read_control(batch: Buffer) -> records_pb2.ControlRecord:
    try:
        return parse_known(records_pb2.ControlRecord, read_control(batch), "a control batch of a snapshot")
    except DecodeError as error:
        raise CorruptMessage(f"a control batch of a snapshot cannot be read: {error}") from error


def _apply(image: MetadataImage, batch: Buffer) -> int:
    """Apply the records of one batch; how many those were."""
    count = 0
    try:
        for decision in decode_run(batch):
            for record in decision.records:
                image.apply(0, record)
                count += 1
    except (DecodeError, KeyError) as error:
        raise CorruptMessage(f"a snapshot has a record that cannot be there: {error}") from error
    return count


def check_snapshot(content: Buffer, snapshot_id: SnapshotId) -> None:
    """What came from a peer or the disk is that snapshot, and whole. Raises as decode_snapshot."""
    decode_snapshot(content, snapshot_id)
