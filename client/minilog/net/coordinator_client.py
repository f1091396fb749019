"""Calls to coordinators. The leader of the internal topic's partition that an id hashes to is the coordinator of the
id. The calls run on one event loop.

    answer                                       reaction of the client
    NOT_COORDINATOR, no leader, no topic yet     it asks for metadata, and then the new leader
    LEVEL_NOT_REACHED for the topic              it raises the error: people upgrade the cluster
    COORDINATOR_LOAD_IN_PROGRESS, and other      it asks again after a pause
    passing errors
    none: the connection is lost, or another     it asks the present leader again; the call may be done
    broker leads now
    any other error                              it raises the error

A repetition of any call but Enlist changes nothing (coordinator.proto). So the client may react like this with any
call. If a call has no certain answer by the deadline, its outcome is unknown (rule V16), and it raises UnknownOutcome.

The metadata cache has the highest known epoch of a coordinator, from metadata or from the coordinator itself. Every
request with a field for it carries this epoch. So a deposed coordinator that still acts as the leader refuses the call.

A program that polls sees none of these attempts. So the client logs an absence that lasts (coordinator_absence.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from minilog.errors import (
    BrokerNotAvailable,
    LeaderNotAvailable,
    LevelNotReached,
    MinilogError,
    NotCoordinator,
    TimedOut,
    UnknownOutcome,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
    error_from_wire,
)
from minilog.net.backoff import ExponentialBackoff
from minilog.net.coordinator_absence import CoordinatorAbsences
from minilog.net.coordinators_of import INTERNAL_PARTITIONS, coordinator_partition
from minilog.net.metadata_cache import LeaderAndEpoch
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_ms, now_s
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import common_pb2

_LOOK_S = 1.0  # after this time without an answer the client checks in metadata whether another broker leads by now
_TOPIC_GRACE_S = 2.0  # the coordinator may not know a new topic for so long
_ASK_METADATA = (NotCoordinator, LeaderNotAvailable, BrokerNotAvailable)  # another broker may lead by now
_log = logging.getLogger(__name__)


class Answered(Protocol):
    """The part that all responses of coordinators have."""

    @property
    def error(self) -> common_pb2.Error: ...


Response = TypeVar("Response", bound=Answered)
Method: TypeAlias = Callable[[grpc.aio.Channel], Callable[..., Awaitable[Response]]]
"""A method of a service's stub: `lambda channel: GroupServiceStub(channel).CommitOffsets`."""


class CoordinatorResponse(NamedTuple, Generic[Response]):
    """A response without an error. `maybe_done_before`: an earlier attempt of the call got no answer, and may have been
    done. Then a repetition may be refused because it is done."""

    response: Response
    maybe_done_before: bool


@dataclass(slots=True)
class _Attempts:
    """The state of a call over all its attempts."""

    what: str
    timeout_ms: int
    backoff: ExponentialBackoff
    look_s: float = _LOOK_S
    began_s: float = field(default_factory=now_s)
    maybe_done: bool = False
    last_error: MinilogError | None = None

    @property
    def deadline_s(self) -> float:
        return self.began_s + self.timeout_ms / 1000.0

    def remaining_s(self) -> float:
        """The time until the deadline, at least 1 ms: each attempt gets a little time."""
        return max(0.001, self.deadline_s - now_s())

    def failed(self, error: MinilogError) -> None:
        """Note an error in an answer. Raises it if another attempt is useless."""
        grace_is_over = now_s() >= self.began_s + _TOPIC_GRACE_S
        if (
            not error.retriable
            or isinstance(error, UnstableOffsetCommit)  # it lasts as long as a transaction: the caller decides to wait
            or (isinstance(error, UnknownTopicId) and grace_is_over)
        ):
            raise error
        # A coordinator that is deposed while it decides does not know the outcome of its decision.
        self.maybe_done |= isinstance(error, NotCoordinator)
        self.last_error = error

    async def pause(self, *, changes: bool) -> None:
        """Pause before the next attempt. Raises if it would begin after the deadline."""
        pause_s = self.backoff.next()
        if now_s() + pause_s >= self.deadline_s:
            raise self._too_late(changes=changes)
        _log.debug("asking again: %s: %s", self.what, self.last_error)
        await asyncio.sleep(pause_s)

    def _too_late(self, *, changes: bool) -> MinilogError:
        text = f"{self.what} did not succeed within {self.timeout_ms} ms; last: {self.last_error}"
        if changes and self.maybe_done:
            return UnknownOutcome(f"{text}; it may be done all the same")
        kind = TimedOut if self.last_error is None else type(self.last_error)
        return kind(text)


