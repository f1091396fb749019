"""The leader's answer to a position with the right leader epoch. divergence.py has the rule.

A deletion of records may have moved the log start into a batch, here or at the follower. Then a follower without
records begins with the whole batch (KAFKA-6975), and moves its log start as all followers do. A consumer begins at the
log start. (With a position inside a batch the follower would never get on: the leader would send the whole batch, and
the follower would drop it and ask again.)
"""

from __future__ import annotations

from collections.abc import Callable

from minilog.errors import OffsetOutOfRange
from minilog.v1 import data_pb2
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.divergence import (
    NO_COMMON_EPOCH,
    Accepted,
    BelowLogStart,
    Diverged,
    LeaderEpochs,
    compare_position,
)
from minilog_broker.replication.sessions.source import PositionAnswer, Refuse, SendRuns, Wait

GONE = -1  # stands for a base offset if the log does not hold the batch any more


def inside_a_batch(
    log: ReplicaLog, position: data_pb2.FetchPosition, base_of: Callable[[int], int | None]
) -> PositionAnswer | None:
    """The answer to a follower without records whose position is the start of our first batch, or lies inside a batch.

    None for all other positions. `base_of` gives the base offset of the batch around an offset. It gives None while a
    thread looks that up."""
    offset = position.fetch_offset
    if position.HasField("last_fetched_epoch") or offset >= log.appended_end:
        return None
    base = base_of(max(offset, log.log_start))
    if base is None:
        return Wait()
    if base == GONE:  # deleted meanwhile: `check_position` then compares the position with our log start
        return None
    if offset > base:
        return Diverged(NO_COMMON_EPOCH, base)
    return SendRuns() if offset == base else None


def at_log_start(log: ReplicaLog, position: data_pb2.FetchPosition) -> PositionAnswer | None:
    """The answer to a consumer at our log start. The records that it read before are deleted, and their epoch may be
    gone from our epoch cache."""
    return SendRuns() if position.fetch_offset == log.log_start else None


def check_position(
    name: str, log: ReplicaLog, epochs: LeaderEpochs, position: data_pb2.FetchPosition
) -> PositionAnswer:
    """The answer to a position. The leader compares it with its log start first, then by the rule of divergence.py."""
    log_start, offset = log.log_start, position.fetch_offset
    verdict = compare_position(
        epochs,
        log_start=log_start,
        log_end=log.appended_end,
        fetch_offset=offset,
        last_fetched_epoch=position.last_fetched_epoch if position.HasField("last_fetched_epoch") else None,
    )
    match verdict:
        case Accepted():
            return SendRuns()
        case BelowLogStart():
            return Refuse(OffsetOutOfRange(f"{name}: offset {offset} is below the log start {log_start}"))
        case Diverged():
            return verdict
