"""The overview, and the brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minilog.types import BrokerDescription, ClusterDescription, TopicDescription
from minilog_broker.console.cluster_view import MOST_GROUPS, TOTAL, GroupLook
from minilog_broker.console.pages.page import Page, Visit

_BUSIEST = 6


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker, and what it has of the topics. `out_of_sync`: its copies that are not in sync."""

    broker: BrokerDescription
    role: str
    leaders: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list. `rate`: records a second, None before the second look."""

    topic: TopicDescription
    records: int | None
    rate: float | None
    without_leader: int
    under_replicated: int

    @property
    def state(self) -> str:
        if self.without_leader:
            return "no leader"
        return "under-replicated" if self.under_replicated else "in sync"


def topic_row(topic: TopicDescription, rates: Mapping[str, float] | None) -> TopicRow:
    """What a list shows of it."""
    held = [
        each.high_watermark - each.log_start_offset
        for each in topic.partitions
        if each.high_watermark is not None and each.log_start_offset is not None
    ]
    expected = [set(each.replicas) - set(each.adding_replicas) - set(each.isr) for each in topic.partitions]
    return TopicRow(
        topic,
        sum(held) if len(held) == len(topic.partitions) else None,
        None if rates is None else rates.get(topic.name, 0.0),
        sum(each.leader is None for each in topic.partitions),
        sum(map(bool, expected)),
    )


def broker_rows(cluster: ClusterDescription, topics: list[TopicDescription]) -> list[BrokerRow]:
    """The brokers in order of their ids."""
    partitions = [each for topic in topics for each in topic.partitions]
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    late = Counter(
        broker for each in partitions for broker in set(each.replicas) - set(each.adding_replicas) - set(each.isr)
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
        BrokerRow(each, role(each.id), leaders[each.id], replicas[each.id], late[each.id])
        for each in sorted(cluster.brokers, key=lambda broker: broker.id)
    ]


async def overview(visit: Visit) -> Mapping[str, Any]:
    """Health, throughput, lag."""
    health = await visit.view.health()
    look = await visit.view.topics()
    listings = await visit.view.look("group list", lambda admin: admin.list_groups())
    groups = await visit.view.groups(tuple(each.group_id for each in listings))
    rows = [topic_row(topic, look.rates) for topic in look.topics if not topic.internal]
    busiest = sorted(rows, key=lambda row: (-(row.rate or 0.0), -(row.records or 0), row.topic.name))[:_BUSIEST]
    furthest = sorted(groups, key=lambda each: (-(each.lag_records or 0), each.group_id))[:_BUSIEST]
    known = [each.lag_records for each in groups if each.lag_records is not None]
    return {
        "health": health,
        "running": sum(each.state == "running" for each in health.cluster.brokers),
        "topic_count": len(rows),
        "partition_count": sum(len(row.topic.partitions) for row in rows),
        "throughput": visit.view.history.series(TOTAL),
        "rate": None if look.rates is None else sum(row.rate or 0.0 for row in rows),
        "busiest": busiest,
        "groups": furthest,
        "group_count": len(listings),
        "groups_looked_at": min(len(listings), MOST_GROUPS),
        "lag_records": sum(known) if known else None,
        "lag_seconds": _furthest_s(groups),
    }


def _furthest_s(groups: list[GroupLook]) -> float | None:
    found = [each.lag_seconds for each in groups if each.lag_seconds is not None]
    return max(found, default=None)


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
