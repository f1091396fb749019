"""Checks the arguments of `send` and `send_batch`, and cuts an Arrow batch into parts."""

from __future__ import annotations

import contextlib
import operator
import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

import pyarrow as pa

from minilog.errors import InvalidRecord, UnknownTopicOrPartition
from minilog.net.metadata_cache import CachedTopic
from minilog.producer.accumulator import Accumulator
from minilog.producer.partitioner import split_by_key
from minilog.record_batch.builder import split_columns
from minilog.types import Headers

if TYPE_CHECKING:
    from minilog.typed.rows.batch import TypedRows
    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas

_WHOLE = 1.25  # a batch this much above batch.size goes whole: two halves would cost more


_MOST_MS = (1 << 63) // 1000


def checked_partition(topic: str, partition: object) -> int | None:
    """The partition as a Python int. It may be an integer of any library. Raises InvalidRecord."""
    if partition is None or type(partition) is int:
        return partition
    return _whole(partition, f"the partition for topic {topic!r} is", "give an int, or None for one by the key")


def checked_timestamp_us(topic: str, timestamp: object) -> int:
    """The time stamp in microseconds. It comes in milliseconds since 1970. Raises InvalidRecord."""
    what = f"the time stamp of a record for topic {topic!r} is"
    wanted = "give milliseconds since 1970 as an int, or None for now"
    milliseconds = timestamp if type(timestamp) is int else _whole(timestamp, what, wanted)
    if not -_MOST_MS < milliseconds < _MOST_MS:
        raise InvalidRecord(f"{what} {milliseconds}: {wanted}")
    return milliseconds * 1000


def _whole(value: object, what: str, wanted: str) -> int:
    if not isinstance(value, bool) and isinstance(value, SupportsIndex):
        with contextlib.suppress(TypeError):  # numpy's bool looks like an integer
            return operator.index(value)
    raise InvalidRecord(f"{what} {reprlib.repr(value)}: {wanted}")


def check_partition(topic: CachedTopic, partition: int | None) -> None:
    """Raises UnknownTopicOrPartition."""
    if partition is not None and not 0 <= partition < topic.partition_count:
        raise UnknownTopicOrPartition(
            f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition}"
        )


def check_record(topic: str, value: object, key: object) -> bytes | None:
    """Returns the value. Raises InvalidRecord unless both are bytes or None."""
    if (value is None or type(value) is bytes) and (key is None or type(key) is bytes):
        return value  # the hot path
    for name, given in (("value", value), ("key", key)):
        if given is not None and not isinstance(given, bytes):
            raise InvalidRecord(
                f"the {name} of a record for topic {topic!r} is {type(given).__name__}: give bytes or None (rows are "
                "for topics with a schema)"
            )
    assert value is None or isinstance(value, bytes)
    return value


def deletion_of(topic: CachedTopic, key: object) -> tuple[dict[str, Any] | None, bytes | None]:
    """The value and the key that `send` takes for the deletion of a key. Without a schema the value is null. Raises
    InvalidRecord."""
    if topic.told_schemas is not None:
        from minilog.producer.typed_rows import deletion_row  # only a schema needs minilog.typed

        return deletion_row(topic, key), None
    if not isinstance(key, bytes):
        raise InvalidRecord(
            f"topic {topic.name!r} has no schema, and the key to delete is {type(key).__name__}: give bytes (rows are "
            "for topics with a schema)"
        )
    return None, key


def checked_headers(topic: str, headers: object) -> Headers:
    """Pairs of str and bytes or None, in order. A mapping gives its items. Raises InvalidRecord for anything else."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    if isinstance(pairs, list | tuple) and all(map(_is_header, pairs)):
        return pairs
    raise InvalidRecord(
        f"the headers of a record for topic {topic!r} are {reprlib.repr(headers)}: give a list of pairs, or a dict, of "
        'str and bytes or None, such as [("source", b"nyc")]'
    )


def _is_header(pair: object) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and (pair[1] is None or isinstance(pair[1], bytes))


def columns_of_many(
    topic: CachedTopic, values: Iterable[bytes | Mapping[str, Any] | None], keys: Iterable[bytes | None] | None
) -> pa.RecordBatch:
    """A list of values, or of rows, as one Arrow batch for `cut_columns`. Raises InvalidRecord."""
    if isinstance(values, bytes | str | Mapping):
        raise InvalidRecord(f"send_many to topic {topic.name!r} got {type(values).__name__}: give a list")
    rows, given = list(values), None if keys is None else list(keys)
    if given is not None and len(given) != len(rows):
        raise InvalidRecord(
            f"send_many to topic {topic.name!r} got {len(rows)} values and {len(given)} keys: give a key, or None, for "
            "each value"
        )
    if topic.told_schemas is not None:
        from minilog.producer.typed_rows import columns_of_rows  # only a schema needs minilog.typed

        return columns_of_rows(topic, rows, given)
    for number, value in enumerate(rows):
        try:
            check_record(topic.name, value, None if given is None else given[number])
        except InvalidRecord as error:
            raise InvalidRecord(f"value {number}: {error}") from None
    columns = {"value": pa.array(rows, pa.binary())}
    if given is not None:
        columns["key"] = pa.array(given, pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def cut_columns(
    accumulator: Accumulator,
    topic: CachedTopic,
    columns: object,
    partition: int | None,
    schema: TopicSchema | None = None,
) -> list[tuple[int | None, pa.RecordBatch]] | list[tuple[int | None, TypedRows]]:
    """(partition, rows) in order. The rows take about batch.size, or are one larger row. Without a partition (None)
    they go to the next one in turn.

    The leader refuses rows that are too large for the topic. Only it knows the present max.message.bytes and the
    compressed size. Raises InvalidRecord, UnknownTopicOrPartition.
    """
    check_partition(topic, partition)
    if (schemas := topic.schemas) is not None:
        from minilog.producer.typed_rows import cut_rows  # only a schema needs minilog.typed

        given = schemas.latest if schema is None else checked_version(topic, schemas, schema)
        return cut_rows(topic, given, columns, partition, accumulator.slice_bytes(topic))
    if not isinstance(columns, pa.RecordBatch):
        raise InvalidRecord(
            f"send_batch to topic {topic.name!r} got {type(columns).__name__}: give a pyarrow.RecordBatch"
        )
    if columns.num_rows == 0:
        return []
    limit = accumulator.slice_bytes(topic)
    if partition is not None or "key" not in columns.schema.names:
        return [(partition, part) for part in _slices(topic, columns, limit)]
    by_partition, keyless = split_by_key(columns, topic.partition_count)
    parts: list[tuple[int | None, pa.RecordBatch]] = []
    for chosen, rows in by_partition.items():
        parts += [(chosen, part) for part in _slices(topic, rows, limit)]
    return parts + [(None, part) for part in (_slices(topic, keyless, limit) if keyless.num_rows else [])]


def checked_version(topic: CachedTopic, schemas: TopicSchemas, schema: TopicSchema) -> TopicSchema:
    """A version of the topic's schema, or one that is newer than all that the client knows. Raises InvalidRecord."""
    if schema.version <= schemas.latest.version and schemas.version(schema.version) != schema:
        raise InvalidRecord(
            f"rows for topic {topic.name!r} use a version {schema.version} of the schema that the topic does not have: "
            "the topic was deleted and created again. Ask for its schema again"
        )
    return schema


def _slices(topic: CachedTopic, columns: pa.RecordBatch, limit: int) -> list[pa.RecordBatch]:
    whole = limit if topic.max_message_bytes is not None else limit * _WHOLE
    return [columns] if columns.nbytes <= whole - 1024 else split_columns(columns, limit)
