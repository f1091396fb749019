"""One machine of the cluster: its disk, its wall clock, and the life that runs on it or none.

    down ── start() ──► life (recovering ─► registered)
    life ── kill() | lose_power() | stop() (hand-over, clean) | an error that ends a process ──► down

A life is one process of a broker: see life.py. `Node.lives` counts them; an event names (node id, life).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.server.disk.vote_file import FILE_NAME as VOTE_FILE
from tests.simulation.disk import Death, PowerLoss, SimulatedDisk
from tests.simulation.life import DATA_PATH, Life, Stage
from tests.simulation.process import EPOCH_US, FATAL, Process

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

START_MS = 5.0  # a process needs so long to begin, at least


class Node:
    """See the module's text.

    `files`: the disk, read it where the node is down. `life`: None when down. `harmed`: replicas that a fault damaged
    beyond what a crash may do (a flipped bit, a failed fsync, a wiped disk), with the virtual time of it: what was on
    that copy alone is not promised. `power_on`: the machine; where it is off connections are not even refused.
    `cache_lost`: logs whose file failed to sync in the life that ended last: of them only what was durable is kept.
    `wants_life`: a supervisor starts the process again when it ended by itself.
    """

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.files = SimulatedDisk(
            random.Random(f"disk {cluster.seed} {node_id}"), out_of_order=cluster.plan.out_of_order
        )
        self.life: Life | None = None
        self.lives = 0
        self.power_on = True
        self.boot = 0  # the kernel's: another one after each loss of power
        self.wall_offset_us = 0
        self.harmed: dict[PartitionKey, float] = {}
        self.ended_because: str | None = None  # "kill", "power", "stop", "unclean stop" or "error ..."
        self.wants_life = True
        self.directory_id: str | None = None  # of the disk that is in it; None until something lived on that
        self.knows_cluster = False  # the last life had replayed who votes: it is on this disk
        self.wrong_voters: tuple[int, ...] | None = None  # what the next life is told, once, in place of the right ones
        self.cache_lost: tuple[PartitionKey, ...] = ()
        self._keys: dict[PartitionKey, None] = {METADATA_KEY: None}  # of all logs that were ever on this disk
        self._random = random.Random(f"node {cluster.seed} {node_id}")
        cluster.network.hosts[node_id] = None

    @property
    def now_us(self) -> int:
        """The wall clock of this machine."""
        return EPOCH_US + int(self.cluster.scheduler.now_ms * 1000.0) + self.wall_offset_us

    @property
    def paused(self) -> bool:
        return self.life is not None and self.life.process.paused

    def stored_vote(self) -> VoteState | None:
        """What of the vote would survive a loss of power now; None where there is none."""
        content = self.files.durable_content(f"{DATA_PATH}/{VOTE_FILE}")
        if content is None:
            return None
        return msgspec.json.decode(content.rpartition(b"\ncrc32c=")[0], type=VoteState)

    # -- life

    def start(self, _: object = None) -> None:
        """Begin a life on what the disk has, where there is none. The port is open a little later."""
        if self.life is not None or not self.wants_life:
            return
        self.power_on = True
        self.lives += 1
        network, touched = self.cluster.network, self.cluster.touched
        network.hosts.setdefault(self.node_id, None)
        life = self.life = Life(self, self.lives, self._random)
        touched.nodes[self.node_id] = None
        try:
            life.begin()
        except FATAL as error:
            self.life_failed(life, error)
            return
        self.directory_id = life.directory_id
        touched.began.append(self.node_id)
        life.process.after(START_MS * (1.0 + self._random.random()), life.start)

    def kill(self) -> None:
        """SIGKILL: the process is gone, the page cache stays."""
        if self.life is not None:
            self._end(self.life, "crash")

    def lose_power(self) -> None:
        """The machine goes off: what was not synced may be lost, torn or there."""
        if self.life is not None:
            self._end(self.life, "power")
        else:
            self.files.lose_power()
            self._power_off()

    def stop(self) -> None:
        """SIGTERM: hand over, close the logs, leave the mark of a clean stop; takes a while."""
        if self.life is not None:
            self.life.process.run(lambda _: self._stop_life())

    def _stop_life(self) -> None:
        if self.life is not None:
            self.life.stop()

    def wipe(self) -> None:
        """The machine gets another disk, an empty one. Only while nothing lives on it."""
        self.files.wipe()
        self.directory_id = None
        self.knows_cluster = False
        for key in self._keys:
            self.harmed[key] = self.cluster.now_ms

    def pause(self) -> None:
        """SIGSTOP."""
        if self.life is not None:
            self.cluster.touched.nodes[self.node_id] = None
            self.life.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.paused and self.life is not None:
            self.cluster.touched.nodes[self.node_id] = None
            self.life.process.resume()

    @property
    def is_serving(self) -> bool:
        """Registered and not stopping."""
        return self.life is not None and self.life.stage is Stage.REGISTERED

    # -- ends

    def life_failed(self, life: Life, error: BaseException) -> None:
        """What ends a real process came out of an event of this life."""
        if self.life is not life:
            return
        if isinstance(error, Death):
            self.cluster.count(f"{type(error).__name__} in the middle")
            self._end(life, "power" if isinstance(error, PowerLoss) else "crash")
            self.cluster.scheduler.after(self._random.uniform(50.0, 5_000.0), self.start)
            return
        self.cluster.process_failed(self.node_id, error)
        self._end(life, "failed", because=f"error {type(error).__name__}: {error}")
        self.cluster.scheduler.after(self._random.uniform(200.0, 1_000.0), self.start)

    def life_ended(self, life: Life, how: str) -> None:
        """A stop has come to its end."""
        if self.life is life:
            self._end(life, how)

    def _end(self, life: Life, how: str, because: str | None = None) -> None:
        cluster = self.cluster
        if cluster.trace is not None:
            cluster.note(f"node {self.node_id} life {life.number} ends: {how} {because or ''}")
        self.ended_because = because or {"crash": "kill", "clean": "stop"}.get(how, how)
        self.life = None
        self._keys.update(dict.fromkeys(life.logs))
        self.cache_lost = self._failed_logs(life)
        self.knows_cluster |= hasattr(life, "image") and bool(life.image.voters)
        process: Process = life.process
        process.end()
        if how == "power":
            self.power_on = False
        touched = cluster.touched
        touched.nodes[self.node_id] = None
        # What was answered in the same event did not leave the process.
        touched.answers[:] = [answered for answered in touched.answers if answered.node_id != self.node_id]
        touched.trims_answered[:] = [said for said in touched.trims_answered if said.node_id != self.node_id]
        touched.ended.append((self.node_id, how))
        if how == "power":
            self.files.lose_power()
            self._power_off()
        else:
            self.files.end_process()
            cluster.network.hosts[self.node_id] = None
        cluster.network.process_ended(process, silently=how == "power")

    @staticmethod
    def _failed_logs(life: Life) -> tuple[PartitionKey, ...]:
        logs = {**life.logs, METADATA_KEY: life.metadata_log} if hasattr(life, "quorum_part") else life.logs
        return tuple(key for key, log in logs.items() if log.failed is not None)

    def _power_off(self) -> None:
        self.power_on = False
        self.boot += 1
        self.cluster.network.hosts.pop(self.node_id, None)
