"""Members of a group, as they ship, and their coordinators: what both say goes over links of a test.

Each member has a clock of its own rate. A message that was sent arrives when a test says so, in its stream's order.
A coordinator that was deposed may go on for a while without knowing it: members that have a stream to it hear it still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from minilog.groups.member import (
    CloseStream,
    GroupChange,
    Lost,
    MemberCore,
    MemberSettings,
    NewlyAssigned,
    OpenStream,
    Revoked,
    SendToCoordinator,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import (
    CoordinatorAnswer,
    CoordinatorEffect,
    DeleteRecordsBelow,
    LoadLog,
    MemberAnswer,
)
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.coordinators.groups.records import Held
from minilog_broker.coordinators.table import LogRecord
from tests.unit.coordinators.grouping import G, Grouping

MAX_POLL_INTERVAL_MS = 30_000


@dataclass(eq=False, slots=True)
class Link:
    """One stream: what is under way in each direction. `coordinator`: the one that it leads to."""

    coordinator: GroupCoordinator
    requests: deque[coordinator_pb2.MemberRequest] = field(default_factory=deque)
    responses: deque[coordinator_pb2.MemberResponse] = field(default_factory=deque)


class SimulatedMember:
    """A member core, with its link, and what the program was told."""

    def __init__(self, world: Membering, name: str, rate: float = 1.0, instance_id: str = "") -> None:
        settings = MemberSettings(G, name, instance_id, max_poll_interval_ms=MAX_POLL_INTERVAL_MS)
        self.world, self.name, self.rate = world, name, rate
        self.core = MemberCore(settings)
        self.link: Link | None = None
        self.told: list[GroupChange] = []
        self.reaches_coordinator = True

    @property
    def now_ms(self) -> float:
        return self.world.now_ms * self.rate

    def run(self) -> None:
        """Carry out the effects."""
        for effect in self.core.poll(self.now_ms):
            match effect:
                case OpenStream():
                    self._open()
                case CloseStream():
                    self.break_link(tell=False)
                case SendToCoordinator(request):
                    self._send(request)

    def _open(self) -> None:
        if not self.reaches_coordinator:
            self.core.stream_lost(self.now_ms)
            return
        self.link = Link(self.world.coordinator)
        self.world.links[self.link] = self
        self.core.stream_opened(self.now_ms)
        self.run()

    def _send(self, request: coordinator_pb2.MemberRequest) -> None:
        if self.link is not None:
            self.link.requests.append(request)

    def break_link(self, *, tell: bool = True) -> None:
        """What is under way is lost."""
        if self.link is not None:
            link, self.link = self.link, None
            self.world.links.pop(link, None)
            link.coordinator.member_stream_ended(link)
            if tell:
                self.core.stream_lost(self.now_ms)

    def deliver(self) -> None:
        """What is under way arrives."""
        link = self.link
        while link is not None and link.requests and self.link is link:
            self.deliver_request()
        self.world.collect()
        while link is not None and link.responses and self.link is link:
            self.deliver_response()

    def deliver_request(self) -> None:
        if self.link is not None and self.link.requests:
            self.link.coordinator.member(self.link, self.link.requests.popleft(), Speaker("host"), self.world.now)
            self.world.collect()

    def deliver_response(self) -> None:
        if self.link is not None and self.link.responses:
            self.core.received(self.link.responses.popleft(), self.now_ms)
            self.run()

    def poll(self) -> list[GroupChange]:
        """The program polls: it is told all that there is."""
        self.core.poll_began(self.now_ms)
        self.run()
        found = []
        while (change := self.core.next_change(self.now_ms)) is not None:
            found.append(change)
            match change:
                case NewlyAssigned():
                    self.core.assigned(change)
                case Revoked():
                    self.core.revoked(change, self.now_ms)
                case Lost():
                    self.core.lost(change)
        self.run()
        self.core.poll_ended(self.now_ms)
        self.told += found
        return found

    def hands_out(self) -> frozenset[PartitionKey]:
        """What a poll may hand records of now."""
        may = self.core.may_hand_out(self.now_ms)
        return self.core.held - self.core.withheld() if may else frozenset()

    def holds(self) -> frozenset[PartitionKey]:
        """What it has not given back, while its session lasts."""
        return self.core.held if self.core.may_hand_out(self.now_ms) else frozenset()


class LogOfFormer:
    """The log of a coordinator that was deposed and does not know it. Nobody has what it appends."""

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset

    def require_room(self) -> None:
        """There is always room."""

    def append(self, records: Sequence[LogRecord]) -> int:
        self._end_offset += len(records)
        return self._end_offset


class Membering(Grouping):
    """See the module's text."""

    def __init__(self, **named: object) -> None:
        self.links: dict[Link, SimulatedMember] = {}
        self.members: dict[str, SimulatedMember] = {}
        self.former: list[GroupCoordinator] = []
        super().__init__(**named)  # type: ignore[arg-type]

    def member(self, name: str, *topics: str, rate: float = 1.0, instance_id: str = "") -> SimulatedMember:
        member = self.members[name] = SimulatedMember(self, name, rate, instance_id)
        member.core.subscribe(topics or ("orders",))
        return member

    def collect(self) -> None:
        super().collect()
        for coordinator in self.former:
            self._take_answers(coordinator.take_effects())
        waiting, self.effects = self.effects, []
        self._take_answers(waiting)
        for ticket in [each for each in self.answers if isinstance(each, Link)]:
            message = self.answers.pop(ticket)
            assert isinstance(ticket, Link)
            self._respond(ticket, message)

    def _take_answers(self, effects: Sequence[CoordinatorEffect]) -> None:
        for effect in effects:
            match effect:
                case MemberAnswer(stream, message) | CoordinatorAnswer(stream, message) if isinstance(stream, Link):
                    self._respond(stream, message)
                case LoadLog() | DeleteRecordsBelow():
                    pass  # of a coordinator that was deposed
                case _:
                    self.effects.append(effect)

    def _respond(self, link: Link, message: Message) -> None:
        assert isinstance(message, coordinator_pb2.MemberResponse)
        if link in self.links:
            link.responses.append(message)

    def take_over(self, *, kept_batches: int | None = None) -> None:
        """Another broker leads, and the coordinator before it does not know that: nothing that it appends is ever
        committed. Members that have a stream to it keep it."""
        former = self.coordinator
        former._log._log = LogOfFormer(former._log.written_end)
        self.former.append(former)
        committed = sum(1 for end in self.ends if end <= self.high_watermark)
        if kept_batches is not None:
            del self.batches[committed + kept_batches :], self.ends[committed + kept_batches :]
        self.coordinator = self.make()
        self.begin()

    def pass_ms(self, duration_ms: float, *, step_ms: float = 100.0) -> None:
        """Time passes, without messages that arrive: those wait."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + step_ms)
            for coordinator in (self.coordinator, *self.former):
                if coordinator.next_tick_ms <= self.now_ms:
                    coordinator.tick(self.now)
            self.collect()
            for member in self.members.values():
                member.run()

    def settle(self, duration_ms: float = 1_000.0, *, polling: bool = True) -> None:
        """Time passes, all messages arrive, all is committed, and all programs poll."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.pass_ms(100.0)
            for member in self.members.values():
                member.deliver()
            self.commit()
            for member in self.members.values():
                member.deliver()
                if polling:
                    member.poll()
                member.deliver()
            self.commit()

    def held(self, name: str) -> Held:
        found = [value for key, value in self.coordinator._table.owned(G) if key.member_id == name]
        return next((value for value in found if isinstance(value, Held)), Held())


def orders(*numbers: int) -> frozenset[PartitionKey]:
    return frozenset(PartitionKey(b"\x00" * 15 + b"\x21", number) for number in numbers)
