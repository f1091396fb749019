"""What changed in the committed image, told to the replicas of this broker: at once, or a piece at a time.

A decision may change ten thousand partitions (a topic is created, a broker fails). Those that are more than a piece
wait for turns of the loop, each with the state that the image has by then; what follows meanwhile joins them. So a
replica hears of its newest state, perhaps some milliseconds after another one of the same decision, as it would on
another broker. Lives and configurations go with every piece.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.replication.state import PartitionKey, TopicConfig
from minilog_broker.server.log_directory import LogDirectory, log_settings
from minilog_broker.server.replicas import Replicas
from minilog_broker.server.timer import now_ms
from minilog_broker.server.turns import Turns

PARTITIONS_AT_ONCE = 250  # some ten milliseconds, with what follows from each


class ImageToReplicas:
    """See the module's text. `topics_deleted` is called when partitions were removed."""

    def __init__(
        self,
        image: MetadataImage,
        logs: LogDirectory,
        replicas: Replicas,
        topic_config: Callable[[bytes], TopicConfig],
        topics_deleted: Callable[[], None],
        turns: Turns,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._image = image
        self._logs = logs
        self._replicas = replicas
        self._topic_config = topic_config
        self._topics_deleted = topics_deleted
        self._turns = turns
        self._spawn = spawn
        self._waiting: dict[PartitionKey, None] = {}
        self._stopped = False

    def changed(self, changes: ImageChanges) -> None:
        """Committed batches were applied to the image."""
        idle = not self._waiting
        # What an earlier decision changed goes first; a partition that changed again is told once, as it is then.
        self._waiting |= dict.fromkeys([*changes.partitions, *changes.removed])
        self._configure(changes.configs & self._image.topics.keys())
        if idle:
            self._tell()
            if self._waiting:
                self._spawn(self._tell_the_rest())

    def stop(self) -> None:
        """Nothing is taken up any more, whatever the image still tells."""
        self._stopped = True
        self._waiting.clear()

    async def _tell_the_rest(self) -> None:
        while self._waiting:
            await self._turns.take()
            if not self._stopped:
                self._tell()

    def _configure(self, topic_ids: set[bytes]) -> None:
        """Of all logs at once: what is appended from now on counts under it."""
        if not topic_ids:
            return
        configs = {topic_id: self._topic_config(topic_id) for topic_id in topic_ids}
        for key, log in list(self._logs.logs.items()):  # the disk thread makes and drops logs: a copy is walked
            if key.topic_id in configs:
                log.settings = log_settings(configs[key.topic_id])
        self._apply([], [], topic_ids)

    def _tell(self) -> None:
        keys = list(islice(self._waiting, PARTITIONS_AT_ONCE))
        for key in keys:
            del self._waiting[key]
        present = [key for key in keys if key in self._image.partitions]
        removed = [key for key in keys if key not in self._image.partitions]
        self._apply(present, removed, {key.topic_id for key in present})
        if removed:
            self._topics_deleted()

    def _apply(self, present: list[PartitionKey], removed: list[PartitionKey], topic_ids: set[bytes]) -> None:
        image = self._image
        configs = {topic_id: self._topic_config(topic_id) for topic_id in topic_ids}
        names = {topic_id: image.topics[topic_id].name for topic_id in topic_ids}
        states = [image.partitions[key] for key in present]
        self._replicas.manager.apply_image(states, removed, configs, names, image.lives(), now_ms())
        self._replicas.run()
