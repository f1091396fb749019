"""Queues: what their workers are handed and told, what the coordinator's log says, and their dead letters. Q1 to Q8.

rule  what must be
Q1    no message is held twice at one moment: from when it was handed out until its verdict was noted, its worker died,
      or its lock has ended by the worker's own clock. In the log a record goes from lease to lease over READY
Q2    a message whose accept or reject is confirmed is handed to nobody any more, unless its dead letter is redriven:
      then it has another life. A flush without an error confirms. In the log it is in no range any more
Q3    a message that was released with a delay is not handed out before. No message is handed out more often than the
      delivery limit says, but for leases that count for nothing. In the log each delivery is counted
Q5    each dead record that is carried has one letter, and nothing else has any
Q6    `settled_to` never goes back, but with the cut after an unclean election, and by a redrive
Q7    what is dead stays dead
Q8    a settled offset is ready again only in one batch with a place that passes over its letter, once for each letter,
      and as if it was never delivered. A place never goes back, and passes over no letter whose record is settled

A world gives deliveries, or the batches of the coordinator's log (queue_log.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.queues.message import Verdict
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from tests.judges.queue_log import QueuePartition
from tests.judges.violation import Violation

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a message."""
RecordPlace: TypeAlias = tuple[PartitionKey, int]
"""Of a record of the queue: its partition and its offset."""
Row: TypeAlias = tuple[Any, bytes | None]
"""A key and a value of the coordinator's log."""
READY, LEASED = queue_pb2.RANGE_STATE_READY, queue_pb2.RANGE_STATE_LEASED
SETTLING, DEAD = queue_pb2.RANGE_STATE_SETTLING, queue_pb2.RANGE_STATE_DEAD
OWNED = (LEASED, SETTLING)
DONE = (Verdict.ACCEPT, Verdict.REJECT)


@dataclass(eq=False, slots=True)
class Delivery:
    """A message in the hands of a worker's program. `is_locked`: whether its lock lasts, by the worker's own clock.
    `until_s`: when the program was done with it."""

    worker: str
    place: Place
    since_s: float
    is_locked: Callable[[], bool]
    until_s: float = math.inf
    life: int = 0  # how often it was redriven
    verdict: Verdict | None = None
    delay_s: float = 0.0
    is_confirmed: bool = False

    def __str__(self) -> str:
        return f"{self.worker} (at {self.since_s:.3f} s)"


