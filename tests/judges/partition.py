"""Copies and leaders of one partition, as the cores have them: V1 to V10, V17, V18, by what each state and step shows.

A world gives `Copy` and `Led`, and keeps what the judge knows: `committed`, all that was ever below the high watermark
of one who led, and `answered`, how far each leader epoch answered "latest". Both only grow, and are given back anew, so
that a search may go on from any state that it has reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
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


def check_order(who: str, *ends: int) -> None:
    """V1: log start, last stable offset, high watermark, durable end and log end, those of them that are known."""
    if any(one > other for one, other in itertools.pairwise(ends)):
        raise Violation("V1", f"the ends of {who} are out of order: {ends}")


def check_start(who: str, start: int, before: int) -> None:
    """V1: `before`: what the same leader told before."""
    if start < before:
        raise Violation("V1", f"{who} tells the log start {start}, and told {before} before")


def check_epochs(who: str, epochs: Iterable[int]) -> None:
    """V3, of the batches of a log, in their order."""
    for before, after in itertools.pairwise(epochs):
        if before > after:
            raise Violation("V3", f"in the log of {who} epoch {before} is followed by {after}")


def check_lead(who: str, epoch: int, life: tuple[int, int], known: tuple[int, int]) -> None:
    """V17: one life of one broker leads in a leader epoch; a life is a broker and what tells its lives apart."""
    if life != known:
        raise Violation("V17", f"{who} leads in leader epoch {epoch} as {life}, and {known} did")


def check_not_back(who: str, high_watermark: int, before: int) -> None:
    """V8: `before`: that of the same leader in the same epoch."""
    if high_watermark < before:
        raise Violation("V8", f"the high watermark of {who} went back from {before} to {high_watermark}")


def check_latest(who: str, epoch: int, answered: int, told: Iterable[tuple[int, int]]) -> None:
    """V8, of an answer to "latest"; `told`: in which leader epoch what was told as committed or as the latest."""
    most = max((end for before, end in told if before < epoch), default=0)
    if answered < most:
        raise Violation(
            "V8", f"{who} answers {answered} as the latest in epoch {epoch}, in an earlier epoch it was {most}"
        )


def check_agrees(who: str, lacks: int | None) -> None:
    """V9: below its own high watermark it has what is committed. `lacks`: the first offset that it has not."""
    if lacks is not None:
        raise Violation("V9", f"{who} has something else below its high watermark, at {lacks}")


def check_has(who: str, lacks: int | None) -> None:
    """V5, V6, V7: who is in the ISR, or may be elected, has on its disk all that is committed."""
    if lacks is not None:
        raise Violation("V5", f"{who} is in the ISR or eligible, and lacks {lacks}, which is committed")


def check_min(who: str, committed: int, holders: Collection[int], needed: int) -> None:
    """V18: what is committed was committed with so many members."""
    if len(holders) < needed:
        text = (
            f"{who} tells that {committed} is committed: only {sorted(holders)} have it, min.insync.replicas={needed}"
        )
        raise Violation("V18", text)


def check_copy(number: int, copy: Copy) -> None:
    """What one log shows."""
    check_order(f"b{number}", *copy.ends)
    check_epochs(f"b{number}", [entry[0] for entry in copy.below(copy.ends[3])])
    if not all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(copy.epochs)):
        raise Violation("V3", f"the epochs of b{number} are {copy.epochs}")


def check_led(before: Led | None, led: Led) -> None:
    """What a leader shows; `before`: the same broker, when it was looked at last."""
    number, state, who = led.broker_id, led.state, f"b{led.broker_id}"
    check_lead(who, state.leader_epoch, (number, led.life), (number, state.leader_broker_epoch))
    if before is not None and (before.state.leader_epoch, before.life) == (state.leader_epoch, led.life):
        check_not_back(who, led.high_watermark, before.high_watermark)
        if led.high_watermark > before.high_watermark:
            check_min(who, led.high_watermark, state.in_sync_replicas, led.min_in_sync)
    if number not in state.in_sync_replicas or number not in led.counted:
        raise Violation("V4", f"b{number} leads, and is not in its ISR {state.in_sync_replicas}")
    if led.proposed is not None:
        check_proposed(number, led.proposed)


def check_proposed(number: int, members: Collection[int]) -> None:
    if number not in members:
        raise Violation("V4", f"b{number} proposes the ISR {sorted(members)} without itself")


def judge(copies: Mapping[int, Copy], leads: Sequence[Led], state: State, known: Known) -> Known:
    """All of them together. Of a copy whose broker is down the high watermark may be 0."""
    told = {led.broker_id: copies[led.broker_id].below(led.high_watermark) for led in leads}
    committed = agree(told, {number: copy.below(copy.ends[1]) for number, copy in copies.items()}, known.committed)
    _check_holders(copies, state, committed)
    for led in leads:
        if led.state.leader_epoch == state.leader_epoch:
            if not led.counted >= set(state.in_sync_replicas):
                raise Violation("V10", f"b{led.broker_id} counts {led.counted}, the ISR is {state.in_sync_replicas}")
            life = state.leader_id, state.leader_broker_epoch
            check_lead(f"b{led.broker_id}", state.leader_epoch, (led.broker_id, led.life), life)
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
            lacks = next(at for at, (own, told) in enumerate(itertools.zip_longest(below, known)) if own != told)
            check_agrees(f"b{number}", lacks)
    return known


def _check_holders(copies: Mapping[int, Copy], state: State, committed: Log) -> None:
    """Who is in the ISR or may be elected has, on its disk, all that was committed."""
    if committed:
        for number in (*state.in_sync_replicas, *state.eligible_leaders):
            copy = copies[number]
            if number not in state.damaged_replicas and copy.below(copy.ends[2])[: len(committed)] != committed:
                check_has(f"b{number}", len(committed))


def _answered(leads: Sequence[Led], known: Answered) -> Answered:
    """Who knows its end answers it as the latest: never below an earlier epoch's."""
    for led in leads:
        if led.knows_its_end:
            epoch, offset = led.state.leader_epoch, led.high_watermark
            check_latest(f"b{led.broker_id}", epoch, offset, known)
            if offset > dict(known).get(epoch, 0):
                known = tuple(sorted({**dict(known), epoch: offset}.items()))
    return known
