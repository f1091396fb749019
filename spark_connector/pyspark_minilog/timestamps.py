"""The first record at or after a timestamp, exactly.

Brokers never look into batches, so they answer with the batch. The driver reads that one batch to find the record. So a
query begins at the same record as a query of Spark's Kafka connector.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from minilog import Admin, Consumer, TopicPartition
from minilog.config import parse_config
from minilog.errors import OffsetNotAvailable, OffsetOutOfRange, TimedOut
from pyspark_minilog.clients import lend
from pyspark_minilog.config_file import with_file
from pyspark_minilog.offsets import Partition, Positions

_SETTINGS = {"fetch.max.bytes": "1", "fetch.min.bytes": "1", "auto.offset.reset": "error"}
_POLL_S = 1.0


def first_since(client: Mapping[str, str], wanted_ms: Positions, latest: Positions) -> dict[Partition, int | None]:
    """The offset of the first record at or after each timestamp, or None if all records are older.

    A record behind `latest` counts as being at `latest`. Raises MinilogError.
    """
    with lend(Admin, client) as admin:
        batches = admin.list_offsets({TopicPartition(*partition): at_ms for partition, at_ms in wanted_ms.items()})
    deadline_s = time.monotonic() + parse_config(with_file(client)).request_timeout_ms / 1000
    offsets: dict[Partition, int | None] = {}
    with lend(Consumer, {**client, **_SETTINGS}) as consumer:
        for partition, at_ms in wanted_ms.items():
            first = batches[TopicPartition(*partition)]
            if first is not None:
                # It reads one batch, and seldom more. A query does this once, so one partition after the other is fine.
                bounded = TopicPartition(*partition, first, end_offset=latest[partition])
                first = (
                    _first_in(consumer, bounded, at_ms, deadline_s) if first < latest[partition] else latest[partition]
                )
            offsets[partition] = first
        consumer.assign([])
    return offsets


def _first_in(consumer: Consumer, bounded: TopicPartition, at_ms: int, deadline_s: float) -> int:
    """The first record of [offset, end_offset) that is young enough, or the end if none is."""
    consumer.assign([bounded])
    try:
        while not consumer.finished():
            for batch in consumer.poll_arrow(timeout=_POLL_S):
                index = _first_index(batch, at_ms)
                if index >= 0:
                    offset: int = batch.column("offset")[index].as_py()
                    return offset
            if time.monotonic() > deadline_s:
                place = f"{bounded.topic}-{bounded.partition}"
                raise TimedOut(f"partition {place} gave no record at offset {bounded.offset} or above in time")
    except OffsetOutOfRange as error:  # retention just deleted it, and the next answer names another
        raise OffsetNotAvailable(str(error)) from error
    assert bounded.end_offset is not None
    return bounded.end_offset


def _first_index(batch: pa.RecordBatch, at_ms: int) -> int:
    """The first row that is at least this young, -1 if none is."""
    since = pa.scalar(at_ms * 1000, pa.int64())
    index: int = pc.index(pc.greater_equal(batch.column("timestamp").cast(pa.int64()), since), True).as_py()
    return index
