"""Where in the log the newest value of each key stands: what the next coordinator has to read, and what it has not.

A log of decisions would grow for ever, and who takes over would read all of it (Kafka has a cleaner thread rewrite it;
where that had died, coordinators took minutes to load). Here a decision carries along some of the values that stand
furthest back, and all in front of the first newest value is deleted (replication/leader/delete_records.py):

    b a c a a d a              nobody needs what is in front of b
    b a c a a d a a b c        a decision about a carried b and c along: nobody needs what is in front of d

While the log is longer than twice the table and some slack, a decision of n records carries 2n more. So the log stays
shorter than three times the table and the slack, and what stands still is not written again for nothing.

A place counts when it is committed: what is in flight may be forgotten, and the value further back is the newest again.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

SLACK_RECORDS = 1_000
CARRIED_PER_RECORD = 2

Key = TypeVar("Key", bound=Hashable)


class Places(Generic[Key]):
    """Of one table: each key stands once, the one whose newest value is furthest back first."""

    def __init__(self) -> None:
        self.slack_records = SLACK_RECORDS
        self._written: OrderedDict[Key, None] = OrderedDict()  # as of the log's end, the furthest back first
        self._committed: OrderedDict[Key, int] = OrderedDict()

    def clear(self) -> None:
        self._written.clear()
        self._committed.clear()

    def written(self, key: Key, *, gone: bool) -> None:
        """Its newest value stands at the end of the log; or it has none any more."""
        self._written.pop(key, None)
        if not gone:
            self._written[key] = None

    def committed(self, key: Key, offset: int, *, gone: bool) -> None:
        """The same, for good. In the order of offsets."""
        self._committed.pop(key, None)
        if not gone:
            self._committed[key] = offset

    def to_carry(self, new: Collection[Key], length: int) -> Iterable[Key]:
        """The keys whose values a decision about `new` carries along, in a log of this length."""
        if length <= 2 * len(self._written) + self.slack_records:
            return []
        others = (key for key in self._written if key not in new)
        return list(itertools.islice(others, CARRIED_PER_RECORD * len(new)))

    def needed_from(self, high_watermark: int) -> int:
        """Nobody needs what is below."""
        return next(iter(self._committed.values()), high_watermark)
