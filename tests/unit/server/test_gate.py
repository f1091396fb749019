"""The gate in front of clients' listener, and what callers, sessions and failures remember."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterable
from typing import Any

import pytest

from minilog.errors import AuthenticationFailed, AuthorizationFailed
from minilog.security.quota_keys import CONNECTIONS, DEFAULT_ENTITY, REQUEST_RATE
from minilog.v1 import admin_pb2, peer_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, BROKER, USER, Principal
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.sessions import MOST_OF_ONE_USER, MOST_SESSIONS, SESSION_BYTES, LoginSessions
from minilog_broker.server.broker_options import BrokerOptions, VoterAddress
from minilog_broker.server.config_layers import load_config
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.rules.arrival import arrival_of
from minilog_broker.server.ingress.rules.client_gate import ClientGate
from minilog_broker.server.ingress.rules.gate import OpenGate, PeerGate
from tests.rules import proves
from tests.unit.server.surroundings import rules_of_now

pytestmark = proves("MD.10")

ALICE = Principal(USER, "alice")
HOST = "10.0.0.7"
METADATA = "/minilog.v1.MetadataService/GetMetadata"
CREATE = "/minilog.v1.AdminService/CreateTopics"
VOTE = "/minilog.v1.PeerService/Vote"
HOUR_MS = 3_600_000.0


class Call:
    """A call as gRPC's context tells of it."""

    def __init__(self, peer: str = f"ipv4:{HOST}:4711", name: str | None = None, session: bytes | None = None) -> None:
        self._peer, self._name, self._session = peer, name, session

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._name is None else {"x509_common_name": [self._name.encode()]}

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        return () if self._session is None else (("minilog-session-bin", self._session),)


class World:
    """A gate with rules that change."""

    def __init__(self, *rules: AccessRule, is_sasl: bool = True, listener: str = "") -> None:
        self.rules = list(rules)
        self.told: list[AuditEvent] = []
        self.sessions = numbered()
        self.image = MetadataImage()
        self.quotas = Quotas()
        self.age = rules_of_now()
        self.policy = Policy(self.image, lambda: Authorizer(self.rules, ()), self.told.append, self.quotas)
        self.gate = self.another(listener, is_sasl=is_sasl)

    def another(self, listener: str, *, is_sasl: bool = True) -> ClientGate:
        """Of one more listener of the same broker."""
        sessions = self.sessions if is_sasl else None
        return ClientGate(self.policy, sessions, self.age, listener)

    def session(self, host: str = HOST, lifetime_ms: float = HOUR_MS) -> bytes:
        return self.sessions.begin(ALICE, host, asyncio.get_running_loop().time() * 1000.0, lifetime_ms)


def allows(operation: Operation, name: str = "flights", permission: Permission = Permission.ALLOW) -> AccessRule:
    return AccessRule("User:alice", "*", operation, ResourceKind.TOPIC, name, Pattern.LITERAL, permission)


def numbered() -> LoginSessions:
    numbers = iter(range(1_000_000))
    return LoginSessions(lambda count: next(numbers).to_bytes(count, "big"))


async def waits() -> None:
    await asyncio.Event().wait()


