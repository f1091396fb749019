"""The settings of compacted topics: what the controller checks beside the form of each value.

    cleanup.policy with compact, and the settings of compaction    from level 6 on
    cleanup.policy with compact in a typed topic                   needs key columns, which never change (evolution.py)
    min.compaction.lag.ms                                          at most max.compaction.lag.ms, as in Kafka

Below level 6 no metadata record has one of these names, but for `cleanup.policy=delete`, which level 1 had.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.errors import InvalidConfig
from minilog.typed.schema.topic_schema import TopicSchema
from minilog_broker.controller.topic_config import (
    CLEANUP_POLICY,
    COMPACTION_NAMES,
    MAX_COMPACTION_LAG,
    MIN_COMPACTION_LAG,
    effective_topic_config,
)
from minilog_broker.levels import KEYED_TOPICS_LEVEL, check_reached


def check_compaction(
    topic: str,
    set_values: Mapping[str, str],
    resulting: Mapping[str, str],
    schema: TopicSchema | None,
    level: int,
) -> None:
    """Check the values that a request sets, and those that the topic has with them. All of them have their form.

    `schema`: the latest version of a typed topic's schema, else None. Raises LevelNotReached, InvalidConfig.
    """
    config = effective_topic_config(resulting)
    for name, value in set_values.items():
        if name in COMPACTION_NAMES:
            check_reached(level, KEYED_TOPICS_LEVEL, f"topic {topic} cannot have {name}={value}: compaction came")
    if CLEANUP_POLICY in set_values and config.is_compacted:
        what = f"topic {topic} cannot have {CLEANUP_POLICY}={set_values[CLEANUP_POLICY]}"
        check_reached(level, KEYED_TOPICS_LEVEL, f"{what}: compaction came")
        if schema is not None and not schema.key_columns:
            raise InvalidConfig(
                f"{what}: its schema has no key columns, by which compaction finds the newest row of each key. Create "
                "a topic whose schema has them"
            )
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"{MIN_COMPACTION_LAG}={config.min_compaction_lag_ms} is not valid for topic {topic}: expected at most "
            f"{MAX_COMPACTION_LAG}, which is {config.max_compaction_lag_ms}"
        )


def defaults_of_level(defaults: Mapping[str, str], level: int) -> dict[str, str]:
    """The part of a new topic's defaults that brokers of a cluster of this level know."""
    if level >= KEYED_TOPICS_LEVEL:
        return dict(defaults)
    return {name: value for name, value in defaults.items() if name not in COMPACTION_NAMES and name != CLEANUP_POLICY}
