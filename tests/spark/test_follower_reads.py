"""Spark's tasks read from the replica in their rack (`minilog.client.rack`), and from the leader when it is lost.

Who was read from the kernel tells: what a broker process has read from its files grows by what it hands out.
"""

from __future__ import annotations

import pathlib

import pytest

from minilog import Admin
from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import Collected, Kit, read_bytes, start, values, wait_until

pytestmark = proves("HW.10")

ROWS = 2_000
VALUE = "x" * 2_000
SIZE_BYTES = ROWS * len(VALUE)


def leader_and_follower(admin: Admin, topic: str) -> tuple[int, int]:
    """Of partition 0; the follower is not the controller's broker."""
    [partition] = admin.describe_topics([topic])[0].partitions
    controller = admin.describe_cluster().controller
    leader = partition.leader or -1
    return leader, next(each for each in partition.isr if each not in (leader, controller))


def filled(kit: Kit) -> str:
    topic = kit.topic()
    kit.send(topic, (f"{number}-{VALUE}" for number in range(ROWS)))
    wait_until(lambda: len(kit.admin.describe_topics([topic])[0].partitions[0].isr) == 3)
    return topic


def test_a_batch_reads_from_the_replica_of_the_rack_alone(kit: Kit, cluster: Cluster) -> None:
    topic = filled(kit)
    leader, follower = leader_and_follower(kit.admin, topic)
    before = {each: read_bytes(cluster, each) for each in (1, 2, 3)}
    frame = kit.read(subscribe=topic, minPartitions=4, minilog__client__rack=f"r{follower}")
    total = frame.selectExpr("sum(length(value))").first()
    assert total is not None
    assert total[0] > SIZE_BYTES
    grown = {each: read_bytes(cluster, each) - before[each] for each in (1, 2, 3)}
    assert grown[follower] > SIZE_BYTES, grown
    assert grown[leader] < SIZE_BYTES / 4, grown


@pytest.mark.long
@proves("SPL.8")
def test_a_stream_goes_on_with_the_leader_when_its_replica_hangs(
    kit: Kit, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    topic = filled(kit)
    _, follower = leader_and_follower(kit.admin, topic)
    collected = Collected()
    frame = kit.read_stream(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=200, minilog__client__rack=f"r{follower}"
    )
    query = start(frame, collected, tmp_path / "checkpoint")
    try:
        wait_until(lambda: len(collected.batches) > 2)
        cluster.pause(follower)
        wait_until(lambda: len(collected.values) >= ROWS)
        kit.send(topic, ["last"])
        wait_until(lambda: len(collected.values) > ROWS)
    finally:
        query.stop()
        cluster.resume(follower)
        cluster.wait_running()
    assert collected.values == values(kit.read(subscribe=topic))
    assert len(set(collected.values)) == ROWS + 1
