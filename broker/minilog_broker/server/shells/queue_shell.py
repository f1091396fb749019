"""The shell of a coordinator of queues: its questions go to the leaders of partitions, and calls wait for records."""

from __future__ import annotations

import structlog

from minilog.errors import MinilogError
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, CoordinatorEffect, RecordsExpired
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.replication.stable_offsets import StableOffset
from minilog_broker.server.shells.coordinator_shell import CoordinatorShell

logger = structlog.get_logger()


class QueueShell(CoordinatorShell[QueueCoordinator]):
    """A coordinator of queues."""

    max_waiting = 50_000  # most of them are workers without work

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case AskStableOffset(question=question):
                self._around.ask_stable_offset(question, lambda answer: self._answered(effect, answer))
            case RecordsExpired(queue=queue, partition=partition, count=count):
                logger.warning(
                    "retention took records of a queue before they were settled. Give the topic a longer retention, or "
                    "the queue more workers",
                    queue=queue,
                    topic=partition.topic_id.hex(),
                    partition=partition.partition,
                    records=count,
                )
            case _:
                super()._carry_out(effect)

    def _answered(self, effect: AskStableOffset, answer: StableOffset | MinilogError) -> None:
        self.core.stable_offset(effect, answer, self._around.moment())
        self.run()

    def _caller_left(self, ticket: object) -> None:
        self.core.caller_left(ticket)
        self.run()

    def drop_deleted_topics(self) -> None:
        """Drop the state of topics that the image no longer has."""
        self.core.drop_deleted_topics()
        self.run()

    def topics_changed(self) -> None:
        """The image has topics or partitions that it had not, or lacks some."""
        self.core.topics_changed(self._around.moment())
        self.run()

    def _next_tick_ms(self) -> float:
        return self.core.next_tick_ms

    def _tick(self) -> None:
        self.core.tick(self._around.moment())
        self.run()
