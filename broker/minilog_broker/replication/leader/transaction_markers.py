"""Markers of a transaction in a partition that is led here: one control batch for all that are not marked already.

    a producer's marker       what follows
    is in the log             nothing is written; answered when that one is below the high watermark
    is on its way into it     the same
    is forgotten              the log is searched for it (forgotten_ends.py); then as one that is there
    is not                    it is in the batch; a commit must name the last sequence that is there (log and queue)

Each names its coordinator and the epoch in which that one decides. The highest epoch of each coordinator is kept with
the control batches: an earlier one is fenced, for whoever came after it may have decided otherwise (Kafka's
coordinatorEpoch). Whether the epoch is one at all, the image says (server/services/marker_checks.py).

Judged before anything is written: all or none of a call's markers. A call is answered once: without an error when all
its markers are below the high watermark. Whoever ended, or ends, writes no more.
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

MAX_MARKERS = 20_000  # in one call, as many as a transaction may have producers: a batch of some 500 KB


@dataclass(frozen=True, slots=True)
class _MarkerUnderWay:
    """A marker on its way into the log."""

    end_offset: int
    committed: bool


@dataclass(frozen=True, slots=True)
class MarkersRequest:
    """The markers of one transaction for this partition. `timestamp_us`: the wall clock's, for the control batch."""

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
        self._coordinators: dict[int, int] = {}  # the highest epochs that are on their way into the log, too
        self.forgotten = ForgottenEnds(context, name, key, log)
        self._pending = PendingProduces()

    @property
    def _producers(self) -> ProducerState:
        return self._log.producers

    def is_ending(self, producer_id: int) -> bool:
        """Whether its marker is on its way into the log."""
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
        """Append what is to be appended, and park; or raise why not, with nothing done. Returns the producers that end.

        `last_sequence(producer_id)`: in log and queue, -1 where nothing is. `too_few`: what is wrong with the ISR.
        `may_lose`: whether records that were acknowledged here can be lost, by the topic's configuration."""
        wanted = {marker.producer_id: marker for marker in request.markers}
        if not 1 <= len(request.markers) <= MAX_MARKERS or len(wanted) != len(request.markers):
            raise InvalidArgument(
                f"{self._name}: a call has 1 to {MAX_MARKERS} markers, each of another producer: {len(wanted)} "
                f"producers and {len(request.markers)} markers are in this one"
            )
        self._check_coordinator(request)
        self.forgotten.look_for(each.producer_id for each in request.markers if self._is_unknown(each, last_sequence))
        end_offset, missing = 0, []
        for marker in request.markers:
            marked_at = self._marked_at(request.transactional_id, marker, may_lose=may_lose)
            if marked_at is None:
                self._check_sequence(request.transactional_id, marker, last_sequence(marker.producer_id))
                missing.append(marker)
            else:
                end_offset = max(end_offset, marked_at)
        if missing and too_few is not None:
            raise NotEnoughReplicas(f"{too_few}: no marker was written")
        if missing:
            end_offset = self._append_markers(request, missing)
        self._hold(request.ticket, end_offset, now_ms)
        return tuple(marker.producer_id for marker in missing)

    def _check_coordinator(self, request: MarkersRequest) -> None:
        partition, epoch = request.coordinator
        known = max(self._producers.transactions.coordinator_epoch(partition), self._coordinators.get(partition, -1))
        if epoch < known:
            raise FencedLeaderEpoch(
                f"{self._name}: the coordinator of transactional id '{request.transactional_id}' asks in epoch "
                f"{epoch}, and has had markers written in epoch {known}: it was deposed"
            )

    def _is_unknown(self, marker: EndMarker, last_sequence: Callable[[int], int]) -> bool:
        """Whether it is to commit what it has written here, and nothing is known of that."""
        producer_id = marker.producer_id
        known = producer_id in self._ending or self._producers.transactions.end_of(producer_id) is not None
        return marker.committed and marker.last_sequence >= 0 and not known and last_sequence(producer_id) < 0

    def _marked_at(self, transactional_id: str, marker: EndMarker, *, may_lose: bool) -> int | None:
        """The offset behind the marker that is there already."""
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
                f"and is to be {is_now}: a producer ends once"
            )
        return marked_at

    def _check_sequence(self, transactional_id: str, marker: EndMarker, found: int) -> None:
        if marker.committed and marker.last_sequence != found:
            raise InvalidTxnState(
                f"{self._name}: producer {marker.producer_id} of transactional id '{transactional_id}' is to be "
                f"committed up to sequence {marker.last_sequence}, {found} is the last one here: nothing was marked"
            )

    def _append_markers(self, request: MarkersRequest, missing: list[EndMarker]) -> int:
        record = records_pb2.ControlRecord()
        partition, epoch = request.coordinator
        record.transaction_markers.transactional_id = request.transactional_id
        record.transaction_markers.coordinator_partition = partition
        record.transaction_markers.coordinator_epoch = epoch
        for each in missing:
            record.transaction_markers.markers.add(
                producer_id=each.producer_id, committed=each.committed, last_sequence=each.last_sequence
            )
        batch = build_control_batch(*self._key, record.SerializeToString(), timestamp_us=request.timestamp_us)
        markers = tuple(Marker(each.producer_id, each.committed, request.coordinator) for each in missing)
        end_offset = self._append(batch, markers)
        self._coordinators[partition] = epoch
        for each in missing:
            self._ending[each.producer_id] = _MarkerUnderWay(end_offset, each.committed)
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
        """The high watermark moved."""
        for pending in self._pending.take_reached(self._log.high_watermark):
            self.answer(pending.ticket, None)

    def expire(self, now_ms: float) -> None:
        """Answer those whose time is over: the marker stays on its way, and whoever asks again waits for it."""
        for pending in self._pending.take_expired(now_ms):
            text = f"{self._name}: the markers at offset {pending.base_offset} are not committed yet: ask again"
            self.answer(pending.ticket, RequestTimedOut(text))

    def next_deadline_ms(self) -> float:
        return self._pending.next_deadline_ms()

    def give_up(self, too_few: str) -> None:
        """The ISR fell below min."""
        for pending in self._pending.take_above(self._log.high_watermark):
            self.answer(pending.ticket, NotEnoughReplicasAfterAppend(f"{too_few} since the markers were appended"))

    def resign(self, why: str) -> None:
        """The epoch is over here."""
        for pending in self._pending.take_above(-1):
            self.answer(pending.ticket, NotLeaderOrFollower(f"{self._name}: {why}: ask for metadata, and again"))

    # -- the disk

    def appended(self) -> None:
        """What is in the log is in the producers' state."""
        if self._ending:
            end = self._log.appended_end
            self._ending = {each: ending for each, ending in self._ending.items() if ending.end_offset > end}

    def no_space(self, error: MinilogError) -> None:
        """Of what was queued nothing was written."""
        self._ending.clear()
        for pending in self._pending.take_above(self._log.end):
            self.answer(pending.ticket, error)
