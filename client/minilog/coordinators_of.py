"""Who coordinates what: an id (of a transaction, of a group) hashes to a partition of an internal topic, and whoever
leads that coordinates it. Brokers and clients compute the same."""

from __future__ import annotations

import google_crc32c

TRANSACTIONS_TOPIC_NAME = "__transactions"
GROUPS_TOPIC_NAME = "__groups"
INTERNAL_PARTITIONS = 16
"""Of each of them, and never changed: an id keeps its coordinator."""


def coordinator_partition(name: str) -> int:
    """The partition that a transactional id or a group id belongs to."""
    return int(google_crc32c.value(name.encode())) % INTERNAL_PARTITIONS
