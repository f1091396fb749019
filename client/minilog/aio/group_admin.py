"""The calls of Admin for groups: their list, their progress and lag, and a new place to go on.

The lag of a group in time is the age of its first unread record. For each partition that is behind, the client fetches
that record, and little more.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from minilog.client_config import ClientConfig
from minilog.errors import GroupIdNotFound, MinilogError
from minilog.groups.client import Groups
from minilog.groups.descriptions import (
    ReadableEnds,
    check_none_pending,
    committed_positions,
    describe_group,
    look_ups,
    place,
    unread,
)
from minilog.groups.messages import Committed
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import offset_of
from minilog.net.runtime import Runtime, now_s
from minilog.types import GroupDescription, GroupListing, GroupPosition, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from minilog.aio.consumer_shell import ConsumerShell

# After this time the description goes without the numbers of a partition, which is better than no description.
_ENDS_S = 3.0
_AGES_S = 5.0

ListOffsets = Callable[[Mapping[TopicPartition, OffsetSpec]], Awaitable[dict[TopicPartition, int | None]]]


class GroupAdmin:
    """The methods of Admin for groups. They have the meaning of those of minilog.Admin. `list_offsets` is Admin's
    method."""

    def __init__(self, cluster: NetworkClient, list_offsets: ListOffsets) -> None:
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._list_offsets = list_offsets

    async def list(self) -> list[GroupListing]:
        listings = await self._groups.list()
        return [GroupListing(group.group_id, group.partition_count, group.member_count) for group in listings]

    async def describe(self, group_id: str) -> GroupDescription:
        stored = await self._groups.describe(group_id)
        answer = await self._cluster.refresh(None)
        names = {topic.topic_id: topic.name for topic in answer.topics if not topic.error.code}
        positions = committed_positions(stored.offsets, names)
        ends = await self._ends(positions)
        ages_s = await ages_of_first_records(self._cluster.config, self._cluster.runtime, unread(positions, ends))
        return describe_group(stored, group_id, names, ends, ages_s)

    async def seek(self, group_id: str, to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, int]:
        timestamps = look_ups(to)
        with contextlib.suppress(GroupIdNotFound):  # a group may begin with a seek
            check_none_pending(group_id, await self._groups.describe(group_id))
        starts = await self._list_offsets(dict.fromkeys(to, "earliest"))
        ends = await self._list_offsets(dict.fromkeys(to, "latest"))
        at_timestamps = await self._list_offsets(timestamps)
        offsets = {
            partition: place(
                partition,
                where,
                at_timestamps.get(partition),
                ReadableEnds(starts[partition] or 0, ends[partition] or 0),
            )
            for partition, where in to.items()
        }
        keys = {partition: self._cluster.cache.key(partition) for partition in offsets}
        await self._groups.commit(
            group_id, {keys[partition]: Committed(offset) for partition, offset in offsets.items()}
        )
        return offsets

    async def delete(self, group_id: str) -> None:
        await self._groups.delete(group_id)

    async def remove_member(self, group_id: str, member: str) -> None:
        await self._groups.remove_member(group_id, member)

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ReadableEnds]:
        """The readable ends of the partitions whose leaders answer soon."""
        deadline_s = min(self._cluster.deadline(), now_s() + _ENDS_S)
        query = await self._cluster.query_offsets(dict.fromkeys(partitions, "latest"), deadline_s)
        level = self._cluster.config.isolation_level
        return {
            partition: ReadableEnds(result.log_start_offset, offset_of(result, "latest", level) or 0)
            for partition, result in query.results.items()
        }


async def ages_of_first_records(
    config: ClientConfig, runtime: Runtime, stretches: Mapping[TopicPartition, ReadableEnds]
) -> dict[TopicPartition, float | None]:
    """The age in seconds, by this machine's clock, of the first record of each stretch of offsets. It is 0 for a
    stretch without records, for example if all were aborted. It is None if the answer does not come in time."""
    if not stretches:
        return {}
    from minilog.aio.consumer_shell import ConsumerShell  # it loads Arrow, so only this function imports it

    # With one byte of credit a broker sends one batch, and the next one after the client took it.
    shell = ConsumerShell(dataclasses.replace(config, fetch_max_bytes=1, fetch_min_bytes=1, group_id=""), runtime)
    ages_s: dict[TopicPartition, float | None] = dict.fromkeys(stretches)
    try:
        wanted = [TopicPartition(p.topic, p.partition, *stretch) for p, stretch in stretches.items()]
        await shell.change(lambda: shell.core.assign(wanted))
        with contextlib.suppress(TimeoutError, MinilogError):
            async with asyncio.timeout(min(_AGES_S, config.request_timeout_ms / 1000.0)):
                await _find_ages(shell, stretches, ages_s)
        for partition in stretches:
            if ages_s[partition] is None and shell.core.position(partition) == stretches[partition].end_offset:
                ages_s[partition] = 0.0
    finally:
        await shell.close()
    return ages_s


async def _find_ages(
    shell: ConsumerShell, stretches: Mapping[TopicPartition, ReadableEnds], ages_s: dict[TopicPartition, float | None]
) -> None:
    from minilog.consumer.decode import decode_all, timestamps_of  # as in ages_of_first_records
    from minilog.consumer.row_selection import RowSelection

    while not shell.core.finished():
        number = shell.polls.begin()
        outcome = decode_all(await shell.take(_AGES_S, 1, RowSelection(timestamps=True), number), 1)
        await shell.report(outcome)
        shell.polls.returned = number
        if outcome.lack is not None:
            raise outcome.lack
        for run, batches in outcome.good:
            if batches and ages_s[run.partition] is None:
                first_us = timestamps_of(run, batches[0])[0].value
                ages_s[run.partition] = max(0.0, (shell.cluster.runtime.wall_us() - first_us) / 1_000_000)
                end_offset = stretches[run.partition].end_offset
                await shell.change(lambda at=end_offset, p=run.partition: shell.core.seek(p, at))  # type: ignore[misc]
