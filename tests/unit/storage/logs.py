"""What the storage tests share: a partition, batches made by hand (nobody looks into a payload), a log of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    batch_crc,
    decode_header,
    encode_header,
    iterate_headers,
)
from minilog.v1 import records_pb2
from minilog_broker.replication.replica_effects import PlacedBatches
from minilog_broker.storage.compacted_segment import CompactedSegment, CompactedSegmentWriter
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.settings import LogSettings
from tests.world.disk import MemoryDisk

KEY = PartitionKey(bytes(range(16)), 3)
TOPIC = "flights"
DIRECTORY = "/data/flights-3"
SETTINGS = LogSettings(segment_bytes=1000, index_interval_bytes=200)


def batch(
    base_offset: int,
    *,
    records: int = 1,
    epoch: int = 0,
    timestamp_us: int | None = None,
    payload: bytes = b"",
    producer: tuple[int, int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
    transactional: bool = False,
    control: bool = False,
    markers: Sequence[tuple[int, bool]] = (),
) -> bytes:
    """A whole batch at its place; `producer` is (id, epoch, base sequence), `markers` (producer id, committed)."""
    attributes = Attributes.TRANSACTIONAL if transactional else 0
    if control or markers:
        attributes, payload = Attributes.CONTROL, control_payload(markers)
    payload += bytes(-len(payload) % 8)
    timestamp_us = base_offset * 1000 if timestamp_us is None else timestamp_us
    header = BatchHeader(
        length=HEADER_BYTES + len(payload),
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        crc=0,
        attributes=int(attributes),
        record_count=records,
        last_offset_delta=records - 1,
        base_timestamp_us=timestamp_us,
        max_timestamp_us=timestamp_us,
        producer_id=producer[0],
        base_sequence=producer[2],
        producer_epoch=producer[1],
    )
    crc = batch_crc(KEY.topic_id, KEY.partition, encode_header(header) + payload)
    return encode_header(replace(header, crc=crc)) + payload


def control_payload(markers: Sequence[tuple[int, bool]]) -> bytes:
    record = records_pb2.ControlRecord()
    record.transaction_markers.transactional_id = "spark-1"
    for producer_id, committed in markers:
        record.transaction_markers.markers.add(producer_id=producer_id, committed=committed)
    content = record.SerializeToString()
    return len(content).to_bytes(4, "little") + content


def header(
    base_offset: int,
    *,
    records: int = 1,
    producer: tuple[int, int, int],
    timestamp_us: int = 0,
    transactional: bool = False,
) -> BatchHeader:
    whole = batch(
        base_offset, producer=producer, records=records, timestamp_us=timestamp_us, transactional=transactional
    )
    return decode_header(whole)


def run_of(batches: Sequence[bytes]) -> PlacedBatches:
    return PlacedBatches(tuple(decode_header(one) for one in batches), tuple(batches))


def open_log(
    files: FileSystem,
    *,
    unclean: bool = True,
    create: bool = True,
    settings: LogSettings = SETTINGS,
    directory: str = DIRECTORY,
    boot_id: str = "",
) -> Log:
    if create:
        files.make_dir(directory.rpartition("/")[0])
        files.fsync_dir("/")
    return Log.open(files, directory, KEY, TOPIC, settings, unclean=unclean, create=create, boot_id=boot_id)


def append(log: Log, count: int = 1, *, records: int = 1, epoch: int = 0, payload: bytes = b"") -> list[bytes]:
    """Append `count` batches as one run; returns them."""
    batches: list[bytes] = []
    offset = log.log_end_offset
    for _ in range(count):
        batches.append(batch(offset, records=records, epoch=epoch, payload=payload))
        offset += records
    log.append(run_of(batches))
    return batches


def fill(log: Log, runs: int, *, records: int = 1, epoch: int = 0, payload: bytes = b"") -> list[bytes]:
    """`runs` appends of one batch each, then a flush."""
    batches = [one for _ in range(runs) for one in append(log, 1, records=records, epoch=epoch, payload=payload)]
    log.flush()
    return batches


def contents(log: Log) -> list[bytes]:
    """All batches from the log's start, as read."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        run = log.read(offset, 1 << 20)
        assert run, f"nothing to read at {offset}"
        for position, one in iterate_headers(run):
            found.append(run[position : position + one.length])
            offset = one.next_offset
    return found


def writer_of(files: FileSystem, log: Log, former: Sequence[Segment]) -> CompactedSegmentWriter:
    """What writes these segments anew, as one."""
    name, end_offset = former[0].name.next_generation(), former[-1].end.end_offset
    interval_bytes = log.settings.index_interval_bytes
    return CompactedSegmentWriter(files, log.directory, log.key, name, end_offset, interval_bytes=interval_bytes)


def write_anew(files: FileSystem, log: Log, former: Sequence[Segment], batches: Sequence[bytes]) -> CompactedSegment:
    """These segments with these batches in the place of theirs."""
    writer = writer_of(files, log, former)
    for one in batches:
        writer.write(one)
    return writer.finish()


def compact(files: FileSystem, log: Log, first: int, behind: int, batches: Sequence[bytes]) -> None:
    """Put one segment with these batches in the place of some sealed ones, by their numbers."""
    former = log.sealed_segments[first:behind]
    log.replace_segments(former, write_anew(files, log, former, batches))


def crashes_of(
    luck: int, prepare: Callable[[MemoryDisk], Log], change: Callable[[MemoryDisk, Log], object], least_steps: int = 1
) -> Iterator[tuple[MemoryDisk, int]]:
    """The disk after a crash in the middle of each step of `change`, with so many seeds, and the number of the step. A
    change of fewer than `least_steps` is an AssertionError."""
    for step in itertools.count():
        for seed in range(luck):
            files = MemoryDisk(Random(seed))
            log = prepare(files)
            if files.survives(partial(change, files, log), step):
                assert step >= least_steps, f"the change has only {step} steps"
                return
            yield files, step
