"""What an enemy tried against the parts of the gate, and got."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minilog.errors import AuthenticationFailed, AuthorizationFailed, BrokerNotAvailable, error_from_wire
from minilog.security.scram import SALT_BYTES, LoginKind, ScramClient, ScramCredential, ScramMechanism
from minilog.security.secret import Secret
from minilog.v1 import authentication_pb2, peer_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, USER, Principal
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.attempts import (
    FORGIVEN_S,
    MOST_NAMES,
    MOST_WAITING,
    PAUSES_S,
    PLACES,
    Attempts,
    _Host,
)
from minilog_broker.server.access.caller import NO_RULES, Caller
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.scram_exchange import ScramUsers
from minilog_broker.server.access.sessions import LoginSessions
from minilog_broker.server.ingress.rules.client_gate import ClientGate
from minilog_broker.server.ingress.rules.gate import PeerGate
from minilog_broker.server.services.authentication_service import AuthenticationService
from tests.rules import proves
from tests.unit.server.surroundings import rules_of_now
from tests.world.loop import play

pytestmark = proves("MD.10")

HEARTBEAT = "/minilog.v1.PeerService/Heartbeat"
MECHANISM = ScramMechanism.SCRAM_SHA_512
ALICE = Principal(USER, "alice")
HOST = "10.0.0.7"


def credential(password: str) -> ScramCredential:
    return ScramCredential.derive(MECHANISM, Secret(password), salt=b"s" * SALT_BYTES, iterations=4096)


class TestNames:
    @pytest.mark.parametrize("second", [peer_pb2.HeartbeatRequest(broker_id=0, broker_epoch=7, wants_stop=True)])
    def test_no_later_heartbeat_is_in_the_name_of_broker_0(self, second: Any) -> None:
        """Ids begin at 0: a later message that names 0 names a broker. Heartbeat reads the id of each message."""
        gate = PeerGate("minilog", MetadataImage(), lambda event: None)
        caller = Caller(Principal("Broker", "minilog:2"), "127.0.0.1", HEARTBEAT, NO_RULES)
        gate.check(HEARTBEAT, caller, peer_pb2.HeartbeatRequest(broker_id=2), is_first=True)
        with pytest.raises(AuthorizationFailed):
            gate.check(HEARTBEAT, caller, second, is_first=False)


class TestUsersThatChange:
    def test_an_exchange_that_began_before_the_user_was_deleted_fails(self) -> None:
        image = MetadataImage()
        image.users["alice"] = {MECHANISM: credential("secret")}
        users = ScramUsers(image, "", lambda: 0)
        exchange = users.begin(MECHANISM)
        client = ScramClient(MECHANISM, "alice", Secret("secret"), "n" * 32)
        answer = client.answer(asyncio.run(exchange.respond(client.first_message())))
        del image.users["alice"]
        users.take_changed()
        with pytest.raises(AuthenticationFailed, match="during the login"):
            asyncio.run(exchange.respond(answer))
        assert exchange.principal is None

    def test_the_first_change_ends_sessions_too(self) -> None:
        """The image came from a snapshot; what is behind it deletes the user."""
        image = MetadataImage()
        image.users["alice"] = {MECHANISM: credential("secret")}
        users = ScramUsers(image, "", lambda: 0)
        del image.users["alice"]
        assert users.take_changed() == {"alice"}

    def test_two_brokers_tell_one_salt_of_an_unknown_user(self) -> None:
        salts = set()
        for _ in range(2):
            client = ScramClient(MECHANISM, "nobody", Secret("x"), "n" * 32)
            users = ScramUsers(MetadataImage(), "", lambda: 0)
            told = asyncio.run(users.begin(MECHANISM).respond(client.first_message()))
            salts.add(told.split(b",")[1])
        assert len(salts) == 1


class _Login:
    """A client's side of one exchange, as the stream of a call brings it: with this password, or as far as the salt."""

    def __init__(self, name: str, password: str, *, leaves: bool = False, kind: LoginKind = LoginKind.PASSWORD) -> None:
        self.caller = Caller(ANONYMOUS, HOST, "/minilog.v1.AuthenticationService/Authenticate", NO_RULES)
        self.answers: asyncio.Queue[authentication_pb2.AuthenticateResponse] = asyncio.Queue()
        self._client = ScramClient(MECHANISM, name, Secret(password), "n" * 32, kind=kind)
        self._leaves = leaves

    async def write(self, answer: authentication_pb2.AuthenticateResponse) -> None:
        self.answers.put_nowait(answer)

    async def messages(self) -> AsyncIterator[authentication_pb2.AuthenticateRequest]:
        first = self._client.first_message()
        yield authentication_pb2.AuthenticateRequest(mechanism=str(MECHANISM), content=first)
        challenge = await self.answers.get()
        if self._leaves:
            raise asyncio.CancelledError
        yield authentication_pb2.AuthenticateRequest(content=self._client.answer(challenge.content))


