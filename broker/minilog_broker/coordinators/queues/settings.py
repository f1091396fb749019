"""The settings of a queue, by the names of Kafka's share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minilog.errors import InvalidConfig, InvalidTopic
from minilog_broker.topic_names import check_topic_name

LOCK_DURATION = "group.share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT = "group.share.delivery.count.limit"
MAX_RECORD_LOCKS = "group.share.partition.max.record.locks"
AUTO_OFFSET_RESET = "share.auto.offset.reset"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
COPIES_DEAD_RECORDS = "errors.deadletterqueue.copy.record.enable"
_RESETS = ("earliest", "latest")
_BOOLEANS = ("false", "true")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`max_record_locks`: of one partition. `begins_at_latest`: the queue begins at the end of a topic, not at its
    first record. `dead_letter_topic`: empty where dead records are settled, and nothing else. `copies_dead_records`: a
    dead letter has the key and the value of its record."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    begins_at_latest: bool = False
    dead_letter_topic: str = ""
    copies_dead_records: bool = False

    @property
    def has_dead_letters(self) -> bool:
        return bool(self.dead_letter_topic)


def _number(lowest: int, highest: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(highest)) else -1
        if not lowest <= number <= highest:
            raise InvalidConfig(f"{name} is a number from {lowest} to {highest}, and not {text[:80]!r}")
        return number

    return read


def _choice(choices: tuple[str, str]) -> Callable[[str, str], bool]:
    """Whether the text is the second of two."""

    def read(name: str, text: str) -> bool:
        if text not in choices:
            raise InvalidConfig(f"{name} is one of {', '.join(choices)}, and not {text[:80]!r}")
        return text == choices[1]

    return read


def _topic(name: str, text: str) -> str:
    try:
        check_topic_name(text)
    except InvalidTopic as error:
        raise InvalidConfig(f"{name}: {error}") from None
    return text


_FIELDS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    LOCK_DURATION: ("lock_duration_ms", _number(1_000, 3_600_000)),
    DELIVERY_COUNT_LIMIT: ("delivery_count_limit", _number(1, 1_000)),
    MAX_RECORD_LOCKS: ("max_record_locks", _number(1, 100_000_000)),
    AUTO_OFFSET_RESET: ("begins_at_latest", _choice(_RESETS)),
    DEAD_LETTER_TOPIC: ("dead_letter_topic", _topic),
    COPIES_DEAD_RECORDS: ("copies_dead_records", _choice(_BOOLEANS)),
}


def queue_settings(texts: Mapping[str, str]) -> QueueSettings:
    """The settings, with defaults for those that are not set. Raises InvalidConfig."""
    values = {}
    for name, text in texts.items():
        if name not in _FIELDS:
            raise InvalidConfig(f"a queue has no setting {name[:80]!r}: it has {', '.join(sorted(_FIELDS))}")
        field, read = _FIELDS[name]
        values[field] = read(name, text)
    return QueueSettings(**values)  # type: ignore[arg-type]  # each reader gives the type of its field
