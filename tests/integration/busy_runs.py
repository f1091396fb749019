"""Both cores busy: ten client processes beside three or five brokers, a fault, and how long a partition stood still.

    python -m tests.integration.busy_runs rolling      --times 3   SIGTERM of each broker in turn, and started again
    python -m tests.integration.busy_runs hasty        --times 1   the same, and nobody waits for the ISRs
    python -m tests.integration.busy_runs reassign     --times 3   every replica moves on, a broker is killed
    python -m tests.integration.busy_runs slow_link    --times 3   200 to 2,000 kbit/s between a leader and a follower
    python -m tests.integration.busy_runs cut_follower --times 3   nothing passes between a leader and one follower
    python -m tests.integration.busy_runs full_disk    --times 3   a broker's disk is full for 15 s (as root)
    python -m tests.integration.busy_runs calm         --times 3   no fault: what the load alone costs

A partition stands still from one acknowledgement of it, by whichever client, to the next. Printed for each fault: the
longest time that any partition stood still, and which. Exit 1 where anything was lost, doubled or reordered.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from minilog import Admin, NewTopic, TopicPartition
from tests.cluster import Cluster, broker_name, running_cluster
from tests.integration.clients import Reader, Writer, read_all
from tests.integration.history import History, Standstill, judge_copies
from tests.integration.small_disks import fill, small_disk
from tests.proxy import CUT, Rule

TOPIC = "busy"
PARTITIONS = 6
REPLICATION_FACTOR = 3
VALUE_BYTES = 1000
IN_FLIGHT = 200
"""Per writer: enough to keep both cores busy, and few enough that an acknowledgement is not a queue's length away."""
SETTLE_S = 3.0
HOLD_S = 15.0
"""How long a link stays slow or cut, or a disk full: longer than the lag time."""
WHOLE_WITHIN_S = 120.0
SMALL_DISK_OF, SMALL_DISK_MIB = 2, 2048
SLOW_KBIT_PER_S = (200, 600, 2_000)


@dataclass(slots=True)
class LoadScene:
    """A running cluster under load."""

    cluster: Cluster
    chance: random.Random
    number: int = 0
    """Of the round, from 0."""

    def admin(self) -> Admin:
        return Admin({"bootstrap.servers": self.cluster.bootstrap_servers, "request.timeout.ms": 20_000})

    def controller(self) -> int | None:
        with self.admin() as admin:
            return admin.describe_cluster().controller

    def wait_whole(self) -> None:
        """Until each partition has a leader, all its replicas in sync, and nothing moves."""
        self.cluster.wait_running(WHOLE_WITHIN_S)
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while time.monotonic() < deadline:
            with self.admin() as admin:
                partitions = admin.describe_topics([TOPIC])[0].partitions
                moving = admin.list_partition_reassignments()
            if not moving and all(each.leader and set(each.isr) == set(each.replicas) for each in partitions):
                return
            time.sleep(0.2)
        raise AssertionError(f"not whole within {WHOLE_WITHIN_S} s: {partitions}")


def roll(scene: LoadScene) -> str:
    """A broker stops cleanly, and starts again as soon as it has ended."""
    broker_id = sorted(scene.cluster.ports)[scene.number % len(scene.cluster.ports)]
    codes = scene.cluster.stop(broker_id, timeout_s=60.0)
    assert codes == {broker_id: 0}, f"{codes}\n{scene.cluster.log_text(broker_id)[-3000:]}"
    scene.cluster.start(broker_id)
    scene.wait_whole()
    return f"broker {broker_id} restarted"


def roll_hastily(scene: LoadScene) -> str:
    """All brokers in turn, each as soon as the one before is registered: it is not in its ISRs by then."""
    for broker_id in sorted(scene.cluster.ports):
        scene.cluster.stop(broker_id, timeout_s=60.0)
        scene.cluster.start(broker_id)
        scene.cluster.wait_running(WHOLE_WITHIN_S)
    scene.wait_whole()
    return "all brokers restarted, hastily"


def reassign(scene: LoadScene) -> str:
    """All replicas move on by one broker; one that leads something is killed meanwhile, and comes back."""
    brokers = sorted(scene.cluster.ports)
    with scene.admin() as admin:
        partitions = admin.describe_topics([TOPIC])[0].partitions
        wanted = {
            TopicPartition(TOPIC, each.partition): [
                brokers[(brokers.index(b) + 1) % len(brokers)] for b in each.replicas
            ]
            for each in partitions
        }
        admin.alter_partition_reassignments(wanted)
    victim = scene.chance.choice(brokers)
    scene.cluster.kill(victim)
    time.sleep(SETTLE_S)
    scene.cluster.start(victim)
    scene.wait_whole()
    return f"reassigned, broker {victim} killed"


def _spoil_one_follower(scene: LoadScene, rule: Rule, words: str) -> str:
    """Neither is the controller, where that can be: else it is the controller that takes one for dead."""
    with scene.admin() as admin:
        partitions = admin.describe_topics([TOPIC])[0].partitions
    controller = scene.controller()
    partition = scene.chance.choice([each for each in partitions if each.leader != controller])
    assert partition.leader is not None
    assert scene.cluster.proxy is not None
    others = {each for each in partition.replicas if each != partition.leader}
    follower = scene.chance.choice(sorted(others - {controller} or others))
    scene.cluster.proxy.set_rule_both_ways(broker_name(partition.leader), broker_name(follower), rule)
    time.sleep(HOLD_S)
    scene.cluster.proxy.heal()
    scene.wait_whole()
    return f"{words} between leader {partition.leader} of {TOPIC}-{partition.partition} and {follower}"


