"""The members of the groups of one coordinator: their streams, their sessions and their messages.

    an assignment is committed     the coordinator pushes it to the member's stream
    a member is silent             for a session time-out: the coordinator fences it

The table has the durable part, and membership.py has its rules. Streams, sessions and clocks are here, and end with the
term: a new coordinator gives each member a whole session time-out.

Heartbeats write nothing. But a deposed coordinator that has not heard of it would answer them, while the next one
counts the silence of the same members. So an answer confirms a heartbeat when a record behind its arrival is committed.
That record shows that this coordinator still led. If there is nothing else to decide, one empty record each quarter of
the set heartbeat interval shows it to all members (docs/spec/transactions.md § Members). A member counts its session
from the sending of the last confirmed heartbeat. It stops reading two heartbeats before its coordinator could fence it.

Each answer names the heartbeat interval. It is longer in a large group (GroupSettings.interval_of), so that the
group's heartbeats do not take the coordinator's time. Nothing else waits longer for that: assignments are pushed, and
confirmations come as often as in a small group.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minilog.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidArgument,
    LevelNotReached,
    MinilogError,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.coordinators.groups import membership
from minilog_broker.coordinators.groups.offsets import GroupTable
from minilog_broker.coordinators.groups.presences import (
    GroupSettings,
    Heartbeats,
    Presence,
    Presences,
    Speaker,
    asks_for,
    check_names,
    member_of,
)
from minilog_broker.coordinators.groups.records import GroupChange, GroupKey, GroupPart, Held, Member
from minilog_broker.coordinators.table import Change
from minilog_broker.replication.rules.own_delay import excused, own_delay_ms

LEAVE, LEAVE_FOR_A_WHILE = -1, -2
SETTLING_PAUSE_MS = 100.0  # of one group: what comes sooner is decided together
_PROOF = Change(GroupKey(""), None)  # changes nothing


@dataclass(frozen=True, slots=True)
class MemberSurroundings:
    """What members need of their coordinator. `write` raises a MinilogError where it wrote nothing. `answer` goes to a
    stream. `allows_members`: whether the level of the cluster has them. `allows_principals`: whether
    it has principals of members. `coordinator_epoch`: of the term."""

    table: GroupTable
    write: Callable[[Sequence[GroupChange]], None]
    answer: Callable[[object, coordinator_pb2.MemberResponse], None]
    topics: membership.KnownTopics
    allows_members: Callable[[], bool]
    allows_principals: Callable[[], bool]
    coordinator_epoch: Callable[[], int]


@dataclass(slots=True)
class _Unsettled:
    """The next work for a group: a new target, or only new assignments; and the earliest time for it."""

    wants_target: bool
    at_ms: float


@dataclass(slots=True)
class _Volatile:
    """The state of a member that ends with the term."""

    presences: Presences = field(default_factory=Presences)
    of_stream: dict[object, Presence] = field(default_factory=dict)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    unsettled: dict[str, _Unsettled] = field(default_factory=dict)
    settled_ms: dict[str, float] = field(default_factory=dict)
    seen: dict[str, Mapping[str, membership.KnownTopic]] = field(default_factory=dict)
    look_ms: float = math.inf
    has_new_topics: bool = False  # since the last look


class Members:
    """The members of all groups of one coordinator, from its first decision to the end of its term."""

    def __init__(self, settings: GroupSettings, around: MemberSurroundings) -> None:
        self._settings = settings
        self._around = around
        self._table = around.table
        self._now = _Volatile()

    # -- the term

    def activated(self, now: Moment) -> None:
        """The table has all that is committed. From now on each member has a whole session time-out."""
        for group in self._table.owners():
            view = self._view(group)
            for member_id, member in view.members.items():
                presence = self._add(Presence(group, member_id, now.ms), member)
                presence.asked_back(view.held.get(member_id, Held()), now.ms)
            if view.members:
                self._unsettle(group, now, wants_target=True)
        self._look_from(now)
        self._settle(now)

    def ended(self, error: MinilogError) -> None:
        """End the term."""
        streams, self._now = list(self._now.of_stream), _Volatile()
        for stream in streams:
            self._around.answer(stream, coordinator_pb2.MemberResponse(error=wire_error(error)))

    # -- what members say

    def request(self, stream: object, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment) -> None:
        """Take a message of a stream. Raises a MinilogError, which ends the stream."""
        check_names(request)
        log_end = self._table.end_offset
        presence = self._now.of_stream.get(stream)
        if presence is None:
            presence = self._open(stream, request, speaker, now)
        elif (presence.group, presence.member_id) != (request.group_id, request.member_id):
            raise InvalidArgument(f"the stream is of member '{presence.member_id}' of group '{presence.group}' alone")
        else:
            self._carry_out(presence, request, speaker, now)
        presence.heard_ms = now.ms
        self._now.heartbeats.note(presence, stream, request.number, log_end)
        self._look_from(now)
        self._settle(now)

    def stream_ended(self, stream: object) -> None:
        """The stream of a member ended. The member is silent from now on, or comes back on another stream."""
        presence = self._now.of_stream.pop(stream, None)
        if presence is not None and presence.stream is stream:
            presence.stream = None

    def _open(self, stream: object, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment) -> Presence:
        """The first message of a stream."""
        group, member_id = request.group_id, request.member_id
        former = self._table.get(GroupKey(group, part=GroupPart.MEMBER, member_id=member_id))
        if isinstance(former, Member) and not former.is_of(speaker.principal):
            raise _unknown(group, member_id)
        if request.member_epoch == 0:
            presence = self._join(request, speaker, now)
        else:
            presence = self._again(request)
        if presence.stream is not None:
            self._now.of_stream.pop(presence.stream, None)
            error = FencedMemberEpoch(f"member '{member_id}' of group '{group}' came on another stream")
            self._around.answer(presence.stream, coordinator_pb2.MemberResponse(error=wire_error(error)))
        presence.stream, presence.confirmed_number = stream, 0
        self._now.of_stream[stream] = presence
        if request.member_epoch != 0:
            presence.pushed_epoch = max(0, request.member_epoch)  # what was pushed on the stream before may be lost
            self._carry_out(presence, request, speaker, now)
            held = self._table.committed_value(_held_key(group, member_id))
            if isinstance(held, Held) and held.member_epoch > request.member_epoch >= 0:
                self._push(presence, held, now)
        return presence

    def _join(self, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment) -> Presence:
        """It holds nothing. A member that is known under this id does not any more, either (Kafka refused one that came
        back: KAFKA-19233)."""
        if not self._around.allows_members():
            raise LevelNotReached(
                "groups with members came with level 5, and the cluster is below it. When all brokers support it, run "
                "`minilog cluster upgrade`"
            )
        if not request.HasField("subscription"):
            raise InvalidArgument("a member that joins must name its subscription")
        self._check_assignor(request.subscription.assignor)
        view = self._view(request.group_id)
        member_id, member = request.member_id, self._member(request, speaker)
        other = view.of_instance(member.instance_id)
        if other is not None and not view.members[other].is_of(speaker.principal):
            raise UnreleasedInstanceId(
                f"group '{view.name}': instance id '{member.instance_id}' is of another user's member: choose another"
            )
        if other is not None and other != member_id and not view.members[other].is_away:
            raise UnreleasedInstanceId(
                f"group '{view.name}': instance id '{member.instance_id}' is of member '{other}', which has not left: "
                "end that process, or wait for its session time-out, or `minilog group remove-member`"
            )
        if other is None and member_id not in view.members and len(view.members) >= self._settings.max_size:
            raise GroupMaxSizeReached(
                f"group '{view.name}' has {len(view.members)} members, as many as group.consumer.max.size allows"
            )
        is_back = other is not None and view.members[other].is_away
        before = view.members.get(other or member_id)
        changes = (
            membership.come_back(view, other, member_id, member)
            if other and is_back
            else membership.join(view, member_id, member)
        )
        self._around.write(changes)
        self._replaced(view.name, other if is_back and other != member_id else None)
        view.apply(changes)
        presence = self._add(self._presence(view.name, member_id) or Presence(view.name, member_id, now.ms), member)
        presence.joins_as, presence.pushed_epoch, presence.farewell = member, 0, None
        presence.lacks_names = _lacks_names(request, member)
        presence.revoking_since_ms = {}
        self._unsettle(view.name, now, wants_target=before is None or asks_for(before) != asks_for(member))
        return presence

    def _replaced(self, group: str, member_id: str | None) -> None:
        """A static member has another id now."""
        if member_id is not None:
            self._now.presences.remove(group, member_id)

    def _again(self, request: coordinator_pb2.MemberRequest) -> Presence:
        """A member that lost its stream, or its coordinator. Raises UnknownMemberId, FencedMemberEpoch."""
        presence = self._presence(request.group_id, request.member_id)
        if presence is None or presence.farewell is not None:
            raise _unknown(request.group_id, request.member_id)
        held = self._held(presence)
        owned = [PartitionKey.of(partition_id) for partition_id in request.owned_partitions]
        if any(held.given(key) is None for key in owned):
            raise FencedMemberEpoch(
                f"member '{request.member_id}' of group '{request.group_id}' reports partitions that it was never given"
            )
        return presence

    def _member(self, request: coordinator_pb2.MemberRequest, speaker: Speaker) -> Member:
        principal = speaker.principal if self._around.allows_principals() else ""
        return member_of(request, speaker.host, principal, lambda name: self._around.topics.find(name) is not None)

    def _carry_out(
        self, presence: Presence, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment
    ) -> None:
        """What a message of a known member changes."""
        if presence.farewell is not None:
            return
        if request.member_epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            self._leave(presence, request.member_epoch, now)
            return
        held = self._held(presence)
        if request.member_epoch > held.member_epoch or request.member_epoch < LEAVE_FOR_A_WHILE:
            raise FencedMemberEpoch(
                f"member '{presence.member_id}' of group '{presence.group}' names epoch {request.member_epoch}, "
                f"and has epoch {held.member_epoch} here"
            )
        if request.HasField("subscription"):
            self._resubscribe(presence, request, speaker, now)
        if changes := membership.carries_out(presence.group, presence.member_id, held, request.member_epoch):
            self._around.write(changes)
            presence.asked_back(self._held(presence), now.ms)
            self._unsettle(presence.group, now, wants_target=False)

    def _resubscribe(
        self, presence: Presence, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment
    ) -> None:
        before = self._table.get(GroupKey(presence.group, part=GroupPart.MEMBER, member_id=presence.member_id))
        member = self._member(request, speaker)
        presence.lacks_names = _lacks_names(request, member)
        if not isinstance(before, Member) or before == member:
            return
        self._check_assignor(member.assignor)
        if member.instance_id != before.instance_id:
            raise InvalidArgument(f"member '{presence.member_id}' has instance id '{before.instance_id}' for its life")
        self._around.write(
            [Change(GroupKey(presence.group, part=GroupPart.MEMBER, member_id=presence.member_id), member)]
        )
        presence.rebalance_timeout_ms = member.rebalance_timeout_ms
        if asks_for(before) != asks_for(member):
            self._unsettle(presence.group, now, wants_target=True)

    def _leave(self, presence: Presence, member_epoch: int, now: Moment) -> None:
        view = self._view(presence.group)
        member = view.members.get(presence.member_id)
        if member is None:
            raise _unknown(presence.group, presence.member_id)
        if member_epoch == LEAVE_FOR_A_WHILE and member.instance_id:
            self._around.write(membership.go_away(view, presence.member_id))
            presence.revoking_since_ms = {}
            self._unsettle(presence.group, now, wants_target=False)
        else:
            self._remove(presence.group, {presence.member_id: self._plain(presence, LEAVE)}, now)

    def remove(self, group: str, member: str, now: Moment) -> None:
        """Remove a member by command: by its member id or its instance id. Raises UnknownMemberId."""
        view = self._view(group)
        member_id = member if member in view.members else view.of_instance(member)
        if member_id is None:
            raise UnknownMemberId(
                f"group '{group}' has no member with the id or the instance id '{member}': see `minilog group describe "
                f"{group}`"
            )
        error = UnknownMemberId(f"member '{member_id}' was removed from group '{group}' by an administrator")
        self._remove(group, {member_id: coordinator_pb2.MemberResponse(error=wire_error(error))}, now)
        self._settle(now)

    def _remove(self, group: str, farewells: Mapping[str, coordinator_pb2.MemberResponse], now: Moment) -> None:
        """Of one group, in one decision."""
        view, changes = self._view(group), list[GroupChange]()
        for member_id in farewells:
            removal = membership.removal(view, member_id)
            view.apply(removal)
            changes += removal
        self._around.write(changes)
        for member_id, farewell in farewells.items():
            if (presence := self._presence(group, member_id)) is not None:
                presence.farewell = farewell
        if view.members:
            self._unsettle(group, now, wants_target=True)

    # -- what is decided without a word of theirs

    def topics_changed(self, now: Moment) -> None:
        """Topics were created, got partitions, or were deleted. The next look asks members for names that were no
        topics before: many topics may come one by one."""
        self._now.has_new_topics = True
        for group, seen in self._now.seen.items():
            if membership.seen_topics(self._view(group), self._around.topics) != seen:
                self._unsettle(group, now, wants_target=True)
        self._settle(now)

    @property
    def next_tick_ms(self) -> float:
        return min([self._now.look_ms, *(unsettled.at_ms for unsettled in self._now.unsettled.values())])

    def tick(self, now: Moment) -> None:
        """Fence silent members, show that this coordinator leads, and do the work that waited."""
        if now.ms >= self._now.look_ms:
            self._look(now)
        self._settle(now)

    def _look_from(self, now: Moment) -> None:
        if self._now.presences and self._now.look_ms == math.inf:
            self._now.look_ms = now.ms + self._settings.look_interval_ms

    def _look(self, now: Moment) -> None:
        delay_ms = own_delay_ms(self._now.look_ms, now.ms, self._settings.session_timeout_ms)
        self._now.look_ms = math.inf
        self._look_from(now)
        if self._now.heartbeats:
            self._try([_PROOF])
        self._ask_for_names()
        farewells: dict[str, dict[str, coordinator_pb2.MemberResponse]] = defaultdict(dict)
        for presence in self._now.presences:
            presence.heard_ms = excused(presence.heard_ms, delay_ms, now.ms)
            since_ms = presence.revoking_since_ms
            presence.revoking_since_ms = {epoch: excused(at_ms, delay_ms, now.ms) for epoch, at_ms in since_ms.items()}
            if presence.farewell is None and (error := self._overdue(presence, now.ms)) is not None:
                response = coordinator_pb2.MemberResponse(error=wire_error(error))
                farewells[presence.group][presence.member_id] = response
        for group, every in farewells.items():
            try:
                self._remove(group, every, now)
            except MinilogError:
                return  # the next look tries again; or the term is over

    def _ask_for_names(self) -> None:
        if not self._now.has_new_topics:
            return
        self._now.has_new_topics = False
        for presence in self._now.presences:
            if presence.lacks_names and presence.stream is not None and presence.farewell is None:
                presence.lacks_names = False  # until it has named them
                question = self._plain(presence, presence.pushed_epoch)
                question.names_wanted = True
                self._around.answer(presence.stream, question)

    def _overdue(self, presence: Presence, now_ms: float) -> MinilogError | None:
        timeout_ms = self._settings.session_timeout_ms
        patience_ms = max(presence.rebalance_timeout_ms, timeout_ms)
        if now_ms - presence.heard_ms >= timeout_ms:
            what = f"was silent for {timeout_ms} ms (group.consumer.session.timeout.ms)"
        elif now_ms - min(presence.revoking_since_ms.values(), default=math.inf) >= patience_ms:
            what = f"did not give partitions back within {patience_ms:.0f} ms (max.poll.interval.ms)"
        else:
            return None
        return UnknownMemberId(f"member '{presence.member_id}' of group '{presence.group}' {what}: fenced")

    def _try(self, changes: Sequence[GroupChange]) -> bool:
        try:
            self._around.write(changes)
        except MinilogError:
            return False
        return True

    def _unsettle(self, group: str, now: Moment, *, wants_target: bool) -> None:
        waits = self._now.unsettled.get(group)
        at_ms = max(now.ms, self._now.settled_ms.get(group, -math.inf) + SETTLING_PAUSE_MS)
        wants_target = wants_target or (waits is not None and waits.wants_target)
        self._now.unsettled[group] = _Unsettled(wants_target, at_ms)

    def _settle(self, now: Moment) -> None:
        for group, waits in list(self._now.unsettled.items()):
            if now.ms >= waits.at_ms and not self._settle_group(group, waits, now):
                return

    def _settle_group(self, group: str, waits: _Unsettled, now: Moment) -> bool:
        """The target and what members hold are two decisions: a coordinator may find only the first."""
        view = self._view(group)
        self._now.settled_ms[group] = now.ms
        waits.at_ms = now.ms + SETTLING_PAUSE_MS
        if waits.wants_target:
            target = membership.new_target(view, self._around.topics, self._settings.assignors)
            if not self._try(target):
                return False
            view.apply(target)
            waits.wants_target = False
            self._now.seen[group] = membership.seen_topics(view, self._around.topics)
        if not self._try(membership.reconcile(view)):
            return False
        self._now.unsettled.pop(group, None)
        if not view.members:
            self._now.seen.pop(group, None)
            self._now.settled_ms.pop(group, None)
        return True

    # -- what is committed

    def committed(self, changes: Iterable[GroupChange], high_watermark: int, now: Moment) -> None:
        """These changes are committed, and all records below `high_watermark`."""
        to_answer = {id(presence): presence for presence in self._now.heartbeats.confirm(high_watermark)}
        for change in changes:
            if change.key.part in (GroupPart.MEMBER, GroupPart.HELD):
                presence = self._presence(change.key.owner, change.key.member_id)
                if presence is not None and self._send_change(presence, change, now):
                    to_answer.pop(id(presence), None)
        for presence in to_answer.values():
            if presence.stream is not None:
                self._around.answer(presence.stream, self._plain(presence, presence.pushed_epoch))

    def _send_change(self, presence: Presence, change: GroupChange, now: Moment) -> bool:
        """Send the member the change, where it concerns the member. Whether a message was sent."""
        match change.value:
            case Held() as held:
                return self._push(presence, held, now)
            case Member() as member if member is presence.joins_as:
                presence.joins_as = None
            case Member(is_away=True) if presence.stream is not None:
                self._dismiss(presence, self._plain(presence, LEAVE_FOR_A_WHILE))
                return True
            case None if change.key.part is GroupPart.MEMBER and presence.farewell is not None:
                self._now.presences.remove(presence.group, presence.member_id)
                self._dismiss(presence, presence.farewell)
                if not self._now.presences:
                    self._now.look_ms = math.inf
                return True
        return False

    def _dismiss(self, presence: Presence, farewell: coordinator_pb2.MemberResponse) -> None:
        if presence.stream is not None:
            self._now.of_stream.pop(presence.stream, None)
            self._around.answer(presence.stream, farewell)
            presence.stream = None

    def _push(self, presence: Presence, held: Held, now: Moment) -> bool:
        if presence.joins_as is not None:
            return False
        presence.asked_back(held, now.ms)
        if presence.stream is None or presence.farewell is not None or held.member_epoch <= presence.pushed_epoch:
            return False
        presence.pushed_epoch = held.member_epoch
        message = self._plain(presence, held.member_epoch)
        message.assignment.SetInParent()
        message.assignment.partitions.extend(key.to_wire() for key in sorted(held.assigned))
        self._around.answer(presence.stream, message)
        return True

    def _plain(self, presence: Presence, member_epoch: int) -> coordinator_pb2.MemberResponse:
        return coordinator_pb2.MemberResponse(
            member_epoch=member_epoch,
            heartbeat_interval_ms=self._settings.interval_of(self._now.presences.count(presence.group)),
            session_timeout_ms=self._settings.session_timeout_ms,
            confirmed_number=presence.confirmed_number,
            coordinator_epoch=self._around.coordinator_epoch(),
        )

    # -- what is known

    def silent_ms(self, group: str, member_id: str, now: Moment) -> int:
        presence = self._presence(group, member_id)
        return 0 if presence is None else max(0, int(now.ms - presence.heard_ms))

    def counts(self) -> dict[str, int]:
        """The number of members of each group that has any."""
        return self._now.presences.counts()

    def view(self, group: str) -> membership.GroupView:
        return self._view(group)

    def _view(self, group: str) -> membership.GroupView:
        return membership.GroupView.of(group, self._table.owned(group))

    def _held(self, presence: Presence) -> Held:
        """The partitions of this member alone: a heartbeat walks no group."""
        held = self._table.get(_held_key(presence.group, presence.member_id))
        return held if isinstance(held, Held) else Held()

    def _presence(self, group: str, member_id: str) -> Presence | None:
        return self._now.presences.find(group, member_id)

    def _add(self, presence: Presence, member: Member) -> Presence:
        presence.rebalance_timeout_ms = member.rebalance_timeout_ms
        self._now.presences.add(presence)
        return presence

    def _check_assignor(self, name: str) -> None:
        if name and name not in self._settings.assignors:
            raise UnsupportedAssignor(
                f"there is no assignor '{name}' (group.remote.assignor): the brokers have "
                f"{', '.join(self._settings.assignors)} (group.consumer.assignors)"
            )


def _lacks_names(request: coordinator_pb2.MemberRequest, member: Member) -> bool:
    return len(member.topics) < len(set(request.subscription.topics))


def _held_key(group: str, member_id: str) -> GroupKey:
    return GroupKey(group, part=GroupPart.HELD, member_id=member_id)


def _unknown(group: str, member_id: str) -> UnknownMemberId:
    return UnknownMemberId(f"group '{group}' has no member '{member_id}': it left, was fenced, or never joined")
