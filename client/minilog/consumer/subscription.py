"""Which topics a consumer is subscribed to: by their names, or by a pattern. No I/O.

    by names      a topic that is not there is waited for, and the log warns of it
    by a pattern  the client holds the names of all topics against it, as often as it asks for metadata

A pattern is for the whole name of a topic, as in the Spark source and in Kafka. An internal topic never matches.
Kafka's text form of a pattern, "^flights", is refused with words: no topic can have this name.

A topic that was not there when the names were looked up first is read from its start: nothing of it is to be skipped.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.errors import InvalidArgument

Topics: TypeAlias = Iterable[str] | re.Pattern[str]
"""What `subscribe` takes: names, or a pattern."""


@dataclass(slots=True)
class Subscription:
    """The topics of one consumer. `names`: those that are subscribed to now, in order."""

    names: list[str] = field(default_factory=list)
    pattern: re.Pattern[str] | None = None
    _absent: set[str] = field(default_factory=set)  # not there when first looked for
    _is_looked_up: bool = False

    @classmethod
    def to(cls, topics: Topics) -> Subscription:
        """Raises InvalidArgument for a name alone, and for a pattern as text."""
        if isinstance(topics, re.Pattern):
            return cls(pattern=topics)
        if isinstance(topics, str):
            raise InvalidArgument(f"subscribe takes a list of topics, or a pattern: give [{topics!r}]")
        names = list(dict.fromkeys(topics))
        for name in names:
            if isinstance(name, str) and name.startswith("^"):
                raise InvalidArgument(f"no topic has the name {name!r}: give a pattern as re.compile({name!r})")
        return cls(names)

    def names_listed(self, names: Iterable[str]) -> list[str]:
        """All topics that there are, but for internal ones. Returns those that are not subscribed to any more, since
        they are gone."""
        if self.pattern is None:
            return []
        matched = sorted(name for name in set(names) if self.pattern.fullmatch(name))
        gone = [name for name in self.names if name not in matched]
        if self._is_looked_up:
            self._absent |= set(matched) - set(self.names)
        self.names = matched
        return gone

    def look(self, existing: Container[str]) -> None:
        """The first look at what there is decides which topics came later."""
        if not self._is_looked_up and (self.names or self.pattern is not None):
            self._is_looked_up = True
            self._absent = {name for name in self.names if name not in existing}

    def came_later(self, name: str) -> bool:
        """Whether the topic was not there when the subscription began."""
        return name in self._absent

    def missing(self, existing: Container[str]) -> list[str]:
        """The names that are not there."""
        return [name for name in self.names if name not in existing] if self._is_looked_up else []
