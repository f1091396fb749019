"""The fixed columns of a payload. A peer sends no schema, so it can bring no type of its own (no extension types).

`PAYLOAD_SCHEMA` is what a record is; `payload_schema` what a batch with these attribute bits has on the wire, where the
columns that no record uses are left out; `READ_SCHEMA` what readers get.
"""

from __future__ import annotations

import pyarrow as pa

from minilog.record_batch.header import Attributes

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

PAYLOAD_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("timestamp", TIMESTAMP), ("headers", HEADERS)]
)
READ_SCHEMA = PAYLOAD_SCHEMA.append(pa.field("offset", pa.int64()))

# What one batch may have, on the wire and when its buffers are decompressed, whatever max.message.bytes says: no honest
# batch comes near, Arrow's int32 offsets hold it, and a bomb stops here in readers that know no max.message.bytes.
MAX_BATCH_BYTES = 2**28
# The highest max.message.bytes that a topic can have: what is larger would not fit a frame of gRPC, and is not sent.
MAX_MESSAGE_BYTES = 2**26
# A leader lets a batch be this many times max.message.bytes when decompressed; the builder keeps to the same bound.
MAX_EXPANSION = 16

_OPTIONAL = {"key": Attributes.HAS_KEY, "headers": Attributes.HAS_HEADERS}


def payload_schema(attributes: int) -> pa.Schema:
    """The schema of the Arrow message of a batch with these `attributes`."""
    return _SCHEMAS[attributes & (Attributes.HAS_KEY | Attributes.HAS_HEADERS)]


def uncompressed_limit(max_message_bytes: int) -> int:
    """How many bytes a batch may have when decompressed, where `max_message_bytes` is what it may have on the wire."""
    return min(MAX_EXPANSION * max_message_bytes, MAX_BATCH_BYTES)


def _schema_of(attributes: int) -> pa.Schema:
    return pa.schema(
        [field for field in PAYLOAD_SCHEMA if field.name not in _OPTIONAL or _OPTIONAL[field.name] & attributes]
    )


_SCHEMAS = {attributes: _schema_of(attributes) for attributes in range(4)}
