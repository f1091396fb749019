"""The metadata of one cluster in a file, and a new cluster with the same metadata from that file."""

from __future__ import annotations

import pathlib

import pytest

from minilog import Admin, NewTopic, Producer, TopicPartition
from minilog.admin.security import QuotaAlteration
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.typed.schema.evolution import widen_column
from minilog.typed.schema.fields import Primitive
from minilog.types import SchemaStep, TopicAlteration
from minilog_tools.cli.backup_file import Metadata
from minilog_tools.cli.cluster_backup import collect
from tests.cluster import Cluster, running_cluster
from tests.integration.commands import done, minilog
from tests.pool import THREE, shared_cluster

RULE = AccessRule("User:alice", "*", Operation.READ, ResourceKind.TOPIC, "plain", Pattern.LITERAL, Permission.ALLOW)

cluster = shared_cluster(THREE)


def metadata_of(cluster: Cluster) -> Metadata:
    with Admin(cluster.client) as admin:
        return collect(admin)


def furnish(cluster: Cluster) -> None:
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic("plain", 3, 1, {"retention.ms": "86400000"})])
        admin.alter_broker_settings(None, set_configs={"log.level": "warning"})
        admin.create_access_rules([RULE])
        admin.alter_quotas([QuotaAlteration("User:alice", "connections", 7)])
        with Producer(cluster.client) as producer:
            for number in range(5):
                producer.send("plain", value=b"%d" % number, partition=0).result(timeout=30)
        admin.seek_group("readers", {TopicPartition("plain", 0): 3})
        admin.alter_queue("jobs", set={"group.share.delivery.count.limit": "7"})
    done(cluster, "topic", "create", "typed", "-p", "2", "-r", "1", "--ddl", "carrier string NOT NULL, delay int")
    with Admin(cluster.client) as admin:
        wide = admin.evolve_schema("typed", lambda it: widen_column(it, "delay", Primitive("long")), is_pending=True)
        admin.alter_topics([TopicAlteration("typed", schema=wide, schema_step=SchemaStep.WITHDRAWN)])
    done(cluster, "topic", "schema", "evolve", "typed", "--drop", "delay")
    shown = done(cluster, "topic", "schema", "show", "typed")
    assert "version 2: withdrawn, because its write failed or another change came first" in shown
    assert "version 3: dropped delay" in shown
    done(cluster, "topic", "schema", "evolve", "typed", "--add", "origin string")


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_backup_makes_another_cluster_the_same_but_for_data(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "metadata.json"
    with running_cluster(tmp_path / "first", brokers=1) as cluster:
        furnish(cluster)
        done(cluster, "cluster", "backup", str(file))
        first = metadata_of(cluster)
        again = minilog(cluster, "cluster", "backup", str(file))
        assert again.returncode == 1
        assert "exists: give the name of a new file" in again.stderr
    assert len(first.topics) == 2
    with running_cluster(tmp_path / "second", brokers=1) as cluster:
        dry = done(cluster, "cluster", "restore", str(file), "--dry-run")
        assert "would be restored: 2 topics" in dry
        assert metadata_of(cluster).topics == []
        output = done(cluster, "cluster", "restore", str(file), "--group-offsets")
        assert "group readers at 3 of partition 0 of plain: it is not there" in output
        second = metadata_of(cluster)
        assert second.topics == first.topics
        assert second.broker_settings == first.broker_settings
        assert (second.access_rules, second.quotas) == (first.access_rules, first.quotas)
        assert second.groups == {}
        assert second.queues == first.queues == {"jobs": {"group.share.delivery.count.limit": "7"}}
        assert "restored: 0 topics" in done(cluster, "cluster", "restore", str(file))

        with Producer(cluster.client) as producer:
            for number in range(4):
                producer.send("plain", value=b"%d" % number, partition=0).result(timeout=30)
        done(cluster, "cluster", "restore", str(file), "--group-offsets")
        assert metadata_of(cluster).groups == first.groups

        with Admin(cluster.client) as admin:
            admin.alter_topic("plain", num_partitions=4)
        refused = minilog(cluster, "cluster", "restore", str(file), "--overwrite")
        assert refused.returncode == 1
        assert "nothing was done: topic plain has 4 partitions here, and 3 in the file" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_a_file_that_is_damaged_or_of_a_later_version_changes_nothing(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "metadata.json"
    done(cluster, "cluster", "backup", str(file))
    text = file.read_text()
    for wrong, words in (
        (text.replace('"topics": []', '"topics": [ 1]'), "is damaged"),
        (text.replace('"version": 2', '"version": 9', 1), "reads versions 1 to 2"),
        (text[:40], "is no whole backup"),
    ):
        bad = tmp_path / "bad.json"
        bad.write_text(wrong)
        refused = minilog(cluster, "cluster", "restore", str(bad))
        assert refused.returncode == 1
        assert words in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
