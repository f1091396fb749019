"""What is told of the partitions of internal topics that this broker leads: a coordinator lives beside each.

effect               when                                                        what the coordinator does
BeganToLead          a leader epoch began here, or appends of it were dropped    forgets all, and loads up to `log_end`
HighWatermarkMoved   also behind each BeganToLead                                answers what waited for it
StoppedLeading       the epoch is over here                                      forgets all
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minilog_broker.replication.partition_state import PartitionKey


@dataclass(frozen=True, slots=True)
class BeganToLead:
    """From `log_end` on the log has what is appended by `append_own`, and nothing else."""

    key: PartitionKey
    topic_name: str
    leader_epoch: int
    log_end: int


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """All below `offset` is committed, says the leader of `leader_epoch`."""

    key: PartitionKey
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class StoppedLeading:
    """Nothing is appended here any more, and nothing more is known to be committed."""

    key: PartitionKey


LeadershipEffect: TypeAlias = BeganToLead | HighWatermarkMoved | StoppedLeading
