"""An advertised address that cannot be connected to is named, with the system's reason and the setting."""

from __future__ import annotations

import pytest

from minilog.admin.health import judge
from minilog.admin.records_deletion import RecordsDeletion
from minilog.errors import TimedOut
from minilog.net.metadata_cache import MetadataCache
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import OffsetsQuery
from minilog.net.reachability import NO_TLS, Reachability, connect_failure
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, metadata_pb2
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.producing import Producing, config_of

ADVERTISED = ("127.0.0.1", 9001)
GIVEN = ("127.0.0.1", 9191)


def unreachable(brokers: Brokers | None = None) -> MetadataCache:
    """A cache whose leader, broker 1, cannot be connected to."""
    cache = MetadataCache(reachability=Reachability(frozenset({GIVEN})))
    assert cache.apply((brokers or Brokers()).metadata())
    cache.reachability.failed(ADVERTISED, "Connection refused")
    return cache


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to remote "
            "host: Connection refused",
            "Connection refused",
        ),
        (
            "errors resolving nowhere.invalid:9092: [field:hostname lookup error:address lookup failed for "
            "nowhere.invalid:9092: Domain name not found]",
            "Domain name not found",
        ),
        (
            "the broker at b:1 does not authenticate: failed to connect to all addresses; last error: UNKNOWN: "
            "ipv4:10.0.0.1:1: Failed to connect to remote host: No route to host",
            "No route to host",
        ),
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Tls handshake failed "
            "(TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER",
            NO_TLS,
        ),
        ("the broker is about to stop", None),
        ("Deadline Exceeded", None),
    ],
)
def test_the_systems_reason_is_in_what_grpc_says_of_a_failed_connection(details: str, reason: str | None) -> None:
    assert connect_failure(details) == reason


def test_the_error_names_broker_address_reason_and_setting() -> None:
    why = str(unreachable().why_unreachable(1))
    assert why == (
        "broker 1 advertises 127.0.0.1:9001, but this client cannot connect to it (Connection refused): its "
        "advertised.address must be an address that this client can reach"
    )


def test_by_a_named_listener_its_setting_is_named() -> None:
    brokers = Brokers()
    brokers.listener = "outside"
    assert "advertised.listeners of listener 'outside'" in str(unreachable(brokers).why_unreachable(1))


def test_of_an_address_that_a_person_has_given_no_broker_is_to_blame() -> None:
    reachability = Reachability(frozenset({GIVEN}))
    reachability.failed(GIVEN, "Connection refused")
    assert reachability.why(GIVEN) == "the broker at 127.0.0.1:9191 cannot be connected to: Connection refused"


def test_a_connection_ends_the_blame_and_so_does_another_address() -> None:
    cache = unreachable()
    assert str(cache.why_some_not_connected()).startswith("broker 1 advertises 127.0.0.1:9001")
    cache.reachability.reached(ADVERTISED)
    assert cache.why_unreachable(1) is None
    assert cache.why_some_not_connected() is None
    brokers = Brokers()
    cache = unreachable(brokers)
    brokers.addresses[1], brokers.metadata_offset = ("127.0.0.1", 9555), brokers.metadata_offset + 1
    assert cache.apply(brokers.metadata())
    assert (cache.why_unreachable(1), cache.reachability.reason(ADVERTISED)) == (None, None)


def test_offsets_that_a_leader_cannot_be_asked_for_say_why() -> None:
    partition = TopicPartition(TOPIC, 0)
    query = OffsetsQuery(unreachable(), {partition: "latest"})
    assert [broker for broker, _ in query.requests(common_pb2.ClientIdentity())] == [1]  # it is tried all the same
    assert "advertised.address" in str(query.last_errors[partition])


def test_records_that_were_not_deleted_say_why() -> None:
    partition = TopicPartition(TOPIC, 0)
    deletion = RecordsDeletion(unreachable(), {partition: 5})
    assert [broker for broker, _ in deletion.requests(common_pb2.ClientIdentity(), 100)] == [1]
    assert "advertised.address" in str(deletion.error())


