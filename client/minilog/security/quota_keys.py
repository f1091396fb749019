"""The keys of quotas, and whom one is of. Pure.

    producer_byte_rate        bytes a second   that it produces, and of its members' long subscriptions
    consumer_byte_rate        bytes a second   that it fetches
    request_rate              a second         calls, refused ones too, and messages of its streams
    controller_mutation_rate  a second         partitions that it creates, adds or deletes
    connections               at a time        that it has open
    producer_id_rate          a second         ids of producers that it is given
    open_transactions         at a time        that it has open
    open_transactions_age_ms  at a time        how old those are together

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


PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_RATE, CONTROLLER_MUTATION_RATE = "request_rate", "controller_mutation_rate"
CONNECTIONS = "connections"
PRODUCER_ID_RATE = "producer_id_rate"
OPEN_TRANSACTIONS, OPEN_TRANSACTIONS_AGE_MS = "open_transactions", "open_transactions_age_ms"
QUOTA_KEYS = {
    quota_key.name: quota_key
    for quota_key in (
        QuotaKey(PRODUCER_BYTE_RATE, "bytes/s", 1),
        QuotaKey(CONSUMER_BYTE_RATE, "bytes/s", 1),
        QuotaKey(REQUEST_RATE, "/s", 1),
        QuotaKey(CONTROLLER_MUTATION_RATE, "/s", 1),
        QuotaKey(CONNECTIONS, "", 0),
        QuotaKey(PRODUCER_ID_RATE, "/s", 1),
        QuotaKey(OPEN_TRANSACTIONS, "", 0),
        QuotaKey(OPEN_TRANSACTIONS_AGE_MS, "ms", 1),
    )
}
