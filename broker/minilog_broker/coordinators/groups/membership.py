"""The rules of a group with members: the target of each member, and when a partition changes hands. Pure.

    event                                   what changes
    a member joins, leaves, or changes      the members; then a new target
    a new target                            the group's epoch, and the target of each member (assignors.py)
                                            the partitions outside its target, and gets those that nobody holds
    a member reports that it carries out    the partitions that it had to give back before are free
    the assignment of its epoch

A partition that a member may hold, or has to give back, goes to nobody else. The next member gets it when this one has
given it back, has left, or is fenced (M1). Each change of an assignment has a member epoch of its own. So the report "I
carry out epoch 7" belongs to exactly one assignment, however late older messages come. A partition that a member has to
give back comes back to the same member, too, only after its report (Kafka lost the owner there: KAFKA-16147).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.groups.assignors import ASSIGNORS, AssignorInput, Subscriber
from minilog_broker.coordinators.groups.records import (
    Given,
    GroupChange,
    GroupEpoch,
    GroupKey,
    GroupPart,
    GroupValue,
    Held,
    Member,
    Target,
)
from minilog_broker.coordinators.table import Change


class KnownTopic(NamedTuple):
    """A topic of the metadata image."""

    topic_id: bytes
    partition_count: int


class KnownTopics(Protocol):
    """The topics of the metadata image."""

    def find(self, name: str) -> KnownTopic | None: ...

    def racks(self, key: PartitionKey) -> frozenset[str]:
        """The racks of the brokers with a replica of the partition."""


@dataclass(slots=True)
class GroupView:
    """A group with members during one decision: its values in the table, and the changes so far."""

    name: str
    group: GroupEpoch | None = None
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, values: Iterable[tuple[GroupKey, GroupValue]]) -> GroupView:
        """Make the view from the values of the table."""
        view = cls(name)
        for key, value in values:
            if key.part is not None:
                view._set(key, value)
        return view

    def apply(self, changes: Iterable[GroupChange]) -> None:
        """Take these changes into the view."""
        for change in changes:
            self._set(change.key, change.value)

    def _set(self, key: GroupKey, value: GroupValue | None) -> None:
        match value:
            case GroupEpoch():
                self.group = value
            case Member():
                self.members[key.member_id] = value
            case Target():
                self.targets[key.member_id] = value
            case Held():
                self.held[key.member_id] = value
            case None if key.part is GroupPart.GROUP:
                self.group = None
            case None:
                by_part: dict[GroupPart | None, dict[str, Any]] = {
                    GroupPart.MEMBER: self.members,
                    GroupPart.TARGET: self.targets,
                    GroupPart.HELD: self.held,
                }
                by_part[key.part].pop(key.member_id, None)

    def key(self, part: GroupPart, member_id: str = "") -> GroupKey:
        return GroupKey(self.name, part=part, member_id=member_id)

    def change(self, part: GroupPart, member_id: str, value: GroupValue | None) -> GroupChange:
        return Change(self.key(part, member_id), value)

    def next_epoch(self) -> int:
        """An epoch above all former ones of the group and of its members."""
        epochs = [0 if self.group is None else self.group.epoch, *(held.member_epoch for held in self.held.values())]
        return 1 + max(epochs)

    def of_instance(self, instance_id: str) -> str | None:
        """The member with this instance id."""
        if not instance_id:
            return None
        return next((name for name, member in self.members.items() if member.instance_id == instance_id), None)


# -- members come and go


def join(view: GroupView, member_id: str, member: Member) -> list[GroupChange]:
    """Add a member that holds nothing. A former member with this id holds nothing any more."""
    changes = [view.change(GroupPart.MEMBER, member_id, member)]
    if member_id in view.held:
        changes.append(view.change(GroupPart.HELD, member_id, Held(view.next_epoch())))
    return changes


def come_back(view: GroupView, away: str, member_id: str, member: Member) -> list[GroupChange]:
    """A static member, which left for a while as `away`, comes back under a new id, and gets the kept partitions."""
    epoch = view.next_epoch()
    kept = view.held.get(away, Held())
    return [
        *([] if away == member_id else removal(view, away)),
        view.change(GroupPart.MEMBER, member_id, member),
        view.change(GroupPart.TARGET, member_id, view.targets.get(away, Target())),
        view.change(GroupPart.HELD, member_id, Held(epoch, dict.fromkeys(kept.assigned, Given(epoch)))),
    ]


def go_away(view: GroupView, member_id: str) -> list[GroupChange]:
    """A static member leaves for a while. It holds nothing, and the group keeps its partitions for it."""
    held = view.held.get(member_id, Held())
    return [
        view.change(GroupPart.MEMBER, member_id, dataclasses.replace(view.members[member_id], is_away=True)),
        view.change(GroupPart.HELD, member_id, Held(view.next_epoch(), held.assigned)),
    ]


def removal(view: GroupView, member_id: str) -> list[GroupChange]:
    """A member left, or is fenced. The table keeps nothing of a group without members."""
    changes = [view.change(part, member_id, None) for part in (GroupPart.MEMBER, GroupPart.TARGET, GroupPart.HELD)]
    if not view.members.keys() - {member_id}:
        changes.append(view.change(GroupPart.GROUP, "", None))
    return changes


# -- the target


def seen_topics(view: GroupView, topics: KnownTopics) -> dict[str, KnownTopic]:
    """The existing topics that members subscribe to."""
    names = sorted({name for member in view.members.values() for name in member.topics})
    return {name: topic for name in names if (topic := topics.find(name)) is not None}


def new_target(view: GroupView, topics: KnownTopics, assignors: tuple[str, ...]) -> list[GroupChange]:
    """What each member is to have, where that is something else than before. `assignors`: those of this broker, the
    first for members that ask for none."""
    if not view.members:
        return []
    existing_topics = seen_topics(view, topics)
    name = chosen_assignor(view.members, assignors)
    assignment = ASSIGNORS[name](_wanted(view, existing_topics, topics))
    targets = {
        member_id: Target(partitions)
        for member_id, partitions in assignment.items()
        if view.targets.get(member_id) != Target(partitions)
    }
    if not targets and view.group is not None and view.group.assignor == name:
        return []
    group = view.change(GroupPart.GROUP, "", GroupEpoch(view.next_epoch(), name))
    return [group, *(view.change(GroupPart.TARGET, member_id, target) for member_id, target in sorted(targets.items()))]


def chosen_assignor(members: Mapping[str, Member], assignors: tuple[str, ...]) -> str:
    """What most members ask for; of several, the first of the brokers'. One that the brokers lack by now counts for
    nothing."""
    choices = [member.assignor or assignors[0] for member in members.values()]
    return max(assignors, key=lambda name: (choices.count(name), -assignors.index(name)))


def _wanted(view: GroupView, existing_topics: Mapping[str, KnownTopic], topics: KnownTopics) -> AssignorInput:
    counts = {topic.topic_id: topic.partition_count for topic in existing_topics.values()}
    ids = {name: topic.topic_id for name, topic in existing_topics.items()}
    racks = {}
    if any(member.rack for member in view.members.values()):
        keys = (PartitionKey(topic_id, number) for topic_id, count in counts.items() for number in range(count))
        racks = {key: topics.racks(key) for key in keys}
    return AssignorInput(
        {
            member_id: Subscriber(
                frozenset(ids[name] for name in member.topics if name in ids),
                member.rack,
                member.instance_id,
                view.targets.get(member_id, Target()).partitions,
            )
            for member_id, member in view.members.items()
        },
        counts,
        racks,
    )


# -- from target to held


def carries_out(group: str, member_id: str, held: Held, member_epoch: int) -> list[GroupChange]:
    """The member holds its assignment of this epoch alone. The partitions that it had to give back are free."""
    if not held.revoking:
        return []
    left = {key: given for key, given in held.revoking.items() if given.revoked_epoch > member_epoch}
    if len(left) == len(held.revoking):
        return []
    key = GroupKey(group, part=GroupPart.HELD, member_id=member_id)
    return [Change(key, dataclasses.replace(held, revoking=left))]


def reconcile(view: GroupView) -> list[GroupChange]:
    """Bring each member as near to its target as the others allow. A new member gets an assignment, if only an empty
    one."""
    taken = {key for held in view.held.values() for key in (*held.assigned, *held.revoking)}
    changes = []
    for member_id, member in sorted(view.members.items()):
        target = view.targets.get(member_id, Target()).partitions
        held = view.held.get(member_id)
        kept = {} if held is None else {key: given for key, given in held.assigned.items() if key in target}
        free = target - taken
        if held is not None and not free and len(kept) == len(held.assigned):
            continue
        now = _changed(held or Held(), kept, free, 0 if view.group is None else view.group.epoch, member)
        taken |= free
        changes.append(view.change(GroupPart.HELD, member_id, now))
    return changes


def _changed(
    held: Held, kept: Mapping[PartitionKey, Given], free: frozenset[PartitionKey], group_epoch: int, member: Member
) -> Held:
    epoch = max(held.member_epoch + 1, group_epoch)
    revoked = {
        key: Given(given.given_epoch, epoch)
        for key, given in held.assigned.items()
        if key not in kept and not member.is_away  # who is away holds nothing
    }
    return Held(epoch, {**kept, **dict.fromkeys(free, Given(epoch))}, {**held.revoking, **revoked})