class TestFailedLogins:
    def told(self, login: _Login) -> list[AuditEvent]:
        image, told = MetadataImage(), list[AuditEvent]()
        image.users["alice"] = {MECHANISM: credential("secret")}
        users = ScramUsers(image, "", lambda: 0)

        async def scenario() -> None:
            service = AuthenticationService(users.begin, LoginSessions(bytes), 1.0, told.append, rules_of_now())
            stream: Any = login
            await service.Authenticate(login.messages(), stream)

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(scenario())
        return told

    @pytest.mark.parametrize(
        ("login", "tried"),
        [
            (_Login("alice", "wrong"), "user:alice"),
            (_Login("nobody", "wrong"), "user:nobody"),
            (_Login("0f1e", "wrong", kind=LoginKind.DELEGATION_TOKEN), "delegation-token:0f1e"),
            (_Login("alice", "secret", leaves=True), "user:alice"),
        ],
        ids=["wrong password", "unknown user", "unknown token", "salts alone"],
    )
    def test_failed_logins_name_the_tried_user_under_the_limits_of_a_stranger(self, login: _Login, tried: str) -> None:
        (told,) = self.told(login)
        assert (told.principal, told.host, told.resource) == (str(ANONYMOUS), HOST, tried)
        assert (told.method, told.decision) == ("Authenticate", Decision.DENIED)

    def test_a_login_names_who_it_is(self) -> None:
        (told,) = self.told(_Login("alice", "secret"))
        assert (told.principal, told.decision) == ("User:alice", Decision.ALLOWED)

    def test_an_unknown_user_is_told_the_iterations_that_users_have(self) -> None:
        image = MetadataImage()
        users = ScramUsers(image, "", lambda: 0)
        image.users["alice"] = {MECHANISM: credential("secret")}
        users.take_changed()
        client = ScramClient(MECHANISM, "nobody", Secret("x"), "n" * 32)
        assert asyncio.run(users.begin(MECHANISM).respond(client.first_message())).endswith(b",i=4096")


class TestCallersThatRemember:
    def rules(self, *topics: str) -> list[AccessRule]:
        return [
            AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, each, Pattern.PREFIXED, Permission.ALLOW)
            for each in topics
        ]

    def test_more_than_ten_thousand_questions_hide_no_rule_that_goes(self) -> None:
        authorizer = [Authorizer(self.rules("secret", "t"), ())]
        policy = Policy(MetadataImage(), lambda: authorizer[0], lambda event: None, Quotas())
        caller = Caller(ALICE, "127.0.0.1", HEARTBEAT, policy)
        assert caller.may(Operation.READ, ResourceKind.TOPIC, "secret")
        for number in range(10_000):
            caller.may(Operation.READ, ResourceKind.TOPIC, f"t{number}")
        authorizer[0] = Authorizer(self.rules("t"), ())
        assert not caller.rules_changed()

    @pytest.mark.dear("it makes thousands of rules")
    def test_a_rule_that_changes_does_not_hold_the_loop(self) -> None:
        """100 streams of one connection, each with what one remembers at most: others have their turns in between."""
        authorizer = Authorizer(self.rules("t"), ())

        async def turns_of_others() -> int:
            policy = Policy(MetadataImage(), lambda: authorizer, lambda event: None, Quotas())
            gate = ClientGate(policy, None, rules_of_now())

            async def stream() -> None:
                caller = Caller(ALICE, "127.0.0.1", HEARTBEAT, policy)
                for number in range(9_999):
                    caller.may(Operation.READ, ResourceKind.TOPIC, f"t{number}")
                with gate.stream(caller):
                    await asyncio.Event().wait()

            tasks = [asyncio.create_task(stream()) for _ in range(100)]
            await asyncio.sleep(0)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.create_task(other())
            await gate.rules_changed()
            for task in (*tasks, beside):
                task.cancel()
            await asyncio.gather(*tasks, beside, return_exceptions=True)
            return turns

        assert asyncio.run(turns_of_others()) >= 100


