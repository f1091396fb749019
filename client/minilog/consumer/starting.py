"""Where a partition begins that was given no offset. No I/O.

    group.id     asked first                        where nothing is committed
    none         auto.offset.reset                  -
    given        what the group has committed       auto.offset.reset

A partition, or a topic, that came after the subscription began has "earliest" for its auto.offset.reset: nothing of it
is to be skipped. What is committed is asked for in one question for all partitions that are to begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.client_config import ClientConfig
from minilog.consumer import requests
from minilog.consumer.consumer_effects import Effect, FetchCommitted, ResolveOffset
from minilog.consumer.partition import Assigned
from minilog.errors import MinilogError, OffsetOutOfRange
from minilog.groups.messages import Committed

COMMITTED = "committed"


def begin(assigned: Assigned, offset: int | None, reset: str, config: ClientConfig) -> None:
    """Begin at `offset`; None: as the module says, where `reset` is this partition's auto.offset.reset."""
    assigned.otherwise = reset
    if offset is not None:
        assigned.place(offset, assigned.position_number)
    elif config.group_id:
        assigned.reset = COMMITTED
    else:
        _begin_at_reset(assigned, "was given no offset")


def begin_at_committed(assigned: Assigned, committed: Committed | None, number: int, config: ClientConfig) -> None:
    """The group's answer; None: it has committed nothing."""
    if committed is not None:
        assigned.place(committed.offset, number)
        assigned.last_epoch = assigned.position_epoch = committed.leader_epoch
    else:
        assigned.begin_reset(assigned.otherwise, number)
        _begin_at_reset(assigned, f"has no offset that group {config.group_id!r} committed")


def _begin_at_reset(assigned: Assigned, why: str) -> None:
    if assigned.otherwise == "error":
        assigned.reset = None
        assigned.error = OffsetOutOfRange(
            f"{requests.name_of(assigned.partition)} {why}, and auto.offset.reset is error"
        )
    else:
        assigned.reset = assigned.otherwise


def ask(assigned: Assigned) -> list[Effect]:
    """What the log says, where that is what decides and nobody has asked yet."""
    if assigned.resolving or assigned.reset in (None, COMMITTED):
        return []
    assigned.resolving = True
    assert assigned.reset is not None
    return [ResolveOffset(assigned.partition, assigned.reset, assigned.position_number)]


def ask_group(every: Iterable[Assigned], now_ms: float) -> list[Effect]:
    """What the group has committed of all that wait for it."""
    waiting = [
        assigned
        for assigned in every
        if assigned.reset == COMMITTED
        and assigned.key is not None
        and not assigned.resolving
        and assigned.error is None
        and now_ms >= assigned.retry_at_ms
    ]
    for assigned in waiting:
        assigned.resolving = True
    wanted = {
        assigned.partition: (assigned.key, assigned.position_number) for assigned in waiting if assigned.key is not None
    }
    return [FetchCommitted(wanted)] if wanted else []


def failed(assigned: Assigned, error: MinilogError, again_at_ms: float) -> bool:
    """There is no answer now. True where metadata may help: the log may be led by another broker, while what a group
    waits for, such as the end of a transaction, metadata does not tell."""
    assigned.resolving = False
    if error.retriable:
        assigned.retry_at_ms = again_at_ms
    else:
        assigned.error = error
    return error.retriable and assigned.reset != COMMITTED
