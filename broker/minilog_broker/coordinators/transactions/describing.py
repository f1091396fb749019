"""What people are told of transactions: `minilog transaction list` and `describe`."""

from __future__ import annotations

from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.transactions.records import Fate, TransactionMetadata, TransactionProducer
from minilog_broker.coordinators.transactions.view import TransactionView

_FATES = {
    Fate.OPEN: coordinator_pb2.PRODUCER_FATE_OPEN,
    Fate.COMMITTING: coordinator_pb2.PRODUCER_FATE_COMMITTING,
    Fate.ABORTING: coordinator_pb2.PRODUCER_FATE_ABORTING,
}


def listing(view: TransactionView, transactional_id: str) -> coordinator_pb2.TransactionListing:
    """One line. Raises TransactionalIdNotFound."""
    transaction, producers = view.existing_transaction(transactional_id), view.producers(transactional_id)
    return coordinator_pb2.TransactionListing(
        transactional_id=transactional_id,
        state=_state(producers),
        generation=transaction.generation,
        last_committed_generation=transaction.last_committed,
        producer_count=len(producers),
    )


def _state(producers: dict[int, TransactionProducer]) -> coordinator_pb2.TransactionState.ValueType:
    if not producers:
        return coordinator_pb2.TRANSACTION_STATE_IDLE
    if any(producer.fate is Fate.OPEN for producer in producers.values()):
        return coordinator_pb2.TRANSACTION_STATE_OPEN
    return coordinator_pb2.TRANSACTION_STATE_ENDING


def description(
    view: TransactionView, transactional_id: str, silent_ms: float | None
) -> coordinator_pb2.DescribeTransactionResponse:
    """All of it. Raises TransactionalIdNotFound."""
    transaction: TransactionMetadata = view.existing_transaction(transactional_id)
    return coordinator_pb2.DescribeTransactionResponse(
        listing=listing(view, transactional_id),
        attempt_id=transaction.attempt_id,
        run_id=transaction.run_id,
        timeout_ms=transaction.timeout_ms,
        expires=transaction.expires,
        updated_us=transaction.updated_us,
        silent_ms=None if silent_ms is None else max(0, round(silent_ms)),
        producers=[
            _described(producer_id, producer) for producer_id, producer in view.producers(transactional_id).items()
        ],
    )


def _described(producer_id: int, producer: TransactionProducer) -> coordinator_pb2.EnlistedProducer:
    return coordinator_pb2.EnlistedProducer(
        producer_id=producer_id,
        generation=producer.generation,
        task=producer.task,
        fate=_FATES[producer.fate],
        partitions=[key.to_wire() for key, _ in producer.partitions],
    )
