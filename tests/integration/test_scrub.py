"""Real brokers: the scrub finds and mends a flipped bit in a sealed segment that no client reads."""

from __future__ import annotations

import pathlib
import time

import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import running_cluster
from tests.integration.rounds import admin_of
from tests.rules import proves

pytestmark = proves("DK.4")

TOPIC = "scrubbed"
FOUND_WITHIN_S = 60.0


@pytest.mark.dear("it waits until a bad or full disk is noticed")
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_rot_that_nobody_reads_is_found_and_mended(tmp_path: pathlib.Path, victim: str) -> None:
    with running_cluster(tmp_path, settings={"log.scrub.interval.ms": "2000"}) as cluster, admin_of(cluster) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 3, configs={"segment.bytes": "65536"})])
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for _ in range(30):
                for number in range(40):
                    producer.send(TOPIC, value=number.to_bytes(4, "big") * 100)
                producer.flush()
        partition = admin.describe_topics([TOPIC])[0].partitions[0]
        others = [broker_id for broker_id in partition.replicas if broker_id != partition.leader]
        broker_id = partition.leader if victim == "leader" else others[0]
        assert broker_id is not None
        path = sorted((cluster.data_directory(broker_id) / f"{TOPIC}-0").glob("*.log"))[0]
        sound = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(len(sound) // 2)
            file.write(bytes([sound[len(sound) // 2] ^ 4]))
        deadline_s = time.monotonic() + FOUND_WITHIN_S
        while not _is_whole(admin, path, sound):
            assert time.monotonic() < deadline_s, cluster.log_text(broker_id)[-3000:]
            time.sleep(0.2)
        log_text = cluster.log_text(broker_id)
        assert "the scrub found a damaged or differing copy" in log_text
        assert "Traceback" not in log_text


def _is_whole(admin: Admin, path: pathlib.Path, sound: bytes) -> bool:
    """Whether the copy has what it had, and is in sync. Its broker removes segments while a test looks at them."""
    state = admin.describe_topics([TOPIC])[0].partitions[0]
    try:
        written = b"".join(segment.read_bytes() for segment in sorted(path.parent.glob("*.log")))
    except FileNotFoundError:
        return False
    return sorted(state.isr) == sorted(state.replicas) and written[: len(sound)] == sound
