"""What a DataFrame's columns mean to the sink, and how its Arrow batches become the client's. Whole columns, pure.

The sink takes columns by name, in upper or lower case, as Spark does: `value` (required, and null is a tombstone),
`key`, `topic`, `partition`, `headers` and `timestamp`. It ignores other columns. The option `topic` wins over the
column `topic`, and the column `partition` wins over the partitioner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark_minilog.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from minilog.typed.schema.topic_schema import TopicSchema

_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "topic": ("string",),
    "partition": ("int",),
}
_PAYLOAD = ("key", "value", "timestamp", "headers")
_PARTITION_BITS = 32


class Payload(NamedTuple):
    """Rows for one topic, and for one partition if the rows name it. The columns are those of `Producer.send_batch`.
    `schema` is the version of the topic's schema that the producer writes by, if the topic has a schema."""

    topic: str
    partition: int | None
    columns: pa.RecordBatch
    schema: TopicSchema | None = None


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The columns to write, and the topic, or None if each row names its topic. `spelling` has our names of columns
    that the DataFrame spells in another case."""

    topic: str | None
    columns: tuple[str, ...]
    spelling: Mapping[str, str] = field(default_factory=dict)

    def payloads(self, batch: pa.RecordBatch) -> Iterator[Payload]:
        """The rows of `batch` by topic and partition, in their order. Raises InvalidOption for a null topic."""
        batch = self._spelled(batch)
        columns = _payload_columns(batch, [name for name in _PAYLOAD if name in self.columns])
        if self.topic is not None and "partition" not in self.columns:
            yield Payload(self.topic, None, columns)
        elif batch.num_rows:
            yield from self._grouped(batch, columns)

    def topics(self, batch: pa.RecordBatch) -> frozenset[str]:
        """The topics of the rows of `batch`. Raises InvalidOption for a null topic."""
        if not batch.num_rows:
            return frozenset()
        from minilog.steady_tables import encode

        batch = self._spelled(batch)
        return frozenset(encode(_topic_column(batch))[1] if self.topic is None else [self.topic])

    def written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the sink takes."""
        return self._spelled(batch).select(list(self.columns))

    def _spelled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.spelling:
            return batch
        return batch.rename_columns([self.spelling.get(name, name) for name in batch.schema.names])

    def _grouped(self, batch: pa.RecordBatch, columns: pa.RecordBatch) -> Iterator[Payload]:
        """A stable sort by one number per row, made of topic and partition. A run of equal numbers is one payload."""
        import pyarrow.compute as pc

        codes, topics = self._codes(batch)
        order = pc.sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order))
        rows = columns.take(order)
        start = 0
        for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            topic, partition = divmod(code, 2**_PARTITION_BITS)
            # 0 is a null partition: the partitioner decides
            yield Payload(topics[topic], partition - 1 if partition else None, rows.slice(start, end - start))
            start = end

    def _codes(self, batch: pa.RecordBatch) -> tuple[pa.Array, list[str]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from minilog.steady_tables import encode

        codes = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        topics = [self.topic or ""]
        if self.topic is None:
            codes, topics = encode(_topic_column(batch))
            codes = pc.shift_left(codes, _PARTITION_BITS)
        if "partition" in self.columns:
            codes = pc.add(codes, _partition_codes(batch))
        return codes, topics


def plan_sink(schema: StructType, topic: str | None) -> SinkPlan:
    """Check the columns of a DataFrame. Raises InvalidOption, naming the column, its type and the remedy."""
    spelling = in_spelling(schema.names, _TYPES)
    types = {spelling[field.name]: field.dataType.simpleString() for field in schema.fields if field.name in spelling}
    for name, kind in types.items():
        if kind not in _TYPES[name] and not (name == "topic" and topic is not None):
            raise InvalidOption(f"column '{name}' is of type '{kind}': cast it to {' or '.join(_TYPES[name])}")
    if "value" not in types:
        raise InvalidOption(
            f"column 'value' is missing among {', '.join(field.name for field in schema.fields) or 'no columns'}: name "
            "the column to write 'value' (string or binary)"
        )
    if topic is None and "topic" not in types:
        raise InvalidOption("no topic is named: set the option 'topic', or give a column 'topic' (string)")
    return SinkPlan(topic, tuple(types), {name: ours for name, ours in spelling.items() if name != ours})


def in_spelling(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """The columns of a DataFrame that match one of the wanted names, with the wanted spelling: Spark ignores case in
    names. Raises InvalidOption if two columns match the same name."""
    spelling = {name.lower(): name for name in wanted}
    renames: dict[str, str] = {}
    first: dict[str, str] = {}
    for name in names:
        ours = spelling.get(name.lower())
        if ours is None:
            continue
        if ours in first:
            raise InvalidOption(
                f"columns '{first[ours]}' and '{name}' of the DataFrame both match the column '{ours}', since Spark "
                "ignores case in names: drop or rename one of them"
            )
        first[ours] = name
        renames[name] = ours
    return renames


def refuse_overwrite() -> InvalidOption:
    """The refusal of a batch that would replace the content of a topic."""
    return InvalidOption(
        "save mode 'overwrite' is not possible, since writers can only append to a log: use .mode(\"append\"), or "
        "first delete the topic and create it again"
    )


def _payload_columns(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The columns with the stored types, whatever types the session uses (large types, another time zone)."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": pa.list_(header),
    }
    return pa.RecordBatch.from_arrays(
        [_cast(batch.column(name), types[name]) for name in names],
        schema=pa.schema([(name, types[name]) for name in names]),
    )


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def _topic_column(batch: pa.RecordBatch) -> pa.Array:
    topics = batch.column("topic")
    if topics.null_count:
        row = topics.is_null().to_pylist().index(True)
        raise InvalidOption(
            f"column 'topic' is null in {topics.null_count} rows (the first is row {row} of its batch): fill it, "
            "filter those rows out, or set the option 'topic'"
        )
    return topics


def _partition_codes(batch: pa.RecordBatch) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    partitions = batch.column("partition").cast(pa.int64())
    lowest = pc.min(partitions).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidOption(f"column 'partition' is {lowest}: give 0 or more, or null to let the partitioner decide")
    return pc.add(partitions.fill_null(-1), 1)
