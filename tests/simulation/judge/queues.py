"""The end of a run with a queue: in the calm all is settled, and each message that is committed for sure was handed to
some worker. But for what retention may have taken, and for what was leased as often as the limit says. Q7.

What workers are handed meanwhile: tests/judges/queues.py. How long locks last, and what is leased: queue_records.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from minilog.types import TopicPartition
from tests.judges.queues import Place
from tests.judges.violation import Violation
from tests.simulation.judge.dead_letters import check_dead_letters

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.judge import Judge
    from tests.simulation.judge.queue_records import QueueRecords

LOOK_S = 0.2


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
