"""One process of a broker: the real cores and storage, joined as server/broker.py joins them.

    STARTING    logs are recovered, the quorum runs, the port is open; not registered yet
    REGISTERED  leads and follows, serves clients
    STOPPING    wants_stop is told with heartbeats; ends when the controller says so, or at the time-out
    STOPPED     roles are given up, the port is closed; logs are closed next

An error that would end a real process ends this one: Node.life_failed.
"""

from __future__ import annotations

import enum
import random
from typing import TYPE_CHECKING, Any

from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.partition_state import PartitionKey, TopicConfig
from minilog_broker.replication.replica_effects import PartitionOffline
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.clients.registration import recovered_replicas
from minilog_broker.server.disk.disk_thread import DiskCommand
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.storage.clock_guard import ClockGuard
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.log import Log
from minilog_broker.storage.open_files import PooledFileSystem
from minilog_broker.storage.reserve import Reserve
from tests.simulation.clients import node_address
from tests.simulation.controller_link import ControllerLink
from tests.simulation.controlling import Controlling
from tests.simulation.coordinating import Coordinating
from tests.simulation.disk import Death, PowerLoss
from tests.simulation.disk_thread import DiskThread
from tests.simulation.plan import Plan
from tests.simulation.process import Process
from tests.simulation.quorum_part import QuorumPart
from tests.simulation.replicas import Replicas
from tests.simulation.serving import Serving
from tests.simulation.touched import Touched

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import Node

DATA_PATH = "/data"
SERVER_GRACE_MS = 50.0
RESERVE_BYTES = 4_096
MOST_OPEN_FILES = 8  # fewer than a life has segments: files are closed and opened again all the time
RETENTION_EVERY = 2  # checkpoints


class Stage(enum.Enum):
    """See the module's text."""

    STARTING = enum.auto()
    REGISTERED = enum.auto()
    STOPPING = enum.auto()
    STOPPED = enum.auto()


