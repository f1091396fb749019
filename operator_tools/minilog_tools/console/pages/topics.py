"""The list of topics, and one topic: its partitions, replicas, settings, and the versions of its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilog.errors import UnsupportedVersion
from minilog.types import PartitionDescription, TopicDescription
from minilog_tools.console.forms import text_field
from minilog_tools.console.pages.cluster import topic_row, topic_size_bytes
from minilog_tools.console.pages.page import Page, Visit, piece_of

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


@dataclass(frozen=True, slots=True)
class ReplicaCell:
    """One replica of a partition. `behind`: how many offsets its log lacks of the leader's, None where not known."""

    broker_id: int
    state: str
    behind: int | None

    @property
    def is_late(self) -> bool:
        return self.state == "out of sync"


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its replicas, the preferred leader first."""

    partition: PartitionDescription
    replicas: list[ReplicaCell]

    @property
    def records(self) -> int | None:
        low, high = self.partition.log_start_offset, self.partition.high_watermark
        return None if low is None or high is None else high - low


def partition_row(partition: PartitionDescription) -> PartitionRow:
    """The partition's line on the page of its topic."""
    end = partition.log_end_offset

    def cell(broker_id: int) -> ReplicaCell:
        if broker_id == partition.leader:
            return ReplicaCell(broker_id, "leader", 0)
        replica_end = partition.replica_ends.get(broker_id)
        behind = None if replica_end is None or end is None else max(0, end - replica_end)
        if broker_id in partition.adding_replicas:
            return ReplicaCell(broker_id, "being added", behind)
        return ReplicaCell(broker_id, "in sync" if broker_id in partition.isr else "out of sync", behind)

    return PartitionRow(partition, [cell(broker_id) for broker_id in partition.replicas])


async def topics(visit: Visit) -> Mapping[str, Any]:
    """A list, with a filter."""
    look = await visit.view.topics()
    shows_internal = visit.field("internal") == "1"
    chosen = [topic for topic in look.topics if shows_internal or not topic.internal]
    piece = piece_of(visit, chosen, lambda topic: topic.name)
    rows = piece.of([topic_row(topic, look.rates) for topic in piece.items])
    return {"piece": rows, "every": len(chosen), "shows_internal": shows_internal}


async def topic(visit: Visit) -> Mapping[str, Any]:
    """One topic, and the groups and queues that read it."""
    name = text_field(visit.fields, "name", "the name of a topic")
    description = await visit.view.topic(name)
    versions, trouble = _versions(description)
    rows = [partition_row(partition) for partition in description.partitions]
    groups, queues = await visit.view.first_groups(), await visit.view.first_queues()
    held = [row.records for row in rows if row.records is not None]
    return {
        "topic": description,
        "piece": piece_of(visit, rows, lambda row: str(row.partition.partition)),
        "records": sum(held) if len(held) == len(rows) else None,
        "throughput": visit.view.history.series(("topic", name)),
        "versions": versions,
        "schema_trouble": trouble,
        "size_bytes": topic_size_bytes(description),
        "groups": groups,
        "readers": [look for look in groups.looks if look.offsets_in(name)],
        "queues": queues,
        "sharers": [look for look in queues.looks if any(position.topic == name for position in look.positions)],
    }


def _versions(description: TopicDescription) -> tuple[list[TopicSchema], str]:
    """The latest first."""
    try:
        return list(reversed(description.schema_versions)), ""
    except UnsupportedVersion as error:
        return [], str(error)


PAGES = (
    Page("/topics", "topics.html", "Topics", topics),
    Page("/topic", "topic.html", "Topics", topic),
)
