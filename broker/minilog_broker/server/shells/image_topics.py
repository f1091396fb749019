"""The topics of the metadata image, as coordinators look at them.

A snapshot replaces the mappings of an image. So each question goes to the image, and nobody keeps a mapping of it.
"""

from __future__ import annotations

from minilog.partition_key import PartitionKey
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.groups.membership import KnownTopic


class ImageTopics:
    """It is a minilog_broker.coordinators.groups.membership.Topics."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def find(self, name: str) -> KnownTopic | None:
        topic_id = self._image.topic_ids.get(name)
        topic = None if topic_id is None else self._image.topics.get(topic_id)
        return None if topic is None else KnownTopic(topic.topic_id, topic.partition_count)

    def topic_id(self, name: str) -> bytes | None:
        """None: no topic has the name."""
        return self._image.topic_ids.get(name)

    def partition_count(self, topic_id: bytes) -> int | None:
        """None: there is no such topic."""
        topic = self._image.topics.get(topic_id)
        return None if topic is None else topic.partition_count

    def racks(self, key: PartitionKey) -> frozenset[str]:
        state = self._image.partitions.get(key)
        if state is None:
            return frozenset()
        brokers = (self._image.brokers.get(broker_id) for broker_id in state.replicas)
        return frozenset(broker.rack for broker in brokers if broker is not None and broker.rack)
