"""The settings of a queue, by the names of Kafka's share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minilog.errors import InvalidConfig

LOCK_DURATION = "group.share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT = "group.share.delivery.count.limit"
MAX_RECORD_LOCKS = "group.share.partition.max.record.locks"
AUTO_OFFSET_RESET = "share.auto.offset.reset"
_RESETS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`max_record_locks`: of one partition. `begins_at_latest`: the queue begins at the end of a topic, not at its
    first record."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    begins_at_latest: bool = False


def _number(lowest: int, highest: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(highest)) else -1
        if not lowest <= number <= highest:
            raise InvalidConfig(f"{name} is a number from {lowest} to {highest}, and not {text[:80]!r}")
        return number

    return read


def _begins_at_latest(name: str, text: str) -> bool:
    if text not in _RESETS:
        raise InvalidConfig(f"{name} is one of {', '.join(_RESETS)}, and not {text[:80]!r}")
    return text == "latest"


_FIELDS: Mapping[str, tuple[str, Callable[[str, str], int]]] = {
    LOCK_DURATION: ("lock_duration_ms", _number(1_000, 3_600_000)),
    DELIVERY_COUNT_LIMIT: ("delivery_count_limit", _number(1, 1_000)),
    MAX_RECORD_LOCKS: ("max_record_locks", _number(1, 100_000_000)),
    AUTO_OFFSET_RESET: ("begins_at_latest", _begins_at_latest),
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
