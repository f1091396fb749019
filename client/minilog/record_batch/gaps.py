"""The offsets of the records of a batch, which may have gaps between them. Pure.

A batch as a client wrote it has a record at each of its offsets. Compaction takes records out and leaves the batch at
its place: with the base offset, the last offset delta, the producer and the sequence that it had. Such a batch has the
attributes COMPACTED and GAPS. Its payload has a last column:

    offset_delta: int32    of each record, strictly increasing, at most `last_offset_delta`, never null

A batch without records is a *gap batch*: a header without a payload. So each offset of a log is in exactly one batch,
as a record or as a gap. Indexes, replication and recovery read headers alone, and do not know of gaps
(docs/spec/formats.md).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage
from minilog.record_batch.builder import assemble
from minilog.record_batch.header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Buffer,
    decode_header,
)
from minilog.record_batch.schema import OFFSET_DELTA


def records_between(
    decoded: pa.RecordBatch, header: BatchHeader, first_offset: int, end_offset: int
) -> tuple[pa.RecordBatch, pa.Array]:
    """The records of a decoded payload with offsets in [first_offset, end_offset), a range within the batch, as columns
    without `offset_delta`; and their offsets (int64). Raises CorruptMessage where the deltas are not as the module's
    text says."""
    if not header.has_gaps:
        start, count = first_offset - header.base_offset, end_offset - first_offset
        return decoded.slice(start, count), pc.arange(first_offset, end_offset)
    deltas = offset_deltas(decoded, header)
    start, end = (_count_below(deltas, offset - header.base_offset) for offset in (first_offset, end_offset))
    offsets = pc.add(deltas.slice(start, end - start).cast(pa.int64()), header.base_offset)
    return decoded.select(range(decoded.num_columns - 1)).slice(start, end - start), offsets


def _count_below(deltas: pa.Array, delta: int) -> int:
    return int(pc.sum(pc.less(deltas, delta)).as_py())


def offset_deltas(decoded: pa.RecordBatch, header: BatchHeader) -> pa.Array:
    """Of each record of a decoded payload, from the base offset on (int32). Raises CorruptMessage."""
    if not header.has_gaps:
        return pc.arange(0, header.record_count).cast(OFFSET_DELTA.type)
    deltas = decoded.column(decoded.num_columns - 1)
    count = len(deltas)
    is_right = (
        deltas.null_count == 0
        and deltas[0].as_py() >= 0
        and deltas[count - 1].as_py() <= header.last_offset_delta
        and (count == 1 or pc.all(pc.less(deltas.slice(0, count - 1), deltas.slice(1))).as_py())
    )
    if not is_right:
        raise CorruptMessage(
            f"the record batch at offset {header.base_offset} has offset deltas that are null, do not increase, or lie "
            f"outside 0 to {header.last_offset_delta}"
        )
    return deltas


def gap_batch(topic_id: bytes, partition: int, header: BatchHeader) -> bytes:
    """The batch of `header` without its records: in its place, with its time stamps, its producer and its sequence."""
    attributes = header.attributes & Attributes.TRANSACTIONAL | Attributes.COMPACTED | Attributes.GAPS
    return assemble(topic_id, partition, replace(header, attributes=attributes, record_count=0, extension_bytes=0))


def joined_gap_batch(topic_id: bytes, partition: int, first: BatchHeader, last: BatchHeader) -> bytes:
    """One gap batch in the place of all from `first` to `last`, gap batches of one leader epoch back to back. It names
    no producer: what a leader knows of producers below it stands in a snapshot."""
    joined = replace(
        first,
        attributes=Attributes.COMPACTED | Attributes.GAPS,
        last_offset_delta=last.last_offset - first.base_offset,
        max_timestamp_us=max(first.max_timestamp_us, last.max_timestamp_us),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return gap_batch(topic_id, partition, joined)


def from_offset(topic_id: bytes, partition: int, batches: Buffer, offset: int) -> Buffer:
    """The same batches, beginning at `offset`, if the first one is a gap batch around it. All others stay.

    A log that joins gap batches has batches that begin below the end of another copy. That copy needs the rest."""
    header = decode_header(batches)
    if header.record_count or not header.has_gaps or not header.base_offset < offset < header.next_offset:
        return batches
    rest = replace(header, base_offset=offset, last_offset_delta=header.last_offset - offset)
    return b"".join((joined_gap_batch(topic_id, partition, rest, rest), memoryview(batches)[header.length :]))
