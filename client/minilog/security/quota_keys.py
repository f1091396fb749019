"""The keys of quotas, and whom one is of. Pure.

    producer_byte_rate        bytes a second   that it produces
    consumer_byte_rate        bytes a second   that it fetches
    request_rate              a second         calls, and messages of its streams
    controller_mutation_rate  a second         partitions that it creates or deletes
    connections               at a time        that it has open
    open_transactions         at a time        that it has open

Each is of one broker, as Kafka's are; what the controller or a coordinator counts is of that one. `request_rate` stands
in the place of Kafka's request_percentage: a broker is one event loop, where a call waits for disks and for other
brokers. Whose the time of the loop was nobody can say; how many calls there were is counted where they come in.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_ENTITY = "default"  # all who have no quota of that key of their own
NO_QUOTA = -1
MAX_QUOTA = 2**53  # exact as a JSON number, and more than any machine does


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """`least`: the smallest value. A rate of nothing would never end; nothing at a time is a ban."""

    name: str
    unit: str
    least: int


QUOTA_KEYS = {
    each.name: each
    for each in (
        QuotaKey("producer_byte_rate", "bytes/s", 1),
        QuotaKey("consumer_byte_rate", "bytes/s", 1),
        QuotaKey("request_rate", "/s", 1),
        QuotaKey("controller_mutation_rate", "/s", 1),
        QuotaKey("connections", "", 0),
        QuotaKey("open_transactions", "", 0),
    )
}
