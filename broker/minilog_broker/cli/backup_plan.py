"""What `minilog cluster restore` does, decided before anything is done: from what a file has, and what is there. Pure.

    missing      is created
    the same     is left
    different    is left and named; with `overwrite` it becomes as in the file. Nothing is ever deleted
    conflict     a topic with other partitions or another schema: nothing at all is done, and all of them are named

Group offsets are of data: an offset says nothing in a log that does not hold it. They are restored where that is asked
for alone, and there only where the log holds them now (`held`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minilog.admin.broker_settings import BrokerSetting
from minilog.admin.security import Quota
from minilog.security.access_rules import AccessRule
from minilog_broker.cli.backup_file import KeptOffset, KeptTopic, Metadata
from minilog_broker.cli.common import HeldOffsets

MIN_IN_SYNC = "min.insync.replicas"
Held = Mapping[tuple[str, int], HeldOffsets]


@dataclass(slots=True)
class Plan:
    """`topics` are created, `configs` set on topics that are there; `left` says what is not done, and why."""

    topics: list[KeptTopic] = field(default_factory=list)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_settings: list[BrokerSetting] = field(default_factory=list)
    access_rules: list[AccessRule] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    groups: dict[str, list[KeptOffset]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How much is done of each kind."""
        return {
            "topics": len(self.topics),
            "topics_altered": len(self.configs),
            "broker_settings": len(self.broker_settings),
            "quotas": len(self.quotas),
            "access_rules": len(self.access_rules),
            "groups": len(self.groups),
        }


def plan_of(
    wanted: Metadata, there: Metadata, brokers: Iterable[int], *, overwrite: bool, held: Held | None = None
) -> Plan:
    """`there` is the cluster now, `brokers` those that are registered; `held`: None: offsets of groups are left out."""
    plan = Plan()
    _topics(plan, wanted, {topic.name: topic for topic in there.topics}, overwrite=overwrite)
    _broker_settings(plan, wanted, there, set(brokers), overwrite=overwrite)
    _quotas(plan, wanted, there, overwrite=overwrite)
    existing_rules = set(there.access_rules)
    plan.access_rules = [rule for rule in wanted.access_rules if rule not in existing_rules]
    for name in sorted(wanted.users.keys() - there.users.keys()):
        mechanisms = " and ".join(wanted.users[name])
        plan.left.append(f"user {name} ({mechanisms}): passwords are in no backup; run minilog user create {name}")
    if held is None:
        plan.left += [f"group {name}: its offsets are of data; see --group-offsets" for name in sorted(wanted.groups)]
    else:
        _groups(plan, wanted, there, held, overwrite=overwrite)
    return plan


def _topics(plan: Plan, wanted: Metadata, there: Mapping[str, KeptTopic], *, overwrite: bool) -> None:
    for topic in wanted.topics:
        existing = there.get(topic.name)
        if existing is None:
            plan.topics.append(topic)
        elif existing.partitions != topic.partitions:
            plan.conflicts.append(
                f"topic {topic.name} has {existing.partitions} partitions here, and {topic.partitions} in the file"
            )
        elif existing.schemas != topic.schemas:
            plan.conflicts.append(f"topic {topic.name} has another schema here than in the file")
        else:
            _configs(plan, topic, existing, overwrite=overwrite)


def _configs(plan: Plan, topic: KeptTopic, existing: KeptTopic, *, overwrite: bool) -> None:
    if existing.replication_factor != topic.replication_factor:
        plan.left.append(
            f"topic {topic.name}: it has {existing.replication_factor} replicas here, and {topic.replication_factor} "
            f"in the file. minilog topic reassign {topic.name} gives it others"
        )
    if changed := _changed(settable_configs(topic), existing.configs):
        if overwrite:
            plan.configs[topic.name] = changed
        else:
            plan.left.append(f"topic {topic.name}: it is there, with another {', '.join(sorted(changed))}")


def settable_configs(topic: KeptTopic) -> dict[str, str]:
    """Those that a topic of its replication factor can have set: a topic may have been made with more."""
    configs = dict(topic.configs)
    if int(configs.get(MIN_IN_SYNC, "1")) > topic.replication_factor:
        del configs[MIN_IN_SYNC]
    return configs


def _changed(wanted: Mapping[str, str], existing: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if existing.get(name) != value}


def _broker_settings(plan: Plan, wanted: Metadata, there: Metadata, brokers: set[int], *, overwrite: bool) -> None:
    former = {(setting.broker_id, setting.name): setting.value for setting in there.broker_settings}
    for setting in wanted.broker_settings:
        value, whose = former.get((setting.broker_id, setting.name)), setting.broker_id
        name = f"setting {setting.name} of {'all brokers' if whose is None else f'broker {whose}'}"
        if whose is not None and whose not in brokers:
            plan.left.append(f"{name}: there is no such broker here")
        elif value is None or (overwrite and value != setting.value):
            plan.broker_settings.append(setting)
        elif value != setting.value:
            plan.left.append(f"{name}: it is {value} here, and {setting.value} in the file")


def _quotas(plan: Plan, wanted: Metadata, there: Metadata, *, overwrite: bool) -> None:
    former = {(quota.entity, quota.key): quota.value for quota in there.quotas}
    for quota in wanted.quotas:
        value = former.get((quota.entity, quota.key))
        if value is None or (overwrite and value != quota.value):
            plan.quotas.append(quota)
        elif value != quota.value:
            plan.left.append(f"quota {quota.key} of {quota.entity}: it is {value} here, and {quota.value} in the file")


def _groups(plan: Plan, wanted: Metadata, there: Metadata, held: Held, *, overwrite: bool) -> None:
    for name, offsets in sorted(wanted.groups.items()):
        former = {(kept.topic, kept.partition): kept.offset for kept in there.groups.get(name, ())}
        for kept in offsets:
            where, log_range = (kept.topic, kept.partition), held.get((kept.topic, kept.partition))
            text = f"group {name} at {kept.offset} of partition {kept.partition} of {kept.topic}"
            if log_range is None or not log_range.start <= kept.offset <= log_range.end:
                holds = (
                    "it is not there" if log_range is None else f"its log holds {log_range.start} to {log_range.end}"
                )
                plan.left.append(f"{text}: {holds}")
            elif where not in former or (overwrite and former[where] != kept.offset):
                plan.groups.setdefault(name, []).append(kept)
            elif former[where] != kept.offset:
                plan.left.append(f"{text}: it is at {former[where]} here")
