"""The coordinator of the transactional ids of one partition of `__transactions`.

    call or event                                   what follows
    enlist, register, end, abort (enlisting.py,     a decision, one batch; answered when it is committed
      ending.py have the rules)
    a decision on producers is committed            their markers are asked for, in exactly the registered partitions
    markers_written, markers_failed                 done, or again after a while, until the topic id is gone
    all markers of a producer are written           its record is removed
    all markers of a commit are written             End is answered COMMITTED (commits.py)
    tick                                            who is silent for too long is aborted; markers are tried again
    a new leader of the partition                   loads, grants everybody a full period, writes what markers there are

What a transaction is does not depend on who uses it: a Spark job has many producers in a generation and a program one.
Producer ids come in as arguments, never used before (the controller hands them out in blocks), and name one writer of
one attempt for ever: an epoch is not needed, and is 0. Decisions are made on the table with all that is in flight, so
that an enlisting and a decision are in one order, the log's; markers follow from what is committed only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from minilog.errors import InvalidTxnState, MinilogError
from minilog.partition_key import PartitionKey
from minilog.transactions.messages import contents_to_wire
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState, Response
from minilog_broker.coordinators.coordinator_effects import CoordinatorAnswer, MarkersRefused, Moment, WriteMarkers
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.table import Change
from minilog_broker.coordinators.transactions import describing, ending, enlisting
from minilog_broker.coordinators.transactions.clocks import Clocks
from minilog_broker.coordinators.transactions.commits import WaitingCommits
from minilog_broker.coordinators.transactions.enlisting import CommittedGeneration, TransactionSettings
from minilog_broker.coordinators.transactions.markers import Markers
from minilog_broker.coordinators.transactions.records import (
    Fate,
    TransactionChange,
    TransactionKey,
    TransactionMetadata,
    TransactionProducer,
    TransactionValue,
    transaction_codec,
)
from minilog_broker.coordinators.transactions.view import TransactionView

# Of the ids of batch writes: docs/spec/transactions.md § Abort and time-out. Of those that one run alone can have the
# only use is its own commit, which is asked for again for minutes (delivery.timeout.ms).
EXPIRATION_US = 7 * 86_400_000_000
ONE_RUN_EXPIRATION_US = 3_600_000_000
_LEAST_RUN_BYTES = 16  # what is shorter may end an id by chance
PRODUCER_EPOCH = 0


class TransactionCoordinator(Coordinator[TransactionKey, TransactionValue]):
    """The coordinator that decides the outcome of transactions.

    `knows_topic(topic_id)`: whether this broker's image, as it is now, has the topic.
    """

    def __init__(
        self,
        name: str,
        settings: TransactionSettings,
        log: OwnLog,
        knows_topic: Callable[[bytes], bool],
    ) -> None:
        super().__init__(name, transaction_codec(), log)
        self._settings = settings
        self._knows_topic = knows_topic
        self._view = TransactionView(self._table)
        self._clocks = Clocks()
        self._markers = Markers(settings.marker_retry_ms, knows_topic)
        self._commits = WaitingCommits()
        self._committed = 0
        self._remove_at_ms = math.inf  # when what could not be removed is to be tried again

    # -- writers

    def enlist(self, ticket: object, request: coordinator_pb2.EnlistRequest, producer_id: int, now: Moment) -> None:
        """EnlistResponse. `producer_id`: never used before; it is the writer's where it is enlisted."""

        def decide() -> coordinator_pb2.EnlistResponse:
            verdict = enlisting.enlist(self._view, request, producer_id, self._settings, now.wall_us)
            if isinstance(verdict, CommittedGeneration):
                return coordinator_pb2.EnlistResponse(
                    outcome=coordinator_pb2.ENLIST_OUTCOME_ALREADY_COMMITTED,
                    generation=verdict.generation,
                    contents=None if verdict.contents is None else contents_to_wire(verdict.contents),
                    producer_id=-1,
                    producer_epoch=-1,
                )
            self._write(verdict.changes)
            self._sign_of_life(request.transactional_id, now)
            return coordinator_pb2.EnlistResponse(
                outcome=coordinator_pb2.ENLIST_OUTCOME_ENLISTED,
                generation=verdict.transaction.generation,
                producer_id=producer_id,
                producer_epoch=PRODUCER_EPOCH,
                timeout_ms=verdict.transaction.timeout_ms,
                coordinator_epoch=self._leader_epoch,
            )

        self._decide_of(request, ticket, coordinator_pb2.EnlistResponse, decide)

    def register(self, ticket: object, request: coordinator_pb2.RegisterPartitionsRequest, now: Moment) -> None:
        """RegisterPartitionsResponse: the producer may write there only when it is answered without an error."""

        def decide() -> coordinator_pb2.RegisterPartitionsResponse:
            partitions = [PartitionKey.of(partition_id) for partition_id in request.partitions]
            transactional_id, producer_id = request.transactional_id, request.producer_id
            self._write(enlisting.register(self._view, transactional_id, producer_id, partitions, self._knows_topic))
            self._sign_of_life(transactional_id, now)
            return coordinator_pb2.RegisterPartitionsResponse()

        self._decide_of(request, ticket, coordinator_pb2.RegisterPartitionsResponse, decide)

    def keep_alive(self, ticket: object, request: coordinator_pb2.KeepAliveRequest, now: Moment) -> None:
        """KeepAliveResponse. Only a producer that is open keeps its transaction alive."""

        def decide() -> coordinator_pb2.KeepAliveResponse:
            enlisting.require_open(self._view, request.transactional_id, request.producer_id)
            self._sign_of_life(request.transactional_id, now)
            return coordinator_pb2.KeepAliveResponse()

        self._decide_of(request, ticket, coordinator_pb2.KeepAliveResponse, decide)

    def _decide_of(
        self,
        request: coordinator_pb2.EnlistRequest
        | coordinator_pb2.RegisterPartitionsRequest
        | coordinator_pb2.KeepAliveRequest
        | coordinator_pb2.AbortAttemptRequest,
        ticket: object,
        kind: type[Response],
        decide: Callable[[], Response],
    ) -> None:
        self._decide(ticket, request.transactional_id, kind, decide, known_epoch=request.coordinator_epoch)

    # -- the end

    def end(self, ticket: object, request: coordinator_pb2.EndTransactionRequest, now: Moment) -> None:
        """EndTransactionResponse."""
        transactional_id = request.transactional_id
        try:
            self._require_active(request.coordinator_epoch)
            self._write(ending.end(self._view, request, now.wall_us))
        except MinilogError as error:
            self._answer(ticket, transactional_id, self._refusal(coordinator_pb2.EndTransactionResponse, error))
            return
        self._look_at_clock(transactional_id, now)
        decided_at = self._table.rests_on(transactional_id)
        deadline_ms = now.ms + request.timeout_ms
        self._commits.add(ticket, transactional_id, request.generation, decided_at=decided_at, deadline_ms=deadline_ms)
        self._look_at_commits(now)

    def abort(self, ticket: object, request: coordinator_pb2.AbortAttemptRequest, now: Moment) -> None:
        """AbortAttemptResponse: by the driver, or by a writer for itself."""

        def decide() -> coordinator_pb2.AbortAttemptResponse:
            committed, changes = ending.abort(self._view, request, now.wall_us)
            self._write(changes)
            self._look_at_clock(request.transactional_id, now)
            outcome = coordinator_pb2.TRANSACTION_OUTCOME_ABORTED
            if committed:
                outcome = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED
            return coordinator_pb2.AbortAttemptResponse(outcome=outcome)

        self._decide_of(request, ticket, coordinator_pb2.AbortAttemptResponse, decide)

    # -- people

    def list(self, ticket: object, request: coordinator_pb2.ListTransactionsRequest) -> None:
        """ListTransactionsResponse."""

        def decide() -> coordinator_pb2.ListTransactionsResponse:
            lines = [describing.listing(self._view, transactional_id) for transactional_id in self._view.ids()]
            return coordinator_pb2.ListTransactionsResponse(transactions=lines)

        self._decide(ticket, None, coordinator_pb2.ListTransactionsResponse, decide)

    def describe(self, ticket: object, request: coordinator_pb2.DescribeTransactionRequest, now: Moment) -> None:
        """DescribeTransactionResponse."""
        transactional_id = request.transactional_id

        def decide() -> coordinator_pb2.DescribeTransactionResponse:
            silent_ms = self._clocks.silent_ms(transactional_id, now.ms)
            return describing.description(self._view, transactional_id, silent_ms)

        self._decide(ticket, transactional_id, coordinator_pb2.DescribeTransactionResponse, decide)

    def abort_by_command(self, ticket: object, request: coordinator_pb2.AbortTransactionRequest, now: Moment) -> None:
        """AbortTransactionResponse."""
        transactional_id = request.transactional_id

        def decide() -> coordinator_pb2.AbortTransactionResponse:
            count = len(self._view.open_producers(transactional_id))
            self._write(ending.abort_everything(self._view, transactional_id, now.wall_us))
            self._look_at_clock(transactional_id, now)
            return coordinator_pb2.AbortTransactionResponse(aborted_producers=count)

        self._decide(ticket, transactional_id, coordinator_pb2.AbortTransactionResponse, decide)

    def forget(self, ticket: object, request: coordinator_pb2.ForgetTransactionRequest) -> None:
        """ForgetTransactionResponse: from then on its generations may be committed again."""
        transactional_id = request.transactional_id

        def decide() -> coordinator_pb2.ForgetTransactionResponse:
            self._view.existing_transaction(transactional_id)
            if self._view.producers(transactional_id):
                raise InvalidTxnState(
                    f"transactional id '{transactional_id}' is open or ending: abort it, and wait until it has ended"
                )
            self._write([Change(TransactionKey(transactional_id), None)])
            return coordinator_pb2.ForgetTransactionResponse()

        self._decide(ticket, transactional_id, coordinator_pb2.ForgetTransactionResponse, decide)

    # -- markers

    def open_since_us(self) -> tuple[int, ...]:
        """For people, without a decision: when the generations of what is open here began, by the wall clock."""
        if self._state is not CoordinatorState.ACTIVE:
            return ()
        transactions = {
            transactional_id: self._view.transaction(transactional_id)
            for transactional_id in self._view.ids()
            if self._view.open_producers(transactional_id)
        }
        return tuple(transaction.updated_us for transaction in transactions.values() if transaction is not None)

    def open_age_ms(self, transactional_id: str, wall_us: int) -> float | None:
        """Without a decision: for how long it has been open; None where it is not, or another broker decides on it."""
        transaction = self._view.transaction(transactional_id)
        is_open = self._state is CoordinatorState.ACTIVE and bool(self._view.open_producers(transactional_id))
        return max(0.0, (wall_us - transaction.updated_us) / 1000) if transaction is not None and is_open else None

    def markers_written(self, effect: WriteMarkers, now: Moment) -> None:
        """They are below the high watermark of the partition."""
        self._markers.written(effect)
        self._go_on(now)

    def markers_failed(self, effect: WriteMarkers, error: MinilogError, now: Moment) -> None:
        """There was no leader, no answer, or a refusal: asked again, until the topic id is gone."""
        refused = isinstance(error, InvalidTxnState)
        self._markers.failed(effect, now.ms, refused=refused)
        if refused:
            self._effects.append(MarkersRefused(effect.target, effect.transactional_id, error))
        self._go_on(now)

    def _go_on(self, now: Moment) -> None:
        """Ask for the markers that are due, answer who waited for them, remove producers that have all of theirs."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        self._effects.extend(self._markers.send(now.ms, self._leader_epoch))
        self._look_at_commits(now)
        self._remove_at_ms = math.inf
        removed: dict[str, list[TransactionChange]] = {}
        for transactional_id, producer_id in self._markers.done:
            if self._view.producer(transactional_id, producer_id) is not None:
                key = TransactionKey(transactional_id, producer_id)
                removed.setdefault(transactional_id, []).append(Change(key, None))
        for changes in removed.values():
            if not self._try_write(changes):
                if self._state is CoordinatorState.ACTIVE:  # else it was deposed, and has nothing to do any more
                    self._remove_at_ms = now.ms + self._settings.marker_retry_ms
                return

    def _look_at_commits(self, now: Moment) -> None:
        self._effects.extend(self._commits.look(self._committed, self._markers.visible, now.ms))

    # -- time

    @property
    def next_tick_ms(self) -> float:
        """When `tick` is due; infinity while nothing is."""
        dues = (self._clocks.next_tick_ms, self._markers.next_due_ms(), self._commits.next_due_ms())
        return min(*dues, self._remove_at_ms)

    def tick(self, now: Moment) -> None:
        """Time-outs of transactions, of those who wait for a commit, and markers that are due again."""
        for transactional_id in self._clocks.tick(now.ms):
            if not self._try_write(ending.abort_changes(transactional_id, self._view.open_producers(transactional_id))):
                break  # nothing can be written now; who is late stays late
            self._look_at_clock(transactional_id, now)
        self._go_on(now)

    def expire(self, wall_us: int) -> None:
        """Forget ids of batch writes that were silent for long. Not called while the wall clock is distrusted."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        for transactional_id in self._view.ids():
            transaction = self._view.transaction(transactional_id)
            if transaction is None or not transaction.expires:
                continue
            if transaction.updated_us > wall_us - _expiration_us(transactional_id, transaction):
                continue
            if not self._view.producers(transactional_id) and not self._try_write(
                [Change(TransactionKey(transactional_id), None)]
            ):
                return

    def _sign_of_life(self, transactional_id: str, now: Moment) -> None:
        transaction = self._view.transaction(transactional_id)
        if transaction is not None:
            self._clocks.heard(transactional_id, transaction.timeout_ms, now.ms)

    def _look_at_clock(self, transactional_id: str, now: Moment) -> None:
        """It stands still where nothing is open any more."""
        if not self._view.open_producers(transactional_id):
            self._clocks.stop(transactional_id)

    # -- the term

    def _activated(self, now: Moment) -> None:
        """The decisions of those before are finished here; the clocks of what is open begin anew."""
        self._committed = self._table.end_offset
        for transactional_id in self._view.ids():
            if self._view.open_producers(transactional_id):
                self._sign_of_life(transactional_id, now)
            for producer_id, producer in self._view.producers(transactional_id).items():
                self._note_end(TransactionKey(transactional_id, producer_id), producer)
        self._go_on(now)

    def _changed(self, changes: Sequence[TransactionChange], high_watermark: int, now: Moment) -> None:
        self._committed = high_watermark
        for change in changes:
            if isinstance(change.value, TransactionProducer):
                self._note_end(change.key, change.value)
            elif change.value is None and change.key.producer_id is not None:
                self._markers.forgotten(change.key.owner, change.key.producer_id)
        self._go_on(now)

    def _note_end(self, key: TransactionKey, producer: TransactionProducer) -> None:
        if key.producer_id is not None and producer.fate is not Fate.OPEN:
            self._markers.decided(key.owner, key.producer_id, producer)

    def _ended(self) -> None:
        self._clocks.clear()
        self._markers.clear()
        self._committed, self._remove_at_ms = 0, math.inf
        refusal = self._refusal(coordinator_pb2.EndTransactionResponse, self._not_coordinator())
        self._effects.extend(CoordinatorAnswer(ticket, refusal) for ticket in self._commits.take())


def _expiration_us(transactional_id: str, transaction: TransactionMetadata) -> int:
    """An id that ends in the id of its run is no other run's."""
    run_id = transaction.run_id
    is_of_one_run = len(run_id) >= _LEAST_RUN_BYTES and transactional_id.encode().endswith(run_id)
    return ONE_RUN_EXPIRATION_US if is_of_one_run else EXPIRATION_US
