"""Disks that come back with a flipped bit or an older state: refused with a sentence, or survived, and nothing is lost.

One cluster for all; each test spoils one broker's directory while it is down, and leaves the cluster whole. A writer
goes on throughout, and in the end the history and the three copies are judged.
"""

from __future__ import annotations

import pathlib
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from minilog import NewTopic
from tests.cluster import Cluster, running_cluster
from tests.integration.clients import Writer, read_all
from tests.integration.history import judge_copies
from tests.integration.moving import wait_until
from tests.integration.rounds import TOPIC, RoundScene, admin_of
from tests.rules import proves

PARTITIONS = 3
ENDS_WITHIN_S = 20.0
METADATA = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundScene]:
    with running_cluster(tmp_path_factory.mktemp("bad-disks")) as cluster, admin_of(cluster) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
        writer = Writer(cluster.bootstrap_servers, TOPIC, in_flight=100)
        scene = RoundScene(cluster, admin, writer, random.Random(5), PARTITIONS)
        scene.wait_whole()
        writer.wait_for_more(2000)
        try:
            yield scene
        finally:
            history = writer.stop()
        scene.wait_whole()
        wrong = history.judge(read_all(cluster.bootstrap_servers, TOPIC))
        assert cluster.stop() == {1: 0, 2: 0, 3: 0}
        wrong += judge_copies(map(cluster.data_directory, cluster.ports), TOPIC)
        assert wrong == []
        assert (history.failed, history.unknown) == ({}, set())


