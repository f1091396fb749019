"""What a scan wants, what its plan says, and what travelled for it: values alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.consumer.partition import FetchedRun
from minilog.record_batch.header import Attributes, iterate_headers
from minilog.scanning.newest_rows import KeyCounts
from minilog.scanning.places import Places
from minilog.scanning.shape import ScanShape, check_keyed, shape_of
from minilog.types import TopicPartition

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What the user asks for; see minilog.scan. `where` as text. `is_latest`: the newest row of each key alone."""

    topic: str
    columns: tuple[str, ...] | None = None
    where: str | None = None
    start: Places = None
    end: Places = None
    partitions: tuple[int, ...] | None = None
    metadata: bool = False
    deletes: bool = False
    is_latest: bool = False

    def shape(self, schema: TopicSchema | None) -> ScanShape:
        """Raises InvalidArgument where the topic does not have what the user wants."""
        if self.is_latest:
            check_keyed(self.topic, schema)
        return shape_of(self.topic, schema, self.columns, self.where, metadata=self.metadata, deletes=self.deletes)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """`assigned`: each partition with its start, its end (exclusive) and the topic's id, sorted; empty ones, too.
    `statistics_columns`: those that batches tell of by the topic's setting, None: the default ones."""

    topic_id: str
    schema: TopicSchema | None
    assigned: tuple[TopicPartition, ...]
    statistics_columns: tuple[str, ...] | None

    @property
    def offsets(self) -> int:
        """Of all ranges; markers and what was aborted count."""
        return sum(map(length_of, self.assigned))


def length_of(assigned: TopicPartition) -> int:
    """How many offsets a range of a plan has."""
    return (assigned.end_offset or 0) - (assigned.offset or 0)


@dataclass(slots=True)
class Travelled:
    """What came in a read: `left_out` are batches whose statistics say that no row of them is wanted, with the offsets
    that they span. `keys`: of a read of the newest rows."""

    bytes_received: int = 0
    batches: int = 0
    left_out_batches: int = 0
    left_out_offsets: int = 0
    keys: KeyCounts | None = None

    def add(self, run: FetchedRun) -> None:
        """Look at the headers of a run."""
        self.bytes_received += len(run.batches)
        for _, header in iterate_headers(memoryview(run.batches)):
            self.batches += 1
            if header.is_typed and header.attributes & Attributes.COMPACTED and not header.record_count:
                self.left_out_batches += 1
                self.left_out_offsets += header.next_offset - header.base_offset
