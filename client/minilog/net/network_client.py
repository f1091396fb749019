"""The brokers from the view of one client: channels, metadata, unary calls. It lives on one event loop.

Metadata comes from any broker that answers: first the known brokers, then the bootstrap servers. Each has a short time,
so a broker that hangs does not delay the client for long. The caller's deadline bounds everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from minilog.addresses import Address, address_text
from minilog.client_config import ClientConfig
from minilog.errors import (
    AuthenticationFailed,
    BrokerNotAvailable,
    InconsistentClusterId,
    InvalidArgument,
    MinilogError,
    TimedOut,
    UnknownTopicOrPartition,
    error_from_wire,
)
from minilog.limits import MAX_METADATA_TOPICS, parts_of
from minilog.net.answer_race import AnswerRace
from minilog.net.backoff import ExponentialBackoff
from minilog.net.client_security import ClientSecurity
from minilog.net.home import Home
from minilog.net.metadata_cache import CachedTopic, MetadataCache, metadata_request
from minilog.net.offsets_query import OffsetsQuery
from minilog.net.reachability import Reachability, connect_failure
from minilog.net.running_time import RunningTime, running_within
from minilog.net.runtime import Runtime, now_s
from minilog.types import OffsetSpec, TopicPartition
from minilog.v1 import common_pb2, metadata_pb2, metadata_pb2_grpc
from minilog.versions import PROTOCOL, check_protocol, range_from_wire

if TYPE_CHECKING:  # it loads Arrow, which a client with calls only does not need
    from minilog.net.stream_connection import StreamConnection

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_ATTEMPT_S = 1.0  # the time of one broker for an answer; it doubles after each round over all brokers
_PATIENCE_S = 0.1  # after it the client asks another broker, too, because the first one may hang; it doubles each time
_REASON_S = 0.1  # the time of a call that finds out why there is no connection to a broker
_AVOID_S = 2.0  # for so long the client asks a broker that failed or hung after all others
_TOPIC_GRACE_S = 2.0  # a broker may not know a new topic for so long


async def _get_metadata(
    request: metadata_pb2.GetMetadataRequest, channel: grpc.aio.Channel, within_s: float
) -> metadata_pb2.GetMetadataResponse:
    answer: metadata_pb2.GetMetadataResponse = await metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(
        request, timeout=within_s
    )
    return answer


class NetworkClient:
    """The network of one client. `cache` is its knowledge. Calls go to one broker, to any broker, or to the
    controller."""

    def __init__(self, config: ClientConfig, runtime: Runtime) -> None:
        self.home = Home()
        self.config = config
        self.runtime = runtime
        self.identity = config.identity()
        self.cache = MetadataCache(reachability=Reachability(frozenset(config.bootstrap_servers)))
        self._security = ClientSecurity(config, runtime)
        self._channels: dict[Address, grpc.aio.Channel] = {}
        self._certificates: dict[Address, int] = {}  # the version of the file that a channel has read
        self._outdated: list[grpc.aio.Channel] = []  # one for each broker and renewed certificate
        self._turn = itertools.count()
        self._chance = runtime.chance()
        self._avoided_until_s: dict[Address, float] = {}
        self._last_error: MinilogError | None = None
        self._told_unreachable: frozenset[int] = frozenset()
        self._told_not_connected: set[tuple[Address, bool]] = set()  # with True for the port of calls
        self._told_of_another_cluster = False

    async def close(self) -> None:
        """Close all channels. This cancels the calls under way."""
        self.home.check()
        channels, self._channels = [*self._channels.values(), *self._outdated], {}
        for channel in channels:
            with contextlib.suppress(Exception):
                await channel.close(None)
        await self._security.close()

    def open_channel(self, address: Address) -> grpc.aio.Channel:
        """A new channel to a broker, by this client's settings. Raises InvalidConfig if a file is missing."""
        self.home.check()
        return self._security.open_channel(address)

    async def session(self, address: Address) -> bytes:
        """The session that proves this client's identity to a broker. Raises MinilogError."""
        self.home.check()
        return await self._security.session(address)

    async def connect(self, address: Address, protocol: Callable[[], StreamConnection]) -> StreamConnection:
        """A connection to a port of streams, by this client's settings. Raises OSError, InvalidConfig."""
        self.home.check()
        return await self._security.connect(address, protocol)

    def not_believed(self, address: Address, reason: str) -> AuthenticationFailed:
        """The error for a broker whose certificate is not believed."""
        return self._security.not_believed(address, reason)

    def own_certificate_refused(self, address: Address, error: OSError) -> AuthenticationFailed:
        """The error for a broker that does not accept this client's certificate."""
        return self._security.own_certificate_refused(address, error)

    def ended_certificate(self) -> AuthenticationFailed | None:
        """The error for this client's own certificate if it has ended."""
        return self._security.ended_certificate()

    def session_refused(self, address: Address) -> None:
        """Note that this broker refuses the session, since it has restarted, or the session has ended. The client logs
        in again."""
        self._security.forget_session(address)

    def stream_not_connected(self, address: Address, stream_address: Address, reason: str) -> None:
        """Note that no stream to this broker could be opened. The client logs the reason once, until one is open."""
        self.cache.reachability.stream_failed(address, stream_address, reason)
        self._tell_not_connected(address)

    def stream_connected(self, address: Address) -> None:
        """Note that a stream to this broker is open."""
        if self.cache.reachability.stream_reason(address) is not None:
            self.cache.reachability.stream_reached(address)
            _log.info("a stream to the broker at %s is open again", address_text(address))
        self.connected(address)

    def connected(self, address: Address) -> None:
        """Note that the port of calls of this broker answers. The former reasons do not count any more."""
        self.cache.reachability.reached(address)
        if self.cache.reachability.stream_reason(address) is None:
            self._told_not_connected -= {(address, False), (address, True)}

    async def _find_reason(self, address: Address, within_s: float, otherwise: str) -> None:
        """Find out and note why there was no connection within `within_s`. gRPC gives the reason only with a failed
        call, so this makes one. Raises AuthenticationFailed, AuthorizationFailed."""
        request = metadata_request(self.identity, [])
        answer = await self.call(address, lambda channel: _get_metadata(request, channel, _REASON_S))
        if answer is None and self.cache.reachability.reason(address) is None and within_s >= _REASON_S:
            self.cache.reachability.failed(address, otherwise)

    def _tell_not_connected(self, address: Address) -> None:
        """Warn once of each port of a broker that this client cannot connect to, until it has all its connections."""
        why = self.cache.why_not_connected(address)
        port_of_calls = self.cache.reachability.reason(address) is not None
        if why is not None and (address, port_of_calls) not in self._told_not_connected:
            self._told_not_connected.add((address, port_of_calls))
            _log.warning("its partitions cannot be written or read: %s", why)

    def channel(self, address: Address) -> grpc.aio.Channel:
        """The channel for unary calls to `address`."""
        self.home.check()
        if address not in self._channels:
            self._channels[address] = self.open_channel(address)
            self._certificates[address] = self._security.certificate_version()
        return self._channels[address]

    def _drop_outdated(self, address: Address) -> None:
        """A channel shows the certificate with which it was made. If the file has a new one, the next call makes a new
        channel. Calls under way may still use the old one."""
        version = self._security.certificate_version()
        if address in self._channels and self._certificates.get(address, version) != version:
            self._outdated.append(self._channels.pop(address))

    def address(self, broker_id: int) -> Address | None:
        """The address of a broker's port of calls. None if it is not known."""
        return self.cache.address(broker_id)

    def stream_address(self, broker_id: int) -> Address | None:
        """The address of a broker's port of streams. None if it is not known."""
        return self.cache.stream_address(broker_id)

    def candidates(self) -> list[Address]:
        """The brokers that the client may ask, each time another one first. Brokers that failed lately are last."""
        self.home.check()
        addresses = [(broker.host, broker.port) for broker in self.cache.brokers.values()]
        every = list(dict.fromkeys([*addresses, *self.config.bootstrap_servers]))
        start = next(self._turn) % len(every)
        this_s = now_s()
        return sorted(
            every[start:] + every[:start], key=lambda address: self._avoided_until_s.get(address, 0.0) > this_s
        )

    def avoid(self, address: Address) -> None:
        """Note that this broker failed or was silent. For a while the client asks other brokers first."""
        self._avoided_until_s[address] = now_s() + _AVOID_S

    async def call(self, address: Address, make: Callable[[grpc.aio.Channel], Awaitable[_Answer]]) -> _Answer | None:
        """Make one unary call. None if it did not get through. The client keeps the reason for a later error.

        Raises InvalidArgument if the broker refuses the request's content, AuthenticationFailed, AuthorizationFailed.
        """
        try:
            answer = await make(self.channel(address))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise InvalidArgument(str(error.details())) from error
            refusal = self._security.refusal(address, error)
            if refusal is not None and not refusal.retriable:
                raise refusal from error
            if (
                error.code() is grpc.StatusCode.UNAVAILABLE
                and (ended := self._security.ended_certificate()) is not None
            ):
                raise ended from error
            self.avoid(address)
            no_answer = self._no_answer(address, error)
            if self._last_error is None or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._last_error = no_answer  # a time-out says less than a former error
            return None
        self.connected(address)
        return answer

    def _no_answer(self, address: Address, error: grpc.aio.AioRpcError) -> BrokerNotAvailable:
        """The error for a call that did not get through. If there was no connection, the client keeps the reason."""
        reason = connect_failure(str(error.details()))
        if reason is not None:
            self.cache.reachability.failed(address, reason)
            self._drop_outdated(address)
        why = None if reason is None else self.cache.why_not_connected(address)
        answered = f"the broker at {address_text(address)} did not answer: {error.code().name}, {error.details()}"
        return BrokerNotAvailable(why or answered)

    async def is_reachable(self, address: Address, within_s: float) -> bool:
        """Whether this client gets a connection to the broker within `within_s`, and the broker accepts its identity.

        Raises AuthenticationFailed."""
        left: RunningTime | None = None
        try:
            async with running_within(max(0.001, within_s)) as left:
                await self.channel(address).channel_ready()
        except TimeoutError:
            await self._find_reason(address, within_s, f"no connection {left}")
            return False
        except grpc.aio.AioRpcError as error:
            refusal = self._security.refusal(address, error)
            if refusal is not None and not refusal.retriable:
                raise refusal from error
            return False
        self.connected(address)
        return True

    async def ask_any(
        self, make: Callable[[grpc.aio.Channel, float], Awaitable[_Answer]], deadline_s: float
    ) -> _Answer:
        """The first answer from any broker. Raises TimedOut or BrokerNotAvailable at the deadline (monotonic clock)."""
        race, backoff = AnswerRace[_Answer](), self.backoff()
        attempt_s, patience_s = _ATTEMPT_S, _PATIENCE_S
        try:
            while True:
                for address in self.candidates():
                    remaining_s = deadline_s - now_s()
                    if remaining_s <= 0:
                        raise self.timed_out("no broker answered in time")
                    if race.has(address):
                        continue
                    within_s = min(attempt_s, remaining_s)
                    call = self.call(address, lambda channel, within_s=within_s: make(channel, within_s))  # type: ignore[misc]
                    race.add(address, call)
                    if (answer := await race.first(min(patience_s, remaining_s))) is not None:
                        return answer
                    self.avoid(address)
                    patience_s = min(2 * patience_s, _ATTEMPT_S)
                if (answer := await race.first(min(backoff.next(), deadline_s - now_s()))) is not None:
                    return answer
                attempt_s *= 2
        finally:
            race.end()

    def timed_out(self, what: str) -> MinilogError:
        """The error for a deadline that passed, with the last known reason."""
        servers = ",".join(map(address_text, self.config.bootstrap_servers))
        if self._last_error is None:
            why = self.cache.why_some_not_connected()
            return TimedOut(f"{what}; bootstrap.servers={servers}" + ("" if why is None else f"; {why}"))
        return type(self._last_error)(f"{what}; bootstrap.servers={servers}; last: {self._last_error}")

    async def refresh(
        self, names: Iterable[str] | None, deadline_s: float | None = None, *, sure_within_s: float = 0.0
    ) -> metadata_pb2.GetMetadataResponse:
        """Fetch the metadata of some topics (None: all), and take it into the cache. Skip answers that are too old.

        If a topic is missing and the client cannot ask a controller about it, it asks again for up to `sure_within_s`.
        Raises BrokerNotAvailable or TimedOut at the deadline, by default after request.timeout.ms.
        """
        deadline_s = deadline_s if deadline_s is not None else self.deadline()
        believed_s = min(deadline_s, now_s() + sure_within_s)
        if names is None:
            return await self._refreshed(None, deadline_s, believed_s)
        first, *others = list(parts_of(sorted(set(names)), MAX_METADATA_TOPICS)) or [()]
        answer = await self._refreshed(first, deadline_s, believed_s)
        for part in others:
            answer.topics.extend((await self._refreshed(part, deadline_s, believed_s)).topics)
        return answer

    async def _refreshed(
        self, names: Sequence[str] | None, deadline_s: float, believed_s: float
    ) -> metadata_pb2.GetMetadataResponse:
        """Do `refresh` for at most as many topics as one request may name.

        Until `believed_s` a topic counts as missing only if a controller confirms it."""
        request = metadata_request(self.identity, names)
        backoff = self.backoff()
        while True:
            answer = await self.ask_any(partial(_get_metadata, request), deadline_s)
            self._check_broker(answer)
            error = error_from_wire(answer.error)
            if error is None and self._is_news(answer):
                self._last_error = None
                self._tell_unreachable()
                confirmed = await self._confirmed(request, answer, deadline_s)
                if confirmed is not None or now_s() >= believed_s:
                    return confirmed or answer
            elif error is not None and not error.retriable:
                raise error
            self._last_error = error or self._last_error
            await asyncio.sleep(backoff.next())

    def _is_news(self, answer: metadata_pb2.GetMetadataResponse) -> bool:
        """Take an answer into the cache. Returns whether the cache accepted it.

        Raises InconsistentClusterId, and warns of it once."""
        try:
            return self.cache.apply(answer)
        except InconsistentClusterId as error:
            if not self._told_of_another_cluster:
                self._told_of_another_cluster = True
                _log.warning("%s", error)
            raise

    def _tell_unreachable(self) -> None:
        """Warn once of brokers that have no listener of this client's name. Their partitions wait."""
        unreachable = self.cache.unreachable
        if unreachable - self._told_unreachable:
            _log.warning("its partitions cannot be written or read: %s", self.cache.why_unreachable(min(unreachable)))
        self._told_unreachable = unreachable

    def _check_broker(self, answer: metadata_pb2.GetMetadataResponse) -> None:
        """Raises UnsupportedVersion if this client and the broker that answered have no common protocol version."""
        own_name = f"this client (version {self.identity.client_version})"
        broker_name = f"the broker that answered (version {answer.broker_version or 'unknown'})"
        check_protocol(PROTOCOL, own_name, range_from_wire(answer.protocol), broker_name)

    async def _confirmed(
        self, request: metadata_pb2.GetMetadataRequest, answer: metadata_pb2.GetMetadataResponse, deadline_s: float
    ) -> metadata_pb2.GetMetadataResponse | None:
        """`answer`, or the controller's answer if the broker that answered does not know a topic of the request.

        Another client may have created the topic a moment ago, and the controller's broker knows it first. None if the
        client gets no answer from that broker."""
        if all(topic.error.code != common_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION for topic in answer.topics):
            return answer
        address = self.address(answer.controller_id)
        timeout = min(_ATTEMPT_S, deadline_s - now_s())
        if address is None or timeout <= 0:
            return None
        newest = await self.call(address, lambda channel: _get_metadata(request, channel, timeout))
        return newest if newest is not None and not newest.error.code and self._is_news(newest) else None

    def backoff(self) -> ExponentialBackoff:
        """The pauses between the attempts of one operation, in seconds."""
        config = self.config
        return ExponentialBackoff(config.retry_backoff_ms / 1e3, config.retry_backoff_max_ms / 1e3, self._chance)

    def deadline(self) -> float:
        """The time request.timeout.ms from now, on the monotonic clock, in seconds."""
        return now_s() + self.config.request_timeout_ms / 1000.0

    async def topic(self, name: str, deadline_s: float, partition: int = 0) -> CachedTopic:
        """A topic by name. If the topic or its `partition` is not known, ask the brokers for a while, because a client
        may have created it a moment ago. Raises UnknownTopicOrPartition, BrokerNotAvailable."""
        give_up_s = min(deadline_s, now_s() + _TOPIC_GRACE_S)
        wanted, backoff = TopicPartition(name, partition), self.backoff()
        while not self.cache.has(wanted):
            await self.refresh([name], deadline_s)
            if not self.cache.has(wanted):
                if now_s() >= give_up_s or partition < 0:
                    self.cache.key(wanted)
                await asyncio.sleep(backoff.next())
        return self.cache.topics[name]

    async def query_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec], deadline_s: float) -> OffsetsQuery:
        """Ask all leaders until each partition has answered or failed, or the deadline has passed."""
        query = OffsetsQuery(self.cache, wanted)
        await self.complete(query, deadline_s)
        return query

    async def complete(self, query: OffsetsQuery, deadline_s: float) -> None:
        """Ask for the missing answers until each partition has answered or failed, or the deadline has passed."""
        if not query.topics() <= self.cache.topics.keys():
            await self.refresh(query.topics(), deadline_s)
        unknown_until_s, backoff = now_s() + _TOPIC_GRACE_S, self.backoff()
        while True:
            await self.ask_leaders(query)
            missing = query.missing()
            if not missing or now_s() >= deadline_s:
                return
            if now_s() >= unknown_until_s:
                for partition in missing:
                    if isinstance(query.last_errors.get(partition), UnknownTopicOrPartition):
                        query.failures[partition] = query.last_errors[partition]
            await asyncio.sleep(backoff.next())
            with contextlib.suppress(BrokerNotAvailable, TimedOut):
                await self.refresh(query.topics(), deadline_s)

    async def ask_leaders(self, query: OffsetsQuery) -> None:
        """Ask the leaders of all missing partitions once, at the same time."""
        await asyncio.gather(*(self._ask_offsets(query, *request) for request in query.requests(self.identity)))

    async def refresh_and_ask(
        self, names: Iterable[str] | None, query: OffsetsQuery
    ) -> metadata_pb2.GetMetadataResponse:
        """Ask for metadata, and at the same time ask the known leaders for offsets. So both take one round trip.

        If an answer is outdated by the new metadata, the query drops it, and the partition is missing again. Raises the
        errors of `refresh`.
        """
        asking = asyncio.ensure_future(self.ask_leaders(query))
        try:
            answer = await self.refresh(names, sure_within_s=_TOPIC_GRACE_S)
            # A leader that hangs may not lead any more. A new question by the new metadata is quicker.
            await asyncio.wait((asking,), timeout=_PATIENCE_S)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        query.forget_outdated()
        return answer

    async def _ask_offsets(self, query: OffsetsQuery, broker_id: int, request: metadata_pb2.ListOffsetsRequest) -> None:
        address = self.address(broker_id)
        if address is None:
            return
        answer: Any = await self.call(
            address,
            lambda channel: metadata_pb2_grpc.MetadataServiceStub(channel).ListOffsets(request, timeout=_ATTEMPT_S),
        )
        if answer is not None:
            query.answered(answer)
        else:
            self._tell_not_connected(address)
