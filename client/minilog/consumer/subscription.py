"""The topics of a consumer's subscription: by their names, or by a pattern. No I/O.

    by names      the consumer waits for a topic that does not exist, and the log warns of it
    by a pattern  the client compares the names of all topics with it, as often as it asks for metadata

A pattern is for the whole name of a topic, as in the Spark source and in Kafka. An internal topic never matches. The
client refuses Kafka's text form of a pattern, "^flights": no topic can have this name.

The subscription begins at the first look. A partition that did not exist then came later: its topic has grown, is new,
or is another topic of the same name. The consumer reads what came later from its start, and so skips no record of it.
A consumer of Kafka with auto.offset.reset=latest skips some (KAFKA-12478, KIP-1282).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.errors import InvalidArgument
from minilog.net.metadata_cache import CachedTopic

Topics: TypeAlias = Iterable[str] | re.Pattern[str]
"""The argument of `subscribe`: names, or a pattern."""


@dataclass(slots=True)
class Subscription:
    """The topics of one consumer. `names` are the subscribed topics of now, in order."""

    names: list[str] = field(default_factory=list)
    pattern: re.Pattern[str] | None = None
    _first: dict[bytes, int] | None = None  # the partition counts of the first look, by topic id

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
        """Match the pattern with the names of all topics but internal ones. Returns the topics that are deleted, and so
        leave the subscription."""
        if self.pattern is None:
            return []
        matched = sorted(name for name in set(names) if self.pattern.fullmatch(name))
        gone = [name for name in self.names if name not in matched]
        self.names = matched
        return gone

    def look(self, existing: Mapping[str, CachedTopic]) -> None:
        """Look at the existing topics. The first look decides which partitions came later."""
        if self._first is None and (self.names or self.pattern is not None):
            topics = (existing[name] for name in self.names if name in existing)
            self._first = {topic.topic_id: topic.partition_count for topic in topics}

    def came_later(self, topic: CachedTopic, partition: int) -> bool:
        """Whether the partition did not exist when the subscription began."""
        return self._first is not None and partition >= self._first.get(topic.topic_id, 0)

    def missing(self, existing: Container[str]) -> list[str]:
        """The subscribed names that do not exist."""
        return [] if self._first is None else [name for name in self.names if name not in existing]