def slow_link(scene: LoadScene) -> str:
    kbit_per_s = SLOW_KBIT_PER_S[scene.number % len(SLOW_KBIT_PER_S)]
    return _spoil_one_follower(scene, Rule(bytes_per_s=kbit_per_s * 125), f"{kbit_per_s} kbit/s")


def cut_follower(scene: LoadScene) -> str:
    return _spoil_one_follower(scene, CUT, "nothing passes")


def full_disk(scene: LoadScene) -> str:
    filler = fill(scene.cluster.data_directory(SMALL_DISK_OF))
    time.sleep(HOLD_S)
    filler.unlink()
    scene.wait_whole()
    return f"the disk of broker {SMALL_DISK_OF} was full"


def calm(scene: LoadScene) -> str:
    time.sleep(HOLD_S)
    return f"no fault, {HOLD_S:.0f} s"


Round: TypeAlias = Callable[[LoadScene], str]
ROUNDS: dict[str, Round] = {
    "rolling": roll,
    "hasty": roll_hastily,
    "reassign": reassign,
    "slow_link": slow_link,
    "cut_follower": cut_follower,
    "full_disk": full_disk,
    "calm": calm,
}
PROXIED = ("slow_link", "cut_follower")


# -- the clients, each a process


def _write(servers: str, name: str, stop: Event, results: multiprocessing.Queue[History | None]) -> None:
    writer = Writer(servers, TOPIC, name=name, value_bytes=VALUE_BYTES, in_flight=IN_FLIGHT)
    stop.wait()
    results.put(writer.stop())


def _read(servers: str, name: str, stop: Event, results: multiprocessing.Queue[History | None]) -> None:
    reader = Reader(servers, TOPIC, PARTITIONS)
    stop.wait()
    reader.stop()
    results.put(None)


@contextmanager
def clients(servers: str, count: int, histories: list[History]) -> Iterator[None]:
    """So many processes, two of three writers and the rest readers; what the writers know is put to `histories`."""
    context = multiprocessing.get_context("spawn")
    stop, results = context.Event(), context.Queue()
    roles = [_read if number % 3 == 2 else _write for number in range(count)]
    processes = [
        context.Process(target=role, args=(servers, f"client-{number}", stop, results), daemon=True)
        for number, role in enumerate(roles)
    ]
    for process in processes:
        process.start()
    try:
        yield
        stop.set()
        histories += [history for _ in processes if (history := results.get(timeout=200.0)) is not None]
        for process in processes:
            process.join(30.0)
    finally:
        for process in processes:
            process.kill()


@dataclass(frozen=True, slots=True)
class Played:
    """One fault: what it was, and from when to when (monotonic seconds)."""

    words: str
    since_s: float
    until_s: float


def run(
    mode: str, times: int, seed: int, directory: pathlib.Path, *, brokers: int, client_count: int
) -> tuple[list[tuple[Played, Standstill]], History, list[str]]:
    """The faults with the longest standstill in each, what was written, and what is wrong."""
    histories: list[History] = []
    played: list[Played] = []
    with ExitStack() as stack:
        if mode == "full_disk":
            stack.enter_context(small_disk(directory / f"broker-{SMALL_DISK_OF}", SMALL_DISK_MIB))
        cluster = stack.enter_context(running_cluster(directory, brokers, proxied=mode in PROXIED))
        scene = LoadScene(cluster, random.Random(seed))
        with scene.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR)])
        with clients(cluster.bootstrap_servers, client_count, histories):
            time.sleep(2 * SETTLE_S)
            for scene.number in range(times):
                time.sleep(SETTLE_S)
                since_s = time.monotonic()
                words = ROUNDS[mode](scene)
                played.append(Played(words, since_s, time.monotonic()))
                print(f"round {scene.number + 1}: {words}, {time.monotonic() - since_s:.1f} s", flush=True)
            time.sleep(SETTLE_S)
        history = History()
        for each in histories:
            history = history.joined(each)
        scene.wait_whole()
        wrong = history.judge(read_all(cluster.bootstrap_servers, TOPIC, timeout_s=300.0))
        codes = cluster.stop(timeout_s=60.0)
        wrong += [f"broker {each} ended with {code}" for each, code in codes.items() if code != 0]
        wrong += (
            judge_copies(map(cluster.data_directory, cluster.ports), TOPIC) if brokers == REPLICATION_FACTOR else []
        )
    stood = [(each, history.longest_standstill(each.since_s, each.until_s)) for each in played]
    return stood, history, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=ROUNDS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="where data and the brokers' logs stay")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minilog-busy-") as folder:
        directory = chosen.keep or pathlib.Path(folder)
        stood, history, wrong = run(
            chosen.mode, chosen.times, chosen.seed, directory, brokers=chosen.brokers, client_count=chosen.clients
        )
    table = Table("fault", "took", "longest standstill", "of partition", "began after")
    for played, still in stood:
        took_s, after_s = played.until_s - played.since_s, still.since_s - played.since_s
        table.add_row(
            played.words, f"{took_s:.1f} s", f"{still.seconds:.2f} s", str(still.partition), f"{after_s:.1f} s"
        )
    Console(width=130).print(table)
    print(
        f"{chosen.mode} x {len(stood)}, {chosen.brokers} brokers, {chosen.clients} clients, seed {chosen.seed}: "
        f"worst {max(still.seconds for _, still in stood):.2f} s; acknowledged {len(history.acknowledged)}, "
        f"unknown {len(history.unknown)}, failed {len(history.failed)}, wrong {len(wrong)}"
    )
    for line in [*wrong[:20], *list(history.failed.values())[:3]]:
        print("  " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
