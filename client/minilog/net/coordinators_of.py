"""Where the coordinators are: which partition of which internal topic is in charge of a name.

A transactional id belongs to a partition of `__transactions`, a group id to one of `__groups`; whoever leads it is the
coordinator. Brokers and clients reckon it the same way, so none has to ask; the number of partitions is fixed for good.
"""

from __future__ import annotations

import google_crc32c

TRANSACTIONS_TOPIC_NAME = "__transactions"
GROUPS_TOPIC_NAME = "__groups"
INTERNAL_TOPIC_NAMES = (TRANSACTIONS_TOPIC_NAME, GROUPS_TOPIC_NAME)
INTERNAL_PARTITIONS = 16  # of each: fixed, as another number would move every name to another coordinator


def coordinator_partition(name: str) -> int:
    """The partition of the internal topic that a transactional id or a group id belongs to."""
    return int(google_crc32c.value(name.encode())) % INTERNAL_PARTITIONS
