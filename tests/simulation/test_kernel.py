"""The kernel itself: a seed is one run, whatever the process; virtual time, network and disk do what they promise."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys

import pytest

from minilog.v1 import admin_pb2, metadata_pb2
from tests.simulation.cluster import Cluster
from tests.simulation.network import Failure
from tests.simulation.plan import Plan

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGESTED_EVENTS = 6_000


def digest(seed: int) -> str:
    """Of all that a run of the seed says and leaves, up to some events."""
    cluster = Cluster(seed)
    lines: list[str] = []
    cluster.trace = lines.append
    client = cluster.add_client()
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t0", num_partitions=3)])
    for delay_ms in (500.0, 1_000.0, 2_000.0):
        client.after(
            delay_ms, lambda _: client.call(1, "CreateTopics", request, lambda answer: lines.append(str(answer)))
        )
    while cluster.events < DIGESTED_EVENTS and cluster.step():
        pass
    for node in cluster.nodes.values():
        lines.extend(
            f"{path} {'' if inode is None else bytes(inode.live)!r}" for path, inode in node.files.names.items()
        )
    return hashlib.sha256("\n".join([*lines, repr(cluster.now_ms)]).encode()).hexdigest()


@pytest.mark.parametrize("seed", [3, 104])
def test_the_same_seed_is_the_same_run_in_another_process_with_other_hashes(seed: int) -> None:
    program = f"from tests.simulation.test_kernel import digest; print(digest({seed}))"
    found = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([".", *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_another_seed_is_another_run() -> None:
    assert digest(3) != digest(4)


# -- a cluster that nothing befalls


def calm(**changes: object) -> Cluster:
    cluster = Cluster(1, Plan.calm(**changes))
    cluster.run_for(3_000.0)
    return cluster


def test_a_calm_cluster_registers_and_elects() -> None:
    cluster = calm()
    client = cluster.add_client()
    answers: list[object] = []
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t", num_partitions=2)])
    controller = next(node for node in cluster.nodes.values() if node.life and node.life.controller.is_active)
    client.call(controller.node_id, "CreateTopics", request, answers.append)
    cluster.run_for(1_000.0)
    client.call(2, "GetMetadata", metadata_pb2.GetMetadataRequest(topic_names=["t"]), answers.append)
    cluster.run_for(1_000.0)
    created, metadata = answers
    assert isinstance(created, admin_pb2.CreateTopicsResponse)
    assert isinstance(metadata, metadata_pb2.GetMetadataResponse)
    assert all(partition.leader_id in (1, 2, 3) for partition in metadata.topics[0].partitions)


def test_a_call_to_a_dead_process_is_refused_and_to_a_dead_machine_times_out() -> None:
    cluster = calm()
    client = cluster.add_client()
    heard: list[object] = []
    cluster.nodes[2].kill()
    client.call(2, "GetMetadata", metadata_pb2.GetMetadataRequest(), heard.append)
    cluster.run_for(50.0)
    cluster.nodes[3].lose_power()
    client.call(3, "GetMetadata", metadata_pb2.GetMetadataRequest(), heard.append, timeout_ms=500.0)
    cluster.run_for(1_000.0)
    assert heard == [Failure.REFUSED, Failure.TIMED_OUT]


def test_a_stopped_process_answers_when_it_goes_on() -> None:
    cluster = calm()
    client = cluster.add_client()
    heard: list[object] = []
    cluster.nodes[2].pause()
    client.call(2, "GetMetadata", metadata_pb2.GetMetadataRequest(), heard.append, timeout_ms=5_000.0)
    cluster.run_for(1_000.0)
    assert not heard
    cluster.nodes[2].resume()
    cluster.run_for(1_000.0)
    assert isinstance(heard[0], metadata_pb2.GetMetadataResponse)


def test_a_cut_stream_delivers_in_order_when_it_heals() -> None:
    cluster = calm()
    client = cluster.add_client()
    stream = client.open_stream(1, "Produce")
    heard: list[object] = []
    stream.client.on_message = heard.append
    cluster.run_for(500.0)
    before = len(heard)
    assert before
    cluster.network.condition(1, client.endpoint_id).cut = True
    cluster.run_for(50.0)
    before = len(heard)
    cluster.run_for(1_000.0)
    assert len(heard) == before
    cluster.network.heal()
    cluster.run_for(500.0)
    assert len(heard) > before


def test_a_clean_stop_leaves_its_mark_and_an_unclean_one_does_not() -> None:
    cluster = calm()
    cluster.nodes[2].stop()
    cluster.run_for(6_000.0)
    assert cluster.nodes[2].ended_because == "stop"
    assert cluster.nodes[2].files.exists("/data/clean-stop")
    cluster.nodes[3].kill()
    assert not cluster.nodes[3].files.exists("/data/clean-stop")
