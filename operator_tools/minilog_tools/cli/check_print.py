"""`minilog check DIR --print TOPIC PARTITION` prints the records of a stopped broker's copy. It asks no broker.

A single copy does not know everything. So records are printed whether their transaction committed or not, and whether
they were acknowledged or not. What is damaged is named, and the records behind it are printed. The schema of a typed
topic is in the metadata log of the same directory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from minilog.consumer.decode import decode, records
from minilog.consumer.partition import ConsumerSession, FetchedRun
from minilog.errors import CorruptMessage, MinilogError
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Attributes, decode_header
from minilog.record_batch.schema import MAX_BATCH_BYTES
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.types import Record, TopicPartition
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision
from minilog_broker.controller.snapshot import decode_snapshot
from minilog_broker.failure import CommandFailed
from minilog_broker.quorum.records import METADATA_KEY, decode_run
from minilog_broker.storage.batch_scan import Unreadable, salvage
from minilog_broker.storage.data_directory import StoppedDirectory
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.segment_name import segment_names
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.topic_id_file import TopicIdFile, read_topic_id
from minilog_tools.cli.common import say
from minilog_tools.cli.record_text import json_line


def print_records(files: FileSystem, stopped: StoppedDirectory, metadata_log: str, at: TopicPartition) -> bool:
    """Print each record as `minilog consume --json` does. Whether all could be read. Raises CommandFailed for a
    partition that is not there, MinilogError, OSError."""
    logs = [(path, owner) for path in stopped.logs if (owner := _owner(files, path)) is not None]
    found = [(path, owner) for path, owner in logs if (owner.topic_name, owner.partition) == (at.topic, at.partition)]
    if not found:
        there = sorted({f"{owner.topic_name} {owner.partition}" for _, owner in logs if owner.topic_name[:2] != "__"})
        raise CommandFailed(
            f"there is no log of {at.topic} {at.partition}: this directory has {', '.join(there) or 'none'}"
        )
    image, is_whole = _image(files, f"{stopped.path}/{metadata_log}"), True
    for path, owner in found:
        key = PartitionKey(bytes.fromhex(owner.topic_id), owner.partition)
        schemas = image.schemas.get(key.topic_id)
        reader = None
        if schemas is not None:
            latest = schemas.latest
            selection = TypedSelection(
                latest, latest.names, timestamps=True, keys=True, headers=True, deletions=bool(latest.key_columns)
            )
            reader = TypedReader(schemas, selection)
        for batch in _batches(files, path, key):
            try:
                if isinstance(batch, Unreadable):
                    raise CorruptMessage(f"{batch.size_bytes} bytes from position {batch.position} on are no batch")
                for record in _records(at, key, batch, reader):
                    sys.stdout.buffer.write(json_line(record))
            except MinilogError as error:
                is_whole = False
                say(f"minilog: {path}: {error}", error=True)
    return is_whole


def _owner(files: FileSystem, path: str) -> TopicIdFile | None:
    try:
        return read_topic_id(files, path)
    except MinilogError as error:
        say(f"minilog: {error}", error=True)
        return None


def _batches(files: FileSystem, path: str, key: PartitionKey) -> Iterator[memoryview | Unreadable]:
    for name in sorted(segment_names(files.list(path))):
        yield from salvage(files.open(name.path(path)), key)


def _records(at: TopicPartition, key: PartitionKey, batch: memoryview, reader: TypedReader | None) -> Iterator[Record]:
    header = decode_header(batch)
    if header.attributes & Attributes.TYPED and reader is None:
        raise CorruptMessage(
            f"offsets {header.base_offset} to {header.next_offset - 1} have a schema, and the metadata log of this "
            "directory does not have it"
        )
    run = FetchedRun(
        at,
        key,
        0,
        header.base_offset,
        header.next_offset,
        header.partition_leader_epoch,
        bytes(batch),
        frozenset(),
        ConsumerSession(-1, 0),
        reader=reader,
    )
    for rows in decode(run, MAX_BATCH_BYTES).rows:
        yield from records(run, rows)


def _image(files: FileSystem, path: str) -> MetadataImage:
    """The image at the end of the metadata log here, as far as it can be read."""
    image, snapshots = MetadataImage(), SnapshotFiles(files, path)
    for snapshot_id in snapshots.list()[:1]:
        image = decode_snapshot(snapshots.read(snapshot_id), snapshot_id)
    if not files.exists(path):
        return image
    for batch in _batches(files, path, METADATA_KEY):
        if isinstance(batch, Unreadable):
            break
        for decision in decode_run(batch):
            if decision.base_offset >= image.end_offset:
                apply_decision(image, decision.base_offset, decision.end_offset, decision.records)
    return image
