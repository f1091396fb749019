"""The overview, and the brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minilog.types import BrokerDescription, ClusterDescription, TopicDescription
from minilog_tools.console.cluster_view import MOST_GROUPS, TOTAL, GroupLook
from minilog_tools.console.pages.page import Page, Visit

_BUSIEST = 6


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker with the numbers of its leaders and replicas. `out_of_sync`: its replicas that are not in sync."""

    broker: BrokerDescription
    role: str
    leaders: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list. `rate`: records a second, None before the second measurement. `size_bytes`: of the leaders'
    logs."""

    topic: TopicDescription
    records: int | None
    size_bytes: int | None
    rate: float | None
    without_leader: int
    under_replicated: int

    @property
    def state(self) -> str:
        if self.without_leader:
            return "no leader"
        return "under-replicated" if self.under_replicated else "in sync"


def topic_row(topic: TopicDescription, rates: Mapping[str, float] | None) -> TopicRow:
    """The topic's line in a list."""
    held = [
        partition.high_watermark - partition.log_start_offset
        for partition in topic.partitions
        if partition.high_watermark is not None and partition.log_start_offset is not None
    ]
    missing = [
        set(partition.replicas) - set(partition.adding_replicas) - set(partition.isr) for partition in topic.partitions
    ]
    return TopicRow(
        topic,
        sum(held) if len(held) == len(topic.partitions) else None,
        topic_size_bytes(topic),
        None if rates is None else rates.get(topic.name, 0.0),
        sum(partition.leader is None for partition in topic.partitions),
        sum(map(bool, missing)),
    )


def topic_size_bytes(topic: TopicDescription) -> int | None:
    """The size of the leaders' logs together. None where the size of one is not known."""
    sizes = [partition.size_bytes for partition in topic.partitions]
    return None if None in sizes else sum(size or 0 for size in sizes)


def broker_rows(cluster: ClusterDescription, topics: list[TopicDescription]) -> list[BrokerRow]:
    """The brokers in order of their ids."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(broker for partition in partitions for broker in partition.replicas)
    late = Counter(
        broker
        for partition in partitions
        for broker in set(partition.replicas) - set(partition.adding_replicas) - set(partition.isr)
    )
    lost = {voter.id for voter in cluster.voters if voter.lost}
    voters = {voter.id for voter in cluster.voters}

    def role(broker_id: int) -> str:
        if broker_id in lost:
            return "voter that lost its disk"
        if broker_id == cluster.controller:
            return "controller"
        return "voter" if broker_id in voters else "observer"

    return [
        BrokerRow(broker, role(broker.id), leaders[broker.id], replicas[broker.id], late[broker.id])
        for broker in sorted(cluster.brokers, key=lambda broker: broker.id)
    ]


async def overview(visit: Visit) -> Mapping[str, Any]:
    """Health, throughput, lag."""
    health = await visit.view.health()
    look = await visit.view.topics()
    listings = await visit.view.look("group list", lambda admin: admin.list_groups())
    groups = await visit.view.groups(tuple(listing.group_id for listing in listings))
    rows = [topic_row(topic, look.rates) for topic in look.topics if not topic.internal]
    busiest = sorted(rows, key=lambda row: (-(row.rate or 0.0), -(row.records or 0), row.topic.name))[:_BUSIEST]
    furthest = sorted(groups, key=lambda group: (-(group.lag_records or 0), group.group_id))[:_BUSIEST]
    lags = [group.lag_records for group in groups if group.lag_records is not None]
    queues = await visit.view.first_queues()
    return {
        "health": health,
        "internal_count": sum(topic.internal for topic in look.topics),
        "queues": queues,
        "with_dead": [look for look in queues.looks if look.dead_count or look.count("dead")],
        "running": sum(broker.state == "running" for broker in health.cluster.brokers),
        "topic_count": len(rows),
        "partition_count": sum(len(row.topic.partitions) for row in rows),
        "throughput": visit.view.history.series(TOTAL),
        "rate": None if look.rates is None else sum(row.rate or 0.0 for row in rows),
        "busiest": busiest,
        "groups": furthest,
        "group_count": len(listings),
        "groups_looked_at": min(len(listings), MOST_GROUPS),
        "lag_records": sum(lags) if lags else None,
        "lag_seconds": _furthest_s(groups),
    }


def _furthest_s(groups: list[GroupLook]) -> float | None:
    lags = [group.lag_seconds for group in groups if group.lag_seconds is not None]
    return max(lags, default=None)


async def brokers(visit: Visit) -> Mapping[str, Any]:
    """Each broker."""
    health = await visit.view.health()
    look = await visit.view.topics()
    troubles = [problem for problem in health.problems if problem.brokers]
    return {"cluster": health.cluster, "rows": broker_rows(health.cluster, look.topics), "problems": troubles}


PAGES = (
    Page("/", "overview.html", "Overview", overview),
    Page("/brokers", "brokers.html", "Brokers", brokers),
)
