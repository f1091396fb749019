"""The settings of topics (docs/reference/settings.md § Topics) and their values: one for all brokers.

    the value of a setting                         written
    set by a user                                  at `topic create -c`, `topic alter -c`
    else the default at creation (Topic.defaults)  by the controller that made the topic, from its own configuration
    else built in (BUILT_IN)                       never: for the brokers' own topics, and records without defaults

A broker's own configuration only proposes the defaults of new topics. Two brokers with different configurations (in the
middle of a rolling change) must not differ in the basis of elections, of the high watermark or of durability (KIP-966
demands the same of min.insync.replicas).

Values are kept as the user typed them. An unknown name is refused with the nearest one. The error for a bad value has
the key, the value and the valid values. Names of topics keep Kafka's rule.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minilog.errors import InvalidConfig
from minilog.net.metadata_cache import STATISTICS_COLUMNS
from minilog.record_batch.bounds import MAX_MESSAGE_BYTES
from minilog_broker.printable import shortened
from minilog_broker.replication.partition_state import MAX_INT64, CleanupPolicy, TopicConfig

_MIB = 1 << 20
_DAY_MS = 24 * 60 * 60 * 1000
MAX_SEGMENT_BYTES = 2**31 - 1  # positions in a segment are 32 bits


@dataclass(frozen=True, slots=True)
class _Key:
    """One setting: its attribute of TopicConfig (None: it has one value only), and the ways to read and to show a
    value."""

    attribute: str | None
    expected: str
    parse: Callable[[str], Any]
    text: Callable[[Any], str] = str


def _integer(attribute: str, least: int, most: int = MAX_INT64) -> _Key:
    limits = f"a whole number of at least {least}" if most == MAX_INT64 else f"a whole number from {least} to {most}"

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

    return _Key(attribute, " or ".join(values), parse, {value: text for text, value in values.items()}.__getitem__)


_NUMBER = re.compile(r"([0-9]{1,19}(\.[0-9]{0,19})?|\.[0-9]{1,19})([eE][+-]?[0-9]{1,3})?")


def _share(attribute: str) -> _Key:
    def parse(text: str) -> float:
        if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= 1:
            raise ValueError(text)
        return float(text)

    return _Key(attribute, "a number from 0 to 1", parse)


_POLICIES = {"compact": CleanupPolicy.COMPACT, "delete": CleanupPolicy.DELETE}


def _policy(text: str) -> CleanupPolicy:
    """Kafka's lists: in any order, with or without blanks around the names."""
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names) or not set(names) <= _POLICIES.keys():
        raise ValueError(text)
    return CleanupPolicy(sum(_POLICIES[name].value for name in names))


def _policy_text(policy: CleanupPolicy) -> str:
    return ",".join(name for name, part in _POLICIES.items() if part in policy)


def _column_names(text: str) -> None:
    """Brokers do not use the value. Producers do, and skip columns that the schema does not have."""
    if not text.isprintable():
        raise ValueError(text)


