"""How many records a lease may have, by how often they were delivered: pure.

A worker that dies cannot tell which of its messages has killed it, and the lock of all of them ends. So what was
delivered before is leased in smaller and smaller ranges, and the last delivery of a record is a lease of it alone, to a
worker that holds nothing else (alone.py). Then only the bad record dies. Kafka has the same since 4.2 (KAFKA-17541).

    the limit is 5    deliveries so far     0      1      2     3    4
                      records of a lease    all    105    22    4    1

Under a limit of 1 there is no second delivery that could be smaller: what is leased with a bad record dies with it.
"""

from __future__ import annotations

ALL = 1 << 31  # more than any request asks for
_FIRST = 500  # the size that shrinks, whatever a worker asks for: the default of max.poll.records


def most_together(delivery_count: int, limit: int) -> int:
    """The most records of a lease in which one was delivered so often before. 1: it is leased alone."""
    if delivery_count <= 0 or limit <= 1:
        return ALL
    left = (limit - 1 - delivery_count) / (limit - 1)
    geometric = int(_FIRST**left) if left > 0 else 1
    return max(1, min(geometric, _FIRST >> delivery_count))  # under a high limit it is halved
