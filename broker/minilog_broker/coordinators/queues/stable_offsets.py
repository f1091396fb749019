"""The last stable offsets of partitions, as their leaders report them. A queue leases only what is below.

A coordinator asks with what it knows (Known). The leader answers when something differs (StableOffset). It answers only
once its high watermark has reached the start of its epoch, so a later epoch never reports less than an earlier one did,
except after an unclean election. Then `end_of_epoch` shows where the logs part (KIP-320).
"""

from __future__ import annotations

from typing import NamedTuple

from minilog.partition_key import PartitionKey


class Known(NamedTuple):
    """What a coordinator knows of a partition, for the question. -1: nothing."""

    leader_epoch: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


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
    known: Known
