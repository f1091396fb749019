"""Who is killed: chosen by what a process is at that moment, SIGKILL by its id; and what has to be mended after it.

Spark starts its workers and executors again by itself, and copying.py the driver; brokers are started again here. A
copy whose broker was killed must go on without a new start of its driver.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import psutil

from minilog import Admin
from minilog.errors import MinilogError
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME, coordinator_partition
from tests.cluster import Cluster
from tests.integration.clients import Reader, Writer
from tests.integration.forms import Form
from tests.spark.kills.copying import Copying, wait_for

SOURCE, SINK = "source", "sink"
FOUND_WITHIN_S = 90.0
WHOLE_WITHIN_S = 90.0
_ASK = {"request.timeout.ms": 5_000}


@dataclass
class KillScene:
    """What runs: brokers, the copy, who writes its input and who reads its output."""

    cluster: Cluster
    copying: Copying
    writer: Writer
    reader: Reader
    chance: random.Random
    form: Form

    def evolve(self) -> None:
        """Topics that have schemas get their next versions, as operators do it while all runs."""
        with self.admin() as admin:
            for topic in (SOURCE, SINK):
                self.form.evolve(admin, topic)

    def admin(self) -> Admin:
        return Admin({**self.cluster.client, **_ASK})

    def seen(self) -> int:
        """How many records the reader has been given."""
        return sum(map(len, self.reader.read.values()))

    def pause(self, seconds: float) -> None:
        """The moment of a kill comes at random."""
        time.sleep(seconds)

    def transactional_id(self) -> str:
        return f"spark-{self.copying.query_id()}"

    def is_open(self) -> bool:
        """Whether the copy is in the middle of a transaction."""
        with contextlib.suppress(MinilogError), self.admin() as admin:
            return admin.describe_transaction(self.transactional_id()).listing.state == "open"
        return False

    def mend(self) -> None:
        """Who hung is awake, brokers that were killed run again, and all replicas are in sync."""
        self.copying.wait_for_abandoned()
        missing = self.cluster.ports.keys() - self.cluster.processes.keys()
        if missing:
            self.cluster.start(*missing)
        self.cluster.wait_running(WHOLE_WITHIN_S)
        wait_for("all replicas in sync", self._is_whole, WHOLE_WITHIN_S)

    def _is_whole(self) -> bool:
        try:
            with self.admin() as admin:
                topics = admin.describe_topics([SOURCE, SINK, TRANSACTIONS_TOPIC_NAME])
        except MinilogError:
            return False
        return all(len(each.isr) == len(each.replicas) for topic in topics for each in topic.partitions)


Kill: TypeAlias = Callable[[KillScene], str]
"""Kills somebody, and says whom."""


def kill_driver(scene: KillScene) -> str:
    return _kill_process(scene, "driver JVM", scene.copying.driver_jvms)


def hang_driver(scene: KillScene) -> str:
    """SIGSTOP: it is taken for dead and replaced, its tasks write on, and later it wakes and would like to commit."""
    (jvm,) = scene.copying.driver_jvms()
    jvm.suspend()
    scene.copying.replace()
    return f"driver JVM {jvm.pid}, which only hung"


def kill_worker(scene: KillScene) -> str:
    return _kill_process(scene, "worker", scene.copying.workers)


def kill_executor(scene: KillScene) -> str:
    """Only where executors have JVMs of their own."""
    return _kill_process(scene, "executor", scene.copying.executor_jvms)


def kill_leader(scene: KillScene) -> str:
    """Of a partition that the copy writes to."""

    def leaders() -> list[int | None]:
        with scene.admin() as admin:
            return [each.leader for each in admin.describe_topics([SINK])[0].partitions]

    return _kill_broker(scene, "leader", leaders)


def kill_coordinator(scene: KillScene) -> str:
    """Of the copy's transactions."""
    partition = coordinator_partition(scene.transactional_id())

    def coordinators() -> list[int | None]:
        with scene.admin() as admin:
            return [admin.describe_topics([TRANSACTIONS_TOPIC_NAME])[0].partitions[partition].leader]

    return _kill_broker(scene, "coordinator", coordinators)


def kill_controller(scene: KillScene) -> str:
    def controllers() -> list[int | None]:
        with scene.admin() as admin:
            return [admin.describe_cluster().controller]

    return _kill_broker(scene, "controller", controllers)


def kill_driver_and_coordinator(scene: KillScene) -> str:
    """At once: a commit that is under way is answered to nobody, and decided by the next coordinator."""
    return f"{kill_coordinator(scene)}, {kill_driver(scene)}"


VICTIMS: Mapping[str, Kill] = {
    "driver": kill_driver,
    "zombie": hang_driver,
    "worker": kill_worker,
    "leader": kill_leader,
    "coordinator": kill_coordinator,
    "controller": kill_controller,
    "both": kill_driver_and_coordinator,
    "executor": kill_executor,
}
BROKERS = ("leader", "coordinator", "controller")


def _kill_process(scene: KillScene, what: str, find: Callable[[], list[psutil.Process]]) -> str:
    """One of those that `find` finds, which may take the copy a moment to start."""
    while True:
        found: list[psutil.Process] = []
        wait_for(f"a {what}", lambda found=found: bool(found.extend(find()) or found), FOUND_WITHIN_S)  # type: ignore[misc]
        victim = scene.chance.choice(found)
        with contextlib.suppress(psutil.NoSuchProcess):  # idle workers end by themselves: then another one
            victim.kill()
            return f"{what} {victim.pid}"


def _kill_broker(scene: KillScene, what: str, find: Callable[[], list[int | None]]) -> str:
    found: list[int] = []

    def is_found() -> bool:
        with contextlib.suppress(MinilogError):
            found.extend(each for each in find() if each in scene.cluster.processes)
        return bool(found)

    wait_for(f"a {what}", is_found, FOUND_WITHIN_S)
    victim = scene.chance.choice(found)
    scene.cluster.kill(victim)
    return f"{what} {victim}"
