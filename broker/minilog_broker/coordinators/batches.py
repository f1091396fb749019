"""The batches of an internal topic's log: whole decisions, with keys and values as in coordinator_records.proto.

A batch's checksum covers the topic id and partition, so that one of another log is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch
from minilog.record_batch.header import Buffer, check_crc, iterate_headers
from minilog.record_batch.reader import read_payload
from minilog_broker.coordinators.table import LogRecord


def encode_batch(key: PartitionKey, records: Sequence[LogRecord], timestamp_us: int) -> bytes:
    """The batch of some decisions, without a place in the log yet. `timestamp_us`: the wall clock's."""
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
        ],
        names=["key", "value"],
    )
    return build_batch(*key, columns, timestamp_us=timestamp_us)


def decode_run(key: PartitionKey, run: Buffer) -> Iterator[tuple[int, list[LogRecord]]]:
    """(end offset, records) of each batch of a run. Raises CorruptMessage where one is damaged or is not ours."""
    view = memoryview(run)
    for position, header in iterate_headers(view):
        batch = view[position : position + header.length]
        check_crc(*key, batch, header)
        columns = read_payload(batch, header)
        keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
        if None in keys:
            raise CorruptMessage(
                f"the batch at offset {header.base_offset} of an internal topic has a record without key"
            )
        yield header.next_offset, [LogRecord(*pair) for pair in zip(keys, values, strict=True)]
