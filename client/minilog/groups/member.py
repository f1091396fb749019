"""A member of a group: the partitions that it may read, those that it gives back, and the time of both. No I/O.

    state      meaning                                                       partitions that the member holds
    OUT        it is no member: not yet, no longer, or it was fenced         none, once the program knows its loss
    JOINING    it sends its first message, or waits for the answer           none
    IN         the coordinator has given it an assignment                    those that the program has learned
    LEAVING    it says goodbye to the coordinator                            none

    event                                    consequence
    an assignment with fewer partitions      the member withholds the others at once: it hands out no record of them.
                                             The next poll tells the program, which may commit. Then the member tells
                                             the coordinator
    an assignment with more partitions       the next poll tells the program, and reads them
    the coordinator confirms nothing for     the member fences itself: it holds nothing, and the next poll tells the
    the session time-out less two            program its loss. Then the member joins anew
    heartbeats
    the coordinator confirms nothing for     the member doubts that it still coordinates, and has the driver ask
    half a heartbeat interval
    the coordinator fences the member        the same
    the coordinator asks for names           the next message has the subscription: a topic of it may exist by now
    no poll for max.poll.interval.ms         the same, and the member leaves. Other members get its partitions

The member counts its session from the time when it sent the last confirmed message. The coordinator counts from the
arrival of that message, which is later, and for two heartbeats longer. Each uses its own clock. So only the rates of
the two clocks matter. They may differ by two heartbeats in a session time-out (docs/spec/transactions.md § Members).

A member that goes to another coordinator does not hear the old one any more. It has one stream at a time, and each
stream belongs to one coordinator.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minilog.errors import FencedMemberEpoch, LevelNotReached, MinilogError, UnknownMemberId, error_from_wire
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
FIRST_HEARTBEAT_MS = 5_000.0  # until the coordinator names another interval: Kafka's default
DOUBTED_HEARTBEATS = 0.5  # without confirmation, which takes a quarter of an interval and the time of a commit
HEARTBEATS_TO_SPARE = 2  # the member's session ends so many heartbeats before the coordinator's


class MemberState(enum.Enum):
    """The states of the table above. `WAYS` has the ways between them."""

    OUT = "out"
    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"


WAYS = {
    (MemberState.OUT, MemberState.JOINING): "subscribed, and the program has learned its loss",
    (MemberState.JOINING, MemberState.IN): "the first assignment came",
    (MemberState.JOINING, MemberState.OUT): "refused",
    (MemberState.IN, MemberState.OUT): "fenced by the coordinator, or by itself",
    (MemberState.JOINING, MemberState.LEAVING): "leave, or no poll for too long",
    (MemberState.IN, MemberState.LEAVING): "the same",
    (MemberState.LEAVING, MemberState.OUT): "the coordinator has confirmed it, or the stream is lost",
}
"""Every way from one state to another."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The member's settings of the client's configuration."""

    group_id: str
    member_id: str
    instance_id: str = ""
    rack: str = ""
    assignor: str = ""
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: float = 100.0


