"""What an idle cluster costs: CPU of each broker over a while, of one core.

python -m tests.integration.idle_cpu --seconds 30 [--partitions 12]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile
import time

from minilog import Admin, NewTopic
from tests.cluster import Cluster, running_cluster

SETTLE_S = 3.0


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far: fields 14 and 15 of its stat line, user and system."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(cluster: Cluster, seconds: float) -> dict[int, float]:
    """Percent of a core, by broker."""
    before = {broker_id: cpu_s(process.pid) for broker_id, process in cluster.processes.items()}
    started = time.monotonic()
    time.sleep(seconds)
    elapsed_s = time.monotonic() - started
    return {
        broker_id: 100.0 * (cpu_s(process.pid) - before[broker_id]) / elapsed_s
        for broker_id, process in cluster.processes.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=12)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="minilog-idle-") as folder,
        running_cluster(pathlib.Path(folder), chosen.brokers) as cluster,
    ):
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("idle", num_partitions=chosen.partitions, replication_factor=3)])
            controller = admin.describe_cluster().controller
        time.sleep(SETTLE_S)
        found = measure(cluster, chosen.seconds)
    for broker_id, percent in found.items():
        print(f"broker {broker_id}{' (controller)' if broker_id == controller else ''}: {percent:.1f}% of a core")
    print(f"together: {sum(found.values()):.1f}% of a core over {chosen.seconds:.0f} s, {chosen.partitions} partitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