class Deliveries:
    """All of one queue. Its methods raise Violation. `limit`: the most deliveries of a message in one life. `lives`:
    how often a message was redriven."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.lives: Callable[[Place], int] = lambda place: 0
        self._of: dict[Place, list[Delivery]] = {}

    def began(self, delivery: Delivery) -> None:
        """A message was handed out."""
        place, earlier = delivery.place, self._of.setdefault(delivery.place, [])
        delivery.life = self.lives(place) if earlier else 0
        for other in earlier:
            if other.until_s == math.inf and other.is_locked():
                raise Violation("Q1", f"{place} is handed to {delivery}, and {other} has its lock")
            if other.is_confirmed and other.life == delivery.life:
                _check_confirmed(other, delivery)
        earlier.append(delivery)

    def check_limit(self, uncounted: Callable[[Place], int]) -> None:
        """`uncounted`: the deliveries of a message that count for nothing."""
        for place, every in self._of.items():
            if len(every) > self._limit * (1 + self.lives(place)) + uncounted(place):
                raise Violation("Q3", f"{place} is handed out {len(every)} times, and the limit is {self._limit}")

    def settled(self, delivery: Delivery, verdict: Verdict, delay_s: float, now_s: float) -> None:
        """The program has given a verdict, and was not told that its lock has ended."""
        delivery.until_s, delivery.verdict, delivery.delay_s = now_s, verdict, delay_s
        for other in self._later(delivery):
            raise Violation("Q1", f"{delivery} settles {delivery.place}, which was handed to {other} meanwhile")

    def confirmed(self, delivery: Delivery) -> None:
        """A flush says that the verdict is done."""
        delivery.is_confirmed = True
        for other in self._later(delivery):
            if other.life == delivery.life:
                _check_confirmed(delivery, other)

    def _later(self, delivery: Delivery) -> list[Delivery]:
        of = self._of[delivery.place]
        return of[of.index(delivery) + 1 :]

    def was_handed_out(self, place: Place) -> bool:
        return place in self._of


def _check_confirmed(earlier: Delivery, later: Delivery) -> None:
    """Of a message whose verdict is confirmed, and that is handed out later."""
    assert earlier.verdict is not None
    what = f"{earlier.place} of {earlier} is {earlier.verdict.name.lower()}ed at {earlier.until_s:.3f} s"
    if earlier.verdict in DONE:
        raise Violation("Q2", f"{what} for sure, and handed to {later}")
    if later.since_s < earlier.until_s + earlier.delay_s:
        raise Violation("Q3", f"{what} with a delay of {earlier.delay_s} s, and handed to {later}")


# -- the coordinator's log


class Held(NamedTuple):
    """What is known of an unsettled offset."""

    state: int
    lease_id: int
    delivery_count: int
    is_dead: bool = False


class Gone(NamedTuple):
    """An offset that is in no range any more, what it was, and whether that was to be."""

    offset: int
    before: Held


def held_in(record: QueuePartition) -> dict[int, Held]:
    """By offset."""
    return {
        offset: Held(each.state, each.lease_id, each.delivery_count, each.death_reason is not None)
        for each in record.ranges
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def settled_to(record: QueuePartition) -> int:
    """All offsets below are settled."""
    return record.ranges[0].first_offset if record.ranges else record.next_offset


def check_change(
    before: QueuePartition,
    after: QueuePartition,
    *,
    may_be_cut: bool,
    again: Collection[int] = (),
    uncounted: Callable[[int, int], bool] = lambda lease_id, offset: False,
) -> list[Gone]:
    """From one committed state of a partition to the next. What is gone. `again`: the offsets that a redrive may make
    ready. `uncounted`: whether a delivery of this lease may count for nothing. Raises Violation."""
    is_cut = after.next_offset < before.next_offset
    if is_cut and may_be_cut and after.leader_epoch > before.leader_epoch:
        return []
    if is_cut or (settled_to(after) < settled_to(before) and settled_to(after) not in again):
        text = f"it was settled to {settled_to(before)} and leased to {before.next_offset}, and is settled to "
        raise Violation("Q6", f"{text}{settled_to(after)} and leased to {after.next_offset}")
    old, new = held_in(before), held_in(after)
    for offset, held in new.items():
        if offset < before.next_offset and offset not in old:
            if offset not in again or held != Held(READY, 0, 0):
                raise Violation("Q2", f"offset {offset} was settled, and is {held}")
            continue
        _check_step(offset, old.get(offset), held, uncounted)
    return [Gone(offset, held) for offset, held in old.items() if offset not in new]


def revived(before: QueuePartition, after: QueuePartition) -> list[int]:
    """The settled offsets that are in a range again."""
    old = held_in(before)
    return [offset for offset in held_in(after) if offset < before.next_offset and offset not in old]


def _check_step(offset: int, before: Held | None, after: Held, uncounted: Callable[[int, int], bool]) -> None:
    if before is None:
        before = Held(READY, 0, 0)
    if before.state in OWNED and after.state in OWNED and before.lease_id != after.lease_id:
        raise Violation("Q1", f"offset {offset} goes from lease {before.lease_id} to lease {after.lease_id} at once")
    is_leased_now = after.state == LEASED and before.state == READY
    is_back = before.state == LEASED and after.state == READY and uncounted(before.lease_id, offset)
    if after.delivery_count - before.delivery_count - is_leased_now not in ((0, -1) if is_back else (0,)):
        raise Violation("Q3", f"offset {offset} is {before}, and then {after}: deliveries are not counted")
    if before.is_dead > after.is_dead or (after.state == DEAD and not after.is_dead):
        raise Violation("Q7", f"offset {offset} is {before}, and then {after}: it died, and lives again")


# -- dead letters


def compare_letters(places: Iterable[RecordPlace], carried: Counter[RecordPlace]) -> None:
    """The places of all committed letters, and of what was carried: a record that was redriven may die again. Raises
    Violation."""
    counts = Counter(places)
    if twice := sorted(place[1] for place, count in counts.items() if count > carried[place] > 0):
        raise Violation("Q5", f"{len(twice)} dead records have more than one letter, such as offset {twice[0]}")
    if lost := sorted(offset for key, offset in carried - counts):
        raise Violation("Q5", f"{len(lost)} dead records are settled without a letter, such as offset {lost[0]}")
    if unsettled := sorted(offset for key, offset in counts - carried):
        raise Violation("Q5", f"{len(unsettled)} letters are of records that are not settled, such as {unsettled[0]}")


def check_bare(acknowledged: set[RecordPlace], bare: set[RecordPlace]) -> None:
    """Only offsets without a record are settled without a letter. Raises Violation."""
    if lost := sorted(offset for _, offset in acknowledged & bare):
        raise Violation("Q5", f"{len(lost)} dead records are accepted without a letter, such as offset {lost[0]}")


@dataclass(slots=True)
class Redrives:
    """Of one queue. `letters`: the places of the records whose letters stand in a partition from one offset to another.
    `again`: how often each offset was made ready again."""

    letters: Callable[[PartitionKey, int, int], Iterable[RecordPlace]]
    queue: str
    places: dict[PartitionKey, int] = field(default_factory=dict)
    again: Counter[RecordPlace] = field(default_factory=Counter)
    anew: Counter[RecordPlace] = field(default_factory=Counter)  # the same, of the batches that came again

    def passed(self, rows: Iterable[Row]) -> Counter[RecordPlace]:
        """The records of the letters that a batch passes over. Each may be ready again, so often."""
        passed: Counter[RecordPlace] = Counter()
        for key, value in rows:
            if key.queue != self.queue or not key.HasField("letters_partition_id") or value is None:
                continue
            at, record = PartitionKey.of(key.letters_partition_id), records_pb2.QueueRedriveRecord.FromString(value)
            before = self.places.get(at, 0)
            if record.next_offset < before:
                text = f"the letters of partition {at.partition} were redriven to {before}, and are to "
                raise Violation("Q8", f"{text}{record.next_offset}")
            passed.update(self.letters(at, before, record.next_offset))
            self.places[at] = record.next_offset
        return passed

    def begin_anew(self) -> None:
        """Batches come again from the first that there is."""
        self.places.clear()
        self.anew.clear()

    def take(self, rows: Iterable[Row]) -> None:
        """A batch, unchecked: its letters have made their records ready."""
        self.anew += self.passed(rows)
        self.again |= self.anew

    def check(self, passed: Counter[RecordPlace], ready: Counter[RecordPlace]) -> None:
        """`ready`: what a batch has made ready again. Raises Violation."""
        if more := sorted(offset for (_, offset) in ready - passed):
            raise Violation("Q8", f"offset {more[0]} is settled, and then ready, and no letter of it is redriven")
        if lost := sorted(offset for (_, offset) in passed - ready):
            raise Violation("Q8", f"a letter of offset {lost[0]} is passed over, and the record stays settled")
        self.again += ready
