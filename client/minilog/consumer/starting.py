"""The first offset of a partition for which the user gave none. No I/O.

    group.id     it begins at                       if the group has committed none
    none         auto.offset.reset                  -
    given        the offset that the group          auto.offset.reset
                 has committed

A partition, or a topic, that came after the subscription began always has "earliest" for its auto.offset.reset, so the
consumer skips no record of it. One question asks for the committed offsets of all partitions that begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.client_config import ClientConfig
from minilog.consumer import requests
from minilog.consumer.consumer_effects import Effect, FetchCommitted, ResolveOffset
from minilog.consumer.partition import Assigned
from minilog.errors import MinilogError, OffsetOutOfRange
from minilog.groups.messages import Committed
from minilog.net.metadata_cache import MetadataCache

COMMITTED = "committed"


def begin(assigned: Assigned, offset: int | None, reset: str, config: ClientConfig) -> None:
    """Begin at `offset`. If it is None, begin as in the module's table. `reset` is this partition's
    auto.offset.reset."""
    assigned.otherwise = reset
    if offset is not None:
        assigned.place(offset, assigned.position_number)
    elif config.group_id:
        assigned.reset = COMMITTED
    else:
        _begin_at_reset(assigned, "has no offset to begin at")


def begin_at_committed(assigned: Assigned, committed: Committed | None, number: int, config: ClientConfig) -> None:
    """Begin at the group's committed offset. None: the group has committed none."""
    if committed is not None:
        assigned.place(committed.offset, number)
        assigned.last_epoch = assigned.position_epoch = committed.leader_epoch
    else:
        assigned.begin_reset(assigned.otherwise, number)
        _begin_at_reset(assigned, f"has no offset that group {config.group_id!r} committed")


def names_later_leader(assigned: Assigned, committed: Committed | None, cache: MetadataCache) -> bool:
    """Whether the committed offset is of a later leader than the cache knows. Then the cache knows its epoch from now
    on. An earlier leader would miss the records below the offset in its own log, and take them for lost (KIP-320)."""
    epoch = None if committed is None else committed.leader_epoch
    if assigned.key is None or epoch is None or epoch <= cache.seen_epoch(assigned.key):
        return False
    cache.see_epoch(assigned.key, epoch)
    return True


def _begin_at_reset(assigned: Assigned, why: str) -> None:
    if assigned.otherwise == "error":
        assigned.reset = None
        assigned.error = OffsetOutOfRange(
            f"{requests.name_of(assigned.partition)} {why}, and auto.offset.reset is error"
        )
    else:
        assigned.reset = assigned.otherwise


def ask(assigned: Assigned) -> list[Effect]:
    """Ask for the offset of the log, if the partition begins there and the consumer has not asked yet."""
    if assigned.resolving or assigned.reset in (None, COMMITTED):
        return []
    assigned.resolving = True
    assert assigned.reset is not None
    return [ResolveOffset(assigned.partition, assigned.reset, assigned.position_number)]


def ask_group(partitions: Iterable[Assigned], now_ms: float) -> list[Effect]:
    """Ask for the group's committed offsets of all partitions that wait for them."""
    waiting = [
        assigned
        for assigned in partitions
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
    """Note that there is no answer now. True if new metadata may help, since another broker may lead the log. It does
    not help a group that waits, such as for the end of a transaction."""
    assigned.resolving = False
    assigned.retry_at_ms = again_at_ms
    if not error.retriable:
        assigned.error = error
    return error.retriable and assigned.reset != COMMITTED
