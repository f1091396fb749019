"""What workers of a queue wrote down about themselves, judged (Q1, Q2, Q3).

Each worker process appends one line per event to a file of its own. All processes of one machine share the monotonic
clock, so the lines of all workers have one order. A hand-out is one message that a poll gave to a program. The worker
has the message from then on until the first of these: it releases the message, it closes, and the latest end of the
lock that it has seen, by its own clock. The death of a worker ends nothing: no one tells the coordinator.

Rules: the numbers of deliveries follow the hand-outs. A number comes again only where the delivery was not counted, and
then after its lock. Nobody is handed a message while another worker has it. After a confirmed accept or reject nobody
is handed the message again. No lock ends before the time that the worker was promised. Each acknowledged record is
accepted, or has one dead letter, and never both. A record that is dead by the count of its deliveries need not have
come to a program that often: a worker dies, or its lock ends, before the hand-out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tests.integration.history import Place
from tests.integration.populations import Story

MARGIN_S = 0.001  # of the clocks' figures
TERMINAL = ("accept", "reject")
LOST = ("handed to nobody", "lost")


class MessageRow(msgspec.Struct, array_like=True):
    """One message in a line. `until_s`: when the lock ends, as the worker knows it. 0: it has lost the lease."""

    partition: int
    offset: int
    deliveries: int
    until_s: float


class WorkerEvent(msgspec.Struct, array_like=True):
    """One line. Times are seconds of the monotonic clock of the machine."""

    kind: str
    """begun, handed, accept, release, reject (each before its call), late (that call raised), confirmed, failed, unsure
    (of verdicts, behind a flush), raised, leaving (before close), left."""
    time_s: float
    since_s: float
    """When the call of the program began that this line is about."""
    rows: list[MessageRow] = []
    words: str = ""


WorkerStory = Story[WorkerEvent]


@dataclass
class HandOut:
    """One message that a program got, and what became of it."""

    worker: str
    deliveries: int
    since_s: float
    """When the poll began."""
    time_s: float
    """When it had returned."""
    until_s: float
    """The latest end of the lock that the worker has seen."""
    given_back_s: float | None = None
    verdict: str = ""
    outcome: str = ""
    """Of the verdict: late, confirmed, failed, unsure; empty: the worker died before it knew."""

    @property
    def held_until_s(self) -> float:
        """Nobody else is handed the message before."""
        return self.until_s if self.given_back_s is None else min(self.until_s, self.given_back_s)

    @property
    def is_settled(self) -> bool:
        return self.verdict in TERMINAL and self.outcome == "confirmed"

    @property
    def may_be_accepted(self) -> bool:
        return self.verdict == "accept" and self.outcome in ("", "unsure")


@dataclass
class QueueJudgement:
    """The counts of a run, and what is wrong."""

    handed: int = 0
    again: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    """By verdict and outcome."""
    raised: Counter[str] = field(default_factory=Counter)
    """Polls that raised an error."""
    ends: Counter[str] = field(default_factory=Counter)
    """Acknowledged records, by how they ended."""
    wrong: list[str] = field(default_factory=list)


class _Reading:
    """One story, event by event, as hand-outs."""

    def __init__(self, story: WorkerStory, hand_outs: dict[Place, list[HandOut]], judgement: QueueJudgement) -> None:
        self._name, self._events, self._hand_outs, self._judgement = story.name, story.events, hand_outs, judgement
        self._own: dict[tuple[Place, int], HandOut] = {}

    def read(self) -> None:
        for event in self._events:
            for row in event.rows:
                self._follow(event, row)
            if event.kind == "raised":
                self._judgement.raised[event.words] += 1
            elif event.kind == "leaving":
                for hand_out in self._own.values():
                    if not hand_out.verdict:
                        hand_out.given_back_s = event.time_s

    def _follow(self, event: WorkerEvent, row: MessageRow) -> None:
        place = (row.partition, row.offset)
        if event.kind == "handed":
            self._note_hand_out(event, row, place)
            return
        hand_out = self._own[place, row.deliveries]
        promised_s = hand_out.until_s
        hand_out.until_s = max(promised_s, row.until_s)
        if event.kind in (*TERMINAL, "release"):
            hand_out.verdict = event.kind
            if event.kind == "release":
                hand_out.given_back_s = event.time_s
            return
        hand_out.outcome = event.kind
        if event.kind in ("late", "failed") and event.time_s < promised_s - MARGIN_S:
            self._wrong(f"lost {place} {promised_s - event.time_s:.3f} s before the end of its lock", hand_out)

    def _note_hand_out(self, event: WorkerEvent, row: MessageRow, place: Place) -> None:
        hand_out = HandOut(self._name, row.deliveries, event.since_s, event.time_s, row.until_s)
        if 0.0 < row.until_s < event.since_s:
            self._wrong(f"got {place} {event.since_s - row.until_s:.3f} s after the end of its lock", hand_out)
        earlier = self._own.get((place, row.deliveries))
        if earlier is not None and hand_out.time_s < earlier.held_until_s - MARGIN_S:
            self._wrong(f"got {place} twice", hand_out)
        self._own[place, row.deliveries] = hand_out
        self._hand_outs.setdefault(place, []).append(hand_out)

    def _wrong(self, words: str, hand_out: HandOut) -> None:
        self._judgement.wrong.append(f"{self._name} {words}, as delivery {hand_out.deliveries}")


def judge_queue(
    stories: Iterable[WorkerStory],
    acknowledged: Mapping[int, set[int]],
    letters: Mapping[Place, int],
    *,
    delivery_count_limit: int,
) -> QueueJudgement:
    """`acknowledged`: the offsets of acknowledged records, by partition. `letters`: how many dead letters a record has.
    The queue has been drained."""
    judgement = QueueJudgement()
    hand_outs: dict[Place, list[HandOut]] = {}
    for story in stories:
        _Reading(story, hand_outs, judgement).read()
    for place, every in hand_outs.items():
        every.sort(key=lambda hand_out: (hand_out.deliveries, hand_out.time_s))
        judgement.handed += len(every)
        judgement.again += len(every) - 1
        judgement.verdicts.update(f"{one.verdict or 'no verdict'} {one.outcome}".rstrip() for one in every)
        _judge_deliveries(place, every, delivery_count_limit, judgement)
        if every[-1].is_settled and (every[-1].verdict == "accept") == (place in letters):
            words = f"was settled by {every[-1].verdict}, and has {letters.get(place, 0)} dead letters"
            judgement.wrong.append(f"{place} {words}")
    judgement.wrong += [f"{place} has {count} dead letters" for place, count in letters.items() if count > 1]
    for partition, offsets in acknowledged.items():
        for offset in sorted(offsets):
            place = (partition, offset)
            end = _end_of(hand_outs.get(place, []), has_letter=place in letters)
            judgement.ends[end] += 1
            if end in LOST:
                judgement.wrong.append(f"the acknowledged record {place} is {end}")
    return judgement


def _judge_deliveries(place: Place, every: list[HandOut], limit: int, judgement: QueueJudgement) -> None:
    if every[-1].deliveries > limit:
        judgement.wrong.append(f"{place} was delivered {every[-1].deliveries} times, and the limit is {limit}")
    held_until_s, holder = 0.0, every[0]
    for number, hand_out in enumerate(every):
        before = every[number - 1] if number else None
        where = f"{place}, delivery {hand_out.deliveries} to {hand_out.worker} at {hand_out.time_s:.3f}"
        if before is not None and before.is_settled:
            judgement.wrong.append(f"{where}: {before.worker} had settled it, and that was confirmed")
        if before is not None and hand_out.time_s < before.since_s:
            judgement.wrong.append(f"{where}: {before.worker} got the delivery before it later")
        if hand_out.time_s < held_until_s - MARGIN_S:  # the same number is right where a lease was not counted
            judgement.wrong.append(f"{where}: {holder.worker} had it until {held_until_s:.3f}")
        if hand_out.held_until_s > held_until_s:
            held_until_s, holder = hand_out.held_until_s, hand_out


def _end_of(every: list[HandOut], *, has_letter: bool) -> str:
    """How an acknowledged record ended. `every`: its hand-outs in their order."""
    if has_letter:
        return "rejected" if every and every[-1].verdict == "reject" else "dead"
    if not every:
        return "handed to nobody"
    if every[-1].is_settled:
        return "accepted"
    return "accepted, perhaps" if every[-1].may_be_accepted else "lost"
