"""Logins by delegation tokens on a broker: whose they are, how long their sessions are taken, and who gets more."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest

from minilog.errors import (
    AuthenticationFailed,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    MinilogError,
    NotController,
    error_from_wire,
    wire_error,
)
from minilog.security.scram import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    LoginKind,
    ScramClient,
    ScramCredential,
    ScramMechanism,
)
from minilog.security.secret import Secret
from minilog.v1 import security_pb2
from minilog_broker.controller.delegation_tokens import no_such_token
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.delegation_token import IssuedToken
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.caller import Caller, Proof
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.scram_exchange import ScramUsers
from minilog_broker.server.access.sessions import LoginSession, LoginSessions
from minilog_broker.server.ingress.rules.client_gate import ClientGate, SessionCaller
from minilog_broker.server.services.security_service import SecurityService, answer_told
from tests.rules import proves
from tests.unit.server.surroundings import rules_of_now

pytestmark = proves("MD.29")

MECHANISM = ScramMechanism.SCRAM_SHA_512
HMAC = Secret(base64.b64encode(b"s" * 32).decode())
CREDENTIAL = ScramCredential.derive(MECHANISM, HMAC, salt=b"s" * SALT_BYTES, iterations=DEFAULT_ITERATIONS)
TOKEN = IssuedToken("0f1e", "User:alice", (), 0, 10_000, 60_000, {MECHANISM: CREDENTIAL})
ALICE, HOST, PATH = Principal(USER, "alice"), "10.0.0.7", "/minilog.v1.SecurityService/CreateDelegationToken"


class World:
    """A broker's image and clock."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.image.tokens[TOKEN.token_id] = TOKEN
        self.wall_ms = 4_000
        self.users = ScramUsers(self.image, "", lambda: self.wall_ms * 1000)

    def exchange(self, kind: LoginKind = LoginKind.DELEGATION_TOKEN) -> tuple[Any, bytes]:
        """As far as the client's last message."""
        side = self.users.begin(MECHANISM)
        client = ScramClient(MECHANISM, TOKEN.token_id, HMAC, "n" * 32, kind=kind)
        return side, client.answer(asyncio.run(side.respond(client.first_message())))


@pytest.fixture
def world() -> World:
    return World()


class TestTheExchange:
    def test_the_exchange_ends_with_the_owner_until_the_end_of_the_token(self, world: World) -> None:
        side, answer = world.exchange()
        asyncio.run(side.respond(answer))
        assert (side.principal, side.token_id, side.lifetime_ms) == (ALICE, "0f1e", 6_000.0)

    def test_a_token_that_is_expired_is_refused_by_this_brokers_clock(self, world: World) -> None:
        """Whether the controller has removed it or not."""
        world.wall_ms = 10_000
        side, answer = world.exchange()
        with pytest.raises(AuthenticationFailed, match=r"^the user is not known or the password is wrong$"):
            asyncio.run(side.respond(answer))

    @pytest.mark.parametrize("how", ["expired", "removed"])
    def test_a_token_that_goes_meanwhile_is_refused(self, world: World, how: str) -> None:
        side, answer = world.exchange()
        if how == "expired":
            world.wall_ms = 10_000
        else:
            del world.image.tokens["0f1e"]
        with pytest.raises(AuthenticationFailed, match="during the login"):
            asyncio.run(side.respond(answer))
        assert side.principal is None

    def test_a_token_is_no_user(self, world: World) -> None:
        side, answer = world.exchange(LoginKind.PASSWORD)
        with pytest.raises(AuthenticationFailed):
            asyncio.run(side.respond(answer))


