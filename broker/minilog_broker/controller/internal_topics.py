"""The brokers' own topics: `__transactions`, `__groups` and `__queues`, the logs of the coordinators.

The rules: docs/spec/transactions.md § Internal topics.

Each is created at its first use: when a client asks any broker for its coordinator, and min(3, voters) brokers can take
replicas. The topic's own settings keep its records safe, whatever the defaults of the cluster are or become. No user
can alter, grow or delete it. Its replicas may move, down to min.insync.replicas, and its leaders may be elected.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.record_batch.schema import MAX_MESSAGE_BYTES

_MOST_REPLICAS = 3
_IN_SYNC_REPLICAS = 2
_SEGMENT_BYTES = 16 << 20  # a segment goes when no record in it is needed any more (coordinators.places)


def internal_replication_factor(voters: int) -> int:
    """As many replicas as there are voters, at most three."""
    return max(1, min(_MOST_REPLICAS, voters))


def internal_topic_config(replication_factor: int) -> Mapping[str, str]:
    """The settings of an internal topic. A decision is in one batch, however large."""
    return {
        "flush.policy": "fsync",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "min.insync.replicas": str(min(_IN_SYNC_REPLICAS, replication_factor)),
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": str(_SEGMENT_BYTES),
        "unclean.leader.election.enable": "false",
    }
