"""The cluster within one viewer's rights: a client with the viewer's credentials, and the answers to its last calls.

The view makes the client at a viewer's first look, and closes it ASLEEP_S after the last one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from minilog.admin.health import ClusterHealth
from minilog.aio import Admin
from minilog.errors import MinilogError
from minilog.groups.spark_note import spark_driver
from minilog.types import GroupDescription, GroupOffset, TopicDescription, TopicPartition
from minilog_tools.console.history import History
from minilog_tools.console.queue_look import MOST_QUEUES, QueueLook
from minilog_tools.console.snapshots import Snapshots

ASLEEP_S = 60.0
MOST_GROUPS = 20  # of one look: a description takes calls to the group's coordinator and to the leaders that it reads
TOTAL = "total"
"""The series of all topics together."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Look:
    """All topics at one time. `rates`: the records a second of each since the look before, None of the first look."""

    topics: list[TopicDescription]
    rates: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class GroupLook:
    """One group: its description, or the error that came in its place."""

    group_id: str
    description: GroupDescription | None
    trouble: MinilogError | None = None

    @property
    def lag_records(self) -> int | None:
        """None where the lag of a partition is not known."""
        if self.description is None or any(offset.lag_records is None for offset in self.description.offsets):
            return None
        return sum(offset.lag_records or 0 for offset in self.description.offsets)

    def offsets_in(self, topic: str) -> list[GroupOffset]:
        """The offsets of one topic."""
        return [] if self.description is None else [at for at in self.description.offsets if at.topic == topic]

    def lag_in(self, topic: str) -> int | None:
        """The records behind in one topic. None where the lag of a partition is not known."""
        lags = [offset.lag_records for offset in self.offsets_in(topic)]
        return None if None in lags else sum(lag or 0 for lag in lags)

    def seconds_in(self, topic: str) -> float | None:
        """The time behind in one topic, of the partition that is furthest behind."""
        lags = [offset.lag_seconds for offset in self.offsets_in(topic)]
        return None if None in lags else max((lag or 0.0 for lag in lags), default=0.0)

    @property
    def committed_ms(self) -> int | None:
        """The time of the last commit, None where there is none."""
        offsets = [] if self.description is None else self.description.offsets
        return max((offset.committed_ms for offset in offsets), default=None)

    @property
    def spark_driver(self) -> str | None:
        """The host of the Spark query that made the last commit, by its own note. None of another program."""
        offsets = [] if self.description is None else self.description.offsets
        last = max(offsets, key=lambda offset: offset.committed_ms, default=None)
        return None if last is None else spark_driver(last.metadata)

    @property
    def kind(self) -> str:
        return "consumer" if self.spark_driver is None else "Spark query"

    @property
    def lag_seconds(self) -> float | None:
        """Of the partition that is furthest behind."""
        if self.description is None or any(offset.lag_seconds is None for offset in self.description.offsets):
            return None
        return max((offset.lag_seconds or 0.0 for offset in self.description.offsets), default=0.0)


@dataclass(frozen=True, slots=True)
class FirstLooks(Generic[Value]):
    """Looks at the first groups or queues. `every` is the number of all. `trouble` is the error in their place."""

    looks: list[Value]
    every: int
    trouble: str = ""

    @property
    def note(self) -> str:
        """What the looks leave out."""
        if self.trouble:
            return self.trouble
        return f"Of the first {len(self.looks)} of {self.every}." if len(self.looks) < self.every else ""


