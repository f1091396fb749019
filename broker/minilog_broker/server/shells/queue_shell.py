"""The shell of a coordinator of queues: its questions go to the leaders of partitions, and calls wait for records."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.coordinator_effects import (
    AskStableOffset,
    CoordinatorEffect,
    RecordsDied,
    RecordsExpired,
)
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.replication.stable_offsets import StableOffset
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.server.shells.coordinator_shell import PendingShell, Surroundings

logger = structlog.get_logger()
_BROKER = "Broker"  # in the place of a principal: the coordinator itself decides a death


class QueueShell(PendingShell[QueueCoordinator]):
    """A coordinator of queues."""

    max_waiting = 50_000  # most of them are workers without work

    def __init__(self, key: PartitionKey, around: Surroundings, make: Callable[[OwnLog], QueueCoordinator]) -> None:
        super().__init__(key, around, make)
        self._questions: dict[int, Callable[[], None]] = {}  # under way: each with what withdraws it

    def run(self) -> None:
        super().run()
        if not self.leads:
            questions, self._questions = self._questions, {}
            for withdraw in questions.values():
                withdraw()

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case AskStableOffset(number=number, question=question):
                ask = self._around.ask_stable_offset
                self._questions[number] = ask(question, lambda answer: self._answered(effect, answer))
            case RecordsExpired(queue=queue, partition=partition, count=count):
                logger.warning(
                    "retention took records of a queue before they were settled. Give the topic a longer retention, or "
                    "the queue more workers",
                    queue=queue,
                    topic=self._around.topic_name(partition.topic_id),
                    partition=partition.partition,
                    records=count,
                )
            case RecordsDied():
                self._tell_deaths(effect)
            case _:
                super()._carry_out(effect)

    def _tell_deaths(self, died: RecordsDied) -> None:
        topic = self._around.topic_name(died.partition.topic_id)
        offsets = str(died.first) if died.first == died.last else f"{died.first} to {died.last}"
        logger.warning(
            "messages of a queue have died",
            queue=died.queue,
            topic=topic,
            partition=died.partition.partition,
            offsets=offsets,
            deliveries=died.delivery_count,
            reason=died.reason,
        )
        what = f"offsets {offsets} of partition {died.partition.partition} of {topic} died"
        reason = f"{what} after {died.delivery_count} deliveries: {died.reason}"
        self._around.audit(AuditEvent(_BROKER, "", "RecordsDied", "", f"queue:{died.queue}", Decision.ALLOWED, reason))

    def _answered(self, effect: AskStableOffset, answer: StableOffset | MinilogError) -> None:
        self._questions.pop(effect.number, None)
        self.core.stable_offset(effect, answer, self._around.moment())
        self.run()

    def _caller_left(self, ticket: object) -> None:
        self.core.caller_left(ticket)
        self.run()
