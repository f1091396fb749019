"""Brokers of two versions in one cluster, each from a wheel of its own (docs/spec/levels.md).

Under load, with kills: forth, upgraded, and refused back; forth and back where nobody upgraded. Nothing acknowledged is
lost or doubled, and what the later version wrote an older one leaves as it is. Each test prints what was acknowledged,
lost and doubled, and the longest stall (`-s`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql.types import StructType

from minilog import NewTopic, Producer, schema_from_ddl
from minilog.errors import LevelNotReached, UnsupportedVersion
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.files import OsFileSystem
from pyspark_minilog.options.table import parse_sink_options
from pyspark_minilog.writing.typed_sink import plan_write
from tests import programs
from tests.cluster import Cluster
from tests.integration.clients import Reader, Writer, read_all
from tests.integration.history import History, Stored, judge_copies, judge_reading
from tests.integration.levels.wheels import (
    HIGHEST_LEVEL,
    LATER_LEVEL,
    LATER_VERSION,
    Wheel,
    earlier_version,
    later_version,
    this_version,
)
from tests.integration.rounds import TOPIC, RoundScene, admin_of
from tests.pool import THREE, shared_cluster
from tests.rules import proves

CLIENT = pathlib.Path(__file__).parent / "levels" / "client.py"
BROKERS = (1, 2, 3)
WITHIN_S = 15.0
PARTITIONS = 3
NEW_TOPIC, NEW_COUNT = "of-later-level", 50
ENDS_WITHIN_S = 30.0
# What a start writes before it looks at anything, and what says nothing of the cluster.
WRITTEN_BY_ANY_START = ("lock", "broker.pid")

pytestmark = [pytest.mark.timeout(300), proves("DK.2", "MD.22", "MD.30")]

cluster = shared_cluster(THREE)


@dataclass(frozen=True, slots=True)
class Versions:
    """What brokers can be started with."""

    old: Wheel
    new: Wheel


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions(
        this_version(tmp_path_factory.mktemp("this-version")), later_version(tmp_path_factory.mktemp("later-version"))
    )


class Rolling:
    """A cluster under load whose brokers change their version."""

    def __init__(self, cluster: Cluster, scene: RoundScene) -> None:
        self.cluster = cluster
        self.scene = scene
        self.history = History()
        self._reader = Reader(cluster.bootstrap_servers, TOPIC, PARTITIONS)

    def becomes(self, broker_id: int, wheel: Wheel, *, killed: bool) -> None:
        """End it as it stands, by SIGKILL or SIGTERM, and start it as that version; until all copies are in sync."""
        self.scene.let_it_write()
        if killed:
            self.cluster.kill(broker_id)
        else:
            assert self.cluster.stop(broker_id) == {broker_id: 0}, self.cluster.log_text(broker_id)[-2000:]
        self.scene.writer.wait_for_more(50)
        self.becomes_again(broker_id, wheel)

    def becomes_again(self, broker_id: int, wheel: Wheel) -> None:
        """Start a stopped broker as that version, until all copies are in sync."""
        self.cluster.environments[broker_id] = wheel.environment
        self.cluster.start(broker_id)
        self.scene.wait_whole()

    def judge(self, words: str) -> None:
        """Everything that was acknowledged is there, once and in order, on all copies; said in one line."""
        self.history = self.scene.writer.stop()
        read = self._reader.stop()
        self.scene.wait_whole()
        stored = read_all(self.cluster.bootstrap_servers, TOPIC)
        wrong = self.history.judge(stored) + judge_reading(read, stored)
        wrong += [str(error) for error in self._reader.errors if not error.retriable]
        codes = self.cluster.stop()
        wrong += [f"broker {each} ended with {code}" for each, code in codes.items() if code]
        wrong += [f"broker {each} said a traceback" for each in BROKERS if "Traceback" in self.cluster.log_text(each)]
        wrong += judge_copies(map(self.cluster.data_directory, BROKERS), TOPIC)
        print(f"{words}: {told(self.history, stored)}")
        assert wrong == []
        assert (self.history.failed, self.history.unknown) == ({}, set())
        assert len(self.history.acknowledged) > 1000


def told(history: History, stored: Stored) -> str:
    counts = Counter(value for records in stored.values() for _, value in records)
    lost = sum(value not in counts for value in history.acknowledged)
    doubled = sum(count > 1 for count in counts.values())
    return (
        f"acknowledged {len(history.acknowledged)}, lost {lost}, doubled {doubled}, unknown {len(history.unknown)}, "
        f"longest stall {history.longest_stall_s:.2f} s"
    )


@contextlib.contextmanager
def rolling(directory: pathlib.Path, wheel: Wheel) -> Iterator[Rolling]:
    cluster = Cluster(directory)
    cluster.environments = dict.fromkeys(BROKERS, wheel.environment)
    try:
        cluster.start()
        cluster.wait_running()
        with admin_of(cluster) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=len(BROKERS))])
            writer = Writer(cluster.bootstrap_servers, TOPIC, pause_s=0.001)
            yield Rolling(cluster, RoundScene(cluster, admin, writer, random.Random(7), PARTITIONS))
    finally:
        cluster.end()


def described(rolling: Rolling) -> tuple[int, dict[int, tuple[str, int, int]]]:
    """The level, and of each broker its version and range."""
    found = rolling.scene.admin.describe_cluster()
    return found.level, {each.id: (each.version, each.lowest_level, each.highest_level) for each in found.brokers}


def content_of(directory: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in WRITTEN_BY_ANY_START
    }


def refused_start(cluster: Cluster, broker_id: int) -> str:
    """Start a broker that has to end by itself, with a code that is not 0; what it said."""
    cluster.start(broker_id)
    code = cluster.processes.pop(broker_id).wait(ENDS_WITHIN_S)
    said = cluster.said_in_this_life(broker_id)
    assert code == 1, said
    assert "Traceback" not in said
    return said


def client(wheel: Wheel, what: str, cluster: Cluster) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CLIENT), what, cluster.bootstrap_servers, NEW_TOPIC, str(NEW_COUNT)]
    environment = {**os.environ, **wheel.environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def forget_the_level(directory: pathlib.Path) -> None:
    """As if the process had been killed before `broker.json` said what its logs already have."""
    path = directory / "broker.json"
    told = json.loads(path.read_bytes().rpartition(b"\ncrc32c=")[0])
    write_durable_file(OsFileSystem(), str(path), json.dumps(told | {"level": HIGHEST_LEVEL}).encode())


@pytest.mark.long
@pytest.mark.dear("it rolls a cluster of an earlier version")
def test_a_cluster_is_rolled_forth_upgraded_and_never_goes_back(versions: Versions, tmp_path: pathlib.Path) -> None:
    began_s = time.monotonic()
    with rolling(tmp_path, versions.old) as world:
        world.becomes(1, versions.new, killed=True)
        world.becomes(2, versions.new, killed=False)
        mixed = dict.fromkeys((1, 2), (LATER_VERSION, 1, LATER_LEVEL)) | {3: (versions.old.version, 1, HIGHEST_LEVEL)}
        assert described(world) == (HIGHEST_LEVEL, mixed)
        with pytest.raises(UnsupportedVersion, match=rf"not supported by broker 3 \(version {versions.old.version} "):
            world.scene.admin.upgrade_level()
        world.becomes(3, versions.new, killed=True)
        assert world.scene.admin.upgrade_level() == (HIGHEST_LEVEL, LATER_LEVEL)
        write_what_came_with_the_level(world, versions)
        an_older_version_leaves_all_as_it_is(world, versions.old, tmp_path / "copy")
        world.becomes_again(3, versions.new)
        assert described(world)[0] == LATER_LEVEL
        world.judge("forth, upgraded, refused back")
    print(f"{time.monotonic() - began_s:.0f} s")


def write_what_came_with_the_level(world: Rolling, versions: Versions) -> None:
    """A metadata record with the topic, and an attribute in its batches; who does not know them says so."""
    world.scene.admin.create_topics([NewTopic(NEW_TOPIC, num_partitions=1, replication_factor=len(BROKERS))])
    written = client(versions.new, "write", world.cluster)
    assert written.stdout == f"{list(range(NEW_COUNT))}\n", written.stderr
    assert client(versions.new, "read", world.cluster).stdout == written.stdout
    refused = client(versions.old, "read", world.cluster)
    assert refused.returncode == 1
    assert refused.stderr.startswith("UNSUPPORTED_VERSION: ")
    assert "was written by a later version" in refused.stderr


def an_older_version_leaves_all_as_it_is(world: Rolling, old: Wheel, copy: pathlib.Path) -> None:
    """Told by broker.json; and where that was too late, by each log, before anything of it is changed."""
    cluster, directory = world.cluster, world.cluster.data_directory(3)
    world.scene.let_it_write()
    cluster.kill(3)
    cluster.environments[3] = old.environment
    before = content_of(directory)
    for _ in range(2):
        said = refused_start(cluster, 3)
        assert f"is at level {LATER_LEVEL}: it was written by a later version" in said
        assert f"start this broker with a version that supports level {LATER_LEVEL}" in said.lower()
    assert content_of(directory) == before
    shutil.copytree(directory, copy)
    forget_the_level(directory)
    said = refused_start(cluster, 3)
    assert "was written by a later version" in said
    after = content_of(directory)
    logs = [name for name in before if name.startswith(f"{NEW_TOPIC}-0/") or "__cluster_metadata" in name]
    assert logs
    assert {name: after.get(name) for name in logs} == {name: before[name] for name in logs}
    shutil.rmtree(directory)
    shutil.move(copy, directory)


@pytest.mark.long
def test_brokers_go_forth_and_back_under_load_and_nothing_new_is_written(
    versions: Versions, tmp_path: pathlib.Path
) -> None:
    chance = random.Random(11)
    with rolling(tmp_path, versions.old) as world:
        for wheel in (versions.new, versions.old) * 2:
            for broker_id in chance.sample(BROKERS, len(BROKERS)):
                world.becomes(broker_id, wheel, killed=chance.random() < 2 / 3)
            level, brokers = described(world)
            assert (level, {version for version, _, _ in brokers.values()}) == (HIGHEST_LEVEL, {wheel.version})
        world.judge("forth and back, twice")


@pytest.mark.long
def test_a_broker_goes_forth_and_back_by_kills(versions: Versions, tmp_path: pathlib.Path) -> None:
    """The controller among them: what a later version decided at the level of both an older one replays."""
    with rolling(tmp_path, versions.old) as world:
        controller = world.scene.controller()
        for wheel in (versions.new, versions.old):
            world.becomes(controller, wheel, killed=True)
            world.scene.admin.create_topics([NewTopic(f"by-{wheel.version}", replication_factor=len(BROKERS))])
        assert described(world)[0] == HIGHEST_LEVEL
        world.judge("one broker, forth and back")


def test_a_cluster_of_one_version_says_its_level(cluster: Cluster) -> None:
    with admin_of(cluster) as admin:
        found = admin.describe_cluster()
        assert (found.level, found.brokers[0].lowest_level, found.brokers[0].highest_level) == (
            HIGHEST_LEVEL,
            1,
            HIGHEST_LEVEL,
        )
        assert admin.upgrade_level() == (HIGHEST_LEVEL, HIGHEST_LEVEL)
        with pytest.raises(UnsupportedVersion, match=f"level {LATER_LEVEL} is not supported by brokers 1"):
            admin.upgrade_level(LATER_LEVEL)
        shown = programs.run("cluster", "upgrade", "--level", str(LATER_LEVEL), "-b", cluster.bootstrap_servers)
        assert shown.returncode == 1
        assert f"level {LATER_LEVEL} is not supported by brokers 1" in " ".join(shown.stderr.split())


@pytest.mark.dear("it rolls a cluster of an earlier version")
@proves("MD.25", "SPY.5")
def test_typed_topics_wait_for_the_upgrade_and_a_producer_lives_through_it(tmp_path: pathlib.Path) -> None:
    """From then on ids of producers are proven; one that has its id from before has no proof, and goes on."""
    earlier = earlier_version(tmp_path / "earlier")
    cluster = Cluster(tmp_path / "cluster", 1)
    cluster.environments = {1: earlier.environment}
    typed = NewTopic("typed", schema=schema_from_ddl("carrier string, delay int"))
    try:
        cluster.start()
        cluster.wait_running()
        assert cluster.stop(1) == {1: 0}
        cluster.environments = {}
        cluster.start()
        cluster.wait_running()
        with admin_of(cluster) as admin:
            with pytest.raises(LevelNotReached, match="run `minilog cluster upgrade`"):
                admin.create_topics([typed])
            write = {"bootstrap.servers": cluster.bootstrap_servers, "topic": "typed", "createTopic": "true"}
            with pytest.raises(LevelNotReached, match="run `minilog cluster upgrade`"):
                plan_write(StructType().add("carrier", "string"), parse_sink_options(write)).carry_out()
            admin.create_topics([NewTopic("plain")])
            with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as living:
                living.send("plain", b"before").result(timeout=WITHIN_S)
                assert admin.upgrade_level() == (1, HIGHEST_LEVEL)
                with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as proven:
                    proven.send("plain", b"under a proven id").result(timeout=WITHIN_S)
                living.send("plain", b"behind").result(timeout=WITHIN_S)
            admin.create_topics([typed])
            assert [each.schema is not None for each in admin.describe_topics(["typed", "plain"])] == [True, False]
        assert cluster.stop(1) == {1: 0}
        cluster.environments = {1: earlier.environment}
        assert f"is at level {HIGHEST_LEVEL}: it was written by a later version" in refused_start(cluster, 1)
    finally:
        cluster.end()