class TestSessions:
    def test_ended_sessions_are_forgotten_as_a_whole(self) -> None:
        sessions = LoginSessions(lambda size: str(time.perf_counter_ns()).rjust(size).encode())
        for _ in range(1000):
            sessions.begin(ALICE, "10.0.0.1", 0.0, 3_600_000)
            sessions.end_all_of(lambda principal: True)
        assert len(sessions._ends) < 100


class TestGuesses:
    def test_a_host_has_so_many_places_and_a_failure_keeps_its_own(self) -> None:
        """Guesses side by side, each given up at once: they are judged as fast as places become free."""

        async def scenario() -> None:
            attempts, judged = Attempts(), 0

            async def guess(name: str) -> None:
                nonlocal judged
                place = await attempts.begin(HOST, name)
                judged += 1
                place.failed()

            tasks = [asyncio.create_task(guess(f"user:{number}")) for number in range(PLACES + MOST_WAITING)]
            await asyncio.sleep(0.01)
            assert judged == PLACES
            with pytest.raises(BrokerNotAvailable, match="are waiting"):
                await attempts.begin(HOST)
            await asyncio.sleep(60.0)
            assert judged <= 2 * PLACES + PLACES * 60.0 / PAUSES_S[-1]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        play(scenario())

    def test_a_job_with_an_old_password_keeps_nobody_behind_its_proxy_out(self) -> None:
        """Once: its failures held all places of the host, and logins of others ended in a time-out."""

        async def scenario() -> None:
            attempts, loop = Attempts(), asyncio.get_running_loop()

            async def job() -> None:
                while True:
                    with contextlib.suppress(BrokerNotAvailable):
                        (await attempts.begin(HOST, "user:job")).failed()
                    await asyncio.sleep(0.01)

            tasks = [asyncio.create_task(job()) for _ in range(300)]
            await asyncio.sleep(5.0)
            for number in range(100):
                began_s = loop.time()
                place = await attempts.begin(HOST, f"user:{number}")
                await asyncio.sleep(0.05)
                place.succeeded()
                assert loop.time() - began_s < 0.1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        play(scenario())

    def test_a_name_without_failures_goes_first(self) -> None:
        async def scenario() -> None:
            attempts, order = Attempts(), list[str]()
            (await attempts.begin(HOST, "user:job")).failed()
            await asyncio.sleep(1.0)
            held = [await attempts.begin(HOST, f"user:{number}") for number in range(PLACES)]

            async def login(name: str) -> None:
                place = await attempts.begin(HOST, name)
                order.append(name)
                place.succeeded()

            tasks = [asyncio.create_task(login(name)) for name in ("user:job", "user:alice", "user:bob")]
            await asyncio.sleep(0.1)
            for place in held:
                place.succeeded()
            await asyncio.gather(*tasks)
            assert order == ["user:alice", "user:bob", "user:job"]

        play(scenario())

    def test_a_name_that_succeeds_or_waits_a_minute_has_no_failures(self) -> None:
        async def scenario() -> None:
            host = _Host()
            host.remember("user:job", 0.0)
            assert host.is_failing("user:job", FORGIVEN_S - 1)
            assert not host.is_failing("user:job", FORGIVEN_S)
            attempts = Attempts()
            (await attempts.begin(HOST, "user:job")).failed()
            (await attempts.begin(HOST, "user:job")).succeeded()
            assert not attempts._hosts[HOST].is_failing("user:job", 0.0)

        play(scenario())

    def test_a_client_that_leaves_its_line_takes_no_place(self) -> None:
        async def scenario() -> None:
            attempts = Attempts()
            held = [await attempts.begin(HOST) for _ in range(PLACES)]
            tasks = [asyncio.create_task(attempts.begin(HOST)) for _ in range(2 * PLACES)]
            await asyncio.sleep(0)
            for place in held:
                place.succeeded()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert attempts._hosts[HOST].held == 0
            assert attempts._hosts[HOST].is_idle

        play(scenario())

    def test_another_host_does_not_wait(self) -> None:
        async def scenario() -> None:
            attempts = Attempts()
            for number in range(PLACES):
                (await attempts.begin(HOST, f"user:{number}")).failed()
            (await attempts.begin("10.0.0.8")).succeeded()
            assert asyncio.get_running_loop().time() == 0.0

        play(scenario())

    def test_repeated_failures_wait_longer_and_are_forgiven(self) -> None:
        host = _Host()
        pauses = [host.failed(float(at)) for at in range(7)]
        assert pauses == sorted(pauses)
        assert pauses[0] < pauses[-1] == pauses[-2]
        assert host.failed(100.0) == pauses[0]

    def test_how_many_names_are_remembered_is_bounded(self) -> None:
        host = _Host()
        for number in range(10 * MOST_NAMES):
            host.remember(f"user:{number}", 0.0)
        assert len(host.names) == MOST_NAMES


