"""What changed in the committed image, told to the replicas of this broker: at once, or a piece at a time.

A decision may change ten thousand partitions (a topic is created, a broker fails). Those that are more than a piece
wait for turns of the loop, each with the state that the image has by then; what follows meanwhile joins them. So a
replica hears of its newest state, perhaps some milliseconds after another one of the same decision, as it would on
another broker. Lives go with every piece.

A configuration and the states of its topic are of one offset of the metadata log, always (min.insync.replicas and the
ISR that a leader judges by): where one changes, all of the topic that still wait are told with it, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from minilog.partition_key import PartitionKey
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.server.runtime.observer import UNOBSERVED, Observer
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.replication_shell import ReplicationShell

PARTITIONS_AT_ONCE = 250  # some ten milliseconds, with what follows from each


class ImageToReplicas:
    """The way of changes from the image to the replicas of this broker.

    `topics_deleted` is called when partitions were removed.
    """

    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicationShell,
        topics_deleted: Callable[[], None],
        turns: Turns,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        observer: Observer = UNOBSERVED,
    ) -> None:
        self._observer = observer
        self._image = image
        self._replicas = replicas
        self._topics_deleted = topics_deleted
        self._turns = turns
        self._spawn = spawn
        self._waiting: dict[PartitionKey, None] = {}
        self._stopped = False
        self._all_told = asyncio.Event()
        self._all_told.set()

    def changed(self, changes: ImageChanges) -> None:
        """Committed batches were applied to the image."""
        idle = not self._waiting
        # What an earlier decision changed goes first; a partition that changed again is told once, as it is then.
        self._waiting |= dict.fromkeys([*changes.partitions, *changes.removed])
        if configured := changes.configs & self._image.topics.keys():
            self._tell([key for key in self._waiting if key.topic_id in configured], configured)
        if idle:
            self._tell(self._next_piece())
            if self._waiting:
                self._all_told.clear()
                self._spawn(self._tell_the_rest())

    async def told(self) -> None:
        """Return when the replicas know all that the image has said until now."""
        await self._all_told.wait()

    def stop(self) -> None:
        """Nothing is taken up any more, whatever the image still tells."""
        self._stopped = True
        self._waiting.clear()

    async def _tell_the_rest(self) -> None:
        while self._waiting:
            await self._turns.take()
            if not self._stopped:
                self._tell(self._next_piece())
        self._all_told.set()

    def _next_piece(self) -> list[PartitionKey]:
        return list(islice(self._waiting, PARTITIONS_AT_ONCE))

    def _tell(self, keys: list[PartitionKey], configured: AbstractSet[bytes] = frozenset()) -> None:
        for key in keys:
            del self._waiting[key]
        present = [key for key in keys if key in self._image.partitions]
        removed = [key for key in keys if key not in self._image.partitions]
        self._apply(present, removed, {key.topic_id for key in present} | configured)
        if removed:
            self._topics_deleted()

    def _apply(self, present: list[PartitionKey], removed: list[PartitionKey], topic_ids: set[bytes]) -> None:
        image = self._image
        configs = {topic_id: image.effective_config(topic_id) for topic_id in topic_ids}
        names = {topic_id: image.topics[topic_id].name for topic_id in topic_ids}
        states = [image.partitions[key] for key in present]
        self._observer.partitions_changed(states)
        self._observer.partitions_removed(removed)
        self._replicas.manager.apply_image(states, removed, configs, names, image.incarnations(), now_ms())
        self._replicas.run()
