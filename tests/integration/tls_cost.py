"""What security costs where records are produced, consumed, and read by Spark: CPU seconds per GB, of brokers and
client together.

python -m tests.integration.tls_cost --megabytes 400 --rounds 2 --spark

By turns on a cluster in the clear and on one as `minilog up --secure` makes it (TLS, SCRAM, rules), three brokers each,
acks=all, three replicas, Arrow batches of 1 KiB records. Both clusters run all the time; the first round warms them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.accounting import cost_of
from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.cluster import HOST, Cluster, running_cluster
from tests.integration.idle_cpu import cpu_s
from tests.secured import SecuredCluster, running_secured_cluster

TOPIC, PARTITIONS = "cost", 3
RECORD_BYTES, BATCH_RECORDS = 1_024, 1_024
MB = 1_000_000


def _cpu_s(cluster: Cluster) -> float:
    return sum(cpu_s(each.pid) for each in cluster.processes.values()) + cpu_s(os.getpid())


def _batch() -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([os.urandom(RECORD_BYTES) for _ in range(BATCH_RECORDS)], pa.binary())})


def produced(cluster: Cluster, batch: pa.RecordBatch, batches: int) -> float:
    """CPU seconds per GB."""
    before_s = _cpu_s(cluster)
    with Producer(cluster.client) as producer:
        futures = [producer.send_batch(TOPIC, batch) for _ in range(batches)]
        producer.flush()
        for each in futures:
            each.result(timeout=60)
    return (_cpu_s(cluster) - before_s) / (batches * BATCH_RECORDS * RECORD_BYTES / 1e9)


def consumed(cluster: Cluster, records: int) -> float:
    """CPU seconds per GB, of the newest so many records."""
    with Admin(cluster.client) as admin:
        ends = admin.list_offsets({TopicPartition(TOPIC, each): "latest" for each in range(PARTITIONS)})
    before_s, found = _cpu_s(cluster), 0
    with Consumer(cluster.client) as consumer:
        share = records // PARTITIONS
        consumer.assign(
            [TopicPartition(TOPIC, at.partition, max(0, (end or 0) - share), end) for at, end in ends.items()]
        )
        while not consumer.finished():
            found += sum(each.num_rows for each in consumer.poll_arrow(timeout=1.0))
    return (_cpu_s(cluster) - before_s) / (found * RECORD_BYTES / 1e9)


def spark_session(folder: pathlib.Path) -> SparkSession:
    """One whose Python is this one; it is warm after the first round."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": HOST,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master("local[2]").appName("tls cost")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def read_by_spark(spark: SparkSession, cluster: Cluster, others: Cluster) -> float:
    """CPU seconds per GB of a batch read of all there is, into nothing; of Spark's JVM and Python workers, too."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    if isinstance(cluster, SecuredCluster):
        options = {"minilog.config.file": str(cluster.security.client_properties)}
    frame = spark.read.format("minilog").option("subscribe", TOPIC).options(**options).load()
    pids = {f"broker {number}": each.pid for number, each in cluster.processes.items()}
    cost = cost_of(
        lambda: frame.write.format("noop").mode("overwrite").save(),
        pids,
        frozenset(each.pid for each in others.processes.values()),
    )
    with Admin(cluster.client) as admin:
        ends = admin.list_offsets({TopicPartition(TOPIC, each): "latest" for each in range(PARTITIONS)})
    return cost.total_cpu_s / (sum(end or 0 for end in ends.values()) * RECORD_BYTES / 1e9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--spark", action="store_true", help="read all by Spark, too: one round more, to warm it")
    chosen = parser.parse_args()
    batches = chosen.megabytes * MB // (BATCH_RECORDS * RECORD_BYTES)
    batch = _batch()
    with (
        tempfile.TemporaryDirectory(prefix="minilog-tls-") as folder,
        running_cluster(pathlib.Path(folder) / "clear") as clear,
        running_secured_cluster(pathlib.Path(folder) / "secured") as secured,
    ):
        clusters = {"in the clear": clear, "secured": secured}
        for cluster in clusters.values():
            with Admin(cluster.client) as admin:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
            produced(cluster, batch, batches // 4)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(chosen.rounds):
            for name, cluster in clusters.items():
                found.setdefault(("produce", name), []).append(produced(cluster, batch, batches))
                found.setdefault(("consume", name), []).append(consumed(cluster, batches * BATCH_RECORDS))
        if chosen.spark:
            spark = spark_session(pathlib.Path(folder))
            for number in range(chosen.rounds + 1):
                for name, cluster, other in (("in the clear", clear, secured), ("secured", secured, clear)):
                    cost = read_by_spark(spark, cluster, other)
                    if number > 0:
                        found.setdefault(("read by Spark", name), []).append(cost)
            spark.stop()
    for (what, name), values in sorted(found.items()):
        told = ", ".join(f"{each:.2f}" for each in values)
        print(f"{what} {name}: {statistics.median(values):.2f} CPU s/GB ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
