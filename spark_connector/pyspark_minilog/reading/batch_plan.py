"""What a batch reads, from one look at the cluster: on the driver, and in the tasks of a table as of now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.cluster import renewed, resolve_place, take_snapshot
from pyspark_minilog.reading.loss import LossReport
from pyspark_minilog.reading.planning import PlannedRange, batch_ranges

if TYPE_CHECKING:
    from pyspark_minilog.reading.typed_rows import TypedTopics


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """`ranges` are those with offsets. `partitions` has the partitions without any, too."""

    ranges: list[PlannedRange]
    partitions: frozenset[Partition]
    rows: TypedTopics | None


def plan_batch(options: SourceOptions, rows: TypedTopics | None) -> BatchPlan:
    """The ranges as of this moment. Raises InvalidOption, DataLoss, MinilogError."""
    snapshot = take_snapshot(options, must_exist=True)
    rows = renewed(rows, snapshot, is_stream=False)
    starting = resolve_place(options, options.starting, snapshot)
    ending = resolve_place(options, options.ending, snapshot)
    ranges = batch_ranges(starting, ending, snapshot)
    LossReport(options.fail_on_data_loss).report(starting.losses + ending.losses)
    return BatchPlan(ranges, frozenset(snapshot.latest), rows)
