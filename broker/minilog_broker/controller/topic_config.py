"""What can be set for a topic (CONTRACT.md, rows marked T), and what that makes of the broker's defaults.

Values are kept as the user typed them. A name that is none is refused with the nearest one; a bad value names the key,
the value and what would be right. Names of topics keep Kafka's rule.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minilog.errors import InvalidConfig, InvalidTopic
from minilog.record_batch.schema import MAX_MESSAGE_BYTES
from minilog_broker.replication.state import TopicConfig

MAX_NAME_LENGTH = 249  # Kafka's: a directory is named <topic>-<partition>, and a file name has at most 255 bytes
INTERNAL_PREFIX = "__"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MIB = 1 << 20
_MAX_SEGMENT_BYTES = 2**31 - 1  # positions in a segment are 32 bits
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Key:
    """One setting: the attribute of TopicConfig it becomes (None: it has one value only), how it is read."""

    attribute: str | None
    expected: str
    parse: Callable[[str], Any]


def _integer(attribute: str, least: int, most: int = _MAX_INT64) -> _Key:
    limits = f"a whole number of at least {least}" if most == _MAX_INT64 else f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return _Key(attribute, limits, parse)


def _choice(attribute: str | None, values: Mapping[str, Any]) -> _Key:
    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return _Key(attribute, " or ".join(values), parse)


_KEYS: dict[str, _Key] = {
    "min.insync.replicas": _integer("min_in_sync_replicas", 1, 100),
    "flush.policy": _choice("flush_on_append", {"fsync": True, "os": False}),
    "unclean.leader.election.enable": _choice("unclean_leader_election", {"true": True, "false": False}),
    "max.message.bytes": _integer("max_message_bytes", 1024, MAX_MESSAGE_BYTES),
    "segment.bytes": _integer("segment_bytes", 1024, _MAX_SEGMENT_BYTES),
    "segment.ms": _integer("segment_ms", 1),
    "retention.ms": _integer("retention_ms", -1),
    "retention.bytes": _integer("retention_bytes", -1),
    "cleanup.policy": _choice(None, {"delete": None}),  # compaction is not built yet, and is not silently ignored
}
TOPIC_CONFIG_NAMES = tuple(_KEYS)


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic unless a client may give a topic this name."""
    if name in ("", ".", ".."):
        raise InvalidTopic(f"{name!r} is not a topic name: give one of letters, digits, '.', '_' and '-'")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(f"a topic name has at most {MAX_NAME_LENGTH} characters, {name[:20]}... has {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"{name!r} is not a topic name: only ASCII letters, digits, '.', '_' and '-' are allowed")
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidTopic(
            f"topic names that begin with {INTERNAL_PREFIX} are the brokers' own: choose another for {name}"
        )


def check_config_name(name: str) -> None:
    """Raises InvalidConfig, offering the nearest name, unless `name` can be set for a topic."""
    if name in _KEYS:
        return
    nearest = difflib.get_close_matches(name, _KEYS, n=1, cutoff=0.5)
    offer = f"did you mean {nearest[0]}?" if nearest else f"a topic has {', '.join(_KEYS)}"
    raise InvalidConfig(f"unknown topic setting {name}: {offer}")


def check_topic_config(values: Mapping[str, str], replication_factor: int) -> None:
    """Raises InvalidConfig unless a topic of this replication factor can have all of `values`."""
    for name, text in values.items():
        check_config_name(name)
        _parse(name, text)
    least = values.get("min.insync.replicas")
    if least is not None and int(least) > replication_factor:
        raise InvalidConfig(
            f"min.insync.replicas={least} is not valid: expected at most the replication factor, "
            f"which is {replication_factor}"
        )


def effective_topic_config(values: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """What the topic sets, else the broker's. What bounds min.insync.replicas is each partition's own matter."""
    parsed: dict[str, Any] = {
        str(key.attribute): _parse(name, values[name])
        for name, key in _KEYS.items()
        if key.attribute and name in values
    }
    return replace(defaults, **parsed)


def _parse(name: str, text: str) -> Any:
    key = _KEYS[name]
    try:
        return key.parse(text)
    except ValueError:
        raise InvalidConfig(f"{name}={text} is not valid for a topic: expected {key.expected}") from None
