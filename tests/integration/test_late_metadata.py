"""Brokers that hear of a change later than its client: what a client itself changed, it sees, whoever it asks; and a
topic that is there is found by every client that names it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic
from minilog.errors import UnknownTopicOrPartition
from tests.cluster import HOST, Cluster, broker_name, running_cluster
from tests.proxy import Rule

CONTROLLER, LATE_S = 1, 0.4
TIMES = 6  # each broker is asked first in turn


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: pathlib.Path = tmp_path_factory.mktemp("late")
    with running_cluster(directory, voters=1, proxied=True) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    """Its cluster's brokers hear the controller so much later than it does."""
    assert cluster.proxy is not None
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        made.describe_cluster()
        for late in (2, 3):
            cluster.proxy.set_rule(broker_name(CONTROLLER), broker_name(late), Rule(latency_s=LATE_S))
        yield made
        cluster.proxy.heal()


def test_a_topic_that_another_client_made_a_moment_ago_is_found_by_its_name(cluster: Cluster, admin: Admin) -> None:
    with Admin({"bootstrap.servers": f"{HOST}:{cluster.ports[2]}"}) as other:
        admin.create_topics([NewTopic("late")])
        assert "late" not in other.list_topics(), "the brokers are late: the other tests stand on it"
        assert [each.name for each in other.describe_topics(["late"])] == ["late"]


def test_a_topic_that_is_not_there_is_said_at_once(cluster: Cluster) -> None:
    with Admin({"bootstrap.servers": f"{HOST}:{cluster.ports[2]}"}) as other, pytest.raises(UnknownTopicOrPartition):
        other.describe_topics(["never"])


@pytest.mark.dear("it waits for a time-out of the product")
def test_a_client_sees_what_it_made_altered_and_deleted(admin: Admin) -> None:
    for attempt in range(TIMES):
        name = f"seen-{attempt}"
        admin.create_topics([NewTopic(name, num_partitions=2)])
        assert len(admin.describe_topics([name])[0].partitions) == 2
        admin.alter_topic(name, num_partitions=3)
        assert len(admin.describe_topics([name])[0].partitions) == 3
        admin.delete_topics([name])
        assert name not in admin.list_topics()
