"""Copies and leaders of one partition, as the cores have them: V1 to V10, V17, V18, by what each state and step shows.

A world gives `Copy` and `Led`, and keeps what the judge knows: `committed`, all that was ever below the high watermark
of one who led, and `answered`, how far each leader epoch answered "latest". Both only grow, and are given back anew, so
that a search may go on from any state that it has reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tests.judges.states import State
from tests.judges.violation import Violation

Log: TypeAlias = tuple[Any, ...]  # of entries: each a tuple of its leader epoch and what tells it from others
Answered: TypeAlias = tuple[tuple[int, int], ...]  # (leader epoch, largest end that its leader answered as the latest)


class Copy(Protocol):
    """A replica's log: what processes see of it."""

    @property
    def ends(self) -> tuple[int, int, int, int]:
        """Log start, high watermark, durable end, end."""
        ...

    @property
    def epochs(self) -> Sequence[tuple[int, int]]: ...

    def below(self, offset: int) -> Log:
        """Its entries below an offset."""
        ...


class Led(NamedTuple):
    """Who believes to lead. `state`: as it has seen it; `counted`: whom its high watermark waits for; `proposed`: whom
    it asks for."""

    broker_id: int
    life: int
    state: State
    high_watermark: int
    min_in_sync: int
    counted: frozenset[int]
    proposed: frozenset[int] | None
    knows_its_end: bool


class Sequences:
    """What producers numbered and what is committed of it stands at one place."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int, int], int] = {}

    def committed(self, sequence: tuple[int, int, int], offset: int) -> None:
        """`sequence`: the producer, its epoch, and the first number of the batch."""
        first = self._places.setdefault(sequence, offset)
        if first != offset:
            raise Violation("V14", f"sequence {sequence} of a producer is committed at {first} and at {offset}")


class Known(NamedTuple):
    """See the module's text."""

    committed: Log = ()
    answered: Answered = ()


def check_copy(number: int, copy: Copy) -> None:
    """What one log shows."""
    start, high_watermark, durable_end, end = copy.ends
    if not start <= high_watermark <= durable_end <= end:
        raise Violation("V1", f"the ends of b{number} are out of order: {copy.ends}")
    check_epochs(number, [entry[0] for entry in copy.below(end)])
    if not all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(copy.epochs)):
        raise Violation("V3", f"the epochs of b{number} are {copy.epochs}")


def check_epochs(number: int, epochs: Iterable[int]) -> None:
    """Those of the batches of a log, in their order."""
    if any(before > after for before, after in itertools.pairwise(epochs)):
        raise Violation("V3", f"an epoch decreases along the log of b{number}")


def check_led(before: Led | None, led: Led) -> None:
    """What a leader shows; `before`: the same broker, when it was looked at last."""
    number, state = led.broker_id, led.state
    if state.leader_broker_epoch != led.life:
        raise Violation("V17", f"leader epoch {state.leader_epoch} spans lives: b{number} leads in {led.life}")
    if before is not None and (before.state.leader_epoch, before.life) == (state.leader_epoch, led.life):
        if led.high_watermark < before.high_watermark:
            raise Violation("V8", f"the high watermark of b{number} went back to {led.high_watermark}")
        if led.high_watermark > before.high_watermark and len(state.in_sync_replicas) < led.min_in_sync:
            raise Violation("V18", f"the high watermark of b{number} moved, and the ISR is {state.in_sync_replicas}")
    if number not in state.in_sync_replicas or number not in led.counted:
        raise Violation("V4", f"b{number} leads, and is not in its ISR {state.in_sync_replicas}")
    if led.proposed is not None and number not in led.proposed:
        raise Violation("V4", f"b{number} proposes {led.proposed}, without itself")


def judge(copies: Mapping[int, Copy], leads: Sequence[Led], state: State, known: Known) -> Known:
    """All of them together. Of a copy whose broker is down the high watermark may be 0."""
    told = {led.broker_id: copies[led.broker_id].below(led.high_watermark) for led in leads}
    committed = agree(told, {number: copy.below(copy.ends[1]) for number, copy in copies.items()}, known.committed)
    _check_holders(copies, state, committed)
    for led in leads:
        if led.state.leader_epoch == state.leader_epoch:
            if not led.counted >= set(state.in_sync_replicas):
                raise Violation("V10", f"b{led.broker_id} counts {led.counted}, the ISR is {state.in_sync_replicas}")
            if led.broker_id != state.leader_id:
                raise Violation("V17", f"b{led.broker_id} and b{state.leader_id} lead in epoch {state.leader_epoch}")
    answered = _answered(leads, known.answered)
    return known if committed is known.committed and answered is known.answered else Known(committed, answered)


def agree(told: Mapping[int, Log], below_own: Mapping[int, Log], known: Log) -> Log:
    """What is below the high watermark of one who leads is committed, for good: `told`. All agree on it, as far as they
    know it: `below_own`. Of the metadata log that is V12."""
    for number, below in told.items():
        if len(below) > len(known):
            if below[: len(known)] != known:
                raise Violation("V2", f"b{number} has committed something else")
            known = below
    for number, below in below_own.items():
        if below != known[: len(below)]:
            raise Violation("V9", f"b{number} has something else below its high watermark")
    return known


def _check_holders(copies: Mapping[int, Copy], state: State, committed: Log) -> None:
    """Who is in the ISR or may be elected has, on its disk, all that was committed."""
    if committed:
        for number in (*state.in_sync_replicas, *state.eligible_leaders):
            copy = copies[number]
            if number not in state.damaged_replicas and copy.below(copy.ends[2])[: len(committed)] != committed:
                raise Violation("V5", f"b{number} is in the ISR or eligible, and lacks what is committed (V6, V7)")


def _answered(leads: Sequence[Led], known: Answered) -> Answered:
    """Who knows its end answers it as the latest: never below an earlier epoch's."""
    for led in leads:
        if led.knows_its_end:
            epoch, offset = led.state.leader_epoch, led.high_watermark
            earlier = max((end for each, end in known if each < epoch), default=0)
            if offset < earlier:
                raise Violation("V8", f"the latest offset is {offset}, in an earlier epoch it was {earlier}")
            if offset > dict(known).get(epoch, 0):
                known = tuple(sorted({**dict(known), epoch: offset}.items()))
    return known