MIN_IN_SYNC = "min.insync.replicas"
CLEANUP_POLICY = "cleanup.policy"
DIRTY_RATIO = "min.cleanable.dirty.ratio"
MIN_COMPACTION_LAG, MAX_COMPACTION_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"
DELETE_RETENTION = "delete.retention.ms"
COMPACTION_NAMES = frozenset({DIRTY_RATIO, MIN_COMPACTION_LAG, MAX_COMPACTION_LAG, DELETE_RETENTION})
"""The settings that compaction alone has."""
_KEYS: dict[str, _Key] = {
    MIN_IN_SYNC: _integer("min_in_sync_replicas", 1, 100),
    "flush.policy": _choice("flush_on_append", {"fsync": True, "os": False}),
    "unclean.leader.election.enable": _choice("unclean_leader_election", {"true": True, "false": False}),
    "max.message.bytes": _integer("max_message_bytes", 1024, MAX_MESSAGE_BYTES),
    "segment.bytes": _integer("segment_bytes", 1024, MAX_SEGMENT_BYTES),
    "segment.ms": _integer("segment_ms", 1),
    "retention.ms": _integer("retention_ms", -1),
    "retention.bytes": _integer("retention_bytes", -1),
    "message.timestamp.before.max.ms": _integer("timestamp_before_max_ms", 0),
    "message.timestamp.after.max.ms": _integer("timestamp_after_max_ms", 0),
    STATISTICS_COLUMNS: _Key(
        None, "names of columns, separated by commas, one with a comma in it in backquotes", _column_names
    ),
    CLEANUP_POLICY: _Key("cleanup_policy", "delete or compact, or both separated by a comma", _policy, _policy_text),
    DIRTY_RATIO: _share("min_cleanable_dirty_ratio"),
    MIN_COMPACTION_LAG: _integer("min_compaction_lag_ms", 0),
    MAX_COMPACTION_LAG: _integer("max_compaction_lag_ms", 1),
    DELETE_RETENTION: _integer("delete_retention_ms", 0),
}
TOPIC_CONFIG_NAMES = tuple(_KEYS)
BUILT_IN = TopicConfig(
    min_in_sync_replicas=2,
    max_message_bytes=8 * _MIB,
    segment_bytes=1024 * _MIB,
    segment_ms=7 * _DAY_MS,
    flush_on_append=True,
    retention_ms=7 * _DAY_MS,
    retention_bytes=-1,
    unclean_leader_election=False,
)


def check_config_name(name: str) -> None:
    """Raises InvalidConfig, offering the nearest name, unless `name` can be set for a topic."""
    if name in _KEYS:
        return
    nearest = difflib.get_close_matches(shortened(name), _KEYS, n=1, cutoff=0.5)
    offer = f"did you mean {nearest[0]}?" if nearest else f"a topic has {', '.join(_KEYS)}"
    raise InvalidConfig(f"unknown topic setting {shortened(name)}: {offer}")


def check_topic_config(values: Mapping[str, str], replication_factor: int) -> None:
    """Raises InvalidConfig unless a topic of this replication factor can have all of `values`."""
    for name, text in values.items():
        check_config_name(name)
        _parse(name, text)
    least = values.get(MIN_IN_SYNC)
    if least is not None and int(least) > replication_factor:
        raise InvalidConfig(
            f"min.insync.replicas={least} is not valid: expected at most the replication factor, "
            f"which is {replication_factor}"
        )


def effective_topic_config(values: Mapping[str, str]) -> TopicConfig:
    """The configuration of `values`, with the built-in rest. Each partition bounds min.insync.replicas for itself."""
    parsed: dict[str, Any] = {
        str(key.attribute): _parse(name, values[name])
        for name, key in _KEYS.items()
        if key.attribute and name in values
    }
    return replace(BUILT_IN, **parsed)


def topic_config_values(config: TopicConfig) -> dict[str, str]:
    """The values that `effective_topic_config` makes `config` of. Raises InvalidConfig for a value that no topic may
    have."""
    values = {name: key.text(getattr(config, key.attribute)) for name, key in _KEYS.items() if key.attribute}
    for name, text in values.items():
        _parse(name, text)
    return values


def shown_topic_config(made_with: Mapping[str, str], set_values: Mapping[str, str]) -> dict[str, str]:
    """The settings that people see: those that were set, those that are not built in, and min.insync.replicas."""
    built_in = topic_config_values(BUILT_IN)
    made = {name: value for name, value in made_with.items() if value != built_in.get(name)}
    least = made_with.get(MIN_IN_SYNC, built_in[MIN_IN_SYNC])
    return {MIN_IN_SYNC: least, **made, **set_values}


def _parse(name: str, text: str) -> Any:
    key = _KEYS[name]
    try:
        return key.parse(text)
    except ValueError:
        raise InvalidConfig(f"{name}={shortened(text)} is not valid for a topic: expected {key.expected}") from None
