"""The driver of a group's member: its stream to the coordinator, and its partitions in the consumer's core.

    the member's core (groups/member.py) ──► OpenStream, SendToCoordinator, CloseStream ──► one DuplexStream
    the coordinator's messages ──► the member's core ──► a GroupStep, with the program's next poll
    a step ──► the program's callback ──► ConsumerCore.read_more, read_less

The driver withholds revoked partitions when the message comes. It gives them back after the program's callback.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from minilog.client_config import ClientConfig
from minilog.consumer.core import ConsumerCore
from minilog.errors import AuthenticationFailed, InvalidArgument, LeaderNotAvailable, MinilogError, error_from_wire
from minilog.groups.callbacks import Callbacks, GroupStep
from minilog.groups.member import (
    CloseStream,
    DoubtCoordinator,
    GroupChange,
    Lost,
    MemberCore,
    MemberEffect,
    MemberSettings,
    MemberState,
    NewlyAssigned,
    OpenStream,
    Revoked,
    SendToCoordinator,
)
from minilog.groups.messages import committing_member
from minilog.net.coordinator_absence import ABSENT, CoordinatorAbsence
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_ms, now_s
from minilog.net.stream import DuplexStream
from minilog.net.stream_frames import SharedMemory
from minilog.net.stream_opener import BrokerOpener
from minilog.partition_key import PartitionKey
from minilog.stream_messages import MEMBER, StreamMessage
from minilog.types import GroupMetadata, TopicPartition
from minilog.v1 import coordinator_pb2

_FINDING_S = 5.0  # for one question about the leader of the group's partition: then the driver asks again
_LEAVING_S = 3.0  # a coordinator that does not answer fences the member at the end of its session
_LONGEST_WAIT_S = 1.0
_log = logging.getLogger(__name__)


class GroupMembership:
    """The membership of one consumer, on its event loop. It calls `wake` when the program's poll may have work."""

    def __init__(
        self,
        config: ClientConfig,
        cluster: NetworkClient,
        core: ConsumerCore,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
    ) -> None:
        self._cluster, self._core = cluster, core
        self._spawn, self._wake_poll = spawn, wake
        self._partition = TopicPartition(GROUPS_TOPIC_NAME, coordinator_partition(config.group_id))
        self._group_id = config.group_id
        member_id = str(uuid.UUID(bytes=cluster.runtime.unique_bytes(16), version=4))
        self.member = MemberCore(
            MemberSettings(
                config.group_id,
                member_id,
                config.group_instance_id,
                config.client_rack,
                config.group_remote_assignor,
                config.max_poll_interval_ms,
                config.retry_backoff_max_ms,
            )
        )
        self.callbacks = Callbacks()
        self.has_news = False
        """Whether the next poll must tell the program of a change before it hands out records."""
        self._names: dict[PartitionKey, TopicPartition] = {}  # of the partitions that the program reads
        self._shared = SharedMemory()
        self._stream: DuplexStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._event = asyncio.Event()  # the driver has work
        self._changed = asyncio.Event()  # `end` looks again
        self._started = self._is_in_step = False
        self._is_asking = False  # for the coordinator, which confirms nothing
        self._absence = CoordinatorAbsence(f"the coordinator of group {config.group_id!r}")
        self._asked_broker: int | None = None  # to which the stream goes, or went last
        self._is_heard = False  # the coordinator has answered on this stream
        self._opened_ms: float | None = None  # when this stream was opened
        self._why_absent: MinilogError = LeaderNotAvailable("it has not answered this member yet")

    # -- calls of the program

    def subscribe(self, callbacks: Callbacks) -> None:
        """Join the group, and read the topics of the consumer's subscription."""
        self.callbacks = callbacks
        self.topics_changed()
        if not self._started:
            self._started = True
            self._spawn(self._run_forever())

    def topics_changed(self) -> None:
        """Look at new metadata. It may have other topics of the subscription, or the names of partitions that wait."""
        if not self._core.subscription.names and self._core.subscription.pattern is None:
            return
        self.member.subscribe(self._core.subscription.names)
        self._look()

    def metadata(self) -> GroupMetadata:
        """The member in the form that a commit needs."""
        return GroupMetadata(self._group_id, self.member.member_id, self.member.epoch)

    def committer(self) -> coordinator_pb2.GroupMember | None:
        """The same in the form of the wire. None without a member id."""
        return committing_member(self.metadata())

    # -- polls

    def poll_began(self) -> None:
        self.member.poll_began(now_ms())
        self._event.set()

    def poll_ended(self) -> None:
        self.member.poll_ended(now_ms())

    def may_hand_out(self) -> bool:
        """Whether the session lasts. The consumer's core knows the withheld partitions."""
        if self.member.may_hand_out(now_ms()):
            return True
        self._look()
        return False

    def next_step(self) -> GroupStep | None:
        """The next change that the program must learn. Raises the error that keeps this consumer out of the group,
        once."""
        if self._is_in_step:
            raise InvalidArgument("a callback of a group may commit and seek, and may not poll")
        if (failure := self.member.take_failure()) is not None:
            self._look()
            raise failure
        change = self.member.next_change(now_ms())
        if change is None:
            self._look()
            return None
        names = {topic.topic_id: topic.name for topic in self._cluster.cache.topics.values()}
        if isinstance(change, NewlyAssigned):
            if not self._has_names(change):
                self.has_news = False  # until metadata names their topics
                return None
            self._names |= {key: TopicPartition(names[key.topic_id], key.partition) for key in change.partitions}
        partitions = sorted(self._names[key] for key in change.partitions if key in self._names)
        self._is_in_step = True
        if isinstance(change, NewlyAssigned):
            self._core.read_more(partitions)
            self.member.assigned(change)
        return GroupStep(change, partitions)

    def finish_step(self, step: GroupStep) -> None:
        """Note that the program's callback of this step has run."""
        self._is_in_step = False
        if not isinstance(step.change, NewlyAssigned):
            self._core.read_less(step.partitions)
            for key in step.change.partitions:
                self._names.pop(key, None)
        match step.change:
            case Revoked() as change:
                self.member.revoked(change, now_ms())
            case Lost() as change:
                _log.warning("this member of group %r lost its partitions: %s", self._group_id, change.reason)
                self.member.lost(change)
        self._look()

    def last_step(self) -> GroupStep | None:
        """The step before the consumer closes: it gives back all its partitions."""
        held = self.member.held
        partitions = sorted(self._names[key] for key in held if key in self._names)
        return GroupStep(Revoked(held), partitions) if partitions else None

    async def end(self, *, leave: bool) -> None:
        """End the membership. With `leave`, say goodbye to the coordinator. That takes `_LEAVING_S` at most."""
        if leave:
            self.member.leave(now_ms(), for_good=False)
            self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    while self.member.state is not MemberState.OUT:
                        self._changed.clear()
                        await self._changed.wait()
        await self._close()

    # -- the driver

    def _look(self) -> None:
        """Act on a change of the member."""
        self.has_news = self._has_change() or self.member.has_failed
        self._core.withheld = frozenset(self._names[key] for key in self.member.withheld() if key in self._names)
        self._event.set()
        self._changed.set()
        if self.has_news:
            self._wake_poll()

    def _has_change(self) -> bool:
        """Whether the program can learn of a change now. An assignment waits until metadata names its topics: without
        that, a poll and this driver would wake each other without an end."""
        change = self.member.next_change(now_ms())
        return change is not None and self._has_names(change)

    def _has_names(self, change: GroupChange) -> bool:
        """Whether metadata names the topics of a change."""
        topic_ids = {topic.topic_id for topic in self._cluster.cache.topics.values()}
        return not isinstance(change, NewlyAssigned) or all(key.topic_id in topic_ids for key in change.partitions)

    async def _run_forever(self) -> None:
        while True:
            self._event.clear()
            try:
                for effect in self.member.poll(now_ms()):
                    await self._carry_out(effect)
                self._look_at_silence()
                if self._has_change() and not self.has_news:
                    self._look()
                    self._event.clear()
            except Exception:  # a bug: log it, and go on as far as possible
                _log.exception("the member of group %r met an unexpected error", self._group_id)
            wait_s = (self.member.next_wake_ms() - now_ms()) / 1000.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.001), _LONGEST_WAIT_S)):
                    await self._event.wait()

    async def _carry_out(self, effect: MemberEffect) -> None:
        match effect:
            case OpenStream(anew=anew):
                self._opening = asyncio.get_running_loop().create_task(self._open(is_anew=anew))
            case CloseStream():
                await self._close()
            case DoubtCoordinator() if not self._is_asking:
                self._is_asking = True
                self._spawn(self._refresh_leader())
            case SendToCoordinator(request) if self._stream is not None:
                self._stream.send(StreamMessage(self._completed(request)))

    async def _close(self) -> None:
        opening, self._opening = self._opening, None
        stream, self._stream = self._stream, None
        if opening is not None:
            opening.cancel()
        if stream is not None:
            await stream.close()

    async def _open(self, *, is_anew: bool) -> None:
        try:
            self._asked_broker = broker_id = await self._coordinator(is_anew=is_anew)
            address, streams = self._cluster.address(broker_id), self._cluster.stream_address(broker_id)
            if address is None or streams is None:
                raise LeaderNotAvailable(f"the metadata has no address of broker {broker_id}")
        except MinilogError as error:
            _log.debug("the member did not find the coordinator of group %r yet: %s", self._group_id, error)
            self._ended(error)
            return
        opener = _MemberOpener(self._cluster, address, streams, self._shared, self._refused)
        self._stream = stream = DuplexStream(
            opener,
            f"broker {broker_id}, as a member of group {self._group_id!r}",
            lambda: self._completed(self.member.heartbeat(now_ms())),
            keepalive_ms=lambda: self.member.heartbeat_ms,
            opened=self._opened,
            received=self._received,
            lost=lambda refusal: self._lost(stream),
        )

    async def _coordinator(self, *, is_anew: bool) -> int:
        """The leader of the group's partition. Raises a MinilogError."""
        cache = self._cluster.cache
        if is_anew or GROUPS_TOPIC_NAME not in cache.topics:
            await self._cluster.refresh([GROUPS_TOPIC_NAME], now_s() + _FINDING_S)
        leader = cache.leader(cache.key(self._partition))
        if leader is None:
            self._asked_broker = None
            raise LeaderNotAvailable(f"partition {self._partition.partition} of {GROUPS_TOPIC_NAME} has no leader now")
        return leader.broker_id

    def _completed(self, request: coordinator_pb2.MemberRequest) -> coordinator_pb2.MemberRequest:
        cache = self._cluster.cache
        request.client.CopyFrom(self._cluster.identity)
        request.coordinator_epoch = max(cache.seen_epoch(cache.key(self._partition)), 0)
        return request

    def _opened(self) -> None:
        self._opened_ms = now_ms()
        self.member.stream_opened(self._opened_ms)
        self._event.set()

    def _received(self, received: StreamMessage[coordinator_pb2.MemberResponse]) -> None:
        response, cache = received.message, self._cluster.cache
        if (error := error_from_wire(response.error)) is not None:
            self._absent(error)
        else:
            self._is_heard = True
            self._tell(self._absence.answered(now_ms()))
        key = cache.key(self._partition)
        if response.coordinator_epoch > cache.seen_epoch(key):
            cache.see_epoch(key, response.coordinator_epoch)
        self.member.received(response, now_ms())
        self._look()

    def _lost(self, stream: DuplexStream) -> None:
        if self._stream is stream:
            self._stream = None
            self._ended(None)

    def _ended(self, error: MinilogError | None) -> None:
        self._opening = None
        self._is_heard, self._opened_ms = False, None
        if error is not None:
            self._absent(error)
        if error is not None and not error.retriable:
            self.member.stream_refused(error, now_ms())
        else:
            self.member.stream_lost(now_ms())
        self._look()

    def _look_at_silence(self) -> None:
        """Note that nobody answers. An answer on an open stream may take a part of a heartbeat interval."""
        answers_by_ms = 0.0 if self._opened_ms is None else self._opened_ms + self.member.heartbeat_ms
        is_waiting = self.member.state in (MemberState.JOINING, MemberState.IN) and not self._is_heard
        if is_waiting and now_ms() >= answers_by_ms:
            self._absent(self._why_absent)

    def _absent(self, error: MinilogError) -> None:
        """The coordinator does not serve this member. A poll returns nothing meanwhile, so the log tells it."""
        if isinstance(error, ABSENT):
            self._why_absent = error
            self._tell(self._absence.failed(self._asked_broker, error, now_ms()))

    def _tell(self, news: str | None) -> None:
        if news is not None:
            _log.warning("%s", news)

    def _refused(self, error: MinilogError) -> None:
        self._absent(error)
        if not error.retriable:
            self.member.stream_refused(error, now_ms())

    async def _refresh_leader(self) -> None:
        """Another broker may have become the coordinator: ask for the leader again."""
        cache = self._cluster.cache
        before = cache.leader(cache.key(self._partition))
        try:
            await self._cluster.refresh([GROUPS_TOPIC_NAME], now_s() + _FINDING_S)
        except MinilogError as error:
            _log.debug("the member did not learn who coordinates group %r: %s", self._group_id, error)
        finally:
            self._is_asking = False
        if cache.leader(cache.key(self._partition)) != before and self._stream is not None:
            await self._close()
            self._ended(None)


class _MemberOpener(BrokerOpener):
    """An opener that reports the error with which a broker ended the stream, unless another login helps."""

    def __init__(
        self,
        cluster: NetworkClient,
        address: tuple[str, int],
        stream_address: tuple[str, int],
        shared: SharedMemory,
        refused: Callable[[MinilogError], None],
    ) -> None:
        super().__init__(cluster, address, stream_address, MEMBER, shared)
        self._refused = refused

    def failed(self, error: MinilogError | OSError) -> MinilogError | None:
        refusal = super().failed(error)
        if isinstance(error, MinilogError) and (refusal is not None or not isinstance(error, AuthenticationFailed)):
            self._refused(error)
        return refusal
