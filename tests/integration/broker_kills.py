"""A thread that kills brokers, most often a coordinator, while a run of many processes goes on."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

from minilog import Admin
from minilog.errors import RetriableError
from tests.cluster import Cluster
from tests.integration.rounds import admin_of

WITHIN_S = 180.0  # of a machine that has much else to do
COORDINATOR_PART = 0.7


class BrokerKills:
    """Kills a broker now and then, starts it again, and waits until the cluster is whole. The leader of partition
    `partition` of `topic`, the coordinator, is the victim most often. `topics` are those that are to be whole."""

    def __init__(
        self,
        cluster: Cluster,
        chance: random.Random,
        pause_s: float,
        *,
        topic: str,
        partition: int,
        topics: Sequence[str],
    ) -> None:
        self._cluster, self._chance, self._pause_s = cluster, chance, pause_s
        self._topic, self._partition, self._topics = topic, partition, [topic, *topics]
        self.faults: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker kills", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """All brokers run afterwards."""
        self._stop.set()
        self._thread.join(3 * WITHIN_S)
        assert not self._thread.is_alive(), "the kills of brokers do not end"

    def _run(self) -> None:
        try:
            with admin_of(self._cluster) as admin:
                while not self._stop.wait(self._chance.uniform(0.6, 1.4) * self._pause_s):
                    self._kill_one(admin)
        except Exception as error:
            self.wrong.append(f"the cluster does not come back: {error!r}")

    def _kill_one(self, admin: Admin) -> None:
        coordinator = leader_of(admin, self._topic, self._partition)
        others = sorted(set(self._cluster.ports) - {coordinator})
        victim = coordinator if self._chance.random() < COORDINATOR_PART else self._chance.choice(others)
        self.faults["coordinator killed" if victim == coordinator else "broker killed"] += 1
        self._cluster.kill(victim)
        time.sleep(self._chance.uniform(0.2, 3.0))
        self._cluster.start(victim)
        self._cluster.wait_running(WITHIN_S)
        deadline_s = time.monotonic() + WITHIN_S
        while not is_whole(admin, self._topics):
            assert time.monotonic() < deadline_s, "not all replicas are back in sync"
            time.sleep(0.2)


def leader_of(admin: Admin, topic: str, partition: int) -> int:
    """The leader of a partition. Waits while there is none."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(RetriableError):  # a busy machine
            (described,) = admin.describe_topics([topic])
            if (leader := described.partitions[partition].leader) is not None:
                return leader
        assert time.monotonic() < deadline_s, f"partition {partition} of {topic} has no leader"
        time.sleep(0.1)


def is_whole(admin: Admin, topics: Sequence[str]) -> bool:
    """Whether each replica of these topics is in sync. False while nobody can say so."""
    try:
        described = admin.describe_topics(topics)
    except RetriableError:
        return False
    partitions = [partition for topic in described for partition in topic.partitions]
    return all(len(seen.isr) == len(seen.replicas) and seen.leader is not None for seen in partitions)
