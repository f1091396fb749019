"""The rows of `view="latest"`: the newest row of each key of a partition, in two reads of the same offsets.

The first read has the key columns alone, and finds the offset of each key's newest row. The second one has the wanted
columns, and gives the rows at these offsets. `where` is for the rows of the table. So it is not a part of the first
read: a row that a newer one replaced is never in the table, even if the newer one fails `where`.

`latest.memory.bytes` bounds the keys and the offsets. The first read comes again for the keys that did not fit, and the
rows come in several parts if the offsets do not fit either.

Compaction up to an offset above the end of the range (clean_to) may remove a newest row of the range. Then the range
has no table any more, and the read raises OffsetOutOfRange. No row of the table is ever left out silently:

- Behind each read of the keys the leaders say clean_to. Replicas never clean beyond it. If it is not above the end, the
  read has seen the newest row of each key.
- The second read notes which of its rows are gone. If replicas leave out rows by `where`, a last read of the offsets
  alone looks for the rows that they left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from minilog.consumer.partition import FetchedRun
from minilog.consumer.requests import name_of
from minilog.consumer.row_selection import RowSelection
from minilog.errors import OffsetOutOfRange
from minilog.scanning.newest_rows import (
    ChosenOffsets,
    KeyCounts,
    KeyPass,
    ascending,
    chosen,
    deletion_count,
)
from minilog.scanning.planned import ScanPlan, Travelled
from minilog.scanning.shape import ScanShape
from minilog.types import TopicPartition

logger = logging.getLogger(__name__)

CleanTo: TypeAlias = Callable[[Iterable[TopicPartition]], Mapping[int, int]]
Decoded: TypeAlias = Callable[
    [Iterable[TopicPartition], RowSelection, Travelled | None], Iterator[tuple[FetchedRun, pa.RecordBatch]]
]


@dataclass(slots=True)
class LatestRead:
    """One read of a table. `decoded` and `clean_to` are those of a Reader. `counts` has what the read came upon, when
    all rows have come."""

    decoded: Decoded
    clean_to: CleanTo
    plan: ScanPlan
    memory_bytes: int
    travelled: Travelled | None = None
    counts: KeyCounts = field(default_factory=KeyCounts)

    def __post_init__(self) -> None:
        if self.travelled is not None:
            self.travelled.keys = self.counts

    def rows(self, shape: ScanShape) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The rows of the table in a scan's shape. Those of each partition come in the order of their offsets, unless
        there are more keys than the memory holds offsets of. Raises what Reader.decoded raises, and OffsetOutOfRange
        where compaction has overtaken the read."""
        for table in self._tables():
            wanted = [_narrowed(part, table[part.partition]) for part in self.plan.assigned if part.partition in table]
            is_whole = shape.selection.where is None
            for run, rows in self.decoded(wanted, shape.selection, self.travelled):
                of_run, offsets = table[run.partition.partition], rows.column(rows.num_columns - 1)
                if is_whole:
                    self._check(run.partition, of_run.missing(offsets))
                are_chosen = of_run.are_chosen(offsets)
                if are_chosen is not None:
                    yield run.partition, shape.rows(run, rows.filter(are_chosen))
            if not is_whole:
                self._look_for(wanted, table)
            for part in wanted:
                self._check(part, table[part.partition].missing_at_end())

    def count(self) -> int:
        """How many rows the table has."""
        return sum(len(offsets.offsets) for table in self._tables() for offsets in table.values())

    def _tables(self) -> Iterator[dict[int, ChosenOffsets]]:
        """The offsets of the table by partition, in parts that fit into the memory."""
        first_key, is_first = None, True
        while is_first or first_key is not None:
            parts, held_bytes = dict[int, list[pa.Int64Array]](), 0
            while is_first or (first_key is not None and held_bytes <= self.memory_bytes // 2):
                keys = self._read_keys(KeyPass(self._key_type, self.memory_bytes - held_bytes, first_key))
                for partition, numbers in keys.end().items():
                    self.counts.keys += len(numbers)
                    self.counts.deletions += deletion_count(numbers)
                    if len(offsets := chosen(numbers)):
                        parts.setdefault(partition, []).append(offsets)
                        held_bytes += offsets.nbytes
                if is_first:
                    self._pass_over(keys.keyless)
                first_key, is_first = keys.next_key, False
            self._check_kept()
            yield {number: ChosenOffsets(_joined(offsets)) for number, offsets in parts.items()}

    def _pass_over(self, keyless: int) -> None:
        self.counts.keyless = keyless
        if keyless:
            logger.warning(
                "%d records of topic %s have no key: the newest rows of its keys are without them",
                keyless,
                self._topic,
            )

    @property
    def _topic(self) -> str:
        return self.plan.assigned[0].topic

    @property
    def _key_type(self) -> pa.DataType:
        schema = self.plan.schema
        if schema is None or len(schema.key_columns) > 1:
            return pa.binary()
        return schema.arrow_schema.field(schema.key_columns[0]).type

    def _read_keys(self, keys: KeyPass) -> KeyPass:
        schema = self.plan.schema
        selection = RowSelection()
        if schema is not None:
            selection = RowSelection(schema.key_columns, schemas={self._topic: schema}, deletions=True)
        for run, rows in self.decoded(self.plan.assigned, selection, self.travelled):
            keys.add(run.partition.partition, *_keys_of(run, rows))
        return keys

    def _look_for(self, wanted: list[TopicPartition], table: dict[int, ChosenOffsets]) -> None:
        """Read the offsets alone. Compaction only removes rows, so what is there now was there before."""
        schema = self.plan.schema
        assert schema is not None  # only of a topic with a schema replicas leave out rows
        selection = RowSelection((), schemas={self._topic: schema})
        for run, rows in self.decoded(wanted, selection, self.travelled):
            self._check(run.partition, table[run.partition.partition].missing(rows.column(rows.num_columns - 1)))

    def _check_kept(self) -> None:
        clean_to = self.clean_to(self.plan.assigned) if self.plan.assigned else {}
        for partition in self.plan.assigned:
            if clean_to[partition.partition] > (partition.end_offset or 0) > (partition.offset or 0):
                raise OffsetOutOfRange(
                    f"{name_of(partition)} has no table as of offset {partition.end_offset} any more: below offset "
                    f"{clean_to[partition.partition]} compaction keeps the newest row of each key alone. Read the "
                    "table as of that offset or a later one, or give the topic a longer min.compaction.lag.ms"
                )

    def _check(self, partition: TopicPartition, missing: int | None) -> None:
        if missing is None:
            return
        end = next(part.end_offset for part in self.plan.assigned if part.partition == partition.partition)
        raise OffsetOutOfRange(
            f"compaction has removed the row at offset {missing} of {name_of(partition)} while the table as of offset "
            f"{end} was read: the row's key has a newer row or a deletion. Read the table again with a later end, or "
            "give the topic a min.compaction.lag.ms that is longer than a read takes"
        )


def _keys_of(run: FetchedRun, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Int64Array, pa.BooleanArray | None]:
    """Keys, offsets and deletions of decoded rows."""
    offsets = rows.column(rows.num_columns - 1)
    if run.reader is None:
        values = rows.column("value")
        return rows.column("key"), offsets, values.is_null() if values.null_count else None
    *columns, deletions = rows.columns[:-1]
    if len(columns) == 1:
        return columns[0], offsets, deletions
    from minilog.typed.rows.keys import key_of_columns

    return key_of_columns(columns), offsets, deletions


def _narrowed(partition: TopicPartition, offsets: ChosenOffsets) -> TopicPartition:
    """The part of a range where rows of the table are."""
    return TopicPartition(partition.topic, partition.partition, offsets.first, offsets.end, partition.topic_id)


def _joined(parts: list[pa.Int64Array]) -> pa.Int64Array:
    return parts[0] if len(parts) == 1 else ascending(pa.concat_arrays(parts))
