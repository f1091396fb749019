"""One round of each kind of fault: break something under load, measure until writes go on, mend it, wait for the rest.

A round returns what it measured, in seconds: `writes` until every watched partition acknowledged a write that was sent
after the fault, `controller` until a decision of the controller was committed, `whole` until every replica was back.
Victims are chosen by what they are at that moment: a leader that is not the controller, the controller, or both.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import MinilogError
from minilog.types import PartitionDescription
from tests.cluster import Cluster, broker_name
from tests.integration.clients import Watch, Writer
from tests.proxy import CUT, Proxy, Rule

TOPIC = "killed"
WHOLE_WITHIN_S = 60.0
REQUEST_TIMEOUT_MS = 5_000


@dataclass(slots=True)
class Measured:
    """One round; None: not measured in this kind."""

    fault: str
    victims: tuple[int, ...]
    writes_s: float | None = None
    controller_s: float | None = None
    whole_s: float | None = None


@dataclass
class RoundScene:
    """A running cluster with a topic, and a writer that never rests."""

    cluster: Cluster
    admin: Admin
    """One for all that is asked: what it was told once it never takes an older answer for."""
    writer: Writer
    chance: random.Random
    partition_count: int
    number: int = 0
    """Of the round, from 0."""

    # -- who is what

    def partitions(self) -> list[PartitionDescription]:
        return self.admin.describe_topics([TOPIC])[0].partitions

    def controller(self) -> int:
        """Who it is; waits while there is none."""
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while time.monotonic() < deadline:
            controller = self.admin.describe_cluster().controller
            if controller is not None and controller > 0:
                return controller
            time.sleep(0.05)
        raise AssertionError(f"no controller within {WHOLE_WITHIN_S} s")

    def led_by(self, broker_id: int) -> list[int]:
        return [each.partition for each in self.partitions() if each.leader == broker_id]

    def other_leader(self, than: int) -> int:
        """A broker that leads a partition and is not `than`; each has its turn."""
        leaders = sorted({each.leader for each in self.partitions() if each.leader not in (None, than)})
        assert leaders, f"broker {than} leads everything"
        return leaders[self.number % len(leaders)]

    # -- waiting

    def let_it_write(self) -> None:
        """The fault comes at a random moment of ordinary work."""
        self.writer.wait_for_more(self.chance.randrange(200, 2000))

    def wait_whole(self) -> float:
        """Until every broker runs, every replica is in its ISR, and each broker leads what it is preferred for, so that
        the next round finds leaders everywhere; seconds until the first two were so."""
        started = time.monotonic()
        self.cluster.wait_running(WHOLE_WITHIN_S)
        whole_s: float | None = None
        while True:
            partitions = self.partitions()
            if all(len(each.isr) == len(each.replicas) and each.leader is not None for each in partitions):
                whole_s = time.monotonic() - started if whole_s is None else whole_s
                if all(each.leader == each.replicas[0] for each in partitions):
                    return whole_s
                self.admin.elect_leaders([TopicPartition(TOPIC, each.partition) for each in partitions])
            assert time.monotonic() - started < WHOLE_WITHIN_S, f"not all replicas are back in sync: {partitions}"
            time.sleep(0.05)

    def decided_s(self, since_s: float) -> float:
        """Seconds from `since_s` until the controller committed a decision: a topic was created."""
        name = f"decided-{self.number}-{int(since_s * 1000)}"
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while True:
            try:
                self.admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
            except MinilogError:
                assert time.monotonic() < deadline, "the controller decides nothing"
                time.sleep(0.02)
            else:
                return time.monotonic() - since_s

    def watch(self, fault_s: float | None = None) -> Watch:
        """All partitions, from now on."""
        return self.writer.watch(range(self.partition_count), time.monotonic() if fault_s is None else fault_s)

    @property
    def proxy(self) -> Proxy:
        assert self.cluster.proxy is not None, "this kind of round wants a proxied cluster"
        return self.cluster.proxy


def admin_of(cluster: Cluster) -> Admin:
    return Admin({**cluster.client, "request.timeout.ms": REQUEST_TIMEOUT_MS})


Round: TypeAlias = Callable[[RoundScene], Measured]


def _kill(scene: RoundScene, fault: str, *victims: int) -> Measured:
    """SIGKILL of `victims`; started again once writes go on. With one voter, it is started again at once."""
    quorum_lives = len(set(scene.cluster.voters) - set(victims)) > len(scene.cluster.voters) // 2
    scene.let_it_write()
    fault_s = time.monotonic()
    scene.cluster.kill(*victims)
    watch = scene.watch(fault_s)
    if not quorum_lives:
        scene.cluster.start(*victims)
    measured = Measured(fault, victims, writes_s=scene.writer.failover_s(watch))
    measured.controller_s = scene.decided_s(watch.fault_s)
    if quorum_lives:
        scene.cluster.start(*victims)
    measured.whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return measured


def kill_leader(scene: RoundScene) -> Measured:
    return _kill(scene, "SIGKILL of a leader", scene.other_leader(scene.controller()))


def kill_controller(scene: RoundScene) -> Measured:
    return _kill(scene, "SIGKILL of the controller", scene.controller())


def kill_both(scene: RoundScene) -> Measured:
    """With five voters two brokers, with fewer the one broker that is both."""
    controller = scene.controller()
    if len(scene.cluster.voters) >= 5:
        return _kill(scene, "SIGKILL of a leader and the controller", controller, scene.other_leader(controller))
    return _kill(scene, f"SIGKILL of the controller, leading {scene.led_by(controller)}", controller)


def kill_all(scene: RoundScene) -> Measured:
    """Everything dies at a random moment and starts again."""
    scene.let_it_write()
    scene.cluster.kill(*scene.cluster.processes)
    scene.cluster.start()
    whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return Measured("SIGKILL of all", tuple(scene.cluster.processes), whole_s=whole_s)


def kill_turn(scene: RoundScene) -> Measured:
    """One broker after the other, and back into every ISR under load."""
    brokers = sorted(scene.cluster.processes)
    return _kill(scene, "SIGKILL in turn", brokers[scene.number % len(brokers)])


def roll(scene: RoundScene) -> Measured:
    """One broker stops cleanly and starts again; no client gets an error (judged at the end)."""
    brokers = sorted(scene.cluster.processes)
    victim = brokers[scene.number % len(brokers)]
    scene.writer.wait_for_more(500)
    watch = scene.watch()
    codes = scene.cluster.stop(victim)
    assert codes == {victim: 0}, f"{codes}\n{scene.cluster.log_text(victim)[-3000:]}"
    measured = Measured("SIGTERM", (victim,), writes_s=scene.writer.failover_s(watch))
    scene.cluster.start(victim)
    measured.whole_s = scene.wait_whole()
    return measured


def _hang(scene: RoundScene, fault: str, victim: int) -> Measured:
    scene.let_it_write()
    fault_s = time.monotonic()
    scene.cluster.pause(victim)
    try:
        watch = scene.watch(fault_s)
        measured = Measured(fault, (victim,), writes_s=scene.writer.failover_s(watch))
        measured.controller_s = scene.decided_s(watch.fault_s)
    finally:
        scene.cluster.resume(victim)
    measured.whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return measured


def hang(scene: RoundScene) -> Measured:
    """SIGSTOP of the controller, of a leader and of a broker that leads nothing, in turn; then SIGCONT."""
    controller = scene.controller()
    leaders = {each.leader for each in scene.partitions()}
    idle = sorted(set(scene.cluster.processes) - leaders - {controller})
    match scene.number % 3:
        case 0:
            return _hang(scene, "SIGSTOP of a leader", scene.other_leader(controller))
        case 1 if scene.cluster.voters != [controller]:
            return _hang(scene, "SIGSTOP of the controller", controller)
        case _:
            victim = idle[0] if idle else scene.other_leader(controller)
            return _hang(scene, "SIGSTOP of a follower" if idle else "SIGSTOP of a leader", victim)


BETWEEN_BROKERS = ("out", "in", "both ways")


def _cut(scene: RoundScene, victim: int, direction: str) -> Measured:
    """Links between the victim and all other brokers; clients reach everybody."""
    scene.let_it_write()
    fault_s = time.monotonic()
    for other in set(scene.cluster.ports) - {victim}:
        if direction in ("out", "both ways"):
            scene.proxy.set_rule(broker_name(victim), broker_name(other), CUT)
        if direction in ("in", "both ways"):
            scene.proxy.set_rule(broker_name(other), broker_name(victim), CUT)
    watch = scene.watch(fault_s)
    measured = Measured(f"cut {direction}", (victim,), writes_s=scene.writer.failover_s(watch))
    measured.controller_s = scene.decided_s(watch.fault_s)
    scene.proxy.heal()
    measured.whole_s = scene.wait_whole()
    scene.writer.wait_for_more(200)
    return measured


def cut(scene: RoundScene) -> Measured:
    """The links of a leader, then of the controller, to all other brokers: out, in, both ways in turn; then healed."""
    controller = scene.controller()
    direction = BETWEEN_BROKERS[scene.number // 2 % 3]
    if scene.number % 2 and scene.cluster.voters != [controller]:
        measured = _cut(scene, controller, direction)
        return dataclasses.replace(measured, fault=f"controller {measured.fault}")
    measured = _cut(scene, scene.other_leader(controller), direction)
    return dataclasses.replace(measured, fault=f"leader {measured.fault}")


def spoil(scene: RoundScene) -> Measured:
    """Every link between brokers is slow and loses a little, and one is reset now and then: nothing is to fail over."""
    rule = Rule(latency_s=0.02, bytes_per_s=20e6, loss=0.01)
    brokers = sorted(scene.cluster.ports)
    for one in brokers:
        for other in brokers:
            if one != other:
                scene.proxy.set_rule(broker_name(one), broker_name(other), rule)
    watch = scene.watch()
    for _ in range(3):
        scene.let_it_write()
        scene.proxy.reset(*map(broker_name, scene.chance.sample(brokers, 2)))
    measured = Measured("slow links, losses and resets", (), writes_s=scene.writer.failover_s(watch))
    scene.proxy.heal()
    measured.whole_s = scene.wait_whole()
    return measured
