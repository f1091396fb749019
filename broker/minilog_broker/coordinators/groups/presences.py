"""The presence of members at one coordinator: who is heard, on which stream, and which heartbeats are confirmed.

What members may hold is in the table. This here is of one term, and of no record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from minilog.errors import InvalidArgument
from minilog.limits import MAX_SUBSCRIPTION_BYTES
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.records import Held, Member

LOOKS_PER_HEARTBEAT = 4
MOST_HEARTBEATS_PER_S = 100  # of one group: a heartbeat takes its coordinator 0.1 to 0.2 ms
LEAST_HEARTBEATS_PER_SESSION = 4  # a member fences itself two before the end: it has half of its session
MAX_MEMBER_ID_CHARACTERS = 64  # a UUID in any spelling
MAX_NAME_CHARACTERS = 255  # of an instance id, a rack, a client id


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Those of the broker's configuration. `assignors`: of them the first is for members that ask for none."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 1_000
    assignors: tuple[str, ...] = ("uniform", "range")

    @property
    def look_interval_ms(self) -> float:
        return self.heartbeat_interval_ms / LOOKS_PER_HEARTBEAT

    def interval_of(self, members: int) -> int:
        """The heartbeat interval in a group of so many members, in milliseconds. It is longer in a large group. It is
        never shorter than the setting."""
        bearable_ms = members * 1_000 // MOST_HEARTBEATS_PER_S
        longest_ms = self.session_timeout_ms // LEAST_HEARTBEATS_PER_SESSION
        return max(self.heartbeat_interval_ms, min(bearable_ms, longest_ms))


class Speaker(NamedTuple):
    """Who speaks on a stream: the host, and the principal."""

    host: str
    principal: str = ""


@dataclass(slots=True)
class Presence:
    """A member while this coordinator leads.

    `joins_as`: it has joined, and that is not committed. The coordinator pushes nothing until then, since an assignment
    that is committed sooner belongs to its life before. `farewell`: the last message to it, sent when its end is
    committed. `revoking_since_ms`: when the coordinator asked back the partitions that it still has, by the epoch that
    revokes them. `lacks_names`: it named topics that do not exist, and can name them again.
    """

    group: str
    member_id: str
    heard_ms: float
    stream: object = None
    rebalance_timeout_ms: float = 0.0
    joins_as: Member | None = None
    pushed_epoch: int = 0
    confirmed_number: int = 0
    revoking_since_ms: dict[int, float] = field(default_factory=dict)
    farewell: coordinator_pb2.MemberResponse | None = None
    unconfirmed: Heartbeat | None = None
    lacks_names: bool = False

    def asked_back(self, held: Held, now_ms: float) -> None:
        """Note which partitions the member has to give back. Each epoch asks once, and its time counts from then on."""
        epochs = {given.revoked_epoch for given in held.revoking.values()}
        self.revoking_since_ms = {epoch: self.revoking_since_ms.get(epoch, now_ms) for epoch in sorted(epochs)}


class Presences:
    """The presences of one coordinator, by group and member id."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Presence]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[Presence]:
        return chain.from_iterable(members.values() for members in self._of.values())

    def find(self, group: str, member_id: str) -> Presence | None:
        members = self._of.get(group)
        return None if members is None else members.get(member_id)

    def add(self, presence: Presence) -> None:
        self._of.setdefault(presence.group, {})[presence.member_id] = presence

    def remove(self, group: str, member_id: str) -> None:
        """Forget a member, if it is known."""
        members = self._of.get(group, {})
        members.pop(member_id, None)
        if not members:
            self._of.pop(group, None)

    def count(self, group: str) -> int:
        """The number of members of a group."""
        return len(self._of.get(group, ()))

    def counts(self) -> dict[str, int]:
        """The number of members of each group that has any."""
        return {group: len(members) for group, members in self._of.items()}


@dataclass(slots=True)
class Heartbeat:
    """The last heartbeat of a member that came while the log ended at `log_end`; nothing has confirmed it yet."""

    log_end: int
    presence: Presence
    stream: object
    number: int


class Heartbeats:
    """Those that nothing has confirmed yet, in order: one for each member and each end of the log."""

    def __init__(self) -> None:
        self._waiting: deque[Heartbeat] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def note(self, presence: Presence, stream: object, number: int, log_end: int) -> None:
        """A heartbeat came when the log ended there."""
        last = presence.unconfirmed
        if last is not None and (last.log_end, last.stream) == (log_end, stream):
            last.number = number
        else:
            presence.unconfirmed = Heartbeat(log_end, presence, stream, number)
            self._waiting.append(presence.unconfirmed)

    def confirm(self, high_watermark: int) -> list[Presence]:
        """What was appended behind their arrival is committed. The members that may hear of it."""
        confirmed = []
        while self._waiting and self._waiting[0].log_end < high_watermark:
            heartbeat = self._waiting.popleft()
            if heartbeat.presence.unconfirmed is heartbeat:
                heartbeat.presence.unconfirmed = None
            if heartbeat.presence.stream is heartbeat.stream:
                heartbeat.presence.confirmed_number = heartbeat.number
                confirmed.append(heartbeat.presence)
        return confirmed


def asks_for(member: Member) -> tuple[object, ...]:
    """What a target depends on."""
    return member.topics, member.rack, member.assignor, member.instance_id


def member_of(
    request: coordinator_pb2.MemberRequest, host: str, principal: str, exists: Callable[[str], bool]
) -> Member:
    """What is kept of what a member says of itself: of the names only those of topics, if it can name the others
    again."""
    wanted = request.subscription
    names = sorted(set(wanted.topics))
    return Member(
        tuple(filter(exists, names) if wanted.names_again else names),
        wanted.instance_id,
        wanted.rack_id,
        wanted.assignor,
        wanted.rebalance_timeout_ms,
        request.client.client_id,
        host,
        principal=principal,
    )


def check_names(request: coordinator_pb2.MemberRequest) -> None:
    """Raises InvalidArgument."""
    if not 1 <= len(request.member_id) <= MAX_MEMBER_ID_CHARACTERS:
        raise InvalidArgument(f"a member id has 1 to {MAX_MEMBER_ID_CHARACTERS} characters: it is a UUID")
    if not request.HasField("subscription"):
        return
    wanted = request.subscription
    names = (
        ("an instance id", wanted.instance_id),
        ("a rack", wanted.rack_id),
        ("a client.id", request.client.client_id),
    )
    for what, name in names:
        if len(name) > MAX_NAME_CHARACTERS:
            raise InvalidArgument(f"{what} has at most {MAX_NAME_CHARACTERS} characters, this one has {len(name)}")
    if (size_bytes := wanted.ByteSize()) > MAX_SUBSCRIPTION_BYTES:
        raise InvalidArgument(
            f"the subscription of a member of a group has at most {MAX_SUBSCRIPTION_BYTES} bytes, and this one of "
            f"{len(wanted.topics)} topics has {size_bytes}: share the topics out among several groups, or give them "
            "shorter names"
        )
