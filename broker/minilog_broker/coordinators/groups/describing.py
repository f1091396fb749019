"""A group's members as people see them."""

from __future__ import annotations

from collections.abc import Callable

from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.membership import GroupView
from minilog_broker.coordinators.groups.records import Held, Target


def described_members(view: GroupView, silent_ms: Callable[[str], int]) -> list[coordinator_pb2.DescribedMember]:
    """By member id."""
    return [
        coordinator_pb2.DescribedMember(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            member_epoch=view.held.get(member_id, Held()).member_epoch,
            topics=member.topics,
            assigned=[key.to_wire() for key in sorted(view.held.get(member_id, Held()).assigned)],
            revoking=[key.to_wire() for key in sorted(view.held.get(member_id, Held()).revoking)],
            target=[key.to_wire() for key in sorted(view.targets.get(member_id, Target()).partitions)],
            away=member.is_away,
            silent_ms=silent_ms(member_id),
        )
        for member_id, member in sorted(view.members.items())
    ]
