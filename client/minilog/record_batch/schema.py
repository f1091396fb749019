"""The fixed columns of a payload. A peer sends no schema, so it can bring no type of its own (no extension types).

`PAYLOAD_SCHEMA` has the parts of a record. `payload_schema` is the schema on the wire of a batch with certain attribute
bits, without the columns that no record uses. `READ_SCHEMA` is the schema for readers.
"""

from __future__ import annotations

import pyarrow as pa

from minilog.record_batch.bounds import MAX_BATCH_BYTES as MAX_BATCH_BYTES
from minilog.record_batch.bounds import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES
from minilog.record_batch.header import Attributes

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

PAYLOAD_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("timestamp", TIMESTAMP), ("headers", HEADERS)]
)
READ_SCHEMA = PAYLOAD_SCHEMA.append(pa.field("offset", pa.int64()))
OFFSET_DELTA = pa.field("offset_delta", pa.int32())
"""The last column of a payload with gaps (gaps.py)."""

# Above max.message.bytes a batch may become this many times what it is on the wire: text compresses 3 to 10 times.
MAX_EXPANSION = 16

_OPTIONAL = {"key": Attributes.HAS_KEY, "headers": Attributes.HAS_HEADERS}


def payload_schema(attributes: int) -> pa.Schema:
    """The schema of the Arrow message of a batch with these `attributes`."""
    return _SCHEMAS[attributes & _SCHEMA_ATTRIBUTES]


def uncompressed_limit(batch_bytes: int, max_message_bytes: int = MAX_MESSAGE_BYTES) -> int:
    """How many bytes a batch of `batch_bytes` on the wire may have when it is decompressed: what the topic would take
    without compression, however small it has become, and above that MAX_EXPANSION times what was sent for it. So nobody
    makes a reader hold more than max.message.bytes with a few bytes. The rule of builder, leader and reader."""
    return min(max(MAX_EXPANSION * batch_bytes, max_message_bytes), MAX_BATCH_BYTES)


def _schema_of(attributes: int) -> pa.Schema:
    fields = [field for field in PAYLOAD_SCHEMA if field.name not in _OPTIONAL or _OPTIONAL[field.name] & attributes]
    return pa.schema([*fields, OFFSET_DELTA] if attributes & Attributes.GAPS else fields)


_SCHEMA_ATTRIBUTES = Attributes.HAS_KEY | Attributes.HAS_HEADERS | Attributes.GAPS
_SCHEMAS = {
    attributes | gaps: _schema_of(attributes | gaps) for attributes in range(4) for gaps in (0, Attributes.GAPS)
}
