"""Named listeners of clients: how they are said, what of it is refused at the start, and what metadata tells."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.addresses import Address
from minilog.errors import InvalidConfig, LevelNotReached
from minilog.security.protocols import SecurityProtocol
from minilog.v1 import common_pb2, metadata_pb2
from minilog_broker.controller.image import BrokerRegistration
from minilog_broker.controller.ledger import NOTHING_REPORTED
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import SECURITY_LEVEL
from minilog_broker.server.client_listeners import ClientListener, check_reachable, client_listeners, file_settings
from minilog_broker.server.config_layers import load_config
from minilog_broker.server.listener_texts import parse_named
from minilog_broker.server.services.metadata_service import tell_brokers
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.24")

LOOPBACK = ("127.0.0.1", 9092)
PEERS = {
    "inter.broker.listen": "127.0.0.1:9099",
    "inter.broker.ssl.keystore.location": "broker.pem",
    "inter.broker.ssl.truststore.location": "brokers.pem",
}
INSIDE_AND_OUTSIDE = {
    **PEERS,
    "listeners": "inside://127.0.0.1:9093, OUTSIDE://0.0.0.0:9094",
    "advertised.listeners": "outside://public.example:19094",
    "listener.security.protocol.map": "inside:PLAINTEXT,outside:SASL_SSL",
    "listener.name.outside.ssl.keystore.location": "outside.pem",
}


def resolved(
    settings: Mapping[str, str], listen: Address | None = LOOPBACK, *, insecure: bool = False
) -> tuple[ClientListener, ...]:
    """As a broker that starts has them."""
    config = load_config(overrides=settings)
    found = client_listeners(listen, config)
    check_reachable(found, config, insecure=insecure)
    return found


def test_without_names_there_is_the_one_of_listen() -> None:
    assert resolved({}) == (ClientListener("", LOOPBACK, LOOPBACK, SecurityProtocol.PLAINTEXT),)
    (other,) = resolved({"advertised.address": "public.example:19092"})
    assert (other.address, other.advertised) == (LOOPBACK, ("public.example", 19092))


def test_each_has_its_address_its_advertised_one_its_protocol_and_its_files() -> None:
    inside, outside = resolved(INSIDE_AND_OUTSIDE, None)
    assert inside == ClientListener("inside", ("127.0.0.1", 9093), ("127.0.0.1", 9093), SecurityProtocol.PLAINTEXT)
    assert (outside.name, outside.address) == ("outside", ("0.0.0.0", 9094))
    assert outside.advertised == ("public.example", 19094)
    assert (outside.protocol, outside.keystore, outside.truststore) == (SecurityProtocol.SASL_SSL, "outside.pem", "")
    assert [each.name for each in resolved(INSIDE_AND_OUTSIDE)] == ["", "inside", "outside"]


def test_files_that_a_listener_has_not_of_its_own_are_those_of_all() -> None:
    settings = {
        **INSIDE_AND_OUTSIDE,
        "listeners": "a://127.0.0.1:1,b://127.0.0.1:2",
        "advertised.listeners": "",
        "listener.security.protocol.map": "a:SSL,b:SASL_SSL",
        "ssl.keystore.location": "all.pem",
        "ssl.truststore.location": "users.pem",
        "listener.name.b.ssl.keystore.location": "b.pem",
    }
    del settings["listener.name.outside.ssl.keystore.location"]
    config = load_config(overrides=settings)
    a, b = client_listeners(None, config)
    assert (a.keystore, a.truststore, b.keystore, b.truststore) == ("all.pem", "users.pem", "b.pem", "")
    assert file_settings(a, config)[0] == "ssl.keystore.location"
    assert file_settings(b, config)[0] == "listener.name.b.ssl.keystore.location"


def test_a_listener_named_as_a_protocol_has_that_protocol() -> None:
    settings = {**PEERS, "listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2", "ssl.keystore.location": "k"}
    settings["ssl.truststore.location"] = "t"
    assert [each.protocol.value for each in resolved(settings, None)] == ["PLAINTEXT", "SSL"]


def test_environment_and_file_say_them_too(tmp_path: pathlib.Path) -> None:
    environment = {f"MINILOG_{name.upper().replace('.', '_')}": value for name, value in INSIDE_AND_OUTSIDE.items()}
    assert load_config(environment=environment) == load_config(overrides=INSIDE_AND_OUTSIDE)
    file = tmp_path / "broker.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in INSIDE_AND_OUTSIDE.items()))
    assert load_config(file) == load_config(overrides=INSIDE_AND_OUTSIDE)


TWO = {"listeners": "a://127.0.0.1:1,b://127.0.0.1:2", "listener.security.protocol.map": "a:PLAINTEXT,b:PLAINTEXT"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listeners": "a://127.0.0.1:1,a://127.0.0.1:2"}, "listeners names a twice"),
        ({"listeners": "a://127.0.0.1:1,A://127.0.0.1:2"}, "listeners names a twice"),
        ({"advertised.listeners": "a://x:1,a://y:2"}, "advertised.listeners names a twice"),
        ({"listener.security.protocol.map": "a:SSL,a:PLAINTEXT,b:PLAINTEXT"}, "map names a twice"),
        (
            {"listeners": "a://127.0.0.1:1,b://10.0.0.7:1"},
            r"listeners=b://10.0.0.7:1 and listeners=a:.* both have port 1",
        ),
        ({"listeners": "a://127.0.0.1:9092,b://127.0.0.1:2"}, "and --listen both have port 9092"),
        ({**PEERS, "inter.broker.listen": "127.0.0.1:2"}, "inter.broker.listen and listeners=b:.* both have port 2"),
        ({"advertised.listeners": "c://x:1"}, "advertised.listeners names c, which is not a listener .* has a, b"),
        ({"listener.security.protocol.map": "a:PLAINTEXT,b:PLAINTEXT,c:SSL"}, "map names c, which is not a listener"),
        ({"listener.name.c.ssl.keystore.location": "x"}, "listener.name.c.ssl.keystore.location names c, which is no"),
        (
            {"listener.name.a.ssl.keystore": "x"},
            r"unknown setting listener.name.a.ssl.keystore \(-c\): a listener has",
        ),
        ({"listener.name.a.super.users": "x"}, "unknown setting listener.name.a.super.users"),
        (
            {"listener.name.a.ssl.keystore.location": "x"},
            "the listener a is PLAINTEXT: the setting has an effect only with SSL or SASL_SSL",
        ),
        ({"listener.security.protocol.map": "a:PLAINTEXT"}, "has no protocol for the listener b: add b:SASL_SSL"),
        ({"listener.security.protocol.map": "a:PLAINTEXT,b:SASL"}, "is not valid: expected NAME:PROTOCOL"),
        ({"listeners": "a:127.0.0.1:1"}, "is not valid: expected NAME://HOST:PORT"),
        ({"listeners": "://127.0.0.1:1"}, "is not valid: expected NAME://HOST:PORT"),
        ({"listeners": "a b://127.0.0.1:1"}, "is not valid: expected NAME://HOST:PORT"),
        (
            {"listener.security.protocol.map": "a:PLAINTEXT,b:SSL"},
            "listener.name.b.ssl.keystore.location, or ssl.keyst",
        ),
        (
            {"listener.security.protocol.map": "a:PLAINTEXT,b:SSL", "ssl.keystore.location": "k"},
            "listener.name.b.ssl.truststore.location, or ssl.truststore.location, is missing: the listener b is SSL",
        ),
        (
            {"listener.security.protocol.map": "a:PLAINTEXT,b:SASL_SSL", "ssl.keystore.location": "k"},
            "inter.broker.listen is missing: the listener b is SASL_SSL",
        ),
        ({"ssl.keystore.location": "k"}, "security.protocol is PLAINTEXT, and no named listener has SSL"),
        (
            {"advertised.listeners": "a://0.0.0.0:1"},
            "the listener a: 0.0.0.0 cannot be advertised.*advertised.listeners=a",
        ),
        ({"advertised.listeners": "a://[::]:1"}, r"the listener a: \[::\] cannot be advertised"),
        ({"listeners": "a://10.0.0.7:1,b://127.0.0.1:2"}, "the listener a 10.0.0.7:1 would be plaintext"),
        ({**PEERS, "inter.broker.listen": "0.0.0.0:5"}, "inter.broker.listen 0.0.0.0 cannot be advertised"),
    ],
)
def test_wrong_listeners_are_refused_at_the_start(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        resolved({**TWO, **changes})


def test_in_the_clear_elsewhere_only_where_that_is_said_to_be_meant() -> None:
    settings = {**TWO, "listeners": "a://10.0.0.7:1,b://127.0.0.1:2"}
    assert len(resolved(settings, insecure=True)) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "listens nowhere: give --listen HOST:PORT"),
        (TWO, "inter.broker.listen is missing: without --listen"),
        ({**TWO, **PEERS, "advertised.address": "h:1"}, "advertised.address is given, and --listen"),
        (
            {**TWO, **PEERS, "security.protocol": "SASL_SSL", "ssl.keystore.location": "k"},
            "security.protocol is given, and --listen",
        ),
    ],
)
def test_without_listen_all_has_a_name_and_brokers_a_listener_of_their_own(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        resolved(settings, None)


def test_no_broker_has_more_listeners_than_can_be_registered() -> None:
    many = ",".join(f"l{number}://127.0.0.1:{number}" for number in range(1, 18))
    with pytest.raises(ValueError, match="l17"):
        parse_named(many)


# -- what metadata tells


def registered(broker_id: int, address: Address | None, **listeners: Address) -> BrokerRegistration:
    host, port = address or ("", 0)
    named = tuple(sorted(listeners.items()))
    return BrokerRegistration(broker_id, 7, bytes(16), host, port, None, "d", "boot", listeners=named)


def told(listener: str, *brokers: BrokerRegistration) -> tuple[dict[int, Address], list[int]]:
    """Where each is reached, and those that are not."""
    answer = metadata_pb2.GetMetadataResponse(listener=listener)
    tell_brokers(answer, brokers, {}, NOTHING_REPORTED, stream_port_offset=1_000, sees_all=False)
    assert all(not (each.host or each.port or each.stream_port) for each in answer.unreachable_brokers)
    assert all(each.stream_port == each.port + 1_000 for each in answer.brokers)
    reached = {each.broker_id: (each.host, each.port) for each in answer.brokers}
    return reached, [each.broker_id for each in answer.unreachable_brokers]


BROKERS = (
    registered(1, ("plain", 1), inside=("in", 1), outside=("out", 1)),
    registered(2, ("plain", 2), inside=("in", 2)),
    registered(3, None, inside=("in", 3), outside=("out", 3)),
)


@pytest.mark.parametrize(
    ("listener", "reached", "others"),
    [
        ("", {1: ("plain", 1), 2: ("plain", 2)}, [3]),
        ("inside", {1: ("in", 1), 2: ("in", 2), 3: ("in", 3)}, []),
        ("outside", {1: ("out", 1), 3: ("out", 3)}, [2]),
        ("unknown", {}, [1, 2, 3]),
    ],
)
def test_callers_of_a_listener_get_its_addresses(listener: str, reached: dict[int, Address], others: list[int]) -> None:
    assert told(listener, *BROKERS) == (reached, others)


NAMES = ("", "a", "b", "c")


@given(st.lists(st.sets(st.sampled_from(NAMES)), max_size=5), st.sampled_from(NAMES))
def test_no_address_of_another_listener_is_ever_told(has: list[set[str]], listener: str) -> None:
    brokers = [
        registered(
            number,
            ("of-", number) if "" in names else None,
            **{name: (f"of-{name}", number) for name in names if name},
        )
        for number, names in enumerate(has, start=1)
    ]
    reached, others = told(listener, *brokers)
    assert reached.keys() | set(others) == {each.broker_id for each in brokers}
    assert {host for host, _ in reached.values()} <= {f"of-{listener}"}


# -- the registration


def test_named_listeners_wait_for_their_level_and_stand_in_snapshots() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    named = [common_pb2.ListenerAddress(name=name, host=name, port=5) for name in ("outside", "inside")]
    refusal = error_of(cluster.register(2, listeners=named))
    assert isinstance(refusal, LevelNotReached)
    assert "broker 2 has named listeners for clients" in str(refusal)
    cluster.upgrade(SECURITY_LEVEL)
    cluster.restart(2, listeners=named)
    broker = cluster.image.brokers[2]
    assert broker.listeners == (("inside", ("inside", 5)), ("outside", ("outside", 5)))
    assert broker.address_on("outside") == ("outside", 5)
    end = cluster.image.end_offset
    assert decode_snapshot(encode_snapshot(cluster.image, 4), SnapshotId(end, 4)) == cluster.image
