"""A broker that hears no controller goes by users and rules for a session, and serves nobody behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minilog.errors import BrokerNotAvailable, MinilogError, error_from_wire
from minilog.v1 import authentication_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, USER, Principal
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.sessions import LoginSessions
from minilog_broker.server.ingress.rules.arrival import arrival_of
from minilog_broker.server.ingress.rules.client_gate import ClientGate
from minilog_broker.server.metrics.broker_state import of_rules
from minilog_broker.server.services.authentication_service import AuthenticationService
from tests.rules import proves
from tests.unit.server.surroundings import nobody

pytestmark = proves("MD.11")

ALICE = Principal(USER, "alice")
HOST = "10.0.0.7"
NEVER = float("inf")
FETCH = "/minilog.v1.DataService/Fetch"
HEALTH = "/grpc.health.v1.Health/Watch"
AUTHENTICATE = "/minilog.v1.AuthenticationService/Authenticate"
WORDS = (
    r"^broker 1 has heard no controller for [\d.]+ s, and its users and rules may be out of date: ask another broker"
)


class TestTheAge:
    def test_the_age_counts_from_the_last_confirmation_of_a_controller(self) -> None:
        age = RulesAge(1, 3_000.0)
        age.confirmed(1_000.0)
        assert (age.age_s(3_500.0), age.left_s(3_500.0), age.refusal(3_999.0)) == (2.5, 0.5, None)
        refusal = age.refusal(4_000.0)
        assert isinstance(refusal, BrokerNotAvailable)
        assert refusal.retriable
        assert "has heard no controller for 3.0 s" in str(refusal)
        assert age.left_s(4_000.0) == NEVER

    def test_an_answer_that_comes_late_makes_them_no_older(self) -> None:
        age = RulesAge(1, 3_000.0)
        age.confirmed(2_000.0)
        age.confirmed(1_000.0)
        assert (age.age_s(3_000.0), age.refusal(4_999.0)) == (1.0, None)

    def test_before_the_first_word_in_this_life_nobody_comes_in(self) -> None:
        """Its metadata log may be that of last week. No setting changes that."""
        for most_ms in (3_000.0, NEVER):
            age = RulesAge(1, most_ms)
            with pytest.raises(BrokerNotAvailable, match="broker 1 is starting"):
                age.check(0.0)
            assert (age.age_s(0.0), age.left_s(0.0)) == (NEVER, NEVER)

    def test_an_operator_may_allow_old_ones(self) -> None:
        age = RulesAge(1, NEVER)
        age.confirmed(1_000.0)
        assert (age.refusal(1e9), age.left_s(1e9)) == (None, NEVER)
        assert age.age_s(2_000.0) == 1.0


def test_a_metric_tells_it_where_rules_count() -> None:
    assert of_rules(None) == []
    ((metric, _, value),) = of_rules(2.5)
    assert (metric.name, value) == ("minilog_access_rules_age_seconds", 2.5)


class Call:
    """As gRPC's context tells of it: of a user with a certificate."""

    def peer(self) -> str:
        return f"ipv4:{HOST}:4711"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [b"alice"]}

    def invocation_metadata(self) -> tuple[()]:
        return ()


class World:
    """A gate of a broker that has heard a controller just now, and will have to hear one again."""

    def __init__(self) -> None:
        self.told: list[AuditEvent] = []
        self.age = RulesAge(1, 60_000.0)
        self.age.confirmed(self.now_ms())
        rules = Authorizer((), ("User:alice",))
        self.gate = ClientGate(Policy(MetadataImage(), lambda: rules, self.told.append, Quotas()), None, self.age)

    @staticmethod
    def now_ms() -> float:
        return asyncio.get_running_loop().time() * 1000.0

    def grow_old(self) -> None:
        """A minute passes."""
        self.age._as_of_ms = self.now_ms() - 60_000.0


class TestTheGate:
    def test_calls_are_refused_and_the_audit_log_tells_why(self) -> None:
        async def scenario() -> list[AuditEvent]:
            world = World()
            assert world.gate.admit(FETCH, arrival_of(Call())).principal == ALICE
            world.grow_old()
            with pytest.raises(BrokerNotAvailable, match=WORDS):
                world.gate.admit(FETCH, arrival_of(Call()))
            assert world.gate.admit(HEALTH, arrival_of(Call())).principal == ANONYMOUS
            world.age.confirmed(world.now_ms())
            assert world.gate.admit(FETCH, arrival_of(Call())).principal == ALICE
            return world.told

        (told,) = asyncio.run(scenario())
        assert (told.decision, told.method) == (Decision.DENIED, FETCH)

    def test_streams_are_ended_and_those_of_health_go_on(self) -> None:
        async def scenario() -> list[str]:
            world = World()

            async def stream(path: str) -> str:
                try:
                    with world.gate.stream(world.gate.admit(path, arrival_of(Call()))):
                        await asyncio.sleep(0.05)
                except MinilogError as error:
                    return str(error)
                return "went on"

            streams = [asyncio.create_task(stream(each)) for each in (FETCH, HEALTH)]
            await asyncio.sleep(0)
            world.gate.end_streams_of_old_rules()
            await asyncio.sleep(0)
            assert not any(each.done() for each in streams)
            world.grow_old()
            world.gate.end_streams_of_old_rules()
            return await asyncio.gather(*streams)

        fetch, health = asyncio.run(scenario())
        assert "has heard no controller" in fetch
        assert health == "went on"


class Stream:
    """Of a client that authenticates."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.answers: list[authentication_pb2.AuthenticateResponse] = []

    async def write(self, answer: authentication_pb2.AuthenticateResponse) -> None:
        self.answers.append(answer)


def test_nobody_logs_in_by_what_was_known_before_the_cut() -> None:
    """Neither a password nor a token is looked at: the mechanism is not even made."""

    async def scenario() -> tuple[MinilogError | None, list[AuditEvent]]:
        world = World()
        stream: Any = Stream(world.gate.admit(AUTHENTICATE, arrival_of(Call())))
        world.grow_old()
        service = AuthenticationService(nobody, LoginSessions(nobody), 1_000.0, world.told.append, world.age)

        async def requests() -> Any:
            yield authentication_pb2.AuthenticateRequest(mechanism="SCRAM-SHA-512")

        await service.Authenticate(requests(), stream)
        (answer,) = stream.answers
        return error_from_wire(answer.error), world.told

    refused, told = asyncio.run(scenario())
    assert isinstance(refused, BrokerNotAvailable)
    assert "has heard no controller" in str(refused)
    assert [each.decision for each in told] == [Decision.DENIED]
