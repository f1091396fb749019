"""Wrong rules of groups with members: when a partition changes hands, who is fenced, and who commits."""

from __future__ import annotations

import dataclasses
from typing import Any

from minilog.groups.member import MemberCore, MemberState
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.coordinators.groups import coordinator, membership
from minilog_broker.coordinators.groups.assignors import ASSIGNORS, Assignment, AssignorInput, uniform_assignor
from minilog_broker.coordinators.groups.members import Members
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.coordinators.groups.records import GroupChange
from tests.rules import Patches


def given_before_given_back() -> Patches:
    """A partition goes to its next member as soon as the last one is asked for it."""
    reconcile = membership.reconcile

    def mutant(view: membership.GroupView) -> list[GroupChange]:
        changes = reconcile(view)
        view.apply(changes)
        freed = {name: dataclasses.replace(held, revoking={}) for name, held in view.held.items()}
        return [*changes, *reconcile(dataclasses.replace(view, held=freed))]

    return [(membership, "reconcile", mutant)]


def no_new_session() -> Patches:
    """A new coordinator counts the silence of members from before its time."""
    activated = Members.activated

    def mutant(self: Members, now: Moment) -> None:
        activated(self, now)
        for presence in self._now.presences:
            presence.heard_ms = now.ms - 0.9 * self._settings.session_timeout_ms

    return [(Members, "activated", mutant)]


def no_self_fence() -> Patches:
    """A member that hears nothing goes on until its coordinator says that it is fenced."""

    def may_hand_out(self: MemberCore, now_ms: float) -> bool:
        return self._state is MemberState.IN

    def look(self: MemberCore, now_ms: float) -> None:
        """It looks at nothing."""

    return [(MemberCore, "may_hand_out", may_hand_out), (MemberCore, "_look_at_session", look)]


def confirmed_at_once() -> Patches:
    """A heartbeat is confirmed when it comes, by whoever takes itself for the coordinator."""
    request = Members.request

    def mutant(
        self: Members, stream: object, asked: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment
    ) -> None:
        request(self, stream, asked, speaker, now)
        presence = self._now.of_stream.get(stream)
        if presence is not None and presence.pushed_epoch:
            presence.confirmed_number = asked.number
            self._around.answer(stream, self._plain(presence, presence.pushed_epoch))

    return [(Members, "request", mutant)]


def a_second_life() -> Patches:
    """Who comes with the instance id of a static member that lives takes over what that one has."""
    join = Members._join

    def mutant(self: Members, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment) -> Any:
        view = self._view(request.group_id)
        other = view.of_instance(request.subscription.instance_id)
        if other is not None and other != request.member_id:
            self._around.write(membership.go_away(view, other))
        return join(self, request, speaker, now)

    return [(Members, "_join", mutant)]


def any_epoch_commits() -> Patches:
    """A commit is taken of whoever was a member, whatever it has by now."""
    return [(coordinator, "check_committer", lambda table, request: None)]


def moves_all() -> Patches:
    """Each time that `uniform` is asked it takes what a member had for what the next one had."""

    def mutant(wanted: AssignorInput) -> Assignment:
        names = sorted(wanted.members)
        members = {
            name: dataclasses.replace(wanted.members[name], owned=wanted.members[other].owned)
            for name, other in zip(names, [*names[1:], *names[:1]], strict=True)
        }
        return uniform_assignor(dataclasses.replace(wanted, members=members))

    return [(membership, "ASSIGNORS", {**ASSIGNORS, "uniform": mutant})]
