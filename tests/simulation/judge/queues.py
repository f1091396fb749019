"""What workers of a queue were handed and told, from the outside alone, and the end of a run with a queue.

rule  what must be
Q1    no message is held twice at one moment: from when it was handed out until its verdict was noted, its worker died,
      or its lock has ended by the worker's own clock
Q2    a message whose accept or reject is confirmed is handed to nobody any more, unless its dead letter is redriven:
      then it has another life. A flush without an error confirms
Q3    a message that was released with a delay is not handed out before. No message is handed out more often than the
      delivery limit says, but for leases that count for nothing. (How long locks last: queue_records.py)
Q4    nothing of a transaction that was aborted is handed out. (What is leased: queue_records.py)
Q5    each dead record that is carried has one letter, and nothing else has any (dead_letters.py)
Q7    in the calm at the end all is settled, and each message that is committed for sure was handed to some worker. But
      for what retention may have taken, and for what was leased as often as the limit says
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from minilog.queues.message import Verdict
from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.judge.dead_letters import check_dead_letters

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.judge import Judge
    from tests.simulation.judge.queue_records import QueueRecords

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a message."""

LOOK_S = 0.2
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


def lives_of(queuing: Queuing, judge: Judge) -> Callable[[Place], int]:
    """How often a message was redriven, as the log of the coordinator has it now."""

    def lives(place: Place) -> int:
        assert judge.queues is not None
        judge.truth.look()
        judge.queues.look()
        topic, partition, offset = place
        return judge.queues.redrives.again[queuing.keys()[TopicPartition(topic, partition)], offset]

    return lives


async def check_queuing(cluster: SimulatedCluster, queuing: Queuing, judge: Judge, faults: Faults) -> None:
    """All is settled, nothing was lost, and no lock lasts longer than it may."""
    records = judge.queues
    assert records is not None
    queuing.check_aborted()
    if not (faults.lost or faults.cut_for_good):
        deadline_s = cluster.now_s + cluster.plan.liveness_s
        while (missing := _missing(queuing, records)) is not None or not records.has_judged_locks:
            if cluster.now_s > deadline_s:
                raise Violation("Q7", missing or "it is never calm for as long as a lock lasts")
            await asyncio.sleep(LOOK_S)
        records.check_taken(queuing)
        keys = {(at.topic, at.partition): key for at, key in queuing.keys().items()}
        queuing.deliveries.check_limit(lambda place: records.uncounted(keys[place[:2]], place[2]))
        if queuing.settings.copies is not None:
            check_dead_letters(queuing, records, judge)
    queuing.end()


def _missing(queuing: Queuing, records: QueueRecords) -> str | None:
    """What is not settled, or was handed to nobody; letters that are not redriven."""
    if queuing.cluster.plan.redriving and not queuing.redrivers.are_done:
        return "the last redrive has not come to its end"
    keys = queuing.keys()
    acknowledged = queuing.acknowledged()
    for at, key in keys.items():
        ends = [
            offset + 1 for topic, partition, offset in acknowledged if (topic, partition) == (at.topic, at.partition)
        ]
        if (text := records.unsettled(key, max(ends, default=0))) is not None:
            return f"{at} {text}"
    by_name = {(at.topic, at.partition): key for at, key in keys.items()}
    missed = [
        place
        for place in acknowledged
        if not queuing.deliveries.was_handed_out(place) and not records.is_dead(by_name[place[:2]], place[2])
    ]
    return f"{len(missed)} messages are handed to nobody, such as {min(missed)}" if missed else None
