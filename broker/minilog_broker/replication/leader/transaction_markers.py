"""Markers of a transaction in a partition that is led here: one control batch for all producers without a marker.

    a producer's marker       what follows
    is in the log             nothing is written: the answer waits until that marker is below the high watermark
    is on its way into it     the same
    is forgotten              the log is searched for it (forgotten_ends.py), and a marker there counts as in the log
    is missing                the batch contains it. A commit must name the producer's last sequence in log and queue

Each marker names its coordinator and the epoch in which the coordinator decides. The control batches keep the highest
epoch of each coordinator. The leader fences an earlier epoch, because a later coordinator may have decided otherwise
(Kafka's coordinatorEpoch). server/services/marker_checks.py asks the image whether the epoch exists at all.

The leader checks all markers of a call before it writes any, and writes all or none of them. A call gets one answer:
without an error as soon as all its markers are below the high watermark. A producer with a marker in the log or on its
way writes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minilog.errors import (
    FencedLeaderEpoch,
    InvalidArgument,
    InvalidTxnState,
    MinilogError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_control_batch
from minilog.v1 import records_pb2
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.leader.forgotten_ends import ForgottenEnds
from minilog_broker.replication.leader.pending import PendingProduce, PendingProduces
from minilog_broker.replication.replica_effects import AnswerMarkers, EndMarker
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.storage.find_ends import FoundEnd
from minilog_broker.storage.markers import CoordinatorEpoch, Marker
from minilog_broker.storage.producer_state import ProducerState
from minilog_broker.storage.transactions import ProducerEnd

MAX_MARKERS = 20_000  # in one call: the most producers of a transaction, in a batch of some 500 KB


@dataclass(frozen=True, slots=True)
class _MarkerUnderWay:
    """A marker on its way into the log."""

    end_offset: int
    committed: bool


@dataclass(frozen=True, slots=True)
class MarkersRequest:
    """The markers of one transaction for this partition. `timestamp_us` is the wall clock's time, for the control
    batch."""

    ticket: object
    transactional_id: str
    coordinator: CoordinatorEpoch
    markers: Sequence[EndMarker]
    timestamp_us: int


class TransactionMarkers:
    """The markers of one led partition that are on their way into the log.

    `append` gives a control batch its place, hands it to the disk, and returns the batch's end.
    """

    def __init__(
        self,
        context: ReplicationContext,
        name: str,
        key: PartitionKey,
        log: ReplicaLog,
        append: Callable[[bytes, tuple[Marker, ...]], int],
    ) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._log = log
        self._append = append
        self._ending: dict[int, _MarkerUnderWay] = {}
        self._coordinators: dict[int, int] = {}  # the highest epochs, also those on their way into the log
        self.forgotten = ForgottenEnds(context, name, key, log)
        self._pending = PendingProduces()

    @property
    def _producers(self) -> ProducerState:
        return self._log.producers

    def is_ending(self, producer_id: int) -> bool:
        """Whether the producer's marker is on its way into the log."""
        return producer_id in self._ending

    # -- writing

    def write(
        self,
        request: MarkersRequest,
        last_sequence: Callable[[int], int],
        too_few: str | None,
        now_ms: float,
        *,
        may_lose: bool,
    ) -> tuple[int, ...]:
        """Append the missing markers, and hold the answer. Returns the producers that end. If it raises, nothing has
        changed.

        `last_sequence(producer_id)`: the last one in log and queue, -1 if there is none. `too_few`: the text of the
        error if the ISR has too few members. `may_lose`: whether the topic's configuration allows that acknowledged
        records are lost."""
        wanted = {marker.producer_id: marker for marker in request.markers}
        if not 1 <= len(request.markers) <= MAX_MARKERS or len(wanted) != len(request.markers):
            raise InvalidArgument(
                f"{self._name}: a call has 1 to {MAX_MARKERS} markers, each of another producer, and this call has "
                f"{len(request.markers)} markers of {len(wanted)} producers"
            )
        self._check_coordinator(request)
        unknown = (marker for marker in request.markers if self._is_unknown(marker, last_sequence))
        self.forgotten.look_for(marker.producer_id for marker in unknown)
        end_offset, missing = 0, []
        for marker in request.markers:
            marked_at = self._marked_at(request.transactional_id, marker, may_lose=may_lose)
            if marked_at is None:
                self._check_sequence(request.transactional_id, marker, last_sequence(marker.producer_id))
                missing.append(marker)
            else:
                end_offset = max(end_offset, marked_at)
        if missing and too_few is not None:
            raise NotEnoughReplicas(f"{too_few}: the leader wrote no marker")
        if missing:
            end_offset = self._append_markers(request, missing)
        self._hold(request.ticket, end_offset, now_ms)
        return tuple(marker.producer_id for marker in missing)

    def _check_coordinator(self, request: MarkersRequest) -> None:
        partition, epoch = request.coordinator
        newest = max(self._producers.transactions.coordinator_epoch(partition), self._coordinators.get(partition, -1))
        if epoch < newest:
            raise FencedLeaderEpoch(
                f"{self._name}: the coordinator of transactional id '{request.transactional_id}' asks in epoch "
                f"{epoch}, but a later coordinator has written markers in epoch {newest}: the earlier one is deposed"
            )

    def _is_unknown(self, marker: EndMarker, last_sequence: Callable[[int], int]) -> bool:
        """Whether the marker commits records that the producer has written here, but the state does not have it."""
        producer_id = marker.producer_id
        ends = producer_id in self._ending or self._producers.transactions.end_of(producer_id) is not None
        return marker.committed and marker.last_sequence >= 0 and not ends and last_sequence(producer_id) < 0

    def _marked_at(self, transactional_id: str, marker: EndMarker, *, may_lose: bool) -> int | None:
        """The offset behind the marker of this producer that is in the log or on its way there. None without one."""
        end: ProducerEnd | FoundEnd | None = self._producers.transactions.end_of(marker.producer_id)
        end = end or self.forgotten.end_of(marker.producer_id, committed=marker.committed, may_lose=may_lose)
        ending = self._ending.get(marker.producer_id)
        if end is not None:
            marked_at, committed = end.marker_end_offset, end.committed
        elif ending is not None:
            marked_at, committed = ending.end_offset, ending.committed
        else:
            return None
        if committed != marker.committed:
            was, is_now = ("committed", "aborted") if committed else ("aborted", "committed")
            raise InvalidTxnState(
                f"{self._name}: producer {marker.producer_id} of transactional id '{transactional_id}' was {was} here, "
                f"and cannot be {is_now} any more: a producer ends once"
            )
        return marked_at

    def _check_sequence(self, transactional_id: str, marker: EndMarker, last_sequence: int) -> None:
        if marker.committed and marker.last_sequence != last_sequence:
            raise InvalidTxnState(
                f"{self._name}: the marker of producer {marker.producer_id} of transactional id '{transactional_id}' "
                f"commits up to sequence {marker.last_sequence}, but the last one here is {last_sequence}: the leader "
                f"wrote no marker"
            )

    def _append_markers(self, request: MarkersRequest, missing: list[EndMarker]) -> int:
        record = records_pb2.ControlRecord()
        partition, epoch = request.coordinator
        record.transaction_markers.transactional_id = request.transactional_id
        record.transaction_markers.coordinator_partition = partition
        record.transaction_markers.coordinator_epoch = epoch
        for marker in missing:
            record.transaction_markers.markers.add(
                producer_id=marker.producer_id, committed=marker.committed, last_sequence=marker.last_sequence
            )
        batch = build_control_batch(*self._key, record.SerializeToString(), timestamp_us=request.timestamp_us)
        markers = tuple(Marker(marker.producer_id, marker.committed, request.coordinator) for marker in missing)
        end_offset = self._append(batch, markers)
        self._coordinators[partition] = epoch
        for marker in missing:
            self._ending[marker.producer_id] = _MarkerUnderWay(end_offset, marker.committed)
        return end_offset

    # -- answering

    def _hold(self, ticket: object, end_offset: int, now_ms: float) -> None:
        if end_offset <= self._log.high_watermark:
            self.answer(ticket, None)
            return
        deadline_ms = now_ms + self._context.settings.markers_timeout_ms
        self._pending.add(PendingProduce(ticket, end_offset - 1, end_offset, deadline_ms))
        self._context.timers.arm(TimerKind.PRODUCE, self._key, deadline_ms)

    def answer(self, ticket: object, error: MinilogError | None) -> None:
        self._context.emit(AnswerMarkers(ticket, error))

    def became_committed(self) -> None:
        """Answer the calls that wait for the high watermark, because it moved."""
        for pending in self._pending.take_reached(self._log.high_watermark):
            self.answer(pending.ticket, None)

    def expire(self, now_ms: float) -> None:
        """Answer the calls whose time is over. Their markers stay on their way, and a repeated call waits for them."""
        for pending in self._pending.take_expired(now_ms):
            text = f"{self._name}: the markers at offset {pending.base_offset} are not committed yet: send them again"
            self.answer(pending.ticket, RequestTimedOut(text))

    def next_deadline_ms(self) -> float:
        return self._pending.next_deadline_ms()

    def give_up(self, too_few: str) -> None:
        """Answer the waiting calls, because the ISR fell below min."""
        for pending in self._pending.take_above(self._log.high_watermark):
            self.answer(pending.ticket, NotEnoughReplicasAfterAppend(f"{too_few} since the markers were appended"))

    def resign(self, why: str) -> None:
        """Answer the waiting calls, because the epoch is over here."""
        for pending in self._pending.take_above(-1):
            text = f"{self._name}: {why}: ask for metadata, and send the markers to the new leader"
            self.answer(pending.ticket, NotLeaderOrFollower(text))

    # -- the disk

    def appended(self) -> None:
        """Forget the markers that are in the log now: the producer state has them."""
        if self._ending:
            end = self._log.appended_end
            self._ending = {
                producer_id: ending for producer_id, ending in self._ending.items() if ending.end_offset > end
            }

    def no_space(self, error: MinilogError) -> None:
        """Answer the calls whose markers were queued: the disk is full and wrote none of them."""
        self._ending.clear()
        for pending in self._pending.take_above(self._log.end):
            self.answer(pending.ticket, error)
