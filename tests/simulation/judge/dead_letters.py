"""The dead letters of a queue, as the log of their topic has them: Q5.

Each dead record that a transaction carried has one committed letter, and no other record has any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.judge.redriving import Place, letters

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.judge.judge import Judge
    from tests.simulation.judge.queue_records import QueueRecords


def check_dead_letters(queuing: Queuing, records: QueueRecords, judge: Judge) -> None:
    """At the end, when all is settled. Raises Violation."""
    partitions = [judge.truth.partition(key) for key in queuing.dead_letter_keys()]
    known = [partition for partition in partitions if partition is not None]
    if any(partition.exempt for partition in known):
        return
    keys = queuing.keys()
    places = [letter.place for partition in known for letter in letters(partition, judge.truth)]
    compare(places, records.carried())
    acknowledged = queuing.acknowledged()
    had_records = {(keys[TopicPartition(topic, number)], offset) for topic, number, offset in acknowledged}
    check_bare(had_records, records.bare())


def compare(places: Iterable[Place], carried: Counter[Place]) -> None:
    """The places of all committed letters, and of what was carried: a record that was redriven may die again. Raises
    Violation."""
    counts = Counter(places)
    if twice := sorted(place[1] for place, count in counts.items() if count > carried[place] > 0):
        raise Violation("Q5", f"{len(twice)} dead records have more than one letter, such as offset {twice[0]}")
    if lost := sorted(offset for key, offset in carried - counts):
        raise Violation("Q5", f"{len(lost)} dead records are settled without a letter, such as offset {lost[0]}")
    if unsettled := sorted(offset for key, offset in counts - carried):
        raise Violation("Q5", f"{len(unsettled)} letters are of records that are not settled, such as {unsettled[0]}")


def check_bare(acknowledged: set[Place], bare: set[Place]) -> None:
    """Only offsets without a record are settled without a letter. Raises Violation."""
    if lost := sorted(offset for _, offset in acknowledged & bare):
        raise Violation("Q5", f"{len(lost)} dead records are accepted without a letter, such as offset {lost[0]}")