@dataclass(frozen=True, slots=True)
class NewlyAssigned:
    """Partitions that the program reads from now on. The shell calls the program, and answers with `assigned`."""

    partitions: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions to give back. The shell calls the program, which may commit, and answers with `revoked`."""

    partitions: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class Lost:
    """Partitions that the member lost: other members may read them already. The shell calls the program, and answers
    with `lost`."""

    partitions: frozenset[PartitionKey]
    reason: str


GroupChange: TypeAlias = NewlyAssigned | Revoked | Lost


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open a stream to the group's coordinator, and answer with stream_opened or stream_lost. With `anew`, another
    broker may be the coordinator by now."""

    anew: bool


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Close the stream. No message comes or goes on it any more."""


@dataclass(frozen=True, slots=True)
class SendToCoordinator:
    """Send this on the open stream."""

    request: coordinator_pb2.MemberRequest


@dataclass(frozen=True, slots=True)
class DoubtCoordinator:
    """Ask for the group's coordinator: this one confirms nothing. Where another broker is the coordinator, close the
    stream, and answer with stream_lost."""


MemberEffect: TypeAlias = OpenStream | CloseStream | SendToCoordinator | DoubtCoordinator


@dataclass(frozen=True, slots=True)
class _Assignment:
    epoch: int
    partitions: frozenset[PartitionKey]


class MemberCore:
    """The rules of one member, for one event loop. Times are milliseconds of its monotonic clock."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._state = MemberState.OUT
        self._topics: tuple[str, ...] | None = None
        self._epoch = JOIN
        self._program_epoch = JOIN  # the highest whose assignment the program has learned
        self._held: frozenset[PartitionKey] = frozenset()  # the program reads these
        self._next: _Assignment | None = None  # the program will read these
        self._lost: Lost | None = None
        self._failure: MinilogError | None = None  # the next poll raises it, once
        self._leave_epoch = LEAVE
        self._subscribe_on_stream = False  # the next message names the topics, which have changed
        # the stream
        self._is_open = self._is_opening = False
        self._is_anew = False
        self._number = 0
        self._sent_ms = -math.inf
        self._sent: deque[tuple[int, float]] = deque()  # messages without confirmation: number and time
        self._doubted_ms = -math.inf
        self._open_at_ms = 0.0
        self._session_ends_ms = math.inf
        self._session_ms = math.inf
        self.heartbeat_ms = FIRST_HEARTBEAT_MS
        """How often the coordinator expects a message. Each of its answers may change that."""
        self._polled_ms = -math.inf
        self._polls = 0  # polls under way
        self._effects: list[MemberEffect] = []

    # -- questions about the member

    @property
    def state(self) -> MemberState:
        return self._state

    @property
    def member_id(self) -> str:
        return self._settings.member_id

    @property
    def epoch(self) -> int:
        """The epoch in the member's commits: the highest whose assignment the program has learned. So the coordinator
        fences a late commit of a partition that the member has lost and got again, unless the program knows that."""
        return self._program_epoch

    @property
    def held(self) -> frozenset[PartitionKey]:
        """The partitions that the program reads, as far as it has learned."""
        return self._held

    def withheld(self) -> frozenset[PartitionKey]:
        """The partitions that the member must give back. It hands out no record of them any more."""
        return frozenset() if self._next is None else self._held - self._next.partitions

    def may_hand_out(self, now_ms: float) -> bool:
        """Whether the member may hand out any record: its session lasts."""
        return self._state is MemberState.IN and now_ms < self._session_ends_ms

    @property
    def has_failed(self) -> bool:
        """Whether `take_failure` has an error."""
        return self._failure is not None

    def take_failure(self) -> MinilogError | None:
        """The error that keeps the member out of the group. A poll raises it once. Then the member tries again."""
        failure, self._failure = self._failure, None
        return failure

    def next_change(self, now_ms: float) -> GroupChange | None:
        """The next change that the program must learn."""
        self._look_at_session(now_ms)
        if self._lost is not None:
            return self._lost
        if self._next is None or self._state is not MemberState.IN:
            return None
        if withheld := self.withheld():
            return Revoked(withheld)
        if new := self._next.partitions - self._held:
            return NewlyAssigned(new)
        self._next = None
        return None

    # -- calls of the program

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read this member's share of these topics from now on."""
        topics = tuple(sorted(set(topics)))
        if topics != self._topics:
            self._topics = topics
            if self._is_open and self._state in (MemberState.JOINING, MemberState.IN):
                self._subscribe_on_stream = True

    def poll_began(self, now_ms: float) -> None:
        self._polls += 1
        self._polled_ms = now_ms

    def poll_ended(self, now_ms: float) -> None:
        self._polls -= 1
        self._polled_ms = now_ms

    def record_wanted(self, now_ms: float) -> None:
        """A program that iterates asks for its next record, which counts as a poll. From any thread."""
        self._polled_ms = now_ms

    def revoked(self, change: Revoked, now_ms: float) -> None:
        """The program has learned this, and does not read them any more."""
        self._held -= change.partitions
        if self._next is not None and not self.withheld() and self._state is MemberState.IN:
            self._carry_out(self._next, now_ms)

    def assigned(self, change: NewlyAssigned) -> None:
        """The program learns this, and reads them."""
        self._held |= change.partitions
        self._program_epoch = self._epoch

    def lost(self, change: Lost) -> None:
        """The program has learned this."""
        if self._lost is change:
            self._lost, self._held = None, frozenset()

    def leave(self, now_ms: float, *, for_good: bool) -> None:
        """Leave the group. The program has learned that it reads nothing any more. Without `for_good`, a member with an
        instance id will come back."""
        self._topics, self._held = None, frozenset()
        is_static = bool(self._settings.instance_id)
        self._start_leaving(now_ms, LEAVE_FOR_A_WHILE if is_static and not for_good else LEAVE)

    @property
    def is_out(self) -> bool:
        return self._state is MemberState.OUT

    # -- events of the stream

    def stream_opened(self, now_ms: float) -> None:
        self._is_open, self._is_opening = True, False
        self._number = 0
        self._sent.clear()
        self._send(now_ms, first=True)

    def stream_lost(self, now_ms: float) -> None:
        self._is_open = self._is_opening = False
        self._is_anew = True
        self._open_at_ms = now_ms + self._settings.retry_backoff_ms
        if self._state is MemberState.LEAVING:
            self._go_out()

    def stream_refused(self, error: MinilogError, now_ms: float) -> None:
        """The broker ended or refused the stream with this error. `stream_lost` may follow."""
        self._refused(error, now_ms)

    def heartbeat(self, now_ms: float) -> coordinator_pb2.MemberRequest:
        """The next message of the stream."""
        return self._message(now_ms)

    def received(self, response: coordinator_pb2.MemberResponse, now_ms: float) -> None:
        """The next message of the coordinator, on the open stream."""
        if not self._is_open:
            return
        if (error := error_from_wire(response.error)) is not None:
            self._refused(error, now_ms)
            return
        if response.member_epoch < 0:
            if self._state is MemberState.LEAVING:
                self._close()
                self._go_out()
            return
        self.heartbeat_ms = response.heartbeat_interval_ms or self.heartbeat_ms
        self._session_ms = response.session_timeout_ms
        self._confirmed(response.confirmed_number)
        if response.names_wanted and self._state in (MemberState.JOINING, MemberState.IN):
            self._subscribe_on_stream = True
        if response.HasField("assignment") and self._state in (MemberState.JOINING, MemberState.IN):
            self._state = MemberState.IN
            partitions = frozenset(map(PartitionKey.of, response.assignment.partitions))
            self._next = _Assignment(response.member_epoch, partitions)
            if not self.withheld():
                self._carry_out(self._next, now_ms)

    def poll(self, now_ms: float) -> list[MemberEffect]:
        """The effects to carry out now."""
        self._look_at_session(now_ms)
        self._look_at_polls(now_ms)
        wants_in = self._topics is not None and self._lost is None and self._failure is None
        if self._state is MemberState.OUT and wants_in and self._is_polled(now_ms):
            self._state, self._epoch, self._next = MemberState.JOINING, JOIN, None
        is_without = self._state is not MemberState.OUT and not self._is_open and not self._is_opening
        if is_without and now_ms >= self._open_at_ms:
            self._is_opening = True
            self._effects.append(OpenStream(self._is_anew))
            self._is_anew = False
        if self._is_open and (self._subscribe_on_stream or now_ms >= self._sent_ms + self.heartbeat_ms):
            self._send(now_ms)
        if now_ms >= self._doubt_ms():
            self._doubted_ms = now_ms
            self._effects.append(DoubtCoordinator())
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self) -> float:
        """The time of the next call of `poll`, if no event comes before."""
        times = [self._sent_ms + self.heartbeat_ms if self._is_open else math.inf, self._doubt_ms()]
        if self._state is MemberState.IN:
            times.append(self._session_ends_ms)
        if self._state in (MemberState.IN, MemberState.JOINING) and not self._polls:
            times.append(self._polled_ms + self._settings.max_poll_interval_ms)
        if self._state is not MemberState.OUT and not self._is_open and not self._is_opening:
            times.append(self._open_at_ms)
        return min(times)

    # -- inside

    def _doubt_ms(self) -> float:
        """When the member doubts its coordinator, if nothing is confirmed before."""
        if self._state is not MemberState.IN or not self._is_open or not self._sent:
            return math.inf
        _, oldest_ms = self._sent[0]
        return max(oldest_ms, self._doubted_ms) + DOUBTED_HEARTBEATS * self.heartbeat_ms

    def _is_polled(self, now_ms: float) -> bool:
        return self._polls > 0 or now_ms - self._polled_ms < self._settings.max_poll_interval_ms

    def _look_at_session(self, now_ms: float) -> None:
        if self._state is MemberState.IN and now_ms >= self._session_ends_ms:
            self._give_up(f"the coordinator of group '{self._settings.group_id}' was silent for a session time-out")
            self._close()

    def _look_at_polls(self, now_ms: float) -> None:
        if self._state in (MemberState.JOINING, MemberState.IN) and not self._is_polled(now_ms):
            self._note_loss(f"there was no poll for {self._settings.max_poll_interval_ms} ms (max.poll.interval.ms)")
            self._start_leaving(now_ms, LEAVE)

    def _start_leaving(self, now_ms: float, epoch: int) -> None:
        if self._state in (MemberState.JOINING, MemberState.IN):
            self._state, self._leave_epoch, self._next = MemberState.LEAVING, epoch, None
            if self._is_open:
                self._send(now_ms)

    def _give_up(self, reason: str) -> None:
        """Give up all partitions, and go out of the group."""
        self._note_loss(reason)
        self._go_out()

    def _note_loss(self, reason: str) -> None:
        if self._held and self._lost is None:
            self._lost = Lost(self._held, reason)

    def _go_out(self) -> None:
        self._state, self._epoch, self._next = MemberState.OUT, JOIN, None
        self._program_epoch = JOIN
        self._session_ends_ms = math.inf

    def _close(self) -> None:
        if self._is_open or self._is_opening:
            self._effects.append(CloseStream())
        self._is_open = self._is_opening = False

    def _refused(self, error: MinilogError, now_ms: float) -> None:
        self._close()
        self._is_anew = True
        self._open_at_ms = now_ms + self._settings.retry_backoff_ms
        if isinstance(error, UnknownMemberId | FencedMemberEpoch) or self._state is MemberState.LEAVING:
            self._give_up(str(error))
        elif not error.retriable or isinstance(error, LevelNotReached):
            self._failure = error
            self._give_up(str(error))

    def _confirmed(self, number: int) -> None:
        spare_ms = HEARTBEATS_TO_SPARE * self.heartbeat_ms
        while self._sent and self._sent[0][0] <= number:
            _, sent_ms = self._sent.popleft()
            self._session_ends_ms = sent_ms + self._session_ms - spare_ms

    def _carry_out(self, assignment: _Assignment, now_ms: float) -> None:
        """Tell the coordinator that the member holds only partitions of this assignment."""
        if assignment.partitions <= self._held:
            self._program_epoch = assignment.epoch
        if assignment.epoch != self._epoch:
            self._epoch = assignment.epoch
            if self._is_open:
                self._send(now_ms)

    def _send(self, now_ms: float, *, first: bool = False) -> None:
        self._effects.append(SendToCoordinator(self._message(now_ms, first=first)))

    def _message(self, now_ms: float, *, first: bool = False) -> coordinator_pb2.MemberRequest:
        self._number += 1
        self._sent_ms = now_ms
        self._sent.append((self._number, now_ms))
        request = coordinator_pb2.MemberRequest(
            group_id=self._settings.group_id,
            member_id=self._settings.member_id,
            member_epoch=self._leave_epoch if self._state is MemberState.LEAVING else self._epoch,
            number=self._number,
        )
        if (first or self._subscribe_on_stream) and self._topics is not None:
            request.subscription.CopyFrom(self._subscription(self._topics))
            self._subscribe_on_stream = False
        if first:
            request.owned_partitions.extend(key.to_wire() for key in sorted(self._held))
        return request

    def _subscription(self, topics: Sequence[str]) -> coordinator_pb2.MemberSubscription:
        settings = self._settings
        return coordinator_pb2.MemberSubscription(
            topics=topics,
            instance_id=settings.instance_id,
            rack_id=settings.rack,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            assignor=settings.assignor,
            names_again=True,
        )