def flip_a_bit(path: pathlib.Path, share: float = 0.5) -> None:
    """At `share` of the file's length."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x10
    path.write_bytes(content)


def victim(scene: RoundScene) -> int:
    """A broker that leads a partition and is not the controller."""
    scene.number += 1
    return scene.other_leader(scene.controller())


def log_of(directory: pathlib.Path, partition: str) -> pathlib.Path:
    return sorted((directory / partition).glob("*.log"))[0]


def refused_start(cluster: Cluster, broker_id: int) -> str:
    """The broker ends by itself, with code 1 and one sentence: that one."""
    cluster.start(broker_id)
    assert cluster.processes.pop(broker_id).wait(ENDS_WITHIN_S) == 1
    said = cluster.said_in_this_life(broker_id)
    assert "Traceback" not in said, said
    return said.strip().splitlines()[-1]


def mend(scene: RoundScene, broker_id: int) -> None:
    """Start it, and wait until all is as before, under load."""
    scene.cluster.start(broker_id)
    scene.wait_whole()
    scene.writer.wait_for_more(100)
    assert "Traceback" not in scene.cluster.log_text(broker_id)


def test_a_log_with_a_flipped_bit_is_fetched_again_after_a_kill(scene: RoundScene) -> None:
    broker_id = victim(scene)
    scene.cluster.kill(broker_id)
    for partition in range(PARTITIONS):
        flip_a_bit(log_of(scene.cluster.data_directory(broker_id), f"{TOPIC}-{partition}"))
    mend(scene, broker_id)
    assert re.search("damaged|corrupt", scene.cluster.said_in_this_life(broker_id))


@pytest.mark.dear("it waits until a bad or full disk is noticed")
@proves("SE.21")
def test_a_log_that_rotted_under_a_clean_stop_is_found_by_its_first_reader_and_fetched_again(scene: RoundScene) -> None:
    """Nothing is looked at when it starts. The reader is told nothing: another leads, and has what was written."""
    broker_id = victim(scene)
    cluster, rotten = scene.cluster, scene.led_by(broker_id)
    assert cluster.stop(broker_id) == {broker_id: 0}
    for partition in rotten:
        flip_a_bit(log_of(cluster.data_directory(broker_id), f"{TOPIC}-{partition}"))
    mend(scene, broker_id)
    assert sum(map(len, read_all(cluster.bootstrap_servers, TOPIC).values())) > 2000
    scene.wait_whole()
    said = cluster.said_in_this_life(broker_id)
    assert said.count("a replica is damaged: the broker fetches it again") == len(rotten), said


REFUSED: dict[str, str] = {
    "quorum-vote": r"^minilog: .*quorum-vote",
    "broker.json": r"^minilog: .*broker\.json",
    f"{METADATA}/*.log": rf"^minilog: .*{METADATA} is damaged: .*replace-voter",
}


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_damaged_file_that_no_other_has_is_refused(scene: RoundScene, pattern: str) -> None:
    """A flipped bit in the vote, the metadata log, or in whose a directory is: refused until restored."""
    broker_id = victim(scene)
    assert scene.cluster.stop(broker_id) == {broker_id: 0}
    (path,) = scene.cluster.data_directory(broker_id).glob(pattern)
    whole = path.read_bytes()
    flip_a_bit(path, 0.3)
    spoiled = path.read_bytes()
    said = refused_start(scene.cluster, broker_id)
    assert re.search(REFUSED[pattern], said), said
    assert path.read_bytes() == spoiled, "a file that was refused is left for those who look into it"
    scene.writer.wait_for_more(100)
    path.write_bytes(whole)
    mend(scene, broker_id)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quorum-vote", "could vote twice.*replace-voter"),
        ("broker.json", "no broker.json, which names .* Restore that file"),
    ],
)
def test_a_missing_file_is_not_taken_for_a_new_broker(scene: RoundScene, name: str, said: str) -> None:
    """A voter that forgot its vote could vote twice, one that forgot its name would be another broker."""
    broker_id = victim(scene)
    scene.cluster.kill(broker_id)
    path = scene.cluster.data_directory(broker_id) / name
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):  # the first refusal leaves nothing that would satisfy the second
        assert re.search(said, refused_start(scene.cluster, broker_id))
    path.write_bytes(content)
    mend(scene, broker_id)


def a_directory_in_its_place(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


UNREADABLE: dict[str, tuple[str, Callable[[pathlib.Path], None]]] = {
    "a segment": ("*.log", a_directory_in_its_place),
    "the checkpoint": ("checkpoint", a_directory_in_its_place),
    "whose log it is": ("topic-id", flip_a_bit),
}


@proves("DK.12")
@pytest.mark.parametrize("what", UNREADABLE)
def test_a_log_that_cannot_be_read_is_offline_and_the_others_are_served(scene: RoundScene, what: str) -> None:
    pattern, spoil = UNREADABLE[what]
    broker_id, cluster = victim(scene), scene.cluster
    cluster.kill(broker_id)
    directory = cluster.data_directory(broker_id)
    path = sorted((directory / f"{TOPIC}-0").glob(pattern))[0]
    content = path.read_bytes()
    spoil(path)
    try:
        cluster.start(broker_id)
        cluster.wait_running()
        wait_until(lambda: all(broker_id in each.isr for each in scene.partitions() if each.partition != 0))
        scene.writer.wait_for_more(500)
        spoiled = next(each for each in scene.partitions() if each.partition == 0)
        assert broker_id not in spoiled.isr
        assert spoiled.leader not in (None, broker_id)
        said = cluster.said_in_this_life(broker_id)
        assert f"{TOPIC}-0" in said
        assert re.search("its replica (is|will be) offline", said), said
    finally:
        cluster.kill(broker_id)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(content)
        mend(scene, broker_id)


@pytest.mark.parametrize("name", ["checkpoint", "leader-epoch", "*.index", "*.timeindex", "*.snapshot"])
def test_a_small_file_beside_a_log_is_made_anew_or_its_loss_is_told(scene: RoundScene, name: str) -> None:
    broker_id = victim(scene)
    assert scene.cluster.stop(broker_id) == {broker_id: 0}
    directory = scene.cluster.data_directory(broker_id)
    paths = sorted(directory.glob(f"{TOPIC}-*/{name}"))
    assert paths
    for path in paths:
        flip_a_bit(path)
    mend(scene, broker_id)


def copy_of(directory: pathlib.Path) -> pathlib.Path:
    copy = directory.with_name(f"copy-of-{directory.name}")
    shutil.copytree(directory, copy)
    return copy


def stop(cluster: Cluster, broker_id: int) -> None:
    cluster.stop(broker_id)


def kill(cluster: Cluster, broker_id: int) -> None:
    cluster.kill(broker_id)


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
@pytest.mark.parametrize(("before", "after"), [(stop, kill), (kill, stop)])
def test_an_older_copy_of_a_data_directory_put_back_only_fetches_what_it_lacks(
    scene: RoundScene, before: Callable[[Cluster, int], None], after: Callable[[Cluster, int], None]
) -> None:
    """Its clean-stop mark is another life's, so it leads nothing before it is in sync again."""
    broker_id, cluster = victim(scene), scene.cluster
    before(cluster, broker_id)
    older = copy_of(cluster.data_directory(broker_id))
    mend(scene, broker_id)
    scene.writer.wait_for_more(500)
    after(cluster, broker_id)
    shutil.rmtree(cluster.data_directory(broker_id))
    older.rename(cluster.data_directory(broker_id))
    time.sleep(0.1)
    mend(scene, broker_id)
