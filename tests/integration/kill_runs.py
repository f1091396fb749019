"""Kill brokers while a producer writes, many times, and judge the history.

    python -m tests.integration.kill_runs all   --times 20    SIGKILL of every broker at once, all started again
    python -m tests.integration.kill_runs turns --times 20    SIGKILL of each broker in turn but the controller
    python -m tests.integration.kill_runs controller          SIGKILL of the controller; it is started again at once
    python -m tests.integration.kill_runs rolling             SIGTERM of each broker in turn: clean stops

Prints a line per round and, last, what was acknowledged, lost and doubled. Exit 1 when anything was.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import sys
import tempfile
import time

from minilog import Admin, NewTopic
from tests.cluster import Cluster, running_cluster
from tests.integration.history import History, Writer, read_all

TOPIC = "killed"
PARTITIONS = 3


def create_topic(cluster: Cluster) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])


def wait_in_sync(cluster: Cluster, timeout_s: float = 60.0) -> float:
    """Until every replica is in its ISR and every partition has a leader; how long that took."""
    started = time.monotonic()
    while True:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            topic = admin.describe_topics([TOPIC])[0]
        if all(len(each.isr) == len(each.replicas) and each.leader is not None for each in topic.partitions):
            return time.monotonic() - started
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"not every replica is back in its ISR after {timeout_s} s: {topic}")
        time.sleep(0.05)


def kill_all_round(cluster: Cluster, writer: Writer, chance: random.Random) -> None:
    """One round: everything dies at a random moment and starts again."""
    writer.wait_for_more(chance.randrange(200, 2000))
    cluster.kill(*cluster.processes)
    cluster.start()
    cluster.wait_running()
    wait_in_sync(cluster)
    writer.wait_for_more(200)


def kill_turn_round(cluster: Cluster, writer: Writer, chance: random.Random, broker_id: int) -> None:
    """One round: one broker dies at a random moment, starts again and gets back into every ISR, under load."""
    writer.wait_for_more(chance.randrange(200, 2000))
    cluster.kill(broker_id)
    writer.wait_for_more(500)
    cluster.start(broker_id)
    cluster.wait_running()
    wait_in_sync(cluster)


def kill_controller_round(cluster: Cluster, writer: Writer, chance: random.Random) -> None:
    """One round: the one voter dies and starts again at once; what leads elsewhere works on."""
    writer.wait_for_more(chance.randrange(200, 2000))
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_running()
    wait_in_sync(cluster)
    writer.wait_for_more(200)


def roll_round(cluster: Cluster, writer: Writer, broker_id: int) -> None:
    """One round: one broker stops cleanly and starts again; nobody notices."""
    writer.wait_for_more(500)
    codes = cluster.stop(broker_id)
    assert codes == {broker_id: 0}, f"{codes}\n{cluster.log_text(broker_id)[-3000:]}"
    cluster.start(broker_id)
    cluster.wait_running()
    wait_in_sync(cluster)


def play_round(mode: str, cluster: Cluster, writer: Writer, chance: random.Random, number: int) -> None:
    match mode:
        case "all":
            kill_all_round(cluster, writer, chance)
        case "turns":
            kill_turn_round(cluster, writer, chance, 2 + number % 2)
        case "controller":
            kill_controller_round(cluster, writer, chance)
        case _:
            roll_round(cluster, writer, 1 + number % 3)


def run(mode: str, times: int, seed: int, directory: pathlib.Path) -> tuple[History, list[str]]:
    """All rounds on one cluster; the history and what is wrong with it."""
    chance = random.Random(seed)
    with running_cluster(directory) as cluster:
        create_topic(cluster)
        writer = Writer(cluster.bootstrap_servers, TOPIC)
        try:
            for number in range(times):
                started = time.monotonic()
                play_round(mode, cluster, writer, chance, number)
                print(
                    f"round {number + 1}: {time.monotonic() - started:.1f} s, {writer.acknowledged()} acknowledged",
                    flush=True,
                )
        finally:
            history = writer.stop()
        wait_in_sync(cluster)
        stored = read_all(cluster.bootstrap_servers, TOPIC)
        for name, code in cluster.stop().items():
            assert code == 0, f"broker {name} ended with {code}:\n{cluster.log_text(name)[-3000:]}"
    return history, history.judge(stored)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("all", "turns", "controller", "rolling"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minilog-kill-") as folder:
        history, wrong = run(chosen.mode, chosen.times, chosen.seed, pathlib.Path(folder))
    print(
        f"{chosen.mode} x {chosen.times}, seed {chosen.seed}: acknowledged {len(history.acknowledged)}, "
        f"unknown {len(history.unknown)}, failed {len(history.failed)}, "
        f"longest stall {history.longest_stall_s:.2f} s, wrong {len(wrong)}"
    )
    for line in wrong[:20]:
        print("  " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
