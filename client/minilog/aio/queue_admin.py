"""The calls of Admin for queues."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from minilog.net.network_client import NetworkClient
from minilog.queues.client import Queues
from minilog.queues.descriptions import describe_queue
from minilog.types import QueueDescription, QueueListing


class QueueAdmin:
    """The methods of Admin for queues. They have the meaning of those of minilog.Admin."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._cluster = cluster
        self._queues = Queues(cluster)

    async def list(self) -> builtins.list[QueueListing]:
        return [
            QueueListing(listing.queue, listing.partition_count, listing.leased_count)
            for listing in await self._queues.list()
        ]

    async def describe(self, queue: str) -> QueueDescription:
        described = await self._queues.describe(queue)
        answer = await self._cluster.refresh(None)
        names = {topic.topic_id: topic.name for topic in answer.topics if not topic.error.code}
        return describe_queue(described, queue, names)

    async def alter(self, queue: str, set_configs: Mapping[str, str], unset_configs: Sequence[str]) -> None:
        await self._queues.alter(queue, set_configs, unset_configs)

    async def delete(self, queue: str) -> None:
        await self._queues.delete(queue)