class Life:
    """See the module's text. All of it ends with the process; a judge must not keep it beyond `ended`.

    `number`: 1, 2, ... on this node. `began_ms`: in virtual time. `broker_epoch`: None before registration.
    `logs`: the data logs. `effects_left`: it meets `death` when so many more effects have been carried out; None: not.
    """

    directory: DataDirectory
    reserve: Reserve
    log_directory: LogDirectory
    quorum_part: QuorumPart
    quorum: QuorumNode
    image: MetadataImage
    manager: ReplicaManager
    replicas: Replicas
    link: ControllerLink
    controlling: Controlling
    controller: Controller
    coordinating: Coordinating
    serving: Serving

    def __init__(self, node: Node, number: int, rng: random.Random) -> None:
        self.node = node
        self.number = number
        self.began_ms = node.cluster.now_ms
        self.cluster: Cluster = node.cluster
        self.plan: Plan = node.cluster.plan
        self.network = node.cluster.network
        self.touched = node.cluster.touched
        self.voter_ids: tuple[int, ...] = tuple(self.plan.voter_ids)  # as this process is told
        if node.wrong_voters is not None:
            self.voter_ids, node.wrong_voters = node.wrong_voters, None
        self.configured = self.plan.configured(
            node.node_id, random.Random(f"config {self.cluster.seed} {node.node_id} {number}")
        )
        self.stage = Stage.STARTING
        self.broker_epoch: int | None = None
        self.effects_left: int | None = None
        self.death: type[Death] = PowerLoss
        self._logs: dict[PartitionKey, Log] = {}
        self.process = Process(node.cluster.scheduler, node.node_id, rng.uniform(1e3, 1e7), node.cluster.touched.nodes)
        self.process.on_failed = lambda error: node.life_failed(self, error)
        self._random = rng
        self._rounds = 0
        self._clock_guard = ClockGuard(wall_s=self.node.now_us / 1e6, monotonic_s=self.now_ms / 1e3)

    def begin(self) -> None:
        """Recover what the disk has, take part in the quorum, ask to be registered."""
        node, plan, rng = self.node, self.plan, self._random
        self.directory = DataDirectory.open(
            node.files, DATA_PATH, node.node_id, None, boot_id=f"boot-{node.node_id}-{node.boot}",
            process_id=self.number, random_bytes=rng.randbytes,
        )  # fmt: skip
        self.directory_id = self.directory.directory_id
        self.reserve = Reserve(node.files, DATA_PATH, lambda: self.now_ms / 1e3, RESERVE_BYTES)
        self.reserve.hold()
        segment_files = PooledFileSystem(node.files, MOST_OPEN_FILES)
        self.log_directory = LogDirectory(segment_files, self.directory, 0, self.reserve)
        self._logs = self.log_directory.logs
        self._found = self.log_directory.recover()
        self.settings = ReplicationSettings(
            replica_lag_time_max_ms=plan.replica_lag_time_max_ms,
            replica_fetch_max_bytes=plan.fetch_credit_bytes,
            session_keepalive_ms=plan.session_keepalive_ms,
        )
        self.data_disk = DiskThread(self.process, rng, plan.sync_ms)
        metadata_disk = DiskThread(self.process, rng, plan.sync_ms)
        self.quorum_part = QuorumPart(self, self.directory, metadata_disk, random.Random(rng.random()))
        self.quorum = self.quorum_part.node
        self.image = self.quorum_part.image
        self.manager = ReplicaManager(
            node.node_id, self.settings, random.Random(rng.random()), ClusterLevel(SUPPORTED_LEVELS)
        )
        self.replicas = Replicas(self, self.manager, self.data_disk, self.log_directory)
        self.link = ControllerLink(self, plan.heartbeat_interval_ms)
        self.controlling = Controlling(
            self, self.configured, plan.broker_session_timeout_ms, random.Random(rng.random())
        )
        self.controller = self.controlling.controller
        self.coordinating = Coordinating(self)
        self.serving = Serving(self)

    def start(self, _: object = None) -> None:
        """The first event of the process: the port is open, the quorum runs."""
        self.network.hosts[self.node.node_id] = self.serving
        self.quorum_part.start()
        for each in self._found:
            self.touch(each.key)
            self.manager.adopt_log(each.key, each.log, each.producer_state, self.now_ms)
        for unreadable in self.log_directory.unreadable.values():
            self.touch(unreadable.key)
            self.manager.adopt_unreadable(unreadable.key, unreadable.reason, self.now_ms)
        self.replicas.run()
        self.link.register(self._registration())

    # -- what judges read

    @property
    def now_ms(self) -> float:
        """The monotonic clock of this process: what its cores are told."""
        return self.process.scheduler.now_ms + self.process.origin_ms

    @property
    def logs(self) -> dict[PartitionKey, Log]:
        return self._logs

    @property
    def metadata_log(self) -> Log:
        return self.quorum_part.log

    @property
    def offline(self) -> dict[PartitionKey, PartitionOffline]:
        """Replicas out of service, and why."""
        return self.replicas.offline

    @property
    def paused(self) -> bool:
        return self.process.paused

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch is not None

    def touch(self, key: PartitionKey) -> None:
        """The replica of `key` here may have changed."""
        self.touched.replicas[(self.node.node_id, key)] = None

    def log_was_cut(self, key: PartitionKey) -> None:
        """It was found damaged in this life."""
        self.touched.recovered.append((self.node.node_id, key))

    def note(self, text: str) -> None:
        cluster = self.cluster
        if cluster.trace is not None:
            cluster.note(f"node {self.node.node_id} {text}")

    def count_effect(self) -> None:
        """One effect nearer to the death that was asked for."""
        assert self.effects_left is not None
        self.effects_left -= 1
        if self.effects_left < 0:
            raise self.death

    # -- joining the cluster

    def _registration(self) -> peer_pb2.RegisterRequest:
        node, address = self.node, node_address(self.node.node_id)
        return peer_pb2.RegisterRequest(
            cluster_id=self.directory.cluster_id or "",
            broker_id=node.node_id,
            directory_id=bytes.fromhex(self.directory.directory_id),
            host=address.host,
            port=address.port,
            rack=f"r{1 + node.node_id % 2}",  # consumers of that rack read here, where this follows
            clean_stop_broker_epoch=self.directory.clean_stop_epoch,
            kernel_boot_id=f"boot-{node.node_id}-{node.boot}",
            damaged_replicas=[
                common_pb2.PartitionId(topic_id=each.key.topic_id, partition=each.key.partition)
                for each in self._found
                if each.log.recovery.damaged
            ],
            recovered_replicas=recovered_replicas(self._found, self.log_directory),
            host_label=address.host,
            voters=[node_address(voter_id) for voter_id in self.voter_ids],
        )

    def registered(self, answer: peer_pb2.RegisterResponse) -> None:
        """The controller took this life; what was committed before is replayed first."""
        if self.image.end_offset < answer.committed_end_offset:
            self.process.after(1.0, lambda _: self.registered(answer))
            return
        if self.is_registered or self.stage is Stage.STOPPED:
            return
        self.note(f"registered as life {answer.broker_epoch}")
        self.directory.set_cluster(answer.cluster_id, [voter.broker_id for voter in self.image.voters])
        self.broker_epoch = answer.broker_epoch
        self.manager.set_broker_epoch(answer.broker_epoch, self.now_ms)
        if self.stage is Stage.STARTING:
            self.stage = Stage.REGISTERED
        self.image_moved(self._whole_image())
        self._set_strays_aside()
        self.replicas.run()
        self.replicas.timer.start()
        self.link.start()
        self.process.after(self.plan.checkpoint_interval_ms, self._maintain)

    def _whole_image(self) -> ImageChanges:
        """All that this broker has to know at once, at the beginning of its life."""
        image = self.image
        mine = image.partitions_of_broker.get(self.node.node_id, set())
        return ImageChanges(set(image.brokers), set(mine), set(), set(image.topics), {key.topic_id for key in mine})

    def _set_strays_aside(self) -> None:
        image = self.image
        if not image.topics:
            return
        for key in self.log_directory.paths():
            state = image.partitions.get(key)
            if state is None or self.node.node_id not in state.replicas:
                self.cluster.count("stray")
                self.touch(key)
                self.manager.remove_stray(key, self.now_ms)

    # -- running

    def image_moved(self, changes: ImageChanges) -> None:
        """Committed batches were applied to the image."""
        if not self.is_registered or self.stage is Stage.STOPPED:
            return
        image = self.image
        if self.link.fenced and self.node.node_id in changes.brokers:
            self.link.beat_now()
        changed = sorted(changes.partitions)
        states = [image.partitions[key] for key in changed if key in image.partitions]
        topic_ids = sorted({state.key.topic_id for state in states} | (changes.configs & image.topics.keys()))
        configs = {topic_id: self.topic_config(topic_id) for topic_id in topic_ids}
        names = {topic_id: image.topics[topic_id].name for topic_id in topic_ids}
        removed = sorted(changes.removed)
        for key in changed + removed:
            self.touch(key)
        self.manager.apply_image(states, removed, configs, names, image.incarnations(), self.now_ms)
        self.replicas.run()
        if removed:
            self.coordinating.topics_deleted()

    def topic_config(self, topic_id: bytes) -> TopicConfig:
        """What the replicas of this broker are told of a topic."""
        return self.image.effective_config(topic_id)

    def controller_moved(self) -> None:
        """Another leads the quorum, or nobody does."""
        if self.is_registered:
            self.link.controller_moved()

    def _maintain(self, _: object) -> None:
        """Checkpoints, retention, and removal of what was set aside, on the data disk's thread."""
        self._rounds += 1
        directory = self.log_directory
        self.data_disk.submit(DiskCommand(directory.write_checkpoints, _nothing, _nothing))
        self.data_disk.submit(DiskCommand(directory.purge, _nothing, _nothing))
        self.data_disk.submit(DiskCommand(self.reserve.hold, _nothing, _nothing))
        if self._rounds % RETENTION_EVERY == 0:
            self.data_disk.submit(DiskCommand(self._apply_retention, self._log_starts_moved, _nothing))
        self.process.after(self.plan.checkpoint_interval_ms, self._maintain)

    def _apply_retention(self) -> list[PartitionKey]:
        now_us = self.node.now_us
        self._clock_guard.look(wall_s=now_us / 1e6, monotonic_s=self.now_ms / 1e3)
        trusted_us = now_us if self._clock_guard.trusted else None
        return [key for key, log in list(self.logs.items()) if log.apply_retention(trusted_us)]

    def _log_starts_moved(self, keys: list[PartitionKey]) -> None:
        for key in keys:
            self.touch(key)
            self.manager.log_start_moved(key, self.now_ms)
        self.replicas.run()

    # -- stopping

    def stop(self) -> None:
        """SIGTERM: hand over first, where this life is registered."""
        if self.stage is Stage.REGISTERED:
            self.stage = Stage.STOPPING
            self.link.wants_stop = True
            self.link.beat_now()
            self.process.after(self.plan.controlled_shutdown_timeout_ms, self._give_up_roles)
        elif self.stage is Stage.STARTING:
            self._give_up_roles()

    def may_stop(self) -> None:
        """The controller says that nothing is led here any more that another could lead."""
        if self.stage is Stage.STOPPING:
            self._give_up_roles()

    def _give_up_roles(self, _: object = None) -> None:
        if self.stage is Stage.STOPPED:
            return
        self.stage = Stage.STOPPED
        for key in self.logs:
            self.touch(key)
        self.manager.stop_leading(self.now_ms)
        self.replicas.run()
        self.replicas.timer.stop()
        self.coordinating.stop()
        self.network.hosts[self.node.node_id] = None
        self.process.after(SERVER_GRACE_MS, self._close)

    def _close(self, _: object) -> None:
        """Streams end, what the disks were given is done, logs are closed, the mark is left."""
        self.replicas.close_links()
        self.controlling.timer.stop()
        self.data_disk.drain()
        clean = self.log_directory.close()
        self.quorum_part.timer.stop()
        cluster, node_id = self.cluster, self.node.node_id
        # A sole voter commits what its disk has now, and cuts its log behind a snapshot: judged step by step.
        self.quorum_part.disk.drain(lambda: cluster.look(Touched(quorum={node_id: None})))
        try:
            self.quorum_part.log.close(clean=True)
        except OSError:
            clean = False
        epoch = self.broker_epoch if self.is_registered else self.directory.clean_stop_epoch
        if clean and epoch is not None:
            self.directory.write_clean_stop(epoch)
        self.directory.close()
        self.node.life_ended(self, "clean" if clean else "unclean stop")


def _nothing(_: Any = None) -> None:
    pass
