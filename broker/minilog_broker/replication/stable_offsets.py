"""The last stable offset of a partition, as its leader reports it to a broker that asks with what it knows.

The leader answers when something differs from that. It answers only once its high watermark has reached the start of
its epoch, so a later epoch never reports less than an earlier one did, except after an unclean election. Then
`end_of_epoch` shows where the logs part (KIP-320).

    the leader                                                  answers
    does not lead, or the asker knows a later leader epoch      NotLeaderOrFollower
    is about to begin its epoch, or is cut off (fencing.py)     LeaderNotAvailable
    does not know its end yet                                   nothing
    has the epoch and both offsets that the asker knows         nothing
    anything else                                               StableOffset

Who waits for an answer watches the partition (ReplicaManager.watch). The effect StableOffsetMoved then names each time
to ask again.
"""

from __future__ import annotations

from typing import NamedTuple

from minilog.partition_key import PartitionKey
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.divergence import EpochEnds

NOTHING_KNOWN = -1


class KnownPartition(NamedTuple):
    """What the asker knows of a partition. -1: nothing."""

    leader_epoch: int = NOTHING_KNOWN
    last_stable_offset: int = NOTHING_KNOWN
    log_start_offset: int = NOTHING_KNOWN


class StableOffset(NamedTuple):
    """A leader's answer. `end_of_epoch`: the end of the asker's epoch, and of those before, in this leader's log.
    `record_bytes`: the average size of a record, 0 where there are none."""

    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    end_of_epoch: int
    record_bytes: int


class Question(NamedTuple):
    """A question for one partition."""

    key: PartitionKey
    known: KnownPartition


def stable_offset(log: ReplicaLog, epochs: EpochEnds, leader_epoch: int, known: KnownPartition) -> StableOffset | None:
    """The answer of the leader of `leader_epoch`, with the leader epochs of its log. None if nothing differs.

    Where the asker knows no epoch, `end_of_epoch` is the end of the log."""
    ends = log.ends()
    if known == KnownPartition(leader_epoch, ends.last_stable_offset, ends.log_start_offset):
        return None
    end_of_epoch = ends.log_end_offset
    if known.leader_epoch > NOTHING_KNOWN:
        _, end_of_epoch = epochs.end_offset_for(known.leader_epoch, ends.log_end_offset)
    return StableOffset(
        leader_epoch, ends.log_start_offset, ends.last_stable_offset, end_of_epoch, log.log.record_bytes
    )
