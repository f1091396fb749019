"""Offsets as JSON: the checkpoint of a stream, and the values of startingOffsets and endingOffsets.

A checkpoint is `{"__from": …, "__topic_ids": {"t": "<hex>"}, "t": {"0": 23, "1": 45}}`: the next offset to read of
each partition.

- `__topic_ids` distinguishes a topic that was deleted and created again from the topic that the query has read.
- `__from` has the beginning of the batch that ends here, for the partitions whose beginning is not the offset before.
  In the first batch that is all partitions: Spark asks for the initial offset again when it replays this batch, and may
  get a later one. In other batches it is the new partitions, and those that the query skipped to another place. An
  initial offset is its own `__from`.
- `__schema_versions` has the schema version that the batch which ends here is read by, for topics with a schema.
- `__let_go` names partitions that the query no longer asks for, after it has reported them once. The checkpoint keeps
  their places, in case the query asks for them again.
- `__unread` is in the latest offset that a query reports, and in no checkpoint (watching/unread.py).

Spark compares offsets as text. So keys are sorted, partitions by number, and `SourceOffset.to_json` is deterministic.
`__topic_ids` is always present, so no offset is ever `{}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark_minilog.errors import InvalidOption, refused

EARLIEST = -2
LATEST = -1
FROM_KEY = "__from"
TOPIC_IDS_KEY = "__topic_ids"
VERSIONS_KEY = "__schema_versions"
LET_GO_KEY = "__let_go"
UNREAD_KEY = "__unread"
QUEUE_KEY = "__queue"  # of the offsets of a queue (queues/offset.py)
_OURS = (FROM_KEY, TOPIC_IDS_KEY, VERSIONS_KEY, LET_GO_KEY, UNREAD_KEY)

# The words of minilog.place_words
_NAMED = {"earliest": EARLIEST, "start": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}
_LARGEST_OFFSET = 2**63 - 1
_EXAMPLE = '{"topic":{"0":23,"1":-2}}'


class Partition(NamedTuple):
    """One partition, by the name of its topic and its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Positions = dict[Partition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The place of a stream: the next offset to read of each partition, the ids of the topics (hexadecimal), and the
    schema versions of topics with a schema. The query goes on without the partitions of `let_go`, because it no longer
    asks for them."""

    positions: Positions
    topic_ids: dict[str, str] = field(default_factory=dict)
    begun_from: Positions | None = None
    schema_versions: dict[str, int] = field(default_factory=dict)
    let_go: frozenset[Partition] = frozenset()

    @property
    def is_initial(self) -> bool:
        """Whether the query has read no batch yet. Then the end of the next batch must have its beginning."""
        return self.begun_from is not None and self.begun_from == self.positions

    def to_json(self) -> dict[str, Any]:
        """The dictionary for Spark, sorted."""
        begun = {} if self.begun_from is None else {FROM_KEY: _nested(self.begun_from)}
        versions = {VERSIONS_KEY: dict(sorted(self.schema_versions.items()))} if self.schema_versions else {}
        ids = {TOPIC_IDS_KEY: dict(sorted(self.topic_ids.items()))}
        let_go = {LET_GO_KEY: _numbers(self.let_go)} if self.let_go else {}
        return {**begun, **let_go, **versions, **ids, **_nested(self.positions)}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> SourceOffset:
        """Reads an offset of a checkpoint. An offset in Kafka's style, without our keys, works too. Raises
        InvalidOption if it is of a queue."""
        if QUEUE_KEY in offset:
            raise InvalidOption(
                f"the checkpoint is of a query that reads queue '{offset[QUEUE_KEY]}': set the option 'queue', or "
                "begin with a new checkpoint"
            )
        topics = {topic: value for topic, value in offset.items() if topic not in _OURS}
        begun = offset.get(FROM_KEY)
        return cls(
            positions=_flat(topics),
            topic_ids=dict(offset.get(TOPIC_IDS_KEY, {})),
            begun_from=None if begun is None else _flat(begun),
            schema_versions=_versions(offset.get(VERSIONS_KEY, {})),
            let_go=_let_go(offset.get(LET_GO_KEY, {})),
        )


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The offsets of an option: one place for all, or a place per topic or partition (-2 earliest, -1 latest)."""

    option: str
    text: str
    everywhere: int | None = None
    topics: dict[str, int] = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def mentions(self, place: int) -> bool:
        """Whether the spec has this place, EARLIEST or LATEST, anywhere."""
        return self.everywhere == place or place in (*self.topics.values(), *self.positions.values())

    def place_of(self, partition: Partition) -> int | None:
        """The offset, EARLIEST or LATEST of one partition, or None if the spec does not name the partition."""
        if self.everywhere is not None:
            return self.everywhere
        return self.positions.get(partition, self.topics.get(partition.topic))

    def check_names(self, partitions: Iterable[Partition]) -> None:
        """Offsets per partition must name all partitions of the query, and no other (as in Kafka's connector)."""
        if self.everywhere is None:
            check_partitions(self.option, self.text, partitions, named=self.positions, topics=self.topics)


def check_partitions(
    option: str, text: str, read: Iterable[Partition], *, named: Iterable[Partition], topics: Iterable[str] = ()
) -> None:
    """Checks that the option names all partitions of the query, one by one or by topic, and no other. Raises
    InvalidOption."""
    wanted, given, whole = set(read), set(named), set(topics)
    missing = sorted(partition for partition in wanted if partition not in given and partition.topic not in whole)
    strange = sorted({*map(str, given - wanted), *(whole - {partition.topic for partition in wanted})})
    if missing or strange:
        wrong = [f"it leaves out {', '.join(map(str, missing))}"] if missing else []
        wrong += [f"it names {', '.join(strange)}, which this query does not read"] if strange else []
        raise refused(option, text, f"{' and '.join(wrong)}. Name exactly the partitions that the query reads")


def everywhere(option: str, place: int) -> OffsetSpec:
    """A spec with the same place for all partitions."""
    return OffsetSpec(option, "earliest" if place == EARLIEST else "latest", everywhere=place)


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """`earliest`, `latest` or JSON per topic and partition. Raises InvalidOption."""
    word = text.strip().lower()
    if word in _NAMED:
        return everywhere(option, _NAMED[word])
    given = parse_object(option, text, f"give earliest, latest, or JSON such as {_EXAMPLE}")
    topics: dict[str, int] = {}
    positions: Positions = {}
    for topic, value in given.items():
        if topic in _OURS:
            continue
        match value:
            case str() if value.strip().lower() in _NAMED:
                topics[topic] = _NAMED[value.strip().lower()]
            case dict() if value:
                positions.update(
                    {parse_partition(option, text, topic, key): _place(option, text, v) for key, v in value.items()}
                )
            case _:
                raise refused(option, text, f"topic '{topic}' needs earliest, latest or offsets, such as {_EXAMPLE}")
    if not topics and not positions:
        raise refused(option, text, f"name at least one topic, such as {_EXAMPLE}")
    return OffsetSpec(option, text, None, topics, positions, _topic_ids(option, text, given.get(TOPIC_IDS_KEY, {})))


def parse_assignment(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """`{"t":[0,1]}`: partitions by topic, sorted. Raises InvalidOption."""
    example = 'give JSON such as {"topic":[0,1]}'
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, numbers in sorted(parse_object(option, text, example).items()):
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(is_number(number) and number >= 0 for number in numbers)
        ):
            raise refused(option, text, f"topic '{topic}' needs a list of partition numbers: {example}")
        assigned[topic] = tuple(sorted(set(numbers)))
    if not assigned:
        raise refused(option, text, f"name at least one topic: {example}")
    return assigned


def parse_object(option: str, text: str, remedy: str) -> dict[str, Any]:
    """A JSON object without duplicate keys. Raises InvalidOption with this remedy."""
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise refused(option, text, f"{remedy} ({error})") from None
    if not isinstance(value, dict):
        raise refused(option, text, remedy)
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' is there twice")
    return members


def parse_partition(option: str, text: str, topic: str, key: str) -> Partition:
    """The partition that a key of a topic's JSON names. Raises InvalidOption."""
    if not (key.isascii() and key.isdigit()):
        raise refused(
            option, text, f"'{key}' is not a partition number of topic '{topic}': give JSON such as {_EXAMPLE}"
        )
    return Partition(topic, int(key))


def _place(option: str, text: str, value: object) -> int:
    if not is_number(value) or not EARLIEST <= value <= _LARGEST_OFFSET:  # type: ignore[operator]
        raise refused(
            option, text, f"{json.dumps(value)} is not an offset: give 0 or more, -2 (earliest) or -1 (latest)"
        )
    return value  # type: ignore[return-value]


def _topic_ids(option: str, text: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(topic_id, str) for topic_id in value.values()):
        raise refused(
            option, text, f"'{TOPIC_IDS_KEY}' must map topics to ids, as in a checkpoint. Correct it, or leave it out"
        )
    return value


def is_number(value: object) -> bool:
    """Whether a value of JSON is a whole number. In Python true and false are whole numbers, too: here they are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _nested(positions: Positions) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _numbers(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def _versions(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not all(is_number(version) for version in value.values()):
        raise written_later("a list of schema versions", value)
    return value


def _let_go(value: object) -> frozenset[Partition]:
    if not isinstance(value, dict) or not all(isinstance(numbers, list) for numbers in value.values()):
        raise written_later("a list of removed partitions", value)
    if not all(is_number(number) for numbers in value.values() for number in numbers):
        raise written_later("a list of removed partitions", value)
    return frozenset(Partition(topic, number) for topic, numbers in value.items() for number in numbers)


def written_later(what: str, value: object) -> InvalidOption:
    """The refusal of a part of a checkpoint in an unknown form."""
    return InvalidOption(
        f"the checkpoint has {what} that minilog cannot read ({json.dumps(value)}): a newer version of minilog wrote "
        "it. Upgrade pyspark-minilog where this query runs"
    )


def _flat(topics: Mapping[str, Mapping[str, int]]) -> Positions:
    try:
        return {
            Partition(topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        ours = any(topic.startswith("__") for topic in topics)
        by, remedy = (
            ("a newer version of minilog", "Upgrade pyspark-minilog where this query runs")
            if ours
            else ("another source", "Start the query with a new checkpointLocation")
        )
        raise InvalidOption(
            f"the checkpoint has an offset that minilog cannot read ({json.dumps(topics)}): {by} wrote it. {remedy} "
            f"({error})"
        ) from None
