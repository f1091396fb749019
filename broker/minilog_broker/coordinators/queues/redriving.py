"""The redrive of dead letters: their records are ready again in the queue, at the offsets that they have. Pure.

    place of a partition of the dead-letter topic       its letters
    below `next_offset`                                 are redriven, for good
    from there to before `settling_to`                  a transaction writes them anew as records, until its marker
    behind it                                           are not redriven

The offsets and the place change in one decision. So a redrive that is repeated, interrupted or raced by another one
brings each letter once. A letter whose record is gone stops the call. The caller writes such letters to their topics,
in a transaction that moves the place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidRecordState,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.partition_queue import MAX_RANGES, PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState, extend
from minilog_broker.coordinators.queues.records import QueueChange, RedrivenTo
from minilog_broker.coordinators.queues.view import QueueView
from minilog_broker.coordinators.table import Change

_MADE_READY, _DONE_BEFORE = queue_pb2.REDRIVE_OUTCOME_MADE_READY, queue_pb2.REDRIVE_OUTCOME_DONE_BEFORE
_UNSETTLED, _GONE = queue_pb2.REDRIVE_OUTCOME_UNSETTLED, queue_pb2.REDRIVE_OUTCOME_GONE
_NO_ROOM, _NOT_BEGUN = queue_pb2.REDRIVE_OUTCOME_NO_ROOM, queue_pb2.REDRIVE_OUTCOME_NOT_BEGUN
_NOT_YET = queue_pb2.REDRIVE_OUTCOME_NOT_YET
_STOPS = (_GONE, _NO_ROOM, _NOT_BEGUN, _NOT_YET)


@dataclass(slots=True)
class RedriveDecision:
    """What a call does. `next_offset`: the place after it."""

    next_offset: int
    changes: list[QueueChange] = field(default_factory=list)
    outcomes: list[queue_pb2.RedriveOutcome.ValueType] = field(default_factory=list)


def make_ready(queue: PartitionQueue, offsets: Iterable[int]) -> PartitionQueue:
    """These settled offsets are ready, as if they were never delivered. `settled_to` may go back (Q6)."""
    kept: list[Range] = []
    done = 0
    for offset in sorted(offsets):
        at = bisect_left(queue.ranges, offset, done, key=_first_of)
        extend(kept, queue.ranges[done:at])
        extend(kept, (Range(offset, offset, RangeState.READY, 0, ready_at_ms=0.0),))
        done = at
    extend(kept, queue.ranges[done:])
    return replace(queue, ranges=tuple(kept))


def _first_of(part: Range) -> int:
    return part.first


class _Source:
    """A partition with records of letters. `log_start`: as its leader has reported it. `room`: for so many locks."""

    def __init__(self, queue: PartitionQueue, log_start: int, room: int) -> None:
        self.queue, self._log_start = queue, log_start
        self._room = min(room, MAX_RANGES - len(queue.ranges))
        self.offsets: set[int] = set()

    def outcome(self, offset: int) -> queue_pb2.RedriveOutcome.ValueType:
        """Of a letter of the record at this offset."""
        if offset < self._log_start:
            return _GONE
        at = bisect_right(self.queue.ranges, offset, key=_first_of) - 1
        if at >= 0 and offset <= self.queue.ranges[at].last:
            return _NOT_YET if _is_being_carried(self.queue.ranges[at]) else _UNSETTLED
        if offset >= self.queue.next_offset or offset in self.offsets:
            return _UNSETTLED
        if len(self.offsets) >= self._room:
            return _NO_ROOM
        self.offsets.add(offset)
        return _MADE_READY


def _is_being_carried(part: Range) -> bool:
    """Whether a transaction writes a letter of it. The letter is readable as soon as the marker is in the dead-letter
    topic, and that of the queue may come later."""
    return part.state is RangeState.SETTLING and part.death_reason is not None


def redrive(
    view: QueueView, request: queue_pb2.RedriveRequest, log_start: Callable[[QueueKey], int | None]
) -> RedriveDecision:
    """Redrive letters, up to the first whose record is gone, or has no room. `log_start` is None before the leader of a
    partition has reported it. Raises ResourceNotFound, UnknownTopicOrPartition, InvalidRecordState,
    UnstableOffsetCommit, CoordinatorLoadInProgress."""
    view.existing_queue(request.queue)
    key = _place_key(view, request.queue, request.letters_partition_id)
    place = view.redriven(key)
    if request.first_offset > place.next_offset:
        raise InvalidRecordState(
            f"queue '{request.queue}': the letters from {place.next_offset} to {request.first_offset - 1} are not "
            "redriven: redrive them first"
        )
    if place.is_settling and request.next_offset > place.next_offset:
        raise _unstable(request.queue)
    max_locks = view.settings(request.queue).max_record_locks
    sources: dict[QueueKey, _Source | None] = {}

    def source_of(letter: queue_pb2.Letter) -> _Source | None:
        at = QueueKey(request.queue, PartitionKey.of(letter.partition_id))
        if at not in sources:
            state = view.partition(at)
            start = log_start(at)
            if state is not None and start is None:
                raise CoordinatorLoadInProgress(
                    f"queue '{request.queue}': the leader of partition {at.partition} has not reported yet where its "
                    "log begins: try again"
                )
            room = max_locks - view.holdings.tally(at).locks
            sources[at] = None if state is None or start is None else _Source(state, start, room)
        return sources[at]

    done = RedriveDecision(max(place.next_offset, request.next_offset))
    for letter in request.letters:
        if letter.letter_offset < place.next_offset:
            done.outcomes.append(_DONE_BEFORE)
        elif not view.has_topic(letter.partition_id.topic_id):
            done.outcomes.append(_GONE)
        else:
            source = source_of(letter)
            done.outcomes.append(_NOT_BEGUN if source is None else source.outcome(letter.offset))
        if done.outcomes[-1] in _STOPS:
            done.next_offset = letter.letter_offset
            break
    if done.next_offset > place.next_offset:
        ready = ((at, source) for at, source in sources.items() if source is not None and source.offsets)
        done.changes = [Change(at, make_ready(source.queue, source.offsets)) for at, source in ready]
        done.changes.append(Change(key, RedrivenTo(done.next_offset)))
    return done


# -- letters that a transaction writes anew


def begin(view: QueueView, request: queue_pb2.SettleRequest) -> list[QueueChange]:
    """The letters of a request are redriven, if its transaction is committed. Raises InvalidRecordState,
    UnknownTopicOrPartition, UnstableOffsetCommit."""
    if not request.HasField("rewritten"):
        return []
    letters, producer_id = request.rewritten, request.transaction.producer_id
    key = _place_key(view, request.queue, letters.letters_partition_id)
    place = view.redriven(key)
    if place.is_settling and place.producer_id != producer_id:
        raise _unstable(request.queue)
    end = place.settling_to if place.settling_to is not None else place.next_offset
    if letters.first_offset != end:
        raise InvalidRecordState(
            f"queue '{request.queue}': its letters are redriven to {end}, and not to {letters.first_offset}: another "
            "redrive is at work, or was. Nothing is written"
        )
    return [Change(key, replace(place, settling_to=letters.next_offset, producer_id=producer_id))]


def end(view: QueueView, queue: str, producer_id: int, *, committed: bool) -> list[QueueChange]:
    """The marker of a transaction has come."""
    settling = [(key, place) for key, place in view.all_redriven(queue) if place.is_settling]
    return [
        Change(key, RedrivenTo(place.settling_to if committed and place.settling_to is not None else place.next_offset))
        for key, place in settling
        if place.producer_id == producer_id
    ]


def described(view: QueueView, queue: str) -> list[queue_pb2.RedrivenPartition]:
    """For people, and for the next redrive."""
    return [
        queue_pb2.RedrivenPartition(
            letters_partition_id=key.letters.to_wire(), next_offset=place.next_offset, is_settling=place.is_settling
        )
        for key, place in view.all_redriven(queue)
        if key.letters is not None
    ]


def _place_key(view: QueueView, queue: str, letters_partition_id: object) -> QueueKey:
    letters = PartitionKey.of(letters_partition_id)  # type: ignore[arg-type]
    if not 0 <= letters.partition < view.existing_topic(letters.topic_id):
        raise UnknownTopicOrPartition(
            f"queue '{queue}': the dead-letter topic {letters.topic_id.hex()} has no partition {letters.partition}"
        )
    if letters.topic_id != view.topic_id(view.settings(queue).dead_letter_topic):
        raise InvalidRecordState(
            f"queue '{queue}': topic id {letters.topic_id.hex()} is not that of its dead-letter topic: redrive from "
            "the topic that its settings name"
        )
    return QueueKey(queue, letters=letters)


def _unstable(queue: str) -> UnstableOffsetCommit:
    return UnstableOffsetCommit(
        f"queue '{queue}': a transaction writes letters of this partition anew: wait for its end, or abort it "
        f"(`minilog transaction describe {queue}-redrive`)"
    )
