"""Under whose name batches are written, and what becomes of that name.

    a producer that is     writes under                              where something cannot be mended
    not idempotent         no id, no sequence                        -
    idempotent             an id from any broker                     asks for another id, goes on under it
    transactional          the id that enlisting gave it, from a     the transaction has failed: it writes nothing more
                           transaction's beginning to its end        and can only be aborted

A transaction is failed by its first batch that fails, for whatever reason: it is committed with all that was sent in
it, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

from minilog.client_config import ClientConfig
from minilog.errors import InvalidTxnState, MinilogError
from minilog.producer.accumulator import Accumulator
from minilog.transactions.messages import Enlistment
from minilog.v1 import data_pb2

_FOREVER = float("inf")


class ProducerIdentity:
    """The producer id and epoch of a producer, and its transaction.

    Opens and shuts the accumulator: a record belongs to one transaction, or is refused.
    """

    def __init__(self, config: ClientConfig, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self.producer: tuple[int, int] = (-1, -1)  # id and epoch
        self.proof = b""  # that they were given to us; shown with each batch
        self.transaction: data_pb2.TransactionalWrite | None = None
        self.failure: MinilogError | None = None  # of the transaction
        self._is_transactional = bool(config.transactional_id)
        self._replaceable = config.enable_idempotence and not self._is_transactional
        self._wanted = self._replaceable
        self._asked = False
        self._retry_at_ms = 0.0
        self._pause_ms = config.retry_backoff_max_ms
        if self._is_transactional:
            accumulator.refuse(_outside(config.transactional_id))

    def may_write(self) -> bool:
        """May batches be given a sequence now?"""
        if self._is_transactional:
            return self.transaction is not None and self.failure is None
        return not self._wanted

    # -- transactions

    def begin(self, enlistment: Enlistment) -> None:
        self.producer = (enlistment.producer_id, enlistment.producer_epoch)
        self.proof = enlistment.producer_proof
        self.transaction = data_pb2.TransactionalWrite(
            transactional_id=enlistment.attempt.transactional_id, coordinator_epoch=enlistment.coordinator_epoch
        )
        self.failure = None
        self._accumulator.is_in_transaction = True
        self._accumulator.accept()

    def end(self) -> None:
        assert self.transaction is not None
        self._accumulator.refuse(_outside(self.transaction.transactional_id))
        self._accumulator.is_in_transaction = False
        self.producer, self.proof, self.transaction, self.failure = (-1, -1), b"", None, None

    def fail(self, error: MinilogError) -> None:
        """A batch failed, or all of the transaction did. Of no consequence where there is no transaction."""
        if self.transaction is not None and self.failure is None:
            self.failure = error
            self._accumulator.refuse(type(error)(f"the transaction has failed, and can only be aborted: {error}"))

    # -- ids that are asked for

    def give_up(self, error: MinilogError) -> None:
        """What the leaders know of this producer, and what it knows, have parted."""
        self._wanted = self._replaceable
        self.fail(error)

    def ask(self, *, is_idle: Callable[[], bool], now_ms: float) -> bool:
        """Is an id to be asked for now? `is_idle`: nothing has a sequence any more."""
        if not self._wanted or self._asked or now_ms < self._retry_at_ms or not is_idle():
            return False
        self._asked = True
        return True

    def given(self, producer_id: int, producer_epoch: int, proof: bytes) -> None:
        self.producer, self.proof = (producer_id, producer_epoch), proof
        self._asked = self._wanted = False

    def refused(self, now_ms: float) -> None:
        self._asked = False
        self._retry_at_ms = now_ms + self._pause_ms

    def next_ask_ms(self, *, is_idle: Callable[[], bool], now_ms: float) -> float:
        """When `ask` is due."""
        return max(self._retry_at_ms, now_ms + 1) if self._wanted and not self._asked and is_idle() else _FOREVER


def _outside(transactional_id: str) -> InvalidTxnState:
    return InvalidTxnState(
        f"the producer has transactional.id='{transactional_id}' and no transaction is open: send inside "
        "`with producer.transaction():`"
    )
