"""What a reader takes of memory, whatever a small log becomes when it is decoded."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import Cluster, running_cluster

pytestmark = pytest.mark.long

MIB = 1 << 20
BATCHES = 500
WITHIN_S = 60.0
# Python, Arrow and gRPC take some 90 MiB; two polls' worth of 16 MiB, and a batch of 8.
MOST_MIB = 300

READER = """
import sys
from minilog import Consumer, TopicPartition
count = 0
with Consumer({"bootstrap.servers": sys.argv[1]}) as consumer:
    consumer.assign([TopicPartition("dense", 0, 0, end_offset=int(sys.argv[3]))])
    while not consumer.finished():
        count += sum(getattr(each, "num_rows", 1) for each in getattr(consumer, sys.argv[2])(1.0))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(count, int(peak.split()[1]) // 1024)
"""


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Half a megabyte of log that is 4 GB decoded: rows of zeros, compressed."""
    with running_cluster(tmp_path_factory.mktemp("dense"), brokers=1) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("dense", num_partitions=1, replication_factor=1)])
        row = pa.record_batch({"value": pa.array([bytes(8_000_000)])})
        with Producer({**servers, "compression.type": "zstd", "batch.size": 64 * MIB}) as producer:
            for start in range(0, BATCHES, 5):
                sent = [producer.send_batch("dense", row, partition=0) for _ in range(start, start + 5)]
                assert all(each.result(WITHIN_S) for each in sent)
        assert log_bytes(cluster) < MIB
        yield cluster


def log_bytes(cluster: Cluster) -> int:
    return sum(file.stat().st_size for file in pathlib.Path(cluster.data_directory(1), "dense-0").glob("*.log"))


@pytest.mark.parametrize("how", ["poll", "poll_arrow"])
def test_a_default_consumer_stays_small(dense: Cluster, how: str) -> None:
    command = [sys.executable, "-c", READER, dense.bootstrap_servers, how, str(BATCHES)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    count, peak_mib = map(int, ran.stdout.split())
    assert count == BATCHES
    assert peak_mib < MOST_MIB
