"""A coordinator of what producers do within transactions: hidden until the marker, and then done or undone.

    a request in a transaction       the producer is registered first (registrations.py); what it asks for is pending
    write_markers                    the pending changes take effect, or are gone; answered when that is so

A marker that changes nothing here is a decision too, and appends an empty record: where another coordinator leads, it
may have something pending that the marker is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic

from google.protobuf.message import Message

from minilog.errors import MinilogError, ProducerFenced
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.coordinator_effects import CoordinatorAnswer, Moment, RegisterProducer
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.registrations import Registrations, Request, WaitingCommit
from minilog_broker.coordinators.sequences import NO_SEQUENCE
from minilog_broker.coordinators.table import Change, Codec, Key, Value


class PendingCoordinator(Coordinator[Key, Value], Generic[Key, Value, Request]):
    """See the module. `response` is the answer to a request in a transaction; an empty one says that it is pending."""

    response: ClassVar[type[Message]]

    def __init__(self, name: str, codec: Codec[Key, Value], log: OwnLog) -> None:
        super().__init__(name, codec, log)
        self._registrations: Registrations[Request] = Registrations()
        self._owners_of: dict[int, set[str]] = {}  # for which a producer has, or had, something pending

    # -- of each coordinator

    def _owner(self, request: Request) -> str:
        """The owner of the keys that a request changes."""
        raise NotImplementedError

    def _check_pending(self, request: Request) -> None:
        """Raises an error where the request cannot become pending."""
        raise NotImplementedError

    def _last_sequence(self, producer_id: int) -> int:
        """Of all that a producer has pending; NO_SEQUENCE where it has nothing."""
        raise NotImplementedError

    def _pending_changes(self, request: Request, now: Moment) -> Sequence[Change[Key, Value]]:
        """The changes that make a request pending; none for one that was seen before."""
        raise NotImplementedError

    def _marker_changes(
        self, markers: Iterable[coordinator_pb2.ProducerMarker], now: Moment
    ) -> Sequence[Change[Key, Value]]:
        """What markers of one transaction do. Raises InvalidTxnState where a commit is not of what is pending."""
        raise NotImplementedError

    def _producer_key(self, owner: str, producer_id: int) -> Key:
        """The key of what a producer has pending for an owner."""
        raise NotImplementedError

    def _markers_decided(self, now: Moment) -> None:
        """Markers were appended."""

    def topics_changed(self, now: Moment) -> None:
        """The image has topics, or partitions, that it had not, or lacks some."""
        raise NotImplementedError

    def drop_deleted_topics(self) -> None:
        """The image lacks topics that it had: what is known of them is of no use."""
        raise NotImplementedError

    def tick(self, now: Moment) -> None:
        """`next_tick_ms` has come."""
        raise NotImplementedError

    @property
    def next_tick_ms(self) -> float:
        """When `tick` should be called."""
        raise NotImplementedError

    # -- requests in transactions

    def _in_transaction(self, ticket: object, request: Request, coordinator_epoch: int, now: Moment) -> None:
        """Answer when the request is pending, or is refused."""
        commit, part = WaitingCommit(ticket, request), request.transaction
        try:
            self._require_active(coordinator_epoch)
            self._check_pending(request)
            if self._last_sequence(part.producer_id) == NO_SEQUENCE:
                number = self._registrations.wait(part.producer_id, commit)
                if number is not None:
                    self._effects.append(RegisterProducer(number, part.transactional_id, part.producer_id))
                return
        except MinilogError as error:
            self._refuse(commit, error)
            return
        self._decide_pending(commit, now)

    def registered(self, number: int, error: MinilogError | None, now: Moment) -> None:
        """RegisterProducer was answered. `error` None: the coordinator has it, durably."""
        for commit in self._registrations.answered(number):
            if error is None:
                self._decide_pending(commit, now)
            else:
                self._refuse(commit, error)

    def _decide_pending(self, commit: WaitingCommit[Request], now: Moment) -> None:
        request = commit.request

        def decide() -> Message:
            self._check_pending(request)
            self._write(self._pending_changes(request, now))
            self._owners_of.setdefault(request.transaction.producer_id, set()).add(self._owner(request))
            return self.response()

        self._decide(commit.ticket, None, self.response, decide)

    def _refuse(self, commit: WaitingCommit[Request], error: MinilogError) -> None:
        self._answer(commit.ticket, None, self._refusal(self.response, error))

    # -- the end of transactions

    def write_markers(self, ticket: object, request: coordinator_pb2.WriteMarkersRequest, now: Moment) -> None:
        """WriteMarkersResponse: what they end has ended."""

        def decide() -> coordinator_pb2.WriteMarkersResponse:
            for marker in request.markers:
                for commit in self._registrations.ended(marker.producer_id):
                    self._refuse(commit, ProducerFenced(f"the transaction of producer {marker.producer_id} has ended"))
            changes = self._marker_changes(request.markers, now)
            if not changes and request.markers:  # an empty record: the answer rests on it
                changes = [Change(self._producer_key("", request.markers[0].producer_id), None)]
            self._write(changes)
            self._markers_decided(now)
            return coordinator_pb2.WriteMarkersResponse()

        self._decide(ticket, None, coordinator_pb2.WriteMarkersResponse, decide)

    # -- the term

    def _have_pending(self, producer_id: int, owner: str) -> None:
        """The log has something that a producer has pending."""
        self._owners_of.setdefault(producer_id, set()).add(owner)

    def _pending_ended(self, producer_id: int, owner: str) -> None:
        """The end of what a producer had pending is committed."""
        owners = self._owners_of.get(producer_id, set())
        owners.discard(owner)
        if not owners:
            self._owners_of.pop(producer_id, None)

    def _ended(self) -> None:
        self._owners_of.clear()
        response = self._refusal(self.response, self._not_coordinator())
        self._effects.extend(CoordinatorAnswer(commit.ticket, response) for commit in self._registrations.take_all())
