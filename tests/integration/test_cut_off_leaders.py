"""A leader that is cut off from the controller: it goes on, and stops where another may be elected uncleanly."""

from __future__ import annotations

import pathlib
import time

import pytest

from minilog import Admin, NewTopic, Producer, TopicPartition
from minilog.errors import MinilogError, TimedOut
from tests.cluster import HOST, Cluster, broker_name, running_cluster
from tests.proxy import CLIENT, CUT
from tests.rules import proves

pytestmark = proves("ISR.13")

SESSION_S = 2.0
SETTINGS = {"broker.session.timeout.ms": str(int(SESSION_S * 1000))}
VICTIM, CONTROLLER = 2, 1


def led_by_victim(admin: Admin, topic: str, configs: dict[str, str]) -> TopicPartition:
    """A partition of a new topic that the victim leads, alone."""
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1, configs=configs)])
    (found,) = admin.describe_topics([topic])
    return TopicPartition(topic, next(each.partition for each in found.partitions if each.leader == VICTIM))


def at_victim(cluster: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": f"{HOST}:{cluster.ports[VICTIM]}", "request.timeout.ms": 1000}


def written(cluster: Cluster, at: TopicPartition) -> MinilogError | None:
    """By a client that reaches the victim alone."""
    with Producer({**at_victim(cluster), "delivery.timeout.ms": 2000}) as producer:
        try:
            producer.send(at.topic, value=b"one", partition=at.partition).result(timeout=20)
        except MinilogError as error:
            return error
    return None


def latest(cluster: Cluster, at: TopicPartition) -> object:
    with Admin(at_victim(cluster)) as admin:
        try:
            return admin.list_offsets({at: "latest"})[at]
        except MinilogError as error:
            return error


def wait_written(cluster: Cluster, at: TopicPartition, timeout_s: float = 20.0) -> None:
    deadline_s, seen = time.monotonic() + timeout_s, None
    while time.monotonic() < deadline_s:
        seen = written(cluster, at)
        if seen is None:
            return
    raise AssertionError(f"{at} takes no records again: {seen}")


@pytest.mark.dear("it waits for the end of a session")
def test_a_cut_off_leader_stops_at_the_end_of_its_session(
    tmp_path: pathlib.Path,
) -> None:
    with running_cluster(tmp_path, settings=SETTINGS, voters=1, proxied=True) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            unclean = led_by_victim(admin, "unclean", {"unclean.leader.election.enable": "true"})
            plain = led_by_victim(admin, "plain", {})
        assert (written(cluster, unclean), written(cluster, plain)) == (None, None)

        assert cluster.proxy is not None
        for other in (CONTROLLER, 3):
            cluster.proxy.set_rule_both_ways(broker_name(VICTIM), broker_name(other), CUT)
            cluster.proxy.set_rule_both_ways(CLIENT, broker_name(other), CUT)
        time.sleep(SESSION_S + 0.5)

        refused, told = written(cluster, unclean), latest(cluster, unclean)
        assert refused is not None
        assert f"broker {VICTIM} has not heard the controller for a session" in str(refused)
        assert "the last refusal was LEADER_NOT_AVAILABLE" in str(refused)
        assert isinstance(told, TimedOut), told  # asked again until request.timeout.ms: another may lead any moment
        assert f"broker {VICTIM} has not heard the controller for a session" in str(told)
        assert written(cluster, plain) is None, "what it acknowledges is safe: nobody else can be elected"

        cluster.proxy.heal()
        wait_written(cluster, unclean)
        assert latest(cluster, unclean) == 2
