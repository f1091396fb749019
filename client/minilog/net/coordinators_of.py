"""The mapping from a name to its coordinator: a partition of an internal topic.

A transactional id belongs to a partition of `__transactions`, a group id to one of `__groups`, and the name of a queue
to one of `__queues`. The leader of that partition is the coordinator. Brokers and clients compute the partition in the
same way, so no client has to ask. The number of partitions never changes.
"""

from __future__ import annotations

import google_crc32c

TRANSACTIONS_TOPIC_NAME = "__transactions"
GROUPS_TOPIC_NAME = "__groups"
QUEUES_TOPIC_NAME = "__queues"
INTERNAL_TOPIC_NAMES = (TRANSACTIONS_TOPIC_NAME, GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME)
INTERNAL_PARTITIONS = 16  # of each internal topic; fixed, because another number would move names to other coordinators


def coordinator_partition(name: str) -> int:
    """The partition of the internal topic that a transactional id, a group id or a queue belongs to."""
    return int(google_crc32c.value(name.encode())) % INTERNAL_PARTITIONS