def test_records_that_could_not_be_sent_say_why() -> None:
    """The producer told "were not written within delivery.timeout.ms (0 attempts)", and nothing else."""
    cluster = Producing(Brokers(), delivery_timeout_ms=200, request_timeout_ms=100)
    cluster.cache.reachability = unreachable().reachability
    cluster.down.add(1)
    record = cluster.send()
    cluster.run(400)
    with pytest.raises(TimedOut, match=r"BROKER_NOT_AVAILABLE: broker 1 .*Connection refused.*advertised\.address"):
        record.result(0)


def answer(controller_id: int = 1) -> metadata_pb2.GetMetadataResponse:
    found = Brokers().metadata()
    found.controller_id = controller_id
    return found


def test_health_tells_of_addresses_and_does_not_advise_to_start_what_runs() -> None:
    found = judge(answer(), unreachable().unreachable_addresses()).problems
    assert [each.code for each in found] == ["ADDRESS_NOT_REACHED"]
    assert found[0].brokers == [1]
    assert "broker 1 at 127.0.0.1:9001 (Connection refused)" in found[0].message
    assert "advertised.address" in found[0].remedy
    assert "start" not in found[0].remedy


def test_without_a_controller_nobody_knows_who_runs() -> None:
    assert [each.code for each in judge(answer(-1), unreachable().unreachable_addresses()).problems] == [
        "NO_CONTROLLER"
    ]


def test_only_brokers_that_run_at_addresses_that_they_advertise_count() -> None:
    brokers = Brokers()
    brokers.states[1] = metadata_pb2.BROKER_STATE_FENCED
    assert unreachable(brokers).unreachable_addresses() == {}
    brokers = Brokers()
    brokers.addresses[1] = GIVEN
    cache = unreachable(brokers)
    cache.reachability.failed(GIVEN, "Connection refused")
    assert cache.unreachable_addresses() == {}


class TestPortsOfStreams:
    """A firewall passes the port of calls, and not that of streams."""

    STREAMS = ("127.0.0.1", 10001)

    def closed(self) -> MetadataCache:
        cache = MetadataCache(reachability=Reachability(frozenset({GIVEN})))
        assert cache.apply(Brokers().metadata())
        cache.reachability.stream_failed(ADVERTISED, self.STREAMS, "Connection refused")
        return cache

    def test_the_error_names_both_addresses_the_reason_and_both_settings(self) -> None:
        assert str(self.closed().why_unreachable(1)) == (
            "broker 1 advertises 127.0.0.1:9001, but this client cannot open a stream at its port of streams "
            "127.0.0.1:10001 (Connection refused): a client must reach both ports, that of advertised.address and the "
            "one that is stream.port.offset above it"
        )

    def test_an_answer_to_a_call_does_not_end_it_and_a_stream_does(self) -> None:
        cache = self.closed()
        cache.reachability.reached(ADVERTISED)
        assert cache.why_unreachable(1) is not None
        cache.reachability.stream_reached(ADVERTISED)
        assert cache.why_unreachable(1) is None

    def test_records_that_could_not_be_sent_say_why(self) -> None:
        cluster = Producing(Brokers(), delivery_timeout_ms=200, request_timeout_ms=100)
        cluster.cache.reachability = self.closed().reachability
        cluster.down.add(1)
        record = cluster.send()
        cluster.run(400)
        with pytest.raises(TimedOut, match=r"\(0 attempts\); BROKER_NOT_AVAILABLE: .*10001.*stream\.port\.offset"):
            record.result(0)

    def test_health_names_the_port_of_streams(self) -> None:
        (found,) = judge(answer(), self.closed().unreachable_addresses()).problems
        assert found.code == "ADDRESS_NOT_REACHED"
        assert "broker 1 at 127.0.0.1:10001, its port of streams (Connection refused)" in found.message
        assert "stream.port.offset" in found.remedy


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_closed_port_of_streams_is_one_warning_until_a_stream_is_open(caplog: pytest.LogCaptureFixture) -> None:
    client = NetworkClient(config_of(), SYSTEM_RUNTIME)
    assert client.cache.apply(Brokers().metadata())
    for _ in range(20):
        client.stream_not_connected(ADVERTISED, ("127.0.0.1", 10001), "Connection refused")
        client.connected(ADVERTISED)  # a call is answered
    assert len(warnings_of(caplog)) == 1
    client.stream_connected(ADVERTISED)
    client.stream_not_connected(ADVERTISED, ("127.0.0.1", 10001), "Connection refused")
    assert len(warnings_of(caplog)) == 2
