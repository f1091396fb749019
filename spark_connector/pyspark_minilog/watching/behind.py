"""How far a query is behind, computed from Spark's progress events. Pure: the progress' JSON and the time come in.

The number of records is counted from the end of a batch to the latest offsets that the source knew when it planned the
batch. Markers and aborted records count, as with groups (groups.md). The source reports the bytes and the time of the
first unread record with the offsets (unread.py). If it has not reported them yet, they are None.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_minilog.options.offsets import TOPIC_IDS_KEY, UNREAD_KEY, SourceOffset
from pyspark_minilog.watching.unread import Unread

# The topics of one query that are furthest behind. The other topics are one entry, so metrics do not grow without end.
MOST_TOPICS = 200
OTHER_TOPICS = "(others)"


@dataclass(frozen=True, slots=True)
class TopicBehind:
    """The unread part of one topic for a query. `seconds` is now minus the timestamp of the first unread record, or 0
    without unread records. None means that a value is not known."""

    topic: str
    records: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class QueryBehind:
    """The latest numbers of one query, of its sources and its sink in minilog or elsewhere.

    `records_read`, `records_written` and `batches` are sums since the beginning of the observation. Spark counts the
    written rows. `records_written` is None if Spark cannot count them. `batch_seconds` is the duration of the last
    batch. `at_ms` is the time of Spark's last event for the query, in milliseconds since 1970. `failure` is the first
    line of the error that ended the query.
    """

    id: str
    name: str | None
    topics: tuple[TopicBehind, ...]
    batches: int
    records_read: int
    records_written: int | None
    batch_id: int | None
    batch_seconds: float
    at_ms: int
    is_active: bool
    failure: str | None

    @property
    def label(self) -> str:
        """The query's name, or its id if it has no name."""
        return self.name or self.id

    @property
    def records(self) -> int:
        """The unread records of all topics."""
        return sum(topic.records for topic in self.topics)

    @property
    def bytes(self) -> int | None:
        """The unread bytes of all topics, or None if the bytes of one topic are not known."""
        return _total(topic.bytes for topic in self.topics)

    @property
    def seconds(self) -> float | None:
        """The seconds of the topic that is furthest behind, or None if no topic's seconds are known."""
        seconds = [topic.seconds for topic in self.topics if topic.seconds is not None]
        return max(seconds, default=None) if self.topics else 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """The unread part of a topic after a batch: records, bytes, and the timestamp of the first record. None means that
    a value is not known."""

    records: int
    bytes: int | None = None
    since_ms: int | None = None

    def behind(self, topic: str, now_ms: int) -> TopicBehind:
        """The unread part as it is at a moment. Its age grows with the time."""
        if not self.records:
            return TopicBehind(topic, 0, 0, 0.0)
        seconds = None if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)
        return TopicBehind(topic, self.records, self.bytes, seconds)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One progress event: the rows that its batch read and wrote, and the unread part of each topic. `written` is None
    if Spark does not count the rows. `left` is None if Spark did not ask the source for the latest offsets, as for a
    batch that it replays after a restart."""

    batch_id: int
    seconds: float
    read: int
    written: int | None
    left: dict[str, Left] | None


def batch_of(progress: str) -> BatchProgress | None:
    """Reads a progress event from Spark's JSON. None if no source of the query is minilog's.

    Raises ValueError, KeyError, TypeError, AttributeError for JSON in another form.
    """
    fields = json.loads(progress)
    sources = [source for source in fields["sources"] if _is_ours(source)]
    if not sources:
        return None
    written = int(fields["sink"].get("numOutputRows", -1))
    return BatchProgress(
        batch_id=int(fields["batchId"]),
        seconds=fields.get("batchDuration", 0) / 1000,
        read=sum(int(source["numInputRows"]) for source in sources),
        written=written if written >= 0 else None,
        left=_furthest(map(_left_of, sources)) if all(source.get("latestOffset") for source in sources) else None,
    )


def _is_ours(source: Mapping[str, Any]) -> bool:
    """Whether a source is minilog's. Its offsets show it: Spark names no format, and describes all Python sources in
    the same way."""
    end = source.get("endOffset")
    return isinstance(end, Mapping) and TOPIC_IDS_KEY in end


def _left_of(source: Mapping[str, Any]) -> dict[str, Left]:
    end, reported = SourceOffset.from_json(source["endOffset"]), source["latestOffset"]
    latest, unread = SourceOffset.from_json(reported), Unread.from_json(reported.get(UNREAD_KEY))
    records: dict[str, int] = {}
    for partition, at in end.positions.items():
        is_same = latest.topic_ids.get(partition.topic) == end.topic_ids.get(partition.topic)
        behind = max(0, latest.positions.get(partition, at) - at) if is_same else 0
        records[partition.topic] = records.get(partition.topic, 0) + behind
    return {topic: Left(count, unread.bytes.get(topic), unread.since_ms.get(topic)) for topic, count in records.items()}


def _furthest(sources: Iterable[Mapping[str, Left]]) -> dict[str, Left]:
    """For each topic, the unread part of the source that is furthest behind. A query may read a topic twice."""
    furthest: dict[str, Left] = {}
    for source in sources:
        for topic, left in source.items():
            if topic not in furthest or left.records > furthest[topic].records:
                furthest[topic] = left
    return _few(furthest)


def _few(topics: dict[str, Left]) -> dict[str, Left]:
    if len(topics) <= MOST_TOPICS:
        return topics
    order = sorted(topics, key=lambda topic: (-topics[topic].records, topic))
    others = [topics[topic] for topic in order[MOST_TOPICS:]]
    since = [left.since_ms for left in others if left.since_ms is not None]
    rest = Left(sum(left.records for left in others), _total(_bytes(left) for left in others), min(since, default=None))
    return {topic: topics[topic] for topic in order[:MOST_TOPICS]} | {OTHER_TOPICS: rest}


def _bytes(left: Left) -> int | None:
    return left.bytes if left.records else 0


def _total(numbers: Iterable[int | None]) -> int | None:
    whole = 0
    for number in numbers:
        if number is None:
            return None
        whole += number
    return whole
