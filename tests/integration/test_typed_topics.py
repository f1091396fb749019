"""Typed topics of real brokers: made, told by every broker, evolved, and still there after a restart."""

from __future__ import annotations

import json
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minilog import Admin, NewTopic, schema_from_ddl
from minilog.errors import InvalidSchema, UnknownTopicOrPartition
from minilog.typed.schema.evolution import add_column, drop_column, rename_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema
from tests.cluster import HOST, Cluster
from tests.integration.commands import minilog
from tests.integration.moving import wait_until
from tests.integration.rounds import admin_of
from tests.pool import MORTAL, THREE, shared_cluster
from tests.rules import proves

pytestmark = proves("MD.25")

FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int, at timestamp", ["carrier"], "at")
GATE = Field("gate", Primitive("string"))


cluster = shared_cluster(THREE)
mortal = shared_cluster(MORTAL)


def told_by_each(cluster: Cluster, name: str, after: Admin) -> list[list[TopicSchema]]:
    """What each broker tells, once it has replayed what the admin's client has seen."""
    least = after._inner._cluster.cache.metadata_offset
    return [told_by(port, name, least) for port in cluster.ports.values()]


def told_by(port: int, name: str, least: int) -> list[TopicSchema]:
    """What one broker tells once it has replayed `least`. Each client is new: one that knows the others asks any."""
    told: list[TopicSchema] = []

    def has_replayed() -> bool:
        with Admin({"bootstrap.servers": f"{HOST}:{port}"}) as admin:
            told[:] = admin.describe_topics([name])[0].schema_versions
            return admin._inner._cluster.cache.metadata_offset >= least

    wait_until(has_replayed)
    return told


def test_every_broker_tells_the_schema_and_keeps_it_over_a_restart(mortal: Cluster) -> None:
    with admin_of(mortal) as admin:
        admin.create_topics([NewTopic("flights", num_partitions=2, replication_factor=3, schema=FLIGHTS)])
        assert told_by_each(mortal, "flights", admin) == [[FLIGHTS]] * 3
        second = admin.evolve_schema("flights", lambda schema: drop_column(add_column(schema, GATE), "delay"))
        assert (second.version, second.names) == (2, ("carrier", "at", "gate"))
        assert told_by_each(mortal, "flights", admin) == [[FLIGHTS, second]] * 3
        assert mortal.stop() == dict.fromkeys(mortal.ports, 0)
        mortal.start()
        mortal.wait_running()
        assert told_by_each(mortal, "flights", admin) == [[FLIGHTS, second]] * 3
        mortal.kill(*mortal.ports)
        mortal.start()
        mortal.wait_running()
        third = admin.evolve_schema("flights", lambda schema: rename_column(schema, "carrier", "airline"))
        assert third.key_columns == ("airline",)
        assert told_by_each(mortal, "flights", admin) == [[FLIGHTS, second, third]] * 3


def test_an_arrow_schema_makes_a_typed_topic_and_none_makes_none(admin: Admin) -> None:
    arrow = pa.schema([pa.field("n", pa.uint32(), nullable=False), pa.field("tags", pa.list_(pa.string()))])
    admin.create_topics([NewTopic("from-arrow", schema=arrow), NewTopic("plain")])
    typed, plain = admin.describe_topics(["from-arrow", "plain"])
    assert str(typed.schema) == "n long NOT NULL, tags array<string>"
    assert (plain.schema, plain.schema_versions) == (None, [])
    with pytest.raises(InvalidSchema, match="'plain' has no schema"):
        admin.evolve_schema("plain", lambda schema: schema)
    with pytest.raises(UnknownTopicOrPartition):
        admin.evolve_schema("nowhere", lambda schema: schema)


def test_of_several_who_evolve_at_once_all_get_their_turn(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("busy", schema=FLIGHTS)])

    def add(number: int) -> int:
        with admin_of(cluster) as own:
            return own.evolve_schema(
                "busy", lambda schema: add_column(schema, Field(f"c{number}", Primitive("int")))
            ).version

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(add, range(4))) == [2, 3, 4, 5]
    (found,) = admin.describe_topics(["busy"])
    assert found.schema is not None
    assert sorted(found.schema.names[3:]) == ["c0", "c1", "c2", "c3"]


def test_the_command_line_creates_shows_and_evolves(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    table = tmp_path / "flights.parquet"
    pq.write_table(FLIGHTS.arrow_schema.empty_table(), table)
    options = ("--like", str(table), "--key-columns", "carrier", "--timestamp-column", "at")
    assert minilog(cluster, "topic", "create", "cli", *options).stdout == "topic cli created\n"
    shown = minilog(cluster, "topic", "schema", "show", "cli")
    assert shown.returncode == 0
    assert "cli, version 1 of 1" in shown.stdout
    change = ("--add", "gate string", "--rename", "delay=late", "--move", "at first")
    tried = minilog(cluster, "topic", "schema", "evolve", "cli", *change, "--dry-run")
    words = "version 2 of the schema of topic cli: added gate string; renamed delay to late; the order is "
    assert tried.stdout.splitlines()[-1] == f"would be {words}at, carrier, late, gate"
    done = minilog(cluster, "topic", "schema", "evolve", "cli", *change, "--json")
    document = json.loads(done.stdout)
    assert (document["former_version"], document["schema"]["version"], document["dry_run"]) == (1, 2, False)
    again = minilog(cluster, "topic", "schema", "evolve", "cli", "--nullable", "late")
    assert again.stdout == "the schema of topic cli stays at version 2: nothing is changed\n"
    versions = json.loads(minilog(cluster, "topic", "schema", "show", "cli", "--json").stdout)["versions"]
    assert [[each["name"] for each in version["fields"]] for version in versions] == [
        ["carrier", "delay", "at"],
        ["at", "carrier", "late", "gate"],
    ]
    described = json.loads(minilog(cluster, "topic", "describe", "cli", "--json").stdout)
    assert described["schema"] == versions[-1]
    assert "version 2 of the schema" in minilog(cluster, "topic", "describe", "cli").stdout
