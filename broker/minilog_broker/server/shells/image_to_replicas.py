"""The way of changes from the committed image to the replicas of this broker, at once or a piece at a time.

A decision may change ten thousand partitions (a topic is created, a broker fails). Those beyond a piece wait for turns
of the loop, each with the image's state at its turn, and later changes join them. So a replica gets its newest state,
perhaps some milliseconds after another one of the same decision, as on another broker. Lives go with every piece.

A configuration and the states of its topic are always of one offset of the metadata log, since a leader judges by
min.insync.replicas and the ISR. A new configuration goes with all waiting partitions of its topic, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Protocol

from minilog.partition_key import PartitionKey
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.replication_shell import ReplicationShell

PARTITIONS_AT_ONCE = 250  # some ten milliseconds, with all effects of each


class HearsOfTopics(Protocol):
    """The coordinators of this broker."""

    def topics_deleted(self) -> None: ...

    def topics_changed(self) -> None: ...


class ImageToReplicas:
    """The way of changes from the image to the replicas of this broker.

    `coordinators` hear of partitions that were removed, and of topics that came, grew or went.
    """

    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicationShell,
        coordinators: HearsOfTopics,
        turns: Turns,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        observer: BrokerObserver = UNOBSERVED,
    ) -> None:
        self._observer = observer
        self._image = image
        self._replicas = replicas
        self._coordinators = coordinators
        self._turns = turns
        self._spawn = spawn
        self._waiting: dict[PartitionKey, None] = {}
        self._stopped = False
        self._settled = asyncio.Event()
        self._settled.set()

    def changed(self, changes: ImageChanges) -> None:
        """Take the changes of the image by committed batches."""
        idle = not self._waiting
        # Changes of earlier decisions go first. A partition that changed again goes once, with its newest state.
        self._waiting |= dict.fromkeys([*changes.partitions, *changes.removed])
        if configured := changes.configs & self._image.topics.keys():
            self._hand_over([key for key in self._waiting if key.topic_id in configured], configured)
        if idle:
            self._hand_over(self._next_piece())
            if self._waiting:
                self._settled.clear()
                self._spawn(self._hand_over_the_rest())
        if changes.topics or changes.removed:
            self._coordinators.topics_changed()

    async def settled(self) -> None:
        """Return when the replicas have all changes of the image until now."""
        await self._settled.wait()

    def stop(self) -> None:
        """Hand nothing over any more, whatever changes come."""
        self._stopped = True
        self._waiting.clear()

    async def _hand_over_the_rest(self) -> None:
        while self._waiting:
            await self._turns.take()
            if not self._stopped:
                self._hand_over(self._next_piece())
        self._settled.set()

    def _next_piece(self) -> list[PartitionKey]:
        return list(islice(self._waiting, PARTITIONS_AT_ONCE))

    def _hand_over(self, keys: list[PartitionKey], configured: AbstractSet[bytes] = frozenset()) -> None:
        for key in keys:
            del self._waiting[key]
        present = [key for key in keys if key in self._image.partitions]
        removed = [key for key in keys if key not in self._image.partitions]
        self._apply(present, removed, {key.topic_id for key in present} | configured)
        if removed:
            self._coordinators.topics_deleted()

    def _apply(self, present: list[PartitionKey], removed: list[PartitionKey], topic_ids: set[bytes]) -> None:
        image = self._image
        configs = {topic_id: image.effective_config(topic_id) for topic_id in topic_ids}
        names = {topic_id: image.topics[topic_id].name for topic_id in topic_ids}
        states = [image.partitions[key] for key in present]
        self._observer.partitions_changed(states)
        self._observer.partitions_removed(removed)
        self._replicas.manager.apply_image(states, removed, configs, names, image.incarnations(), now_ms())
        self._replicas.run()
