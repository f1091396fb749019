"""The plan of `minilog cluster restore`. It compares a file with the cluster before the command changes anything. Pure.

    missing      the plan creates it
    the same     the plan leaves it
    different    the plan leaves it and names it. With `overwrite` it takes the value of the file. It deletes nothing
    conflict     a topic with other partitions or another schema. The plan names all of these, and the command ends

The offset of a group means nothing in a log that does not hold it. So a plan has offsets of groups only if the user
gives --group-offsets, and only those that the logs hold now (`held`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minilog.admin.security import Quota
from minilog.security.access_rules import AccessRule
from minilog.types import BrokerSetting
from minilog_tools.cli.backup_file import KeptOffset, KeptTopic, Metadata
from minilog_tools.cli.held_offsets import HeldOffsets

MIN_IN_SYNC = "min.insync.replicas"
Held = Mapping[tuple[str, int], HeldOffsets]


@dataclass(slots=True)
class Plan:
    """The steps of a restore. It creates `topics`, and sets `configs` of topics that exist. `left` has a sentence for
    each step that the plan leaves out."""

    topics: list[KeptTopic] = field(default_factory=list)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_settings: list[BrokerSetting] = field(default_factory=list)
    access_rules: list[AccessRule] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    groups: dict[str, list[KeptOffset]] = field(default_factory=dict)
    queues: dict[str, dict[str, str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """The number of steps of each kind."""
        return {
            "topics": len(self.topics),
            "topics_altered": len(self.configs),
            "broker_settings": len(self.broker_settings),
            "quotas": len(self.quotas),
            "access_rules": len(self.access_rules),
            "groups": len(self.groups),
            "queues": len(self.queues),
        }


def plan_of(
    wanted: Metadata, there: Metadata, brokers: Iterable[int], *, overwrite: bool, held: Held | None = None
) -> Plan:
    """The plan that restores `wanted`. `there` is the cluster now, and `brokers` are the registered brokers. Without
    `held` the plan leaves out the offsets of groups."""
    plan = Plan()
    _topics(plan, wanted, {topic.name: topic for topic in there.topics}, overwrite=overwrite)
    _broker_settings(plan, wanted, there, set(brokers), overwrite=overwrite)
    _quotas(plan, wanted, there, overwrite=overwrite)
    _queues(plan, wanted, there, overwrite=overwrite)
    existing_rules = set(there.access_rules)
    plan.access_rules = [rule for rule in wanted.access_rules if rule not in existing_rules]
    for name in sorted(wanted.users.keys() - there.users.keys()):
        mechanisms = " and ".join(wanted.users[name])
        plan.left.append(f"user {name} ({mechanisms}): a backup has no passwords. Run minilog user create {name}")
    if held is None:
        plan.left += [
            f"group {name}: its offsets belong to data. See --group-offsets" for name in sorted(wanted.groups)
        ]
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
    """The settings that a topic of this replication factor accepts. The topic may have had more replicas at first."""
    configs = dict(topic.configs)
    if int(configs.get(MIN_IN_SYNC, "1")) > topic.replication_factor:
        del configs[MIN_IN_SYNC]
    return configs


def _changed(wanted: Mapping[str, str], existing: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if existing.get(name) != value}


def _broker_settings(plan: Plan, wanted: Metadata, there: Metadata, brokers: set[int], *, overwrite: bool) -> None:
    former = {(setting.broker_id, setting.name): setting.value for setting in there.broker_settings}
    for setting in wanted.broker_settings:
        value, broker_id = former.get((setting.broker_id, setting.name)), setting.broker_id
        name = f"setting {setting.name} of {'all brokers' if broker_id is None else f'broker {broker_id}'}"
        if broker_id is not None and broker_id not in brokers:
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


def _queues(plan: Plan, wanted: Metadata, there: Metadata, *, overwrite: bool) -> None:
    for name, settings in sorted(wanted.queues.items()):
        existing = there.queues.get(name, {})
        for key, value in _changed(settings, existing).items():
            if key not in existing or overwrite:
                plan.queues.setdefault(name, {})[key] = value
            else:
                plan.left.append(f"setting {key} of queue {name}: it is {existing[key]} here, and {value} in the file")


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
