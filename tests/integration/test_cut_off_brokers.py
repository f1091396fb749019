"""A secured broker that hears no controller, while clients reach it; and who knows of a change of users and rules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import BrokerNotAvailable, MinilogError
from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from minilog_tools.cli.app import run
from tests.cluster import OF_NOW
from tests.integration.moving import wait_until
from tests.integration.test_delegation_tokens import by_token
from tests.integration.users import PASSWORD, said, session_of, user
from tests.rules import proves
from tests.secured import SecuredCluster, running_secured_cluster

pytestmark = proves("MD.11")

SESSION_S = 3.0
TOPIC = "flights"
WORDS = "has heard no controller for"
MAY_READ = AccessRule("User:reader", "*", Operation.READ, ResourceKind.TOPIC, TOPIC, Pattern.LITERAL, Permission.ALLOW)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with running_secured_cluster(tmp_path_factory.mktemp("cut"), proxied=True) as running:
        yield running


def led_by_another_than_the_controller(admin: Admin) -> tuple[int, TopicPartition]:
    """A broker, and what it leads."""
    controller = admin.describe_cluster().controller
    (topic,) = admin.describe_topics([TOPIC])
    found = next(each for each in topic.partitions if each.leader not in (None, controller))
    assert found.leader is not None
    return found.leader, TopicPartition(TOPIC, found.partition)


def refusal_of_metadata(cluster: SecuredCluster, broker_id: int, session: bytes) -> str | None:
    """Of a call with that session; None where it is answered."""
    with cluster.client_channel(broker_id) as channel:
        stub: Any = metadata_pb2_grpc.MetadataServiceStub(channel)
        try:
            stub.GetMetadata(metadata_pb2.GetMetadataRequest(client=OF_NOW), timeout=5, metadata=said(session))
        except grpc.RpcError as error:
            return f"{error.code()}: {error.details()}"
    return None


def refusal_of_login(cluster: SecuredCluster, broker_id: int) -> str | None:
    try:
        session_of(cluster, "reader", PASSWORD, broker_id)
    except BrokerNotAvailable as error:
        return str(error)
    return None


def state_of(admin: Admin, broker_id: int) -> str | None:
    try:
        return next(each.state for each in admin.describe_cluster().brokers if each.id == broker_id)
    except MinilogError:
        return None


class TestABrokerThatIsCutOff:
    @pytest.mark.dear("it waits for the end of a session")
    def test_a_cut_off_broker_refuses_clients_and_an_admin_is_told(
        self, cluster: SecuredCluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Admin(cluster.client) as admin, Producer(cluster.client) as producer:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
            victim, at = led_by_another_than_the_controller(admin)
            settings = user(cluster, admin, "reader", MAY_READ)
            producer.send(at.topic, b"x", partition=at.partition).result(timeout=15)
            assert admin.not_heard_by() == []
            session = session_of(cluster, "reader", PASSWORD, victim)
            with Consumer(settings) as consumer:
                consumer.assign([TopicPartition(at.topic, at.partition, 0)])
                wait_until(lambda: len(consumer.poll(1.0)) > 0)
                wait_until(lambda: refusal_of_metadata(cluster, victim, session) is None)

                cluster.cut_off(victim)
                began_s = time.monotonic()
                arguments = [
                    "--allow-principal",
                    "User:reader",
                    "--command-config",
                    str(cluster.security.client_properties),
                ]
                assert run(["acl", "remove", *arguments]) == 0
                assert f"brokers {victim} have not heard of it yet" in capsys.readouterr().err
                time.sleep(max(0.0, began_s + SESSION_S + 0.5 - time.monotonic()))
                assert f"UNAVAILABLE: broker {victim} {WORDS}" in str(refusal_of_metadata(cluster, victim, session))
                assert WORDS in str(refusal_of_login(cluster, victim))

            health = {each.code: each for each in admin.cluster_health().problems}
            assert health["BROKER_FENCED"].brokers == [victim]
            assert "they refuse clients" in health["BROKER_FENCED"].message
            assert admin.not_heard_by() == [], "of its own changes: that one was another client's"
            assert cluster.proxy is not None
            cluster.proxy.heal()
            wait_until(lambda: state_of(admin, victim) == "running")
            wait_until(lambda: refusal_of_login(cluster, victim) is None)
            admin.delete_access_rules([AccessRuleFilter()])
            assert admin.not_heard_by() == []


def test_a_new_token_is_known_to_every_broker(cluster: SecuredCluster) -> None:
    """Who was told of it may show it anywhere at once."""
    with Admin(cluster.client) as admin:
        for _ in range(5):
            token = admin.create_delegation_token()
            for address in cluster.bootstrap_servers.split(","):
                with Admin(by_token(cluster, token, **{"bootstrap.servers": address})) as by_it:
                    assert len(by_it.describe_cluster().brokers) == 3
