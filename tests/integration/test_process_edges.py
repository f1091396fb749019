"""Forks, ends of processes and callbacks, with real brokers (docs/guides/processes.md)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from minilog import Admin, NewTopic, TopicPartition, aio
from tests.cluster import Cluster
from tests.integration import process_edges
from tests.pool import THREE, shared_cluster

WITHIN_S = 90.0  # a process that hangs is one that has not ended by then


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin({"bootstrap.servers": shared.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(process_edges.TOPIC, num_partitions=1)])
    return shared


def ran(cluster: Cluster, program: Callable[[dict[str, Any]], None]) -> tuple[list[str], str]:
    """The lines that it printed, and its errors."""
    command = [sys.executable, "-m", "tests.integration.process_edges", program.__name__, cluster.bootstrap_servers]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines(), ended.stderr


def test_every_call_in_a_forked_child_is_refused_at_once(cluster: Cluster) -> None:
    [line], _ = ran(cluster, process_edges.fork_with_open_clients)
    told = json.loads(line)
    assert told["parent"] == f"{process_edges.TOPIC} 3"
    assert told["ends"] == [7] * 6, "a child that makes no call is hurt"
    child: dict[str, str] = told["child"]
    assert len(child) > 50
    may_return = (".close", ".transaction", ".participation", ".generation")
    wrong = {
        name: answer
        for name, answer in child.items()
        if not answer.startswith("Closed: ") and not (answer == "returned" and any(each in name for each in may_return))
    }
    assert not wrong
    refused = [answer for answer in child.values() if answer != "returned"]
    assert all("fork before the first client is made" in answer and "'spawn'" in answer for answer in refused)


def test_a_child_that_lets_its_parents_clients_go_ends(cluster: Cluster) -> None:
    """One hung in gRPC's end of a channel, which waits for the parent's threads. And the end of an event loop that is
    the parent's too may take the parent's sockets out of its epoll."""
    [line], _ = ran(cluster, process_edges.fork_and_let_go)
    assert json.loads(line) == [[7] * 6, ["returned"] * 6]


def test_a_child_of_a_process_with_closed_clients_is_refused_and_one_without_is_not(cluster: Cluster) -> None:
    """gRPC's threads outlive its channels: one child of ten had no answer."""
    [line], _ = ran(cluster, process_edges.fork_with_closed_clients)
    without, parent, closed = json.loads(line)
    assert (without, parent) == (process_edges.TOPIC, process_edges.TOPIC)
    assert "no client works in this process" in closed


def test_a_process_ends_whatever_uses_clients_at_its_end_and_counts_what_is_not_written(cluster: Cluster) -> None:
    lines, errors = ran(cluster, process_edges.end_without_close)
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert said["before"] == "returned"
    ended = "Closed: the process ends"
    late = ("thread in poll", "new Producer after", "new Admin after")
    assert all(said[name].startswith(ended) for name in late)
    [warning] = [line for line in errors.splitlines() if "forgetful" in line]
    assert "202 of its records are not written" in warning


def test_records_of_a_forgotten_producer_arrive(cluster: Cluster) -> None:
    lines, _ = ran(cluster, process_edges.leave_a_producer)
    assert lines == [process_edges.TOPIC]


def test_a_callback_is_refused_what_it_cannot_wait_for(cluster: Cluster) -> None:
    [line], _ = ran(cluster, process_edges.send_in_callbacks)
    told = json.loads(line)
    assert told["slowest_s"] < 5.0, "the loop stood still for max.block.ms"
    assert told["refused"] > 0
    assert told["waits"].startswith("RuntimeError: a callback waits")


@pytest.mark.dear("it runs many programs of the command line")
def test_an_interrupt_at_any_moment_loses_nothing_and_hands_out_nothing_twice(cluster: Cluster) -> None:
    """`python -m tests.integration.interrupts` does more of them."""
    command = [sys.executable, "-m", "tests.integration.interrupts", "--times", "25", "--servers"]
    ended = subprocess.run([*command, cluster.bootstrap_servers], capture_output=True, text=True, timeout=WITHIN_S)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert [each["interrupts"] for each in told.values()] == [25] * 4


def test_a_client_that_is_used_on_a_second_event_loop_says_so(cluster: Cluster) -> None:
    """Once: `send` was taken, and never written."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "loops"}
    partition = TopicPartition(process_edges.TOPIC, 0)

    async def made() -> tuple[aio.Producer, aio.Consumer, aio.Admin]:
        producer, consumer, admin = aio.Producer(settings), aio.Consumer(settings), aio.Admin(settings)
        await (await producer.send(process_edges.TOPIC, b"one"))
        await consumer.assign([partition])
        await admin.describe_cluster()
        return producer, consumer, admin

    def calls() -> list[Any]:
        """Each kind of them."""
        return [
            lambda: producer.send(process_edges.TOPIC, b"two"),
            lambda: producer.send_batch(process_edges.TOPIC, []),
            producer.flush,
            producer.close,
            lambda: consumer.assign([partition]),
            lambda: consumer.subscribe([process_edges.TOPIC]),
            lambda: consumer.seek(partition, 0),
            lambda: consumer.poll(0.1),
            lambda: consumer.poll_arrow(0.1),
            consumer.commit,
            lambda: consumer.committed([partition]),
            consumer.close,
            admin.describe_cluster,
            lambda: admin.list_offsets({partition: "latest"}),
            lambda: admin.list_groups(),
            admin.close,
        ]

    async def called(call: Any) -> None:
        await asyncio.wait_for(call(), 5.0)

    async def closed() -> None:
        for client in (producer, consumer, admin):
            await client.close()

    with asyncio.Runner() as first:
        producer, consumer, admin = first.run(made())
        for call in calls():
            with asyncio.Runner() as second, pytest.raises(RuntimeError, match="another event loop"):
                second.run(called(call))
        first.run(closed())
