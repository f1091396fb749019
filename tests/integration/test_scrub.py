"""Real brokers: the scrub finds and mends a flipped bit in a sealed segment that no client reads."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import Cluster, running_cluster
from tests.integration.rounds import admin_of
from tests.rules import proves

pytestmark = proves("DK.4")

FOUND_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: it looks at its disks all the time, and they are spoiled."""
    with running_cluster(tmp_path_factory.mktemp("scrub"), settings={"log.scrub.interval.ms": "2000"}) as running:
        yield running


@pytest.mark.dear("it waits until a bad or full disk is noticed")
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_rot_that_nobody_reads_is_found_and_mended(cluster: Cluster, victim: str) -> None:
    topic = f"scrubbed-{victim}"
    with admin_of(cluster) as admin:
        admin.create_topics([NewTopic(topic, 1, 3, configs={"segment.bytes": "65536"})])
        with Producer(cluster.client) as producer:
            for _ in range(30):
                for number in range(40):
                    producer.send(topic, value=number.to_bytes(4, "big") * 100)
                producer.flush()
        partition = admin.describe_topics([topic])[0].partitions[0]
        others = [broker_id for broker_id in partition.replicas if broker_id != partition.leader]
        broker_id = partition.leader if victim == "leader" else others[0]
        assert broker_id is not None
        path = sorted((cluster.data_directory(broker_id) / f"{topic}-0").glob("*.log"))[0]
        sound = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(len(sound) // 2)
            file.write(bytes([sound[len(sound) // 2] ^ 4]))
        deadline_s = time.monotonic() + FOUND_WITHIN_S
        while not _is_whole(admin, topic, path, sound):
            assert time.monotonic() < deadline_s, cluster.log_text(broker_id)[-3000:]
            time.sleep(0.2)
    found = [line for line in cluster.log_text(broker_id).splitlines() if "the scrub found a damaged" in line]
    assert any(topic in line for line in found)
    assert "Traceback" not in cluster.log_text(broker_id)


def _is_whole(admin: Admin, topic: str, path: pathlib.Path, sound: bytes) -> bool:
    """Whether the copy has what it had, and is in sync. Its broker removes segments while a test looks at them."""
    state = admin.describe_topics([topic])[0].partitions[0]
    try:
        written = b"".join(segment.read_bytes() for segment in sorted(path.parent.glob("*.log")))
    except FileNotFoundError:
        return False
    return sorted(state.isr) == sorted(state.replicas) and written[: len(sound)] == sound