class ClusterView:
    """A viewer's client of the cluster, and the snapshots of its answers.

    Lives on one event loop. Each method raises the errors of the client.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.history = History()
        self._clock = clock
        self._wall_s = wall_s
        self._admin: Admin | None = None
        self._used_s = clock()
        self._running = 0
        self._snapshots = Snapshots(clock)
        self._ends: tuple[float, Mapping[tuple[str, int], int]] | None = None

    async def health(self) -> ClusterHealth:
        return await self.look("health", lambda admin: admin.cluster_health())

    async def topics(self) -> Look:
        """All topics with the offsets of their partitions, also the internal topics."""
        return await self.look("topics", self._look_at_topics)

    async def topic(self, name: str) -> TopicDescription:
        """One topic with its replicas' ends. Raises UnknownTopicOrPartition."""
        return await self.look(("topic", name), lambda admin: self._look_at_topic(admin, name))

    async def groups(self, group_ids: tuple[str, ...]) -> list[GroupLook]:
        """These groups, at most MOST_GROUPS."""
        wanted = group_ids[:MOST_GROUPS]
        return await self.look(("groups", wanted), lambda admin: self._look_at_groups(admin, wanted))

    async def queues(self, names: tuple[str, ...]) -> list[QueueLook]:
        """These queues, at most MOST_QUEUES."""
        wanted = names[:MOST_QUEUES]
        return await self.look(("queues", wanted), lambda admin: self._look_at_queues(admin, wanted))

    async def first_groups(self) -> FirstLooks[GroupLook]:
        """The first MOST_GROUPS groups, for pages that show other things, too: an error hides none of them."""
        try:
            listings = await self.look("group list", lambda admin: admin.list_groups())
            looks = await self.groups(tuple(listing.group_id for listing in listings))
        except MinilogError as error:
            return FirstLooks([], 0, str(error))
        return FirstLooks(looks, len(listings))

    async def first_queues(self) -> FirstLooks[QueueLook]:
        """The first MOST_QUEUES queues, as `first_groups`."""
        try:
            listings = await self.look("queue list", lambda admin: admin.list_queues())
            looks = await self.queues(tuple(listing.queue for listing in listings))
        except MinilogError as error:
            return FirstLooks([], 0, str(error))
        return FirstLooks(looks, len(listings))

    async def look(self, name: Hashable, read: Callable[[Admin], Awaitable[Value]]) -> Value:
        """A snapshot of this name: see Snapshots."""
        return await self._snapshots.get(name, lambda: self.act(read))

    async def act(self, call: Callable[[Admin], Awaitable[Value]]) -> Value:
        """One call, now."""
        if self._admin is None:
            self._admin = Admin(self.client)
        self._running += 1
        try:
            return await call(self._admin)
        finally:
            self._running -= 1
            self._used_s = self._clock()

    def forget(self) -> None:
        """After a change: the next look at the cluster is a new one."""
        self._snapshots.forget()

    async def sleep(self) -> None:
        """Close the client, where it was not used for a while."""
        if self._admin is None or self._running or self._clock() - self._used_s < ASLEEP_S:
            return
        admin, self._admin = self._admin, None
        await admin.close()

    async def close(self) -> None:
        await self._snapshots.close()
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def _look_at_topics(self, admin: Admin) -> Look:
        topics = await admin.describe_topics(replica_ends=True)
        at_s = self._wall_s()
        ends = _ends(topics)
        rates: dict[str, float] | None = None
        if self._ends is not None and at_s > self._ends[0]:
            before_s, before = self._ends
            ids = {topic.id: topic.name for topic in topics}
            rates = dict.fromkeys(ids.values(), 0.0)
            for (topic_id, partition), end in ends.items():
                written = max(0, end - before.get((topic_id, partition), end))
                rates[ids[topic_id]] += written / (at_s - before_s)
        self._ends = (at_s, ends)
        users = _ends([topic for topic in topics if not topic.internal])
        self.history.add_ends(TOTAL, at_s, users)
        return Look(topics, rates)

    async def _look_at_topic(self, admin: Admin, name: str) -> TopicDescription:
        (topic,) = await admin.describe_topics([name], replica_ends=True)
        self.history.add_ends(("topic", name), self._wall_s(), _ends([topic]))
        return topic

    async def _look_at_groups(self, admin: Admin, group_ids: tuple[str, ...]) -> list[GroupLook]:
        looks = list(await asyncio.gather(*(_described(admin, group_id) for group_id in group_ids)))
        at_s = self._wall_s()
        for look in looks:
            if look.lag_records is not None:
                self.history.add(("group", look.group_id), at_s, look.lag_records)
            if look.lag_seconds is not None:
                self.history.add(("group seconds", look.group_id), at_s, look.lag_seconds)
        return looks

    async def _look_at_queues(self, admin: Admin, names: tuple[str, ...]) -> list[QueueLook]:
        looks = list(await asyncio.gather(*(_described_queue(admin, name) for name in names)))
        for look in looks:
            if look.unsettled is not None:
                self.history.add(("queue", look.queue), self._wall_s(), look.unsettled)
        return looks


def _ends(topics: list[TopicDescription]) -> dict[tuple[str, int], int]:
    return {
        (topic.id, partition.partition): partition.log_end_offset
        for topic in topics
        for partition in topic.partitions
        if partition.log_end_offset is not None
    }


async def _described(admin: Admin, group_id: str) -> GroupLook:
    try:
        return GroupLook(group_id, await admin.describe_group(group_id))
    except MinilogError as error:  # a group that the viewer may not see hides none of the others
        return GroupLook(group_id, None, error)


async def _described_queue(admin: Admin, name: str) -> QueueLook:
    try:
        return QueueLook(name, await admin.describe_queue(name))
    except MinilogError as error:  # a queue that the viewer may not see hides none of the others
        return QueueLook(name, None, error)


def partitions_of(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.partition) for partition in topic.partitions]