class TestWhatChanges:
    def test_told_are_tokens_that_are_gone_or_end_sooner(self, world: World) -> None:
        world.image.tokens |= {each: replace(TOKEN, token_id=each) for each in ("gone", "sooner", "later")}
        assert world.users.take_changed_tokens() == frozenset()
        del world.image.tokens["gone"]
        world.image.tokens["sooner"] = replace(TOKEN, token_id="sooner", expiry_timestamp_ms=5_000)
        world.image.tokens["later"] = replace(TOKEN, token_id="later", expiry_timestamp_ms=20_000)
        assert world.users.take_changed_tokens() == {"gone", "sooner"}
        assert world.users.take_changed_tokens() == frozenset()

    def test_their_sessions_end_and_no_others(self) -> None:
        names = iter((b"of the token", b"of another", b"by password"))
        sessions = LoginSessions(lambda count: next(names))
        for token_id in ("0f1e", "other", None):
            sessions.begin(ALICE, HOST, 0.0, 9.0, token_id)
        sessions.end_of_tokens({"0f1e"})
        found = [sessions.find(each, HOST, 1.0) for each in (b"of the token", b"of another", b"by password")]
        assert [each and each.token_id for each in found] == [None, "other", None]
        assert [each is None for each in found] == [True, False, False]

    async def _streams(self) -> list[str]:
        policy = Policy(MetadataImage(), lambda: Authorizer((), ()), lambda event: None, Quotas())
        gate = ClientGate(policy, LoginSessions(bytes), rules_of_now())

        async def stream(token_id: str | None) -> str:
            caller = SessionCaller(LoginSession(ALICE, HOST, float("inf"), token_id), PATH, policy, "")
            try:
                with gate.stream(caller):
                    await asyncio.sleep(0.05)
            except AuthenticationFailed as error:
                return str(error)
            return "went on"

        streams = [asyncio.create_task(stream(each)) for each in ("0f1e", "other", None)]
        await asyncio.sleep(0)
        gate.tokens_changed({"0f1e"})
        return await asyncio.gather(*streams)

    def test_their_streams_end_and_no_others(self) -> None:
        assert asyncio.run(self._streams()) == [
            "the delegation token was expired: log in again",
            "went on",
            "went on",
        ]


CALLS = [
    (security_pb2.CreateDelegationTokenRequest(), "CreateDelegationToken"),
    (security_pb2.RenewDelegationTokenRequest(), "RenewDelegationToken"),
    (security_pb2.ExpireDelegationTokenRequest(), "ExpireDelegationToken"),
    (security_pb2.DescribeDelegationTokensRequest(), "DescribeDelegationTokens"),
]


@pytest.mark.parametrize(("request_", "call"), CALLS, ids=[name for _, name in CALLS])
@pytest.mark.parametrize("proof", [each for each in Proof if each is not Proof.SESSION])
def test_a_user_without_a_password_gets_no_token(request_: object, call: str, proof: Proof) -> None:
    """Nothing is asked of the controller: there is none here."""
    told: list[AuditEvent] = []
    policy = Policy(MetadataImage(), lambda: Authorizer((), ("User:alice",)), told.append, Quotas())
    nowhere: Any = None
    service = SecurityService(nowhere)
    answer = asyncio.run(getattr(service, call)(request_, Caller(ALICE, HOST, PATH, policy, proof=proof)))
    refused: MinilogError | None = error_from_wire(answer.error)
    assert isinstance(refused, DelegationTokenRequestNotAllowed)
    assert [each.decision for each in told] == [Decision.DENIED]


class TestWhatIsToldOfATokenOfAnother:
    def told(self, error: MinilogError | None, token_id: str = "0f1e") -> tuple[MinilogError | None, list[AuditEvent]]:
        """What the client and the audit log are told of what the controller has answered."""
        told: list[AuditEvent] = []
        policy = Policy(MetadataImage(), lambda: Authorizer((), ()), told.append, Quotas())
        answer = security_pb2.RenewDelegationTokenResponse(error=None if error is None else wire_error(error))
        caller = Caller(ALICE, HOST, PATH, policy, proof=Proof.SESSION)
        return error_from_wire(answer_told(caller, Operation.ALTER, token_id, answer).error), told

    def test_a_token_of_another_user_is_answered_like_an_unknown_one_and_audited_as_it_is(self) -> None:
        mismatch = DelegationTokenOwnerMismatch("User:alice neither owns nor may renew the delegation token '0f1e'")
        client, (told,) = self.told(mismatch)
        missing, _ = self.told(no_such_token("0f1e"))
        assert type(client) is type(missing) is DelegationTokenNotFound
        assert str(client) == str(missing)
        assert (told.resource, told.decision, told.reason) == (
            "delegation-token:0f1e",
            Decision.DENIED,
            str(mismatch),
        )

    def test_a_broker_that_does_not_decide_refuses_nothing(self) -> None:
        """An honest client asks another one then."""
        client, told = self.told(NotController("broker 2 is the active controller"))
        assert isinstance(client, NotController)
        assert told == []

    def test_changes_of_a_token_are_audited(self) -> None:
        client, (told,) = self.told(None)
        assert client is None
        assert (told.decision, told.resource) == (Decision.ALLOWED, "delegation-token:0f1e")

    def test_a_long_id_is_cut(self) -> None:
        client, _ = self.told(DelegationTokenOwnerMismatch("x"), "0" * 3_000_000)
        assert len(str(client)) < 500
