"""Brokers that share a physical host, which their addresses do not show: no partition has two replicas there."""

from __future__ import annotations

import json
import pathlib

from minilog import Admin, NewTopic, TopicAlteration
from tests import programs
from tests.cluster import running_cluster

LABELS = {1: "machine-1", 2: "machine-1", 3: "machine-2"}


def test_replicas_are_on_both_hosts_and_describe_tells_them(tmp_path: pathlib.Path) -> None:
    arguments = {broker: ("--rack", "r1", "--host-label", label) for broker, label in LABELS.items()}
    with running_cluster(tmp_path, arguments=arguments) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("t", num_partitions=9, replication_factor=2)])
            admin.alter_topics([TopicAlteration("t", num_partitions=12)])
            (topic,) = admin.describe_topics(["t"])
        assert len(topic.partitions) == 12
        assert all({LABELS[each] for each in part.replicas} == set(LABELS.values()) for part in topic.partitions)
        told = programs.run("cluster", "describe", "--json", "-b", cluster.bootstrap_servers)
        brokers = json.loads(told.stdout)["brokers"]
        assert {each["id"]: (each["rack"], each["host_label"]) for each in brokers} == {
            broker: ("r1", label) for broker, label in LABELS.items()
        }
