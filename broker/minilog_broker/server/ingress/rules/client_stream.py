"""A stream that is served: the way of each message between its carrier and the service.

Messages are parsed and serialized here, not by their carrier. Their sizes cost nothing then, since protobuf finds a
size out by serializing. And each part is dropped as soon as it is not needed any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from minilog.record_batch.header import Buffer
from minilog.security.quota_keys import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_RATE
from minilog.stream_messages import FETCH, MEMBER, PRODUCE
from minilog.tracing.interfaces import StreamSpans
from minilog_broker.server.access.caller import Caller, has_quotas
from minilog_broker.server.ingress.rules.traffic import Flow, Traffic
from minilog_broker.server.runtime.observer import UNOBSERVED_CALL, CallObserver
from minilog_broker.server.runtime.turns import Turns

PEER_SERVICES = frozenset({"minilog.v1.PeerService", "minilog.v1.MarkerService"})
"""The services that brokers call on each other."""
_FREE_BYTES = 4 << 10  # of a member's message: heartbeats and most subscriptions, which debts of a producer never delay
_COPIES = 2  # copies of a message in a write: the serialized one, and the carrier's
LARGE_BYTES = 2 << 20  # composing or parsing this holds the loop for some milliseconds; a message has up to 4 MiB
Parse: TypeAlias = Callable[[Buffer], Awaitable[Any]]
"""Makes a request of its bytes (ingress/rules/admission.py). Raises InvalidArgument, CorruptMessage."""


class Carrier(Protocol):
    """The carrier of the messages of one stream: a call of gRPC, or a connection of its own."""

    async def read(self) -> Buffer | None:
        """The next message, None where the other side sends no more."""

    async def write(self, content: Sequence[Buffer]) -> None:
        """Write one message. Returns when the other side reads."""


class ClientStream:
    """A bidirectional call of a client. It reads and composes messages as the budgets allow.

    One of the long-lived streams is a minilog.net.payload_stream.PayloadStream. Any other takes and gives messages
    without payloads.
    """

    def __init__(
        self,
        carrier: Carrier,
        traffic: Traffic,
        flow: Flow,
        parse: Parse,
        compose: Callable[[Any], Sequence[Buffer]],
        caller: Caller,
        observer: CallObserver = UNOBSERVED_CALL,
        spans: StreamSpans | None = None,
    ) -> None:
        self.caller = caller
        self._spans = spans
        self._carrier = carrier
        self._observer = observer
        self._traffic = traffic
        self._flow = flow
        self._parse = parse
        self._compose = compose
        self._composed_bytes: int | None = None  # of the last message: the next one is most likely as large

    async def received(self) -> AsyncIterator[Any]:
        """The messages. Each counts until the service is done with it. The stream reads none while the budget is
        spent."""
        budget = self._flow.requests
        await self._room_to_read()
        while (content := await self._carrier.read()) is not None:
            size_bytes = len(content)
            self._traffic.took(size_bytes)
            self._observer.received(size_bytes)
            with budget.holding(size_bytes):
                await self._charge(size_bytes)
                message = [await self._parse(content)]
                del content
                yield message.pop()  # handed on: nothing here holds it during the service's work
            await self._room_to_read()

    async def _room_to_read(self) -> None:
        """Wait while the caller has a debt, and for room. Flow control makes the client wait, and the broker holds
        nothing."""
        for key in self._quotas():
            await self._flow.throttle.pay(self.caller, key, 0)
        await self._flow.requests.room()

    async def _charge(self, size_bytes: int) -> None:
        """Charge a message that has come. Others of the same principal may be before it. Raises ResourceExhausted."""
        keys = self._quotas()
        if self.caller.path == MEMBER.path and size_bytes > _FREE_BYTES:
            keys = (*keys, PRODUCER_BYTE_RATE)  # its coordinator writes it into its log
        for key in keys:
            amount = size_bytes if key == PRODUCER_BYTE_RATE else 1
            await self._flow.throttle.pay(self.caller, key, amount, size_bytes)

    def _quotas(self) -> tuple[str, ...]:
        """The quotas for a message that comes."""
        return (REQUEST_RATE, PRODUCER_BYTE_RATE) if self.caller.path == PRODUCE.path else (REQUEST_RATE,)

    @property
    def turns(self) -> Turns:
        """The turns of the port, for costly work."""
        return self._flow.turns

    async def room(self, *, is_costly: bool = False) -> None:
        """Return when another message may be composed: the caller has no debt for reads, and there is room. The
        composed message is charged before the next question (`write`)."""
        while True:
            await self._room_to_compose(is_costly=is_costly)
            if self.caller.path != FETCH.path or not has_quotas(self.caller):
                return
            if self.caller.owed_s(CONSUMER_BYTE_RATE) <= 0:
                return
            await self._flow.throttle.pay(self.caller, CONSUMER_BYTE_RATE, 0)

    async def _room_to_compose(self, *, is_costly: bool) -> None:
        """Wait for room. A large message, or one that is costly for another reason, also waits for its turn. The turns
        before it may have used the room up."""
        responses = self._flow.responses
        await responses.room()
        if is_costly or self._composed_bytes is None or self._composed_bytes > LARGE_BYTES:
            await self._flow.turns.take()
            while responses.is_spent:
                await responses.room()
                await self._flow.turns.take()

    async def write(self, message: Any) -> None:
        """Write a message. Returns when the network has taken it over: the other side reads."""
        if self._spans is not None:
            self._spans.sending(message)
        content = self._compose(message)
        del message
        size_bytes = self._composed_bytes = sum(map(len, content))
        self._traffic.given_bytes += size_bytes
        self._observer.sent(size_bytes)
        if self.caller.path == FETCH.path and has_quotas(self.caller):
            self.caller.charge(CONSUMER_BYTE_RATE, size_bytes)
        with self._flow.responses.holding(_COPIES * size_bytes):
            await self._carrier.write(content)
        if self._spans is not None:
            self._spans.sent()


class BrokerStream(ClientStream):
    """The same for another broker, which does not wait for budgets or quotas."""

    async def received(self) -> AsyncIterator[Any]:
        self._traffic.broker_calls += 1
        try:
            while (content := await self._carrier.read()) is not None:
                self._traffic.took(len(content))
                self._observer.received(len(content))
                message = [await self._parse(content)]
                del content
                yield message.pop()
        finally:
            self._traffic.broker_calls -= 1
