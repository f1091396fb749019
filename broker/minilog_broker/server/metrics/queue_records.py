"""The records of queues whose coordinator is this broker. The coordinators know them, so no other broker is asked."""

from __future__ import annotations

from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples
from minilog_broker.server.metrics.broker_parts import BrokerParts


def of_queue_records(parts: BrokerParts) -> Samples:
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
    for name in shown:
        counted = counts[name]
        samples += [
            (names.QUEUE_RECORDS, (name, "ready"), float(counted.ready)),
            (names.QUEUE_RECORDS, (name, "leased"), float(counted.leased)),
            (names.QUEUE_RECORDS, (name, "settling"), float(counted.settling)),
            (names.QUEUE_RECORDS, (name, "fresh"), float(counted.fresh)),
            (names.QUEUE_RECORDS, (name, "dead"), float(counted.dead_letters)),
            (names.QUEUE_DEAD_RECORDS, (name,), float(counted.dead)),
            (names.QUEUE_EXPIRED_RECORDS, (name,), float(counted.expired)),
        ]
    return samples
