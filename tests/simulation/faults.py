"""Each fault of processes and disks, by the name it has in plan.FaultRates: whether it could be placed now.

Damage is placed so that what was acknowledged survives it (docs/spec/simulation.md § What it does to a cluster): a bit
is flipped only below the recorded high watermark, where recovery knows it from a torn tail, and while another good copy
is in the ISR; a disk is emptied only where no partition counts on it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.disk import Death, Killed, PowerLoss
from tests.simulation.known import unreplaced_voters
from tests.simulation.life import Life
from tests.simulation.rot import spot_below_the_recorded_mark
from tests.simulation.sick_peers import SickPeers

if TYPE_CHECKING:
    from minilog_broker.controller.image import MetadataImage
    from tests.simulation.node import Node

CLOCK_JUMPS_S = (-7_200.0, -60.0, -1.0, 1.0, 60.0, 7_200.0)
EARLY_MS = 1_500.0  # of a process's life
LONGEST_STALL_MS = 800.0


class Faults(SickPeers):
    """See the module's text, and sick_peers.py and network_faults.py for the others."""

    # -- processes and machines

    def _restart_later(self, node: Node, *, high_ms: float = 4_000.0) -> None:
        def start() -> None:
            if self._random.random() < 0.1 and self._cluster.plan.faults.crash_in_disk:
                node.files.die_after(self._random.randint(0, 40), self._death())  # while it recovers
            node.start()

        self._later(20.0, high_ms, start)

    def kill(self) -> bool:
        life = self._living()
        if life is None:
            return False
        self._note(f"node {life.node.node_id} is killed")
        life.node.kill()
        self._restart_later(life.node)
        return True

    def power_loss(self) -> bool:
        life = self._living()
        if life is None:
            return False
        self._note(f"node {life.node.node_id} loses power")
        life.node.lose_power()
        self._restart_later(life.node)
        return True

    def power_loss_early(self) -> bool:
        """What the process found, and took for safe, is lost with what was not synced."""
        began_ms = self._cluster.now_ms - EARLY_MS
        node = self._one(lambda each: each.life is not None and each.life.began_ms > began_ms)
        if node is None:
            return False
        self._note(f"node {node.node_id} loses power soon after its start")
        node.lose_power()
        self._restart_later(node)
        return True

    def kill_of_all(self) -> bool:
        self._note("all are killed")
        for node in self._cluster.nodes.values():
            node.kill()
            self._restart_later(node)
        return True

    def power_loss_of_all(self) -> bool:
        self._note("all lose power")
        for node in self._cluster.nodes.values():
            if node.power_on:
                node.lose_power()
            self._restart_later(node)
        return True

    def _death(self) -> type[Death]:
        """How a process ends in the middle of something."""
        return self._random.choice((Killed, PowerLoss)) if self._cluster.plan.flush_on_append else Killed

    def crash_in_disk(self) -> bool:
        node = self._one(lambda each: each.life is not None)
        if node is None:
            return False
        changes, death = self._random.randint(0, 60), self._death()
        self._note(f"node {node.node_id} will meet {death.__name__} in change {changes} of its disk from now")
        node.files.die_after(changes, death)
        return True

    def crash_in_effects(self) -> bool:
        life = self._living()
        if life is None or not life.is_registered:
            return False
        life.effects_left, life.death = self._random.randint(0, 40), self._death()
        self._note(f"node {life.node.node_id} will meet {life.death.__name__} after {life.effects_left} effects")
        return True

    def clean_restart(self) -> bool:
        node = self._one(lambda each: each.is_serving)
        if node is None:
            return False
        self._note(f"node {node.node_id} is told to stop")
        node.stop()
        self._start_when_stopped(node)
        return True

    def _start_when_stopped(self, node: Node) -> None:
        def look() -> None:
            if node.life is None or node.life.is_registered:
                node.start()
            if node.life is None or node.life.stage.name in ("STOPPING", "STOPPED"):
                self._later(50.0, 500.0, look)

        self._later(50.0, 1_000.0, look)

    def wrong_voters(self) -> bool:
        """A process that is down is told others: refused, by what its disk or the controller knows."""
        node = self._one(lambda each: each.life is None and each.knows_cluster)
        if node is None:
            return False
        nodes, count = list(self._cluster.nodes), self._random.choice((1, 1, 3))
        wrong = tuple(sorted({node.node_id, *self._random.sample(nodes, count - 1)}))
        if wrong == tuple(self._cluster.plan.voter_ids) or len(wrong) not in (1, 3):
            return False
        self._note(f"node {node.node_id} is started with voters {wrong}")
        node.wrong_voters = wrong
        node.start()
        self._restart_later(node)
        return True

    def pause(self) -> bool:
        node = self._one(lambda each: each.life is not None and not each.paused)
        if node is None:
            return False
        self._note(f"node {node.node_id} is paused")
        node.pause()
        self._later(20.0, 8_000.0, node.resume)
        return True

    def stall(self) -> bool:
        node = self._one(lambda each: each.life is not None and not each.paused)
        if node is None:
            return False
        self._note(f"node {node.node_id} stands still")
        node.pause()
        self._later(50.0, LONGEST_STALL_MS, node.resume)
        return True

    def clock_jump(self) -> bool:
        node = self._one(lambda _: True)
        assert node is not None
        jump_s = self._random.choice(CLOCK_JUMPS_S)
        self._note(f"node {node.node_id} wall clock jumps by {jump_s} s")
        node.wall_offset_us += int(jump_s * 1e6)
        return True

    # -- disks

    def set_slowness(self, life: Life, factor: float) -> None:
        """How much slower than usual the disk of this life syncs."""
        life.data_disk.slowness = life.quorum_part.disk.slowness = factor

    def slow_disk(self) -> bool:
        life = self._living()
        if life is None:
            return False
        self._note(f"node {life.node.node_id} has a slow disk")
        self.set_slowness(life, self._random.choice((10.0, 100.0, 500.0)))
        self._later(100.0, 4_000.0, lambda: self.set_slowness(life, 1.0))
        return True

    def disk_full(self) -> bool:
        life = self._living()
        if life is None:
            return False
        node = life.node
        self._note(f"node {node.node_id} has a full disk")
        node.files.fill(".log", "/reserve")
        self._later(100.0, 4_000.0, lambda: node.files.fill())
        return True

    def disk_error(self) -> bool:
        """The next sync or write of one data log fails; the process is started again some time later."""
        node = self._one(lambda each: each.life is not None and bool(each.life.logs))
        if node is None or node.life is None:
            return False
        key = self._random.choice(list(node.life.logs))
        operation = self._random.choice(("fdatasync", "write"))
        node.files.fail(operation, errno.EIO, node.life.logs[key].directory + "/")
        self._note(f"node {node.node_id} partition {key.partition} the next {operation} will fail")
        life = node.life

        def restart() -> None:
            if node.life is life:
                node.kill()
                self._restart_later(node)

        self._later(1_000.0, 8_000.0, restart)
        return True

    def metadata_disk_error(self) -> bool:
        node = self._one(lambda each: each.life is not None)
        if node is None:
            return False
        operation = self._random.choice(("fdatasync", "write", "rename", "fsync_dir"))
        path_part = self._random.choice(("__cluster_metadata", "quorum-vote"))
        node.files.fail(operation, errno.EIO, path_part)
        self._note(f"node {node.node_id} the next {operation} of {path_part} will fail")
        return True

    def bit_flip(self) -> bool:
        """See the module's text."""
        image = self._image()
        node = self._one(lambda each: each.life is not None and bool(each.life.logs))
        if image is None or node is None or node.life is None:
            return False
        key = self._random.choice(list(node.life.logs))
        if key in node.harmed or not self._has_another_good_copy(image, key, node.node_id):
            return False
        spot = spot_below_the_recorded_mark(node.life.logs[key], self._random)
        if spot is None:
            return False
        path, position = spot
        node.files.flip_bit(path, position, self._random.randint(0, 7))
        node.harmed[key] = self._cluster.now_ms
        self._note(f"node {node.node_id} partition {key.partition} has a flipped bit: {path} at {position}")
        return True

    def _has_another_good_copy(self, image: MetadataImage, key: PartitionKey, node_id: int) -> bool:
        state = image.partitions.get(key)
        if state is None or node_id not in state.replicas:
            return False
        nodes = self._cluster.nodes
        if any(key in node.harmed for other_id, node in nodes.items() if other_id != node_id):
            return False
        return any(other_id != node_id for other_id in state.in_sync_replicas)

    def wipe(self) -> bool:
        """A broker that nobody counts on comes back with an empty disk; of voters, one that the others can spare."""
        image = self._image()
        if image is None or not image.voters:
            return False
        node = self._one(lambda each: each.life is None and self._is_superfluous(image, each.node_id))
        if node is None or not self._quorum_can_spare(image, node.node_id):
            return False
        self._note(f"node {node.node_id} has an empty disk")
        node.wipe()
        return True

    def _quorum_can_spare(self, image: MetadataImage, node_id: int) -> bool:
        voters = self._cluster.plan.voter_ids
        return node_id not in voters or (len(voters) > 1 and not unreplaced_voters(self._cluster, image))

    def _is_superfluous(self, image: MetadataImage, node_id: int) -> bool:
        broker = image.brokers.get(node_id)
        if broker is None or not broker.fenced:
            return False
        return not any(
            node_id in state.in_sync_replicas or node_id in state.eligible_leaders
            for state in image.partitions.values()
        )
