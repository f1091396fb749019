"""The driver of a consumer. It carries out the decisions of the core: streams, metadata, offsets, groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minilog.aio.auto_commit import AutoCommit
from minilog.aio.membership import GroupMembership
from minilog.client_config import ClientConfig
from minilog.consumer.consumer_effects import (
    CloseSession,
    Effect,
    FetchCommitted,
    OpenSession,
    RefreshTopics,
    ResolveOffset,
    SendFetch,
)
from minilog.consumer.core import ConsumerCore
from minilog.consumer.decode import DecodeOutcome
from minilog.consumer.handing import Polls
from minilog.consumer.partition import FetchedRun
from minilog.consumer.refusals import ALL, BrokerRefusals
from minilog.consumer.row_selection import RowSelection
from minilog.consumer.subscription import Topics
from minilog.errors import AuthenticationFailed, Closed, InvalidArgument, MinilogError, OffsetNotAvailable
from minilog.groups.callbacks import Callbacks, GroupStep
from minilog.groups.client import Groups
from minilog.groups.member import Revoked
from minilog.groups.messages import Committed
from minilog.net.broker_streams import BrokerStreams
from minilog.net.lookups import list_offsets, list_topics
from minilog.net.metadata_refreshes import MetadataRefreshes
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import offset_of
from minilog.net.runtime import Runtime, now_ms, now_s
from minilog.partition_key import PartitionKey
from minilog.stream_messages import FETCH, StreamMessage
from minilog.types import GroupMetadata, TopicPartition
from minilog.v1 import data_pb2

POLL_BYTES = 1024 * 1024  # one poll() makes records of about so many bytes
POLL_ARROW_BYTES = 16 * 1024 * 1024  # one poll_arrow() hands out about so many bytes
ITERATION_S = 1.0  # one poll of an iterating program waits so long, and then it polls again
_LONGEST_WAIT_S = 1.0
_WARN_AGAIN_MS = 30_000.0  # about missing topics: a warning at each look would fill the log
_log = logging.getLogger(__name__)


class ConsumerShell:
    """The streams, metadata and offset look-ups around the core. It lives on one event loop."""

    def __init__(self, config: ClientConfig, runtime: Runtime) -> None:
        self.config = config
        self.cluster = NetworkClient(config, runtime)
        self.core = ConsumerCore(config, self.cluster.cache, runtime.chance())
        self.polls = Polls()
        self._refusals = BrokerRefusals()
        self._taken_by = 0  # the number of the last poll that took runs
        self.was_woken = False  # the user has ended the last poll by `wakeup`
        self._wakes_user = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._groups = Groups(self.cluster)
        self.group: GroupMembership | None = None
        """Set while this consumer is subscribed as a member (group.protocol=consumer)."""
        self._auto_commit = None
        if config.enable_auto_commit:
            self._auto_commit = AutoCommit(config.auto_commit_interval_ms, lambda: self.commit(None, ""))
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._refreshes = MetadataRefreshes(self.cluster.backoff(), config.metadata_max_age_ms / 1000.0)
        self._streams = BrokerStreams(
            self.cluster,
            FETCH,
            keepalive_ms=config.session_keepalive_ms,
            lost=self._lost,
            doubted=self._refreshes.want,
        )
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._started = self._closed = False
        self._warned_topics: list[str] = []
        self._warn_again_ms = 0.0

    def start(self) -> None:
        """Begin, on the loop on which the driver will live. Raises Closed, RuntimeError on another loop."""
        self.cluster.home.check()
        if self._closed:
            raise Closed("the consumer is closed")
        if not self._started:
            self._started = True
            self._loop = asyncio.get_running_loop()
            self._spawn(self._run_forever())
            self._spawn(self._refresh_forever())

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def settle(self) -> None:
        """Settle the last poll. Each call that works with positions does this first: see consumer/handing.py."""
        if self._taken_by != self.polls.returned:
            self._taken_by = self.polls.returned
            self.core.give_back()
            self._wake.set()

    def wakeup(self) -> None:
        """End the poll that waits, or the next one. From any thread."""
        self._wakes_user = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no poll waits
                self._loop.call_soon_threadsafe(self._arrived.set)

    def takes_wakeup(self) -> bool:
        """Whether the program has called `wakeup` since the last poll. This takes the call back."""
        woken, self._wakes_user = self._wakes_user, False
        return woken

    async def change(self, change: Callable[[], None]) -> None:
        """Carry out a change by the user."""
        self.apply(change)

    def apply(self, change: Callable[[], None]) -> None:
        """Carry out a change, on the loop."""
        self.start()
        self.settle()
        change()
        self._wake.set()

    async def subscribe(self, topics: Topics, callbacks: Callbacks) -> None:
        """Subscribe to topics. Consumer.subscribe has the meaning."""
        is_member = self.config.group_protocol == "consumer"
        if not is_member and callbacks != Callbacks():
            raise InvalidArgument(
                "on_assigned, on_revoked and on_lost are for members: configure group.protocol=consumer"
            )
        if self.group is not None:
            raise InvalidArgument("a member subscribes once: close this consumer, and make another for other topics")
        await self.change(lambda: self.core.subscribe(topics))
        if is_member:
            self.group = GroupMembership(self.config, self.cluster, self.core, self._spawn, self._arrived.set)
            self.group.subscribe(callbacks)

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions. Consumer.assign has the meaning."""
        if self.group is not None:
            raise InvalidArgument("this consumer is a member of a group, which assigns: assign with another consumer")
        await self.change(lambda: self.core.assign(partitions))

    async def next_step(self) -> GroupStep | None:
        """The next change that a member's program must learn before it gets records. The caller calls the program, and
        then `finish_step`."""
        self.start()
        self.settle()
        if self.group is None:
            return None
        self.group.poll_began()
        try:
            step = self.group.next_step()
        finally:
            self.group.poll_ended()
        if step is not None and isinstance(step.change, Revoked) and self._auto_commit is not None:
            await self._auto_commit.now()
        return step

    async def finish_step(self, step: GroupStep) -> None:
        """Note that the callback of this step has run."""
        if self.group is not None:
            self.group.finish_step(step)
        self._wake.set()

    async def last_step(self) -> GroupStep | None:
        """The step of a member's last callback before it closes. With enable.auto.commit this commits the positions."""
        if self._closed or not self._started:
            return None
        self.settle()
        if self._auto_commit is not None:
            await self._auto_commit.finish()
        return None if self.group is None else self.group.last_step()

    def group_metadata(self) -> GroupMetadata:
        """The group and the member of this consumer. Consumer.group_metadata has the meaning."""
        return GroupMetadata(self._group_id()) if self.group is None else self.group.metadata()

    @property
    def says_goodbye(self) -> bool:
        """Whether `last_step` has anything to do."""
        return self.group is not None or self._auto_commit is not None

    def may_iterate_on(self, monotonic_ms: float) -> bool:
        """Whether an iterating program may still get records that a poll took. From any thread."""
        group = self.group
        if group is None:
            return True
        group.member.record_wanted(monotonic_ms)
        return not group.has_news and group.member.may_hand_out(monotonic_ms)

    def may_hand_out(self, monotonic_ms: float) -> bool:
        """Whether a poll may return the records that it took. The session of a member may have ended while the poll
        decoded them: then another member reads them, or this one later. From any thread."""
        return self.group is None or self.group.member.may_hand_out(monotonic_ms)

    def has_group_news(self) -> bool:
        """Whether a member's program must learn a change before it gets records."""
        return self.group is not None and self.group.has_news

    async def take(self, timeout_s: float, max_bytes: int, selection: RowSelection, number: int) -> list[FetchedRun]:
        """Take runs for the poll with this number, as they come. After `timeout_s` the list may be empty. Fewer bytes
        than fetch.min.bytes come only after fetch.max.wait.ms.

        Raises the error of a partition that cannot go on.
        """
        self.start()
        self.settle()
        self.core.select(selection)
        self.was_woken = False
        if self._auto_commit is not None:
            self._auto_commit.poll_began(now_ms())
        if self.group is None:
            return await self._take(timeout_s, max_bytes, number)
        self.group.poll_began()
        try:
            return await self._take(timeout_s, max_bytes, number)
        finally:
            self.group.poll_ended()

    async def _take(self, timeout_s: float, max_bytes: int, number: int) -> list[FetchedRun]:
        deadline_s = now_s() + timeout_s
        gathering_s = min(deadline_s, now_s() + self.config.fetch_max_wait_ms / 1000.0)
        while True:
            self._arrived.clear()
            self.was_woken |= self.takes_wakeup()
            if self._is_too_little() and now_s() < gathering_s and not self.was_woken:
                await self._something_arrived(gathering_s - now_s())
                continue
            self.settle()  # another poll may have taken runs meanwhile, and the program may have cancelled it
            taken = self.core.take(max_bytes) if self.group is None or self.group.may_hand_out() else []
            remaining_s = deadline_s - now_s()
            if taken:
                self._taken_by = number
                self._wake.set()  # credit has come back
            is_over = self.was_woken or self.has_group_news() or (self.core.finished() and self.core.assignment())
            if not taken and not is_over:
                self._refusals.raise_first(now_ms(), is_over=remaining_s <= 0)
            if taken or remaining_s <= 0 or is_over:
                return taken
            await self._something_arrived(remaining_s)

    def _is_too_little(self) -> bool:
        least = self.config.fetch_min_bytes
        return least > 1 and 0 < self.core.waiting_bytes() < least and not self.core.is_complete()

    async def _something_arrived(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, _LONGEST_WAIT_S)):
                await self._arrived.wait()

    async def report(self, outcome: DecodeOutcome) -> None:
        """Take in the results of decoding."""
        for run, _ in outcome.good:
            self.core.run_is_good(run)
        self.core.put_back(outcome.rest)
        for _, error in outcome.corrupt:
            _log.debug("the consumer asks again for a run: %s", error)
        self.core.runs_are_corrupt(outcome.corrupt, now_ms())
        self._wake.set()

    async def close(self, *, leave: bool = True) -> None:
        """Leave the group, and close the streams. Idempotent."""
        self.cluster.home.check()
        if self.group is not None and not self._closed:
            await self.group.end(leave=leave)
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await self._streams.close_all()
        await self.cluster.close()

    async def _run_forever(self) -> None:
        while True:
            self._wake.clear()
            try:
                for effect in self.core.poll(now_ms()):
                    self._carry_out(effect)
                self._arrived.set()  # a partition may have failed, and a look costs little
            except Exception:  # a bug: log it, and go on as far as possible
                _log.exception("the consumer met an unexpected error")
            wait_s = (self.core.next_wake_ms(now_ms()) - now_ms()) / 1000.0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(wait_s, 0.001), _LONGEST_WAIT_S)):
                    await self._wake.wait()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendFetch(broker_id, request):
                self._streams.send(broker_id, StreamMessage(request))
            case OpenSession(broker_id):
                self._open(broker_id)
            case CloseSession(broker_id):
                if (stream := self._streams.take(broker_id)) is not None:
                    self._spawn(stream.close())
            case ResolveOffset():
                self._spawn(self._resolve(effect))
            case FetchCommitted():
                self._spawn(self._fetch_committed(effect))
            case RefreshTopics():
                self._refreshes.want()

    def _open(self, broker_id: int) -> None:
        def opened() -> None:
            self.core.session_opened(broker_id)
            self._refusals.let_in(broker_id)
            self._wake.set()

        def received(response: StreamMessage[data_pb2.FetchResponse]) -> None:
            if response.payloads:
                if self.core.received(broker_id, response, now_ms()):
                    self._arrived.set()
                self._wake.set()

        self._streams.open(
            broker_id, keepalive=lambda: self.core.keepalive(broker_id), opened=opened, received=received
        )

    def _lost(self, broker_id: int, refusal: MinilogError | None) -> None:
        self.core.session_lost(broker_id, now_ms())
        if refusal is not None:
            self._refusals.refused(broker_id, refusal, now_ms())
            self._arrived.set()
        self._wake.set()

    async def _resolve(self, wanted: ResolveOffset) -> None:
        partition = wanted.partition
        try:
            query = await self.cluster.query_offsets({partition: wanted.where}, self.cluster.deadline())
            result = query.results.get(partition)
            if result is None:
                raise (
                    query.failures.get(partition)
                    or query.last_errors.get(partition)
                    or OffsetNotAvailable(
                        f"no leader named the {wanted.where} offset of partition {partition.partition} of topic "
                        f"{partition.topic!r}"
                    )
                )
            offset = offset_of(result, wanted.where, self.config.isolation_level)
            assert offset is not None  # only a look-up by time may find none
            self.core.offset_resolved(partition, wanted.position_number, offset)
        except MinilogError as error:
            self.core.offset_failed(partition, wanted.position_number, error, now_ms())
        self._wake.set()

    async def _fetch_committed(self, question: FetchCommitted) -> None:
        try:
            commits = await self._groups.fetch(self._group_id(), (key for key, _ in question.wanted.values()))
            for partition, (key, number) in question.wanted.items():
                self.core.committed_offset_came(partition, number, commits.get(key))
        except MinilogError as error:
            _log.debug("the consumer did not get the group's committed offsets yet: %s", error)
            for partition, (_, number) in question.wanted.items():
                self.core.offset_failed(partition, number, error, now_ms())
        self._wake.set()

    def _group_id(self) -> str:
        if not self.config.group_id:
            raise InvalidArgument("a commit needs a group: configure group.id, such as 'report'")
        return self.config.group_id

    async def commit(self, offsets: Mapping[TopicPartition, int] | None, metadata: str) -> None:
        """Commit offsets for the group. Consumer.commit has the meaning."""
        self.cluster.home.check()
        self.settle()
        group_id, consumed = self._group_id(), self.core.consumed()
        if offsets is not None:
            keys = await self._keys(offsets)
            given = {keys[partition]: offset for partition, offset in offsets.items()}
            at = {(key, commit.offset): commit for key, commit in consumed.items()}
            consumed = {key: at.get((key, offset), Committed(offset)) for key, offset in given.items()}
        described = {key: commit._replace(metadata=metadata) for key, commit in consumed.items()}
        await self._groups.commit(group_id, described, member=None if self.group is None else self.group.committer())

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offsets that the group has committed. Consumer.committed has the meaning."""
        self.cluster.home.check()
        group_id = self._group_id()
        keys = await self._keys(partitions)
        commits = await self._groups.fetch(group_id, keys.values())
        return {partition: commits[key].offset if key in commits else None for partition, key in keys.items()}

    async def ends_of_logs(self, partitions: Iterable[TopicPartition], where: str) -> dict[TopicPartition, int]:
        """The first offsets of the logs, or the ends of their readable records. Raises UnknownTopicOrPartition,
        TimedOut."""
        offsets = await list_offsets(self.cluster, dict.fromkeys(partitions, where))
        return {partition: offset for partition, offset in offsets.items() if offset is not None}  # each has one

    async def lag(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, int | None]:
        """The number of offsets to the end of the readable records. Consumer.lag has the meaning."""
        self.settle()
        wanted = self.core.assignment() if partitions is None else list(partitions)
        for partition in wanted:
            self.core.position(partition)  # it is assigned
        ends = await self.ends_of_logs(wanted, "latest")
        positions = {partition: self.core.position(partition) for partition in wanted}
        return {partition: None if at is None else max(0, ends[partition] - at) for partition, at in positions.items()}

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Consumer.partitions_for has the meaning."""
        deadline_s = self.cluster.deadline()
        await self.cluster.refresh([topic], deadline_s)
        cached = await self.cluster.topic(topic, deadline_s)
        return [TopicPartition(topic, number) for number in range(cached.partition_count)]

    async def _keys(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionKey]:
        """The keys of partitions. The client keeps the metadata of assigned topics fresh, and asks for that of
        others."""
        wanted, deadline_s = list(partitions), self.cluster.deadline()
        others = {partition.topic for partition in wanted} - set(self.core.topics())
        if others:
            await self.cluster.refresh(others, deadline_s)
        for name in {partition.topic for partition in wanted}:
            await self.cluster.topic(name, deadline_s)
        return {partition: self.core.key(partition) for partition in wanted}

    def _warn_of_missing_topics(self) -> None:
        """Warn as Kafka's consumer does, but not at each look."""
        missing = self.core.missing_topics()
        if missing and (missing != self._warned_topics or now_ms() >= self._warn_again_ms):
            self._warn_again_ms = now_ms() + _WARN_AGAIN_MS
            _log.warning(
                "subscribed to topics that do not exist (UNKNOWN_TOPIC_OR_PARTITION): %s. Create them, or compare the "
                "names with minilog topic list. The consumer reads them as soon as they exist",
                ", ".join(map(repr, missing)),
            )
        self._warned_topics = missing

    async def _refresh(self) -> None:
        if self.core.subscription.pattern is None:
            await self.cluster.refresh(self.core.topics())
        else:
            self.core.topics_listed(await list_topics(self.cluster))

    async def _refresh_forever(self) -> None:
        while True:
            await self._refreshes.due()
            if self.core.topics() or self.core.subscription.pattern is not None:
                try:
                    await self._refresh()
                    self.core.metadata_changed(now_ms())
                    self._refusals.let_in(ALL)
                    if self.group is not None:
                        self.group.topics_changed()
                    self._warn_of_missing_topics()
                except MinilogError as error:
                    _log.debug("the consumer did not get metadata yet, and asks again: %s", error)
                    self._refreshes.want()
                    self.core.metadata_failed(error)
                    if isinstance(error, AuthenticationFailed):
                        self._refusals.refused(ALL, error, now_ms())
                        self._arrived.set()
                self._wake.set()


def is_an_answer(taken: list[FetchedRun], outcome: DecodeOutcome, *, is_late: bool) -> bool:
    """Whether a poll may return with these runs, or must go on. Runs of markers and aborted batches have no rows: they
    move the position, and give the program no record. If no run could be decoded, this raises the error of the
    process."""
    has_rows = any(rows for _, rows in outcome.good)
    if outcome.lack is not None and not has_rows:
        raise outcome.lack
    return not taken or has_rows or is_late
