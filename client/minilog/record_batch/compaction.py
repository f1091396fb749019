"""A stored batch of keys and values without some of its records (gaps.py). Pure.

Replicas that take out the same records get batches with the same records. The bytes may differ if the replicas have
different versions of Arrow.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from minilog import compute as pc
from minilog.record_batch.builder import assemble, message_of
from minilog.record_batch.gaps import gap_batch, offset_deltas
from minilog.record_batch.header import Attributes, BatchHeader, Buffer
from minilog.record_batch.reader import read_stored
from minilog.record_batch.schema import OFFSET_DELTA, payload_schema

CODECS = Attributes.LZ4 | Attributes.ZSTD
_COMPRESSIONS = {0: "none", Attributes.LZ4: "lz4", Attributes.ZSTD: "zstd"}


def compacted_batch(
    topic_id: bytes, partition: int, batch: Buffer, header: BatchHeader, is_kept: pa.BooleanArray
) -> bytes:
    """`batch` without some of its records. `is_kept` has one entry for each of its records: true or false, never null.
    The result is a gap batch if no record stays. The caller has checked the crc of `batch`. Raises CorruptMessage,
    ResourceExhausted."""
    decoded = read_stored(batch, header)
    deltas = offset_deltas(decoded, header).filter(is_kept)
    if not len(deltas):
        return gap_batch(topic_id, partition, header)
    records = decoded.filter(is_kept)
    attributes = header.attributes & ~CODECS | Attributes.COMPACTED | Attributes.GAPS
    schema = payload_schema(attributes)
    columns = [records.column(name) for name in schema.names if name != OFFSET_DELTA.name]
    timestamps = records.column("timestamp")
    kept = replace(
        header,
        record_count=len(deltas),
        base_timestamp_us=timestamps[0].value,
        max_timestamp_us=pc.max(timestamps).value,
    )
    return compressed_batch(
        topic_id,
        partition,
        replace(kept, attributes=attributes),
        b"",
        pa.RecordBatch.from_arrays([*columns, deltas], schema=schema),
        compression_of(header),
    )


def compression_of(header: BatchHeader) -> str:
    """The codec of a batch, by its name."""
    return _COMPRESSIONS[header.attributes & CODECS]


def compressed_batch(
    topic_id: bytes, partition: int, header: BatchHeader, extension: bytes, columns: pa.RecordBatch, compression: str
) -> bytes:
    """The batch of a header, without a codec in its attributes, of the padded extension and of these columns."""
    codec, message = message_of(columns, compression)
    return assemble(topic_id, partition, replace(header, attributes=header.attributes | codec), extension, message)
