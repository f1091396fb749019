"""The shell of a coordinator of queues: its questions go to the leaders of partitions, and calls wait for records."""

from __future__ import annotations

import structlog

from minilog.errors import MinilogError
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, CoordinatorEffect, RecordsExpired
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.replication.stable_offsets import StableOffset
from minilog_broker.server.shells.coordinator_shell import PendingShell

logger = structlog.get_logger()


class QueueShell(PendingShell[QueueCoordinator]):
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
