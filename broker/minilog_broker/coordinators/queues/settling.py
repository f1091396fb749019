"""Settlement within transactions: the records are settling until the marker comes (ranges.py).

    begin        all ranges of a request are settling, for the producer, or none is
    end          committed: settled. Aborted: the lease holds the records again
    given_back   the leases whose locks begin anew after an abort

The functions are pure: they return changes, and the coordinator writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.coordinators.queues import partition_queue, redriving
from minilog_broker.coordinators.queues.locks import LeaseName
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import RangeState
from minilog_broker.coordinators.queues.records import QueueChange, SettlingProducer
from minilog_broker.coordinators.queues.view import QueueView
from minilog_broker.coordinators.sequences import check_marker, is_new
from minilog_broker.coordinators.table import Change


def check(request: queue_pb2.SettleRequest) -> None:
    """Raises InvalidArgument: a transaction accepts, and nothing else."""
    if any(settlement.verdict != queue_pb2.VERDICT_ACCEPT for settlement in request.settlements):
        raise InvalidArgument(
            f"queue '{request.queue}': a transaction accepts messages. Release and reject them outside of it"
        )


def by_partition(request: queue_pb2.SettleRequest) -> dict[QueueKey, list[int]]:
    """The places of the settlements of each partition."""
    places: dict[QueueKey, list[int]] = {}
    for place, settlement in enumerate(request.settlements):
        key = QueueKey(request.queue, PartitionKey.of(settlement.partition_id))
        places.setdefault(key, []).append(place)
    return places


def begin(view: QueueView, request: queue_pb2.SettleRequest, queues: Iterable[str]) -> list[QueueChange]:
    """`queues`: in which the producer may have something pending.

    Raises InvalidRecordState, OutOfOrderSequenceNumber, InvalidTxnState."""
    transaction = request.transaction
    if not is_new(view.pending_of(transaction.producer_id, queues), transaction, f"queue '{request.queue}'"):
        return []
    states: dict[QueueKey, PartitionQueue] = {}
    for key, places in by_partition(request).items():
        settlements = [request.settlements[place] for place in places]
        state = view.leased_partition(request.queue, settlements[0].partition_id)
        states[key] = partition_queue.begin_settling(state, settlements, transaction.producer_id)
    producer = SettlingProducer(transaction.transactional_id, transaction.sequence)
    changes: list[QueueChange] = [Change(key, state) for key, state in states.items()]
    changes += redriving.begin(view, request)
    return [*changes, Change(QueueKey(request.queue, producer_id=transaction.producer_id), producer)]


def given_back(
    view: QueueView,
    markers: Iterable[coordinator_pb2.ProducerMarker],
    queues_of: Callable[[int], Iterable[str]],
) -> list[LeaseName]:
    """The leases that hold records again when these markers take effect."""
    aborted = {marker.producer_id for marker in markers if not marker.committed}
    found: dict[LeaseName, None] = {}
    for producer_id in sorted(aborted):
        for queue in sorted(queues_of(producer_id)):
            for key in view.holdings.of_producer(queue, producer_id):
                state = view.partition(key)
                for part in () if state is None else state.ranges:
                    if part.state is RangeState.SETTLING and part.producer_id == producer_id:
                        found[LeaseName(queue, part.lease_id)] = None
    return list(found)


def end(
    view: QueueView,
    markers: Iterable[coordinator_pb2.ProducerMarker],
    queues_of: Callable[[int], Iterable[str]],
) -> list[QueueChange]:
    """What markers of one transaction do. Raises InvalidTxnState, for all, where a commit is not what is pending."""
    states: dict[QueueKey, PartitionQueue] = {}
    producers: list[QueueKey] = []
    redriven: list[QueueChange] = []
    for marker in markers:
        pending = view.pending_of(marker.producer_id, queues_of(marker.producer_id))
        check_marker(pending, marker)
        for queue in pending:
            producers.append(QueueKey(queue, producer_id=marker.producer_id))
            redriven += redriving.end(view, queue, marker.producer_id, committed=marker.committed)
            for key in view.holdings.of_producer(queue, marker.producer_id):
                if (before := states.get(key, view.partition(key))) is not None:
                    states[key] = partition_queue.end_settling(before, marker.producer_id, committed=marker.committed)
    changes: list[QueueChange] = [Change(key, state) for key, state in states.items()]
    return [*changes, *redriven, *(Change(key, None) for key in producers)]
