"""The records of queues whose coordinator is this broker. The coordinators know them, so no other broker is asked.

The lag in seconds is that of the partition with the oldest record that is not settled. It is an estimate from the ends
that scrapes have seen, so it is never more than the time of watching.
"""

from __future__ import annotations

from minilog_broker.coordinators.queues.describing import RecordCounts
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples
from minilog_broker.server.metrics.broker_parts import BrokerParts
from minilog_broker.server.metrics.end_history import EndHistory
from minilog_broker.server.runtime.timer import now_ms


class QueueRecords:
    """The samples of queues, with the points for the estimate of seconds."""

    def __init__(self) -> None:
        self._histories: dict[QueueKey, EndHistory] = {}

    def look(self, parts: BrokerParts) -> Samples:
        """The samples of the first queues by name."""
        counts = {
            name: counted
            for shell in parts.coordinators.queues_here()
            for name, counted in shell.core.record_counts().items()
        }
        shown = sorted(counts)[: names.MAX_GROUPS]
        samples: Samples = [
            (names.QUEUES, (), float(len(counts))),
            (names.QUEUES_NOT_SHOWN, (), float(len(counts) - len(shown))),
        ]
        now_s, histories = now_ms() / 1000.0, self._histories
        self._histories = {}
        for name in shown:
            counted = counts[name]
            for key, progress in counted.progress.items():
                self._histories[key] = histories.get(key) or EndHistory()
                self._histories[key].note(now_s, progress.last_stable_offset)
            samples += _of_queue(name, counted)
            samples.append((names.QUEUE_LAG_SECONDS, (name,), self.lag_s(counted, now_s)))
        return samples

    def lag_s(self, counted: RecordCounts, now_s: float) -> float:
        """The age of the oldest record of a queue that is not settled, in seconds. 0 without one."""
        ages = (
            self._histories[key].seconds_since(progress.settled_to, now_s) for key, progress in counted.progress.items()
        )
        return max(ages, default=0.0)


def _of_queue(name: str, counted: RecordCounts) -> Samples:
    return [
        (names.QUEUE_RECORDS, (name, "ready"), float(counted.ready)),
        (names.QUEUE_RECORDS, (name, "leased"), float(counted.leased)),
        (names.QUEUE_RECORDS, (name, "settling"), float(counted.settling)),
        (names.QUEUE_RECORDS, (name, "fresh"), float(counted.fresh)),
        (names.QUEUE_RECORDS, (name, "dead"), float(counted.dead_letters)),
        (names.QUEUE_DEAD_RECORDS, (name,), float(counted.dead)),
        (names.QUEUE_EXPIRED_RECORDS, (name,), float(counted.expired)),
        (names.QUEUE_REDELIVERED_RECORDS, (name,), float(counted.redelivered)),
    ]