class CoordinatorClient:
    """Finds the coordinator of a name, and calls it. It repeats a call until the deadline if another attempt may
    succeed."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._cluster = cluster
        self._absences = CoordinatorAbsences()

    async def call(
        self,
        topic_name: str,
        name: str,
        method: Method[Response],
        request: Message,
        *,
        timeout_ms: int,
        changes: bool = True,
        waits_ms: int = 0,
    ) -> Response:
        """Ask the coordinator of `name` under the internal topic `topic_name`.

        The client adds its identity and the known epoch to `request`. With `changes` False the call only reads, so its
        outcome cannot be unknown. The coordinator may answer only after `waits_ms`. Raises the error of the response.
        After the deadline it raises UnknownOutcome if the call may be done. Else it raises TimedOut,
        BrokerNotAvailable, or the coordinator's last error.
        """
        answer = await self.answer(
            topic_name, name, method, request, timeout_ms=timeout_ms, changes=changes, waits_ms=waits_ms
        )
        return answer.response

    async def answer(
        self,
        topic_name: str,
        name: str,
        method: Method[Response],
        request: Message,
        *,
        timeout_ms: int,
        changes: bool = True,
        waits_ms: int = 0,
    ) -> CoordinatorResponse[Response]:
        """The same as `call`, and whether an earlier attempt may have been done."""
        partition = TopicPartition(topic_name, coordinator_partition(name))
        who = f"the coordinator of {name!r} ({topic_name}-{partition.partition})"
        attempts = _Attempts(f"asking {who}", timeout_ms, self._cluster.backoff(), waits_ms / 1000.0 + _LOOK_S)
        while True:
            leader = await self._leader(partition, attempts)
            response = None if leader is None else await self._ask(partition, leader, method, request, attempts)
            if response is not None:
                error = error_from_wire(response.error)
                if error is None:
                    self._tell(self._absences.answered(who, now_ms()))
                    return CoordinatorResponse(response, attempts.maybe_done)
                attempts.failed(error)
            if (last := attempts.last_error) is not None:
                broker_id = None if leader is None else leader.broker_id
                self._tell(self._absences.failed(who, broker_id, last, now_ms()))
            await attempts.pause(changes=changes)

    def _tell(self, news: str | None) -> None:
        if news is not None:
            _log.warning("%s", news)

    async def call_all(
        self, topic_name: str, method: Method[Response], request: Message, *, timeout_ms: int
    ) -> list[Response]:
        """Ask every broker that is a coordinator under `topic_name`, and return one answer of each. For reading calls.

        If a partition moves meanwhile, the client asks all again, so that it misses no coordinator. Raises the errors
        of `call`."""
        attempts = _Attempts(f"asking all coordinators of {topic_name}", timeout_ms, self._cluster.backoff())
        partitions = [TopicPartition(topic_name, number) for number in range(INTERNAL_PARTITIONS)]
        while True:
            await self._refresh(topic_name, attempts)
            leaders_of = [(partition, await self._leader(partition, attempts)) for partition in partitions]
            leaders = {partition: leader for partition, leader in leaders_of if leader is not None}
            if len(leaders) == len(partitions):
                answers = await self._ask_each(leaders, method, request, attempts)
                await self._refresh(topic_name, attempts)
                now = {
                    partition: self._cluster.cache.leader(self._cluster.cache.key(partition)) for partition in leaders
                }
                if answers is not None and now == leaders:
                    return answers
            await attempts.pause(changes=False)

    async def _ask_each(
        self,
        leaders: dict[TopicPartition, LeaderAndEpoch],
        method: Method[Response],
        request: Message,
        attempts: _Attempts,
    ) -> list[Response] | None:
        """One answer of each broker that leads a partition. None if a broker gave no answer, or an error."""
        one_of_each = {leader.broker_id: partition for partition, leader in leaders.items()}.values()
        questions = (self._ask(partition, leaders[partition], method, request, attempts) for partition in one_of_each)
        answers = await asyncio.gather(*questions)
        errors = [error_from_wire(answer.error) for answer in answers if answer is not None]
        for error in errors:
            if error is not None:
                attempts.failed(error)
        good = [answer for answer in answers if answer is not None and not answer.error.code]
        return good if len(good) == len(answers) else None

    async def _leader(self, partition: TopicPartition, attempts: _Attempts) -> LeaderAndEpoch | None:
        """The leader of a partition, from new metadata if necessary.

        None if no broker leads it now, or if the topic does not exist yet. The controller creates the topic when a
        client asks for its metadata."""
        name, cache = partition.topic, self._cluster.cache
        if name not in cache.topics or isinstance(attempts.last_error, _ASK_METADATA):
            await self._refresh(name, attempts)
        try:
            key = cache.key(partition)
        except UnknownTopicOrPartition:
            attempts.last_error = LeaderNotAvailable(
                f"internal topic {name!r} is not there yet: the controller creates it once enough brokers run"
            )
            return None
        leader = cache.leader(key)
        if leader is None:
            nobody = LeaderNotAvailable(f"partition {partition.partition} of {name!r} has no leader now")
            attempts.last_error = cache.why_no_leader(key) or nobody
        return leader

    async def _refresh(self, topic_name: str, attempts: _Attempts, patience_s: float | None = None) -> None:
        """Ask for metadata until the deadline. Without an answer the client goes on with the known metadata. Raises
        LevelNotReached where the cluster does not have the topic yet."""
        deadline_s = attempts.deadline_s if patience_s is None else now_s() + patience_s
        try:
            answer = await self._cluster.refresh([topic_name], deadline_s)
        except (BrokerNotAvailable, TimedOut) as error:
            attempts.last_error = error
            return
        for topic in answer.topics:
            if isinstance(refusal := error_from_wire(topic.error), LevelNotReached):
                raise refusal

    async def _ask(
        self,
        partition: TopicPartition,
        leader: LeaderAndEpoch,
        method: Method[Response],
        request: Message,
        attempts: _Attempts,
    ) -> Response | None:
        """Make one attempt. None if no answer came: the call was lost, or another broker leads by now."""
        key = self._cluster.cache.key(partition)
        address = self._cluster.address(leader.broker_id)
        if address is None:
            return None
        complete = self._completed(request, key)
        timeout_s = attempts.remaining_s()
        asking = asyncio.ensure_future(
            self._cluster.call(address, lambda channel: method(channel)(complete, timeout=timeout_s))
        )
        try:
            while not (await asyncio.wait({asking}, timeout=min(attempts.look_s, attempts.remaining_s())))[0]:
                await self._refresh(partition.topic, attempts, _LOOK_S)
                if self._cluster.cache.leader(key) != leader:
                    break
            response = asking.result() if asking.done() else None
        finally:
            asking.cancel()
        if response is None:
            attempts.maybe_done = True
            silent = LeaderNotAvailable(f"broker {leader.broker_id}, the leader, did not answer")
            # After either error the client asks for metadata before the next attempt.
            attempts.last_error = self._cluster.cache.why_unreachable(leader.broker_id) or silent
        else:
            self._learn(response, key)
        return response

    def _completed(self, request: Message, key: PartitionKey) -> Message:
        complete: Any = type(request)()
        complete.CopyFrom(request)
        complete.client.CopyFrom(self._cluster.identity)
        if "coordinator_epoch" in complete.DESCRIPTOR.fields_by_name:
            complete.coordinator_epoch = max(complete.coordinator_epoch, self._cluster.cache.seen_epoch(key), 0)
        return complete  # type: ignore[no-any-return]

    def _learn(self, response: Answered, key: PartitionKey) -> None:
        epoch = getattr(response, "coordinator_epoch", 0)
        if epoch > self._cluster.cache.seen_epoch(key):
            self._cluster.cache.see_epoch(key, epoch)