class TestWhoCalls:
    def test_a_session_says_it(self) -> None:
        async def scenario() -> Caller:
            world = World()
            return world.gate.admit(METADATA, arrival_of(Call(session=world.session())))

        caller = asyncio.run(scenario())
        assert (caller.principal, caller.host) == (ALICE, HOST)

    def test_a_session_of_another_host_or_that_is_over_or_unknown_does_not(self) -> None:
        async def scenario() -> None:
            world = World()
            for wrong in (
                world.session(host="10.0.0.8"),
                world.session(lifetime_ms=-1.0),
                bytes(SESSION_BYTES - 1) + b"x",
                None,
            ):
                with pytest.raises(AuthenticationFailed):
                    world.gate.admit(METADATA, arrival_of(Call(session=wrong)))
            assert {each.decision for each in world.told} == {Decision.DENIED}
            assert len(world.told) == 4

        asyncio.run(scenario())

    def test_a_certificate_says_it_where_there_are_no_sessions(self) -> None:
        async def scenario() -> None:
            gate = World(is_sasl=False).gate
            assert gate.admit(METADATA, arrival_of(Call(name="alice"))).principal == ALICE
            for wrong in (None, "broker:minilog:1"):
                with pytest.raises(AuthenticationFailed):
                    gate.admit(METADATA, arrival_of(Call(name=wrong)))

        asyncio.run(scenario())

    def test_a_caller_has_the_listener_that_it_came_by(self) -> None:
        async def scenario() -> list[Caller]:
            world = World(listener="outside")
            return [
                OpenGate("inside").admit(METADATA, arrival_of(Call())),
                world.gate.admit(METADATA, arrival_of(Call(session=world.session()))),
                world.gate.admit("/minilog.v1.AuthenticationService/Authenticate", arrival_of(Call())),
                World(is_sasl=False, listener="c").gate.admit(METADATA, arrival_of(Call(name="alice"))),
                World().gate.admit("/minilog.v1.AuthenticationService/Authenticate", arrival_of(Call())),
            ]

        callers = asyncio.run(scenario())
        assert [each.listener for each in callers] == ["inside", "outside", "outside", "c", ""]
        assert [each.is_everybody for each in callers] == [True, False, False, False, False]

    def test_quotas_are_those_of_all_listeners_together(self) -> None:
        async def scenario() -> None:
            world = World()
            world.image.quotas["default"] = {REQUEST_RATE: 1}
            gates = (world.gate, world.another("outside"))
            first, second = (gate.admit(METADATA, arrival_of(Call(session=world.session()))) for gate in gates)
            first.charge(REQUEST_RATE, 10)
            assert second.owed_s(REQUEST_RATE) == 0.0
            first.charge(REQUEST_RATE, 1)
            assert second.owed_s(REQUEST_RATE) > 0.0

        asyncio.run(scenario())

    def test_a_quota_of_ones_own_takes_the_place_of_the_default_of_that_key_alone(self) -> None:
        world = World()
        world.image.quotas |= {DEFAULT_ENTITY: {REQUEST_RATE: 5, CONNECTIONS: 7}, str(ALICE): {CONNECTIONS: 2}}
        bob = Principal(USER, "bob")
        told = [[world.policy.quota(who, key) for key in (REQUEST_RATE, CONNECTIONS)] for who in (ALICE, bob)]
        assert told == [[5, 2], [5, 7]]

    def test_calls_between_brokers_are_not_for_clients(self) -> None:
        async def scenario() -> None:
            world = World()
            for path in (VOTE, "/minilog.v1.MarkerService/WriteMarkers", "/minilog.v1.Unknown/Call"):
                with pytest.raises(AuthorizationFailed):
                    world.gate.admit(path, arrival_of(Call(session=world.session())))

        asyncio.run(scenario())

    def test_a_caller_that_logs_in_is_anonymous(self) -> None:
        caller = World().gate.admit("/minilog.v1.AuthenticationService/Authenticate", arrival_of(Call()))
        assert caller.principal == ANONYMOUS

    @pytest.mark.parametrize(
        ("peer", "host"),
        [
            ("ipv4:127.0.0.1:4711", "127.0.0.1"),
            ("ipv6:%5B::1%5D:4711", "::1"),
            ("ipv6:[::1]:4711", "::1"),
            ("ipv6:%5B::ffff:10.0.0.7%5D:4711", "10.0.0.7"),
        ],
    )
    def test_hosts_are_as_rules_have_them(self, peer: str, host: str) -> None:
        assert arrival_of(Call(peer)).host == host


class TestWhatIsAllowed:
    def test_all_names_of_a_request_are_asked_for(self) -> None:
        world = World(allows(Operation.CREATE, "a"))
        caller = Caller(ALICE, HOST, CREATE, world.policy)
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")])
        world.gate.check(CREATE, caller, request, is_first=True)
        assert [(each.decision, each.resource) for each in world.told] == [(Decision.ALLOWED, "topic:a")]
        request.topics.add(name="b")
        with pytest.raises(AuthorizationFailed, match="not allowed to create topic 'b'"):
            world.gate.check(CREATE, caller, request, is_first=True)
        assert (world.told[-1].decision, world.told[-1].resource) == (Decision.DENIED, "topic:b")

    def test_a_stream_ends_when_what_it_used_is_taken_away(self) -> None:
        async def scenario() -> tuple[bool, bool]:
            world = World(allows(Operation.READ), allows(Operation.WRITE, "other"))
            readers = [Caller(ALICE, HOST, METADATA, world.policy) for _ in range(2)]
            assert readers[0].may(Operation.READ, ResourceKind.TOPIC, "flights")
            assert readers[1].may(Operation.WRITE, ResourceKind.TOPIC, "other")
            tasks = [asyncio.ensure_future(self._stream(world, each)) for each in readers]
            await asyncio.sleep(0)
            world.rules = [allows(Operation.WRITE, "other")]
            await world.gate.rules_changed()
            await asyncio.wait(tasks, timeout=0.1)
            assert isinstance(tasks[0].exception(), AuthorizationFailed)
            done = tasks[0].done(), tasks[1].done()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return done

        assert asyncio.run(scenario()) == (True, False)

    @staticmethod
    async def _stream(world: World, caller: Caller) -> None:
        with world.gate.stream(caller):
            await waits()

    def test_a_stream_ends_with_its_session_and_with_its_user(self) -> None:
        async def scenario() -> list[bool]:
            found = []
            for end in ("session", "user"):
                world = World()
                short = world.session(lifetime_ms=HOUR_MS if end == "user" else 5.0)
                caller = world.gate.admit(METADATA, arrival_of(Call(session=short)))
                task = asyncio.ensure_future(self._stream(world, caller))
                await asyncio.sleep(0.01)
                if end == "session":
                    world.gate.end_streams_of_ended_sessions()
                else:
                    world.gate.users_changed(lambda principal: principal == ALICE)
                    with pytest.raises(AuthenticationFailed):
                        world.gate.admit(METADATA, arrival_of(Call(session=short)))
                await asyncio.wait([task], timeout=0.1)
                found.append(isinstance(task.exception(), AuthenticationFailed))
            return found

        assert asyncio.run(scenario()) == [True, True]