class Silent:
    """A stream of a client that sends the first of these messages, or none, and then nothing."""

    def __init__(self, *sent: authentication_pb2.AuthenticateRequest) -> None:
        self.caller = Caller(ANONYMOUS, HOST, "/minilog.v1.AuthenticationService/Authenticate", NO_RULES)
        self.told: list[authentication_pb2.AuthenticateResponse] = []
        self._sent = sent

    async def write(self, answer: authentication_pb2.AuthenticateResponse) -> None:
        self.told.append(answer)

    async def messages(self) -> AsyncIterator[authentication_pb2.AuthenticateRequest]:
        for each in self._sent:
            yield each
        await asyncio.Event().wait()


class TestSlowLogins:
    """Once: a time-out escaped as UNKNOWN `Unexpected TimeoutError`, which no client tried again and no log told."""

    FIRST = authentication_pb2.AuthenticateRequest(
        mechanism=str(MECHANISM), content=ScramClient(MECHANISM, "alice", Secret("x"), "n" * 32).first_message()
    )

    def login(self, stream: Silent, audited: list[AuditEvent], places_held: int = 0) -> None:
        users = ScramUsers(MetadataImage(), "", lambda: 0)

        async def scenario() -> None:
            service = AuthenticationService(users.begin, LoginSessions(bytes), 1.0, audited.append, rules_of_now())
            for _ in range(places_held):
                await service._attempts.begin(HOST)
            given: Any = stream
            await service.Authenticate(stream.messages(), given)

        play(scenario())

    def told(self, stream: Silent, places_held: int = 0) -> tuple[str, str, list[AuditEvent]]:
        audited = list[AuditEvent]()
        self.login(stream, audited, places_held)
        error = error_from_wire(stream.told[-1].error)
        assert isinstance(error, BrokerNotAvailable)
        assert error.retriable
        return str(error), audited[-1].resource, audited

    def test_a_login_without_a_place_is_refused_as_such(self) -> None:
        words, tried, audited = self.told(Silent(self.FIRST), PLACES)
        assert words == f"{PLACES} logins from {HOST} are under way, or have just failed: try again"
        assert (tried, audited[-1].decision, audited[-1].reason) == ("user:alice", Decision.DENIED, words)

    def test_a_login_that_stops_half_way_is_refused_as_such(self) -> None:
        words, tried, _ = self.told(Silent(self.FIRST))
        assert (words, tried) == ("the login did not end in 5 s: try again", "user:alice")

    def test_a_silent_client_holds_no_place_and_its_refusal_needs_no_window(self) -> None:
        stream, audited, words = Silent(), list[AuditEvent](), "the client sent no login in 5 s: try again"
        with pytest.raises(BrokerNotAvailable, match=f"^{words}$"):
            self.login(stream, audited, PLACES)
        assert stream.told == []
        assert [(each.resource, each.reason) for each in audited] == [("", words)]
