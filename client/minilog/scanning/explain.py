"""What a scan reads, for people and programs: what travels, and what replicas leave out by which statistics. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.scanning.planned import ScanPlan, ScanRequest, length_of
from minilog.scanning.shape import ScanShape
from minilog.types import TopicPartition

if TYPE_CHECKING:
    from minilog.scanning.planned import Travelled
    from minilog.typed.schema.topic_schema import TopicSchema


@dataclass(frozen=True, slots=True)
class Explanation:
    """`travels`: the columns that replicas send, also those that only the condition or the key needs; empty: none.
    `compared`: the columns of the condition. Where the topic has no schema, replicas send all records, and this program
    compares them. `by_statistics`: those of the columns whose statistics batches tell by the topic's setting.
    `travelled`: what came, where the scan was run for it. `keys`: the columns of the first of the two reads of
    view=latest, which tell the newest row of each key. None for every other scan."""

    topic: str
    topic_id: str
    schema_version: int | None
    ranges: tuple[TopicPartition, ...]
    travels: tuple[str, ...]
    gives: tuple[str, ...]
    where: str | None
    compared: tuple[str, ...]
    by_statistics: tuple[str, ...]
    travelled: Travelled | None = None
    keys: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """Some lines of text."""
        version = "no schema" if self.schema_version is None else f"version {self.schema_version} of its schema"
        travels, gives = ", ".join(self.travels), ", ".join(self.gives)
        ranges = ", ".join(f"{part.partition}: {part.offset} to {part.end_offset}" for part in self.ranges)
        what = "scan of topic" if self.keys is None else "scan of the newest row of each key of topic"
        lines = [
            f"{what} {self.topic!r} ({self.topic_id}), {version}",
            f"  reads      {sum(map(length_of, self.ranges))} offsets, of partitions {ranges or 'none'}",
            *([] if self.keys is None else [f"  keys       {', '.join(self.keys)}: they travel first, of all offsets"]),
            f"  travels    {travels or 'no column, but the headers of batches'}",
            f"  gives      {gives or 'no column'}",
        ]
        if self.where is not None:
            skipped = "batches are left out by the statistics of " + ", ".join(self.by_statistics)
            reason = "its columns have no statistics (statistics.columns)"
            if self.schema_version is None:
                reason = "the topic has no schema, so this program compares the records when they have come"
            nothing = f"no batch is left out: {reason}"
            lines.append(f"  where      {self.where}")
            lines.append(f"  skips      {skipped if self.by_statistics else nothing}")
        if (came := self.travelled) is not None:
            lines.append(
                f"  came       {came.bytes_received} bytes in {came.batches} batches; {came.left_out_batches} of them "
                f"were left out, with {came.left_out_offsets} offsets"
            )
            if (keys := came.keys) is not None:
                rows = f"{keys.keys - keys.deletions} rows of {keys.keys} keys, {keys.deletions} of them deleted"
                lines.append(f"  table      {rows}; {keys.keyless} rows have no key")
        return "\n".join(lines)


def explain(wanted: ScanRequest, plan: ScanPlan, shape: ScanShape, travelled: Travelled | None) -> Explanation:
    """Raises InvalidArgument where the `where` is none."""
    compared = shape.condition.compared if shape.condition is not None else _compared(wanted.where, plan.schema)
    return Explanation(
        wanted.topic,
        plan.topic_id,
        None if plan.schema is None else plan.schema.version,
        plan.assigned,
        _travels(plan.schema, shape, compared),
        tuple(shape.schema.names),
        wanted.where,
        compared,
        _with_statistics(plan, compared),
        travelled,
        _keys(plan.schema) if wanted.is_latest else None,
    )


def _keys(schema: TopicSchema | None) -> tuple[str, ...]:
    return ("key", "value", "time stamps", "record headers") if schema is None else schema.key_columns


def _compared(where: str | None, schema: TopicSchema | None) -> tuple[str, ...]:
    if where is None or schema is None:
        return ()
    from minilog.typed.conditions.predicate import field_ids
    from minilog.typed.conditions.where import parse_where

    return tuple(schema.by_id[field_id].name for field_id in sorted(field_ids(parse_where(where, schema))))


def _travels(schema: TopicSchema | None, shape: ScanShape, compared: tuple[str, ...]) -> tuple[str, ...]:
    if schema is None:
        return () if shape.selection.offsets_only else ("key", "value", "time stamps", "record headers")
    selection = shape.selection
    stamp = (schema.timestamp_column,) if selection.timestamps and schema.timestamp_column is not None else ()
    names = {*shape.own, *compared, *(schema.key_columns if selection.keys else ()), *stamp}
    if not selection.is_narrow:
        return schema.names
    stamps = ("time stamps",) if selection.timestamps and not stamp else ()
    headers = ("record headers",) if selection.headers else ()
    return (*(name for name in schema.names if name in names), *stamps, *headers)


def _with_statistics(plan: ScanPlan, compared: tuple[str, ...]) -> tuple[str, ...]:
    from minilog.typed.conditions.statistics import default_columns

    if plan.schema is None:
        return ()
    described = default_columns(plan.schema) if plan.statistics_columns is None else plan.statistics_columns
    return tuple(name for name in compared if name in described)
