"""One broker's replicas and coordinators, without the rest of it: real cores, a real disk thread, a real directory.

Partition 0 to 15 of the internal topics have their only replica here. Nobody else is there: what goes to other brokers
finds none.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
from collections.abc import Coroutine
from typing import Any

from minilog.net.coordinators_of import (
    GROUPS_TOPIC_NAME,
    INTERNAL_PARTITIONS,
    QUEUES_TOPIC_NAME,
    TRANSACTIONS_TOPIC_NAME,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.coordinators.groups.presences import GroupSettings
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import OpenFetcherStream
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.security.audit import AuditEvent
from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.clients.peer_channels import PeerChannels
from minilog_broker.server.clients.stable_offsets import StableOffsets
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.disk_thread import DiskThread
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.disk.reader_threads import ReaderThreads
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.shells.coordinator_loading import Loader
from minilog_broker.server.shells.coordinator_shell import Surroundings
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.server.system_runtime import SYSTEM_BROKER_RUNTIME
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import OsFileSystem
from minilog_broker.storage.reserve import Reserve
from tests.unit.server.surroundings import calls_here, outside

BROKER, BROKER_EPOCH = 1, 10
TOPIC_IDS = {TRANSACTIONS_TOPIC_NAME: b"t" * 16, GROUPS_TOPIC_NAME: b"g" * 16, QUEUES_TOPIC_NAME: b"q" * 16}
ORDERS = b"o" * 16
CONFIG = TopicConfig(1, 64 << 20, 1 << 30, 1 << 40, True, -1, -1, False)


class CoordinatingBroker:
    """`replicas` and `coordinators` are its own; `crashed` is what would have ended the process, and `linked` the
    links to leaders that it asked for."""

    def __init__(self, path: pathlib.Path) -> None:
        loop = asyncio.get_running_loop()
        self.crashed: list[BaseException] = []
        self.audited: list[AuditEvent] = []
        self.created: list[str] = []
        self.linked: list[OpenFetcherStream] = []
        self.tasks: set[asyncio.Task[None]] = set()
        files = OsFileSystem()
        self._directory = DataDirectory.open(files, str(path), BROKER, None)
        self._reserve = Reserve(files, self._directory.path, lambda: 0.0)
        self.logs = LogDirectory(files, self._directory, 0)
        self.disk = DiskThread("test-disk", loop, self.crashed.append)
        self.readers = ReaderThreads("test-reader", 1, loop, self.crashed.append)
        manager = ReplicaManager(BROKER, ReplicationSettings(), random.Random(0), ClusterLevel(SUPPORTED_LEVELS))
        self.went_offline = asyncio.Event()
        asked = outside(
            failed=self.crashed.append,
            disk_changed=self.went_offline.set,
            tell_coordinator=lambda effect: self.coordinators.on_leadership(effect),
            open_link=self.linked.append,
            close_link=lambda leader_id: None,
        )
        self.replicas = replicas = ReplicationShell(manager, self.disk, self.logs, self._reserve, asked, self.readers)
        self.image = MetadataImage()
        client = common_pb2.ClientIdentity()
        calls = CoordinatorCalls(
            BROKER,
            client,
            self.image,
            lambda broker_id: None,
            calls_here(),
            PeerChannels(BrokerConfig(), SYSTEM_BROKER_RUNTIME),
        )
        self.level = ClusterLevel(SUPPORTED_LEVELS)
        self.internal_topics = InternalTopics(self._create, ClusterLevel(SUPPORTED_LEVELS))
        around = Surroundings(
            replicas,
            Loader(self.disk, lambda key: self.logs.logs[key]),
            calls,
            self._spawn,
            SYSTEM_BROKER_RUNTIME.wall_us,
            StableOffsets(calls, self._spawn).ask,
            self.audited.append,
            bytes.hex,
        )
        self.coordinators: Coordinators = Coordinators(
            self.image,
            self.internal_topics,
            self.level,
            TransactionSettings(),
            GroupSettings(),
            around,
        )
        manager.set_broker_epoch(BROKER_EPOCH, now_ms())
        self.leader_epoch = -1

    async def _create(self, name: str) -> None:
        self.created.append(name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def make_topics(self) -> None:
        """They exist, and nobody leads their partitions yet."""
        for name, topic_id in (*TOPIC_IDS.items(), ("orders", ORDERS)):
            self.image.topics[topic_id] = TopicImage(name, topic_id, name != "orders", INTERNAL_PARTITIONS)
            self.image.topic_ids[name] = topic_id

    def lead(self) -> None:
        """This broker leads every partition, in a new epoch."""
        self.leader_epoch += 1
        states = []
        for name, topic_id in TOPIC_IDS.items():
            for partition in range(INTERNAL_PARTITIONS):
                key, epoch = PartitionKey(topic_id, partition), self.leader_epoch
                here = (BROKER,)
                state = PartitionState(key, name, here, here, (), (), BROKER, epoch, epoch, BROKER_EPOCH)
                self.image.partitions[key] = state
                states.append(state)
        names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
        configs = dict.fromkeys(names, CONFIG)
        lives = {BROKER: BrokerIncarnation(BROKER, BROKER_EPOCH, "here", 1, False, False)}
        self.replicas.manager.apply_image(states, (), configs, names, lives, now_ms())
        self.replicas.run()

    async def stop(self) -> None:
        self.coordinators.stop()
        self.internal_topics.stop()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.disk.stop()
        self.logs.close()
        self._directory.close()
        assert not self.crashed
