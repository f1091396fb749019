"""The place of each key's newest value in the log. The next coordinator reads from the lowest place on.

A log of decisions would grow for ever, and the next coordinator would read all of it. (In Kafka a cleaner thread
rewrites it. Where that thread had died, coordinators took minutes to load.) Here a decision carries along some of the
values that stand furthest back. The leader deletes all records in front of the first newest value
(replication/leader/delete_records.py):

    b a c a a d a              nobody needs the records in front of b
    b a c a a d a a b c        a decision about a carried b and c along: nobody needs the records in front of d

While the log is longer than twice the table and some slack, a decision of n records carries 2n more. So the log stays
shorter than three times the table and the slack. A log that does not grow carries nothing along.

A place counts when it is committed. A value in flight may be dropped, and then the value further back is the newest
again.
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
    """The places of one table. Each key is there once, and the key whose newest value is furthest back comes first."""

    def __init__(self) -> None:
        self.slack_records = SLACK_RECORDS
        self._written: OrderedDict[Key, None] = OrderedDict()  # as of the log's end, the furthest back first
        self._committed: OrderedDict[Key, int] = OrderedDict()

    def clear(self) -> None:
        self._written.clear()
        self._committed.clear()

    def written(self, key: Key, *, gone: bool) -> None:
        """Note that the newest value of a key stands at the end of the log, or that the key has none any more."""
        self._written.pop(key, None)
        if not gone:
            self._written[key] = None

    def committed(self, key: Key, offset: int, *, gone: bool) -> None:
        """Note the same of a committed record. Calls come in the order of offsets."""
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
        """The offset below which nobody needs the log."""
        return next(iter(self._committed.values()), high_watermark)
