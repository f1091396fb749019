"""Where calls wait for their quotas, on a virtual clock: the debt is the principal's, paid before the work is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from minilog.errors import ResourceExhausted
from minilog.record_batch.header import Buffer
from minilog.security.quota_keys import PRODUCER_BYTE_RATE, REQUEST_RATE
from minilog.stream_messages import FETCH, MEMBER, PRODUCE
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, USER, Principal
from minilog_broker.security.quotas import WINDOW_S, Quotas
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.client_stream import ClientStream
from minilog_broker.server.ingress.rules.throttle import MAX_DELAY_S, MOST_WAITING, Throttle
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.turns import Turns
from tests.world.loop import play

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
RATE = 20_000
SIZE = 100_000
FOR_S = 60.0


def policy(**rates: int) -> Policy:
    image = MetadataImage()
    image.quotas["default"] = dict(rates)
    return Policy(image, lambda: Authorizer((), ()), lambda event: None, Quotas())


def time_s() -> float:
    return asyncio.get_running_loop().time()


class Wire:
    """The carrier of a stream whose client has sent one message, and takes all that is written."""

    def __init__(self, size: int) -> None:
        self.coming = [bytes(size)]

    async def read(self) -> bytes:
        if not self.coming:
            await asyncio.Event().wait()
        return self.coming.pop()

    async def write(self, content: Sequence[Buffer]) -> None:
        await asyncio.sleep(0.001)


async def as_it_is(content: Buffer) -> Any:
    return content


def stream_of(caller: Caller, flow: Flow, size: int = SIZE) -> ClientStream:
    return ClientStream(Wire(size), flow.of("peer"), flow, as_it_is, lambda content: (content,), caller)


def a_flow() -> Flow:
    return Flow(Budget(100 << 20), Budget(100 << 20), Turns())


class TestBytes:
    def test_produced_bytes_keep_to_the_rate_where_each_message_has_its_own_stream(self) -> None:
        """Once: the delay was that of the stream, and the next one had none: 534 MB in 10 s under 20,000 B/s."""

        async def scenario() -> None:
            rules, flow, passed = policy(producer_byte_rate=RATE), a_flow(), 0

            async def send() -> None:
                nonlocal passed
                while True:
                    stream = stream_of(Caller(ALICE, "h", PRODUCE.path, rules), flow)
                    async for message in stream.received():
                        passed += len(message)
                        break

            tasks = [asyncio.ensure_future(send()) for _ in range(50)]
            await asyncio.sleep(FOR_S)
            assert RATE * FOR_S <= passed <= RATE * (WINDOW_S + FOR_S) + SIZE
            await ended(tasks)

        play(scenario())

    def test_read_bytes_keep_to_the_rate_where_each_message_has_its_own_stream(self) -> None:
        async def scenario() -> None:
            rules, flow, passed = policy(consumer_byte_rate=RATE), a_flow(), 0

            async def read() -> None:
                nonlocal passed
                while True:
                    stream = stream_of(Caller(ALICE, "h", FETCH.path, rules), flow)
                    await stream.room()
                    passed += SIZE
                    await stream.write(bytes(SIZE))

            tasks = [asyncio.ensure_future(read()) for _ in range(50)]
            await asyncio.sleep(FOR_S)
            assert RATE * FOR_S <= passed <= RATE * (WINDOW_S + FOR_S) + SIZE
            await ended(tasks)

        play(scenario())

    def test_no_more_is_read_of_a_stream_while_something_is_owed(self) -> None:
        """However long: after ten seconds the next message passed, whatever was owed."""

        async def scenario() -> None:
            rules, flow = policy(producer_byte_rate=RATE), a_flow()
            caller = Caller(ALICE, "h", PRODUCE.path, rules)
            caller.charge(PRODUCER_BYTE_RATE, RATE * (WINDOW_S + 50))
            stream = stream_of(caller, flow)
            await anext(stream.received())
            assert 50 <= time_s() < 51

        play(scenario())

    @pytest.mark.parametrize(("size", "waits"), [(4 << 10, False), (SIZE, True)])
    def test_a_large_subscription_is_charged_as_what_is_produced_and_a_heartbeat_is_not(
        self, size: int, *, waits: bool
    ) -> None:
        async def scenario() -> None:
            rules, flow = policy(producer_byte_rate=RATE), a_flow()
            caller = Caller(ALICE, "h", MEMBER.path, rules)
            caller.charge(PRODUCER_BYTE_RATE, RATE * (WINDOW_S + 50))
            await anext(stream_of(caller, flow, size).received())
            assert (50 <= time_s() < 51) if waits else time_s() < 0.1

        play(scenario())

    def test_others_do_not_wait(self) -> None:
        async def scenario() -> None:
            rules, flow = policy(producer_byte_rate=RATE), a_flow()
            Caller(ALICE, "h", PRODUCE.path, rules).charge(PRODUCER_BYTE_RATE, 100 * RATE)
            await anext(stream_of(Caller(BOB, "h", PRODUCE.path, rules), flow).received())
            assert time_s() < 0.1

        play(scenario())


class TestLines:
    def test_calls_keep_to_the_rate_before_they_are_made(self) -> None:
        async def scenario() -> None:
            throttle, caller, made = Throttle(1 << 20), Caller(ALICE, "h", "/p", policy(request_rate=10)), 0

            async def call() -> None:
                nonlocal made
                await throttle.pay(caller, REQUEST_RATE, 1)
                made += 1

            tasks = [asyncio.ensure_future(call()) for _ in range(300)]
            await asyncio.sleep(0.05)
            assert made <= 10 * WINDOW_S + 1
            await asyncio.sleep(5.0)
            assert 145 <= made <= 152
            await ended(tasks)

        play(scenario())

    def test_a_line_keeps_the_order_of_arrival(self) -> None:
        async def scenario() -> None:
            throttle, caller, order = Throttle(1 << 20), Caller(ALICE, "h", "/p", policy(request_rate=10)), list[int]()
            caller.charge(REQUEST_RATE, 10 * WINDOW_S + 1)

            async def call(number: int) -> None:
                await throttle.pay(caller, REQUEST_RATE, 1)
                order.append(number)

            await asyncio.gather(*(call(number) for number in range(20)))
            assert order == list(range(20))

        play(scenario())

    def test_a_call_that_would_wait_too_long_is_refused_in_words_and_costs_nothing(self) -> None:
        async def scenario() -> None:
            throttle, caller = Throttle(1 << 20), Caller(ALICE, "h", "/p", policy(request_rate=1))
            caller.charge(REQUEST_RATE, WINDOW_S + 30)
            with pytest.raises(
                ResourceExhausted, match=r"User:alice is above its request_rate, and its debt lasts 20\.0 s"
            ):
                await throttle.pay(caller, REQUEST_RATE, 1, within_s=MAX_DELAY_S)
            assert time_s() == pytest.approx(MAX_DELAY_S, abs=0.01)
            assert caller.owed_s(REQUEST_RATE) == pytest.approx(20.0, abs=0.01)

        play(scenario())

    def test_a_caller_that_gives_up_costs_nothing_and_leaves_no_line(self) -> None:
        async def scenario() -> None:
            throttle, caller = Throttle(1 << 20), Caller(ALICE, "h", "/p", policy(request_rate=1))
            caller.charge(REQUEST_RATE, WINDOW_S + 5)
            tasks = [asyncio.ensure_future(throttle.pay(caller, REQUEST_RATE, 1)) for _ in range(10)]
            await asyncio.sleep(1.0)
            await ended(tasks)
            assert throttle.lines == 0
            await throttle.pay(caller, REQUEST_RATE, 1)
            assert time_s() == pytest.approx(5.0, abs=0.01)

        play(scenario())

    def test_the_bytes_in_a_line_are_bounded(self) -> None:
        async def scenario() -> None:
            throttle, caller = Throttle(3 * SIZE), Caller(ALICE, "h", "/p", policy(request_rate=1))
            caller.charge(REQUEST_RATE, WINDOW_S + 5)
            waiting = [asyncio.ensure_future(throttle.pay(caller, REQUEST_RATE, 0, SIZE)) for _ in range(3)]
            await asyncio.sleep(0.1)
            with pytest.raises(ResourceExhausted, match="too many calls wait for the request_rate of User:alice"):
                await throttle.pay(caller, REQUEST_RATE, 0, 1)
            waiting += [asyncio.ensure_future(throttle.pay(caller, REQUEST_RATE, 0)) for _ in range(MOST_WAITING - 3)]
            await asyncio.sleep(0.1)
            with pytest.raises(ResourceExhausted, match="too many calls wait"):
                await throttle.pay(caller, REQUEST_RATE, 0)
            await asyncio.gather(*waiting)

        play(scenario())

    def test_a_single_message_passes_however_large(self) -> None:
        async def scenario() -> None:
            throttle, caller = Throttle(10), Caller(ALICE, "h", "/p", policy(request_rate=1))
            caller.charge(REQUEST_RATE, WINDOW_S + 5)
            await throttle.pay(caller, REQUEST_RATE, 1, SIZE)

        play(scenario())

    def test_a_quota_that_is_taken_away_is_waited_for_no_more(self) -> None:
        async def scenario() -> None:
            rules = policy(request_rate=1)
            throttle, caller = Throttle(10), Caller(ALICE, "h", "/p", rules)
            caller.charge(REQUEST_RATE, 1_000_000)
            waiting = asyncio.ensure_future(throttle.pay(caller, REQUEST_RATE, 1))
            await asyncio.sleep(5.0)
            rules._image.quotas.clear()
            await waiting
            assert time_s() < 6.1

        play(scenario())

    def test_strangers_do_not_slow_each_others_logins_down(self) -> None:
        """They are all one principal: under a quota of `default` one of them kept all others from logging in."""

        async def scenario() -> None:
            throttle, stranger = Throttle(10), Caller(ANONYMOUS, "h", "/p", policy(request_rate=1))
            for _ in range(1_000):
                await throttle.pay(stranger, REQUEST_RATE, 1)
            assert time_s() == 0.0

        play(scenario())


async def ended(tasks: list[asyncio.Task[None]] | list[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
