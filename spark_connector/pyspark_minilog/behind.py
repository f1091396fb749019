"""How far a query is behind, from what Spark tells of its progress. Pure: the progress' JSON and the time come in.

Records are counted from where a batch ends to the latest offsets that the source had heard of when the batch was
planned, markers and aborted records among them, as with groups (groups.md). Bytes and the time of the first unread
record are what the source reports with them (unread.py). Where it has nothing to tell yet, nothing is made up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_minilog.offsets import TOPIC_IDS_KEY, UNREAD_KEY, SourceOffset
from pyspark_minilog.unread import Unread

# Of one query, those that are behind the most. The others are taken together: metrics do not grow without end.
MOST_TOPICS = 200
OTHER_TOPICS = "(others)"


@dataclass(frozen=True, slots=True)
class TopicBehind:
    """What a query has before it in one topic. `seconds`: now minus the timestamp of its first record, 0 where there is
    none. None: not known."""

    topic: str
    records: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class QueryBehind:
    """The latest numbers of one query, of its sources and its sink in minilog or elsewhere.

    `records_read`, `records_written` and `batches` are sums since the query was observed first; Spark counts what the
    sink wrote, `records_written` is None where it cannot. `batch_seconds`: how long the last batch took. `at_ms`: when
    Spark told of the query last, in milliseconds since 1970. `failure`: the first line of the error that it ended with.
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
        """The query's name, or its id where it has none."""
        return self.name or self.id

    @property
    def records(self) -> int:
        """Records behind, of all topics."""
        return sum(each.records for each in self.topics)

    @property
    def bytes(self) -> int | None:
        """Bytes behind, of all topics; None where one is not known."""
        return _total(each.bytes for each in self.topics)

    @property
    def seconds(self) -> float | None:
        """Seconds behind: of the topic that is furthest behind, among those that are known. None where none is."""
        known = [each.seconds for each in self.topics if each.seconds is not None]
        return max(known, default=None) if self.topics else 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """What a batch has left of a topic: records, bytes, and the timestamp of the first; None: not known."""

    records: int
    bytes: int | None = None
    since_ms: int | None = None

    def behind(self, topic: str, now_ms: int) -> TopicBehind:
        """The same at a moment: time passes for what is unread."""
        if not self.records:
            return TopicBehind(topic, 0, 0, 0.0)
        seconds = None if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)
        return TopicBehind(topic, self.records, self.bytes, seconds)


@dataclass(frozen=True, slots=True)
class Batch:
    """One progress: what its batch read, wrote, and left by topic. `written`: None where Spark does not count it.
    `left`: None where the source was not asked how far it could go, as for a batch that is replayed after a restart."""

    batch_id: int
    seconds: float
    read: int
    written: int | None
    left: dict[str, Left] | None


def batch_of(progress: str) -> Batch | None:
    """A progress in the JSON that Spark makes of it; None where no source of the query is minilog's.

    Raises ValueError, KeyError, TypeError, AttributeError for what cannot be understood.
    """
    told = json.loads(progress)
    sources = [each for each in told["sources"] if _is_ours(each)]
    if not sources:
        return None
    written = int(told["sink"].get("numOutputRows", -1))
    return Batch(
        batch_id=int(told["batchId"]),
        seconds=told.get("batchDuration", 0) / 1000,
        read=sum(int(each["numInputRows"]) for each in sources),
        written=written if written >= 0 else None,
        left=_furthest(map(_left_of, sources)) if all(each.get("latestOffset") for each in sources) else None,
    )


def _is_ours(source: Mapping[str, Any]) -> bool:
    """By its offsets: Spark names no format, and all Python sources are described alike."""
    end = source.get("endOffset")
    return isinstance(end, Mapping) and TOPIC_IDS_KEY in end


def _left_of(source: Mapping[str, Any]) -> dict[str, Left]:
    end, told = SourceOffset.from_json(source["endOffset"]), source["latestOffset"]
    latest, unread = SourceOffset.from_json(told), Unread.from_json(told.get(UNREAD_KEY))
    records: dict[str, int] = {}
    for each, at in end.positions.items():
        is_same = latest.topic_ids.get(each.topic) == end.topic_ids.get(each.topic)
        behind = max(0, latest.positions.get(each, at) - at) if is_same else 0
        records[each.topic] = records.get(each.topic, 0) + behind
    return {topic: Left(count, unread.bytes.get(topic), unread.since_ms.get(topic)) for topic, count in records.items()}


def _furthest(sources: Iterable[Mapping[str, Left]]) -> dict[str, Left]:
    """Of each topic what the source has left that is furthest behind; a query may read one twice."""
    found: dict[str, Left] = {}
    for source in sources:
        for topic, left in source.items():
            if topic not in found or left.records > found[topic].records:
                found[topic] = left
    return _few(found)


def _few(found: dict[str, Left]) -> dict[str, Left]:
    if len(found) <= MOST_TOPICS:
        return found
    order = sorted(found, key=lambda topic: (-found[topic].records, topic))
    others = [found[topic] for topic in order[MOST_TOPICS:]]
    since = [each.since_ms for each in others if each.since_ms is not None]
    rest = Left(sum(each.records for each in others), _total(_bytes(each) for each in others), min(since, default=None))
    return {topic: found[topic] for topic in order[:MOST_TOPICS]} | {OTHER_TOPICS: rest}


def _bytes(left: Left) -> int | None:
    return left.bytes if left.records else 0


def _total(numbers: Iterable[int | None]) -> int | None:
    whole = 0
    for each in numbers:
        if each is None:
            return None
        whole += each
    return whole
