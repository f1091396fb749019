"""The calls of Admin for queues."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.queues.client import Queues
from minilog.queues.descriptions import Ends, describe_queue, with_ends
from minilog.types import QueueDescription, QueueListing, TopicPartition

_ENDS_S = 3.0  # after it the description has the ends that the coordinator knows


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
        description = describe_queue(described, queue, names)
        return with_ends(description, await self._ends(description))

    async def _ends(self, description: QueueDescription) -> dict[TopicPartition, Ends]:
        """The ends of the partitions whose leaders answer soon. The coordinator asks leaders for
        news while workers wait for records, and no longer."""
        partitions = [TopicPartition(position.topic, position.partition) for position in description.partitions]
        deadline_s = min(self._cluster.deadline(), now_s() + _ENDS_S)
        query = await self._cluster.query_offsets(dict.fromkeys(partitions, "latest"), deadline_s)
        return {at: Ends(result.last_stable_offset, result.high_watermark) for at, result in query.results.items()}

    async def alter(self, queue: str, set_configs: Mapping[str, str], unset_configs: Sequence[str]) -> None:
        await self._queues.alter(queue, set_configs, unset_configs)

    async def delete(self, queue: str) -> None:
        await self._queues.delete(queue)
