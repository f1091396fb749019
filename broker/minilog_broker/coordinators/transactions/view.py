"""The table as transactions and their producers: what the rules read. Everything in flight counts."""

from __future__ import annotations

from minilog.errors import TransactionalIdNotFound
from minilog_broker.coordinators.table import CommittedTable
from minilog_broker.coordinators.transactions.records import (
    Fate,
    TransactionKey,
    TransactionMetadata,
    TransactionProducer,
    TransactionValue,
)


class TransactionView:
    """Reads only; a rule that changes something gives the changes back to its coordinator."""

    def __init__(self, table: CommittedTable[TransactionKey, TransactionValue]) -> None:
        self._table = table

    def ids(self) -> list[str]:
        """The transactional ids that are known."""
        return [owner for owner in self._table.owners() if self.transaction(owner) is not None]

    def transaction(self, transactional_id: str) -> TransactionMetadata | None:
        value = self._table.get(TransactionKey(transactional_id))
        return value if isinstance(value, TransactionMetadata) else None

    def existing_transaction(self, transactional_id: str) -> TransactionMetadata:
        """Raises TransactionalIdNotFound."""
        transaction = self.transaction(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFound(
                f"transactional id '{transactional_id}' is not known: see `minilog transaction list`"
            )
        return transaction

    def producer(self, transactional_id: str, producer_id: int) -> TransactionProducer | None:
        value = self._table.get(TransactionKey(transactional_id, producer_id))
        return value if isinstance(value, TransactionProducer) else None

    def producers(self, transactional_id: str) -> dict[int, TransactionProducer]:
        """All that have not ended everywhere, by producer id."""
        producers = {
            key.producer_id: value
            for key, value in self._table.owned(transactional_id)
            if key.producer_id is not None and isinstance(value, TransactionProducer)
        }
        return dict(sorted(producers.items()))

    def open_producers(self, transactional_id: str) -> dict[int, TransactionProducer]:
        """Those whose fate is not decided."""
        return {
            producer_id: producer
            for producer_id, producer in self.producers(transactional_id).items()
            if producer.fate is Fate.OPEN
        }