class TestBrokers:
    IMAGE = MetadataImage()

    def gate(self) -> PeerGate:
        return PeerGate("minilog", self.IMAGE, lambda event: None)

    def test_a_broker_is_known_by_its_certificate(self) -> None:
        caller = self.gate().admit(VOTE, arrival_of(Call(name="broker:minilog:2")))
        assert caller.principal == Principal(BROKER, "minilog:2")

    @pytest.mark.parametrize(
        "name",
        [
            None,
            "alice",
            "broker:other:2",
            "broker:minilog:",
            "broker:minilog:2 ",
            "Broker:minilog:2",
            "x:broker:minilog:2",
        ],
    )
    def test_others_are_none(self, name: str | None) -> None:
        with pytest.raises(AuthenticationFailed):
            self.gate().admit(VOTE, arrival_of(Call(name=name)))

    def test_a_broker_speaks_in_its_own_name(self) -> None:
        gate = self.gate()
        caller = gate.admit(VOTE, arrival_of(Call(name="broker:minilog:2")))
        gate.check(VOTE, caller, peer_pb2.VoteRequest(candidate_id=2), is_first=True)
        for other in (0, 1, 22):
            with pytest.raises(AuthorizationFailed, match=f"the id of broker {other} "):
                gate.check(VOTE, caller, peer_pb2.VoteRequest(candidate_id=other), is_first=True)

    def test_later_messages_of_a_stream_may_leave_the_name_out(self) -> None:
        gate, path = self.gate(), "/minilog.v1.PeerService/Replicate"
        caller = gate.admit(path, arrival_of(Call(name="broker:minilog:2")))
        gate.check(path, caller, peer_pb2.ReplicateRequest(broker_id=2), is_first=True)
        gate.check(path, caller, peer_pb2.ReplicateRequest(), is_first=False)
        with pytest.raises(AuthorizationFailed):
            gate.check(path, caller, peer_pb2.ReplicateRequest(broker_id=3), is_first=False)


class TestBounds:
    def test_sessions_are_bounded_for_all(self) -> None:
        sessions = numbered()
        users = [Principal(USER, f"user-{number}") for number in range(MOST_SESSIONS // MOST_OF_ONE_USER + 1)]
        names = [
            sessions.begin(users[at // MOST_OF_ONE_USER], HOST, float(at), HOUR_MS) for at in range(MOST_SESSIONS + 1)
        ]
        assert sessions.find(names[0], HOST, 1.0) is None
        assert sessions.find(names[1], HOST, 1.0) is not None

    def test_a_user_with_many_sessions_drops_his_own(self) -> None:
        sessions = numbered()
        others = sessions.begin(Principal(USER, "bob"), HOST, 0.0, HOUR_MS)
        first, second, *_ = [sessions.begin(ALICE, HOST, 1.0 + at, HOUR_MS) for at in range(MOST_OF_ONE_USER + 1)]
        assert sessions.find(first, HOST, 5.0) is None
        assert sessions.find(second, HOST, 5.0) is not None
        assert sessions.find(others, HOST, 5.0) is not None


def test_all_listeners_of_a_broker_have_one_policy(tmp_path: pathlib.Path) -> None:
    """Else a user would have its quotas once for each listener."""
    authority = tmp_path / "authority.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    settings = {
        "security.protocol": "SASL_SSL",
        "listeners": "outside://127.0.0.1:9094",
        "listener.security.protocol.map": "outside:SASL_SSL",
        "inter.broker.listen": "127.0.0.1:9095",
        "ssl.keystore.location": "unread.pem",
        "inter.broker.ssl.keystore.location": "unread.pem",
        "inter.broker.ssl.truststore.location": str(authority),
        "cluster.name": "c",
    }
    voters = (VoterAddress(1, "127.0.0.1", 9092),)
    config, listen = load_config(None, {}, settings), ("127.0.0.1", 9092)
    options = BrokerOptions(broker_id=1, listen=listen, data_dir=tmp_path, voters=voters, config=config)
    access = BrokerAccess(options, MetadataImage(), lambda: 0)
    assert sorted(access._gates) == ["", "outside"]
    assert len({gate._policy for gate in access._gates.values()}) == 1
