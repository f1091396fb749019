"""A large decision is told to the replicas a piece at a time, with their newest states; a small one at once."""

from __future__ import annotations

import asyncio
import pathlib
import random
import time
from typing import Any

from minilog.partition_key import PartitionKey
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import rename_column
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.disk.disk_thread import DiskThread
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.disk.reader_threads import ReaderThreads
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.image_to_replicas import PARTITIONS_AT_ONCE, ImageToReplicas
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import OsFileSystem
from minilog_broker.storage.reserve import Reserve
from tests.unit.server.surroundings import outside

TOPIC_ID = b"t" * 16
CONFIG = TopicConfig(1, 1 << 20, 1 << 30, 1 << 40, True, -1, -1, False)
MANY = 3 * PARTITIONS_AT_ONCE + 7


class OneBroker:
    """The replicas of broker 1, on a disk of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        files = OsFileSystem()
        directory = DataDirectory.open(files, str(folder), 1, None, boot_id="boot")
        reserve = Reserve(files, directory.path, time.monotonic)
        self.crashed: list[BaseException] = []
        self.disk = DiskThread("test-disk", asyncio.get_running_loop(), self.crashed.append)
        self.readers = ReaderThreads("test-reader", 1, asyncio.get_running_loop(), self.crashed.append)
        self.manager = ReplicaManager(1, ReplicationSettings(), random.Random(1), ClusterLevel(SUPPORTED_LEVELS))
        logs = LogDirectory(files, directory, 60_000, reserve)
        asked = outside(failed=self.crashed.append, tell_coordinator=lambda _: None)
        self.replicas = ReplicationShell(self.manager, self.disk, logs, reserve, asked, self.readers)
        self.image = MetadataImage()
        self.deletions = self.changes_of_topics = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.told = ImageToReplicas(self.image, self.replicas, self, Turns(), self._spawn)
        self.apply(broker_registration=records_pb2.BrokerRegistrationRecord(broker_id=1, host="h", port=1))
        self.manager.set_broker_epoch(0, 0.0)

    def topics_deleted(self) -> None:
        self.deletions += 1

    def topics_changed(self) -> None:
        self.changes_of_topics += 1

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def apply(self, **record: Any) -> None:
        apply_record(self.image, 0, records_pb2.MetadataRecord(**record))

    def create(self, partitions: int, *, leader_epoch: int = 0) -> None:
        self.apply(topic=records_pb2.TopicRecord(name="t", topic_id=TOPIC_ID))
        for number in range(partitions):
            self.apply(
                partition=records_pb2.PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition=number,
                    replicas=[1],
                    in_sync_replicas=[1],
                    leader_id=1,
                    leader_epoch=leader_epoch,
                    partition_epoch=leader_epoch,
                )
            )

    def change(self) -> None:
        self.told.changed(self.image.take_changes())

    def schemas(self, key: PartitionKey) -> TopicSchemas | None:
        """What batches of a partition that is led here are judged by."""
        config = self.manager.led_config(key)
        assert config is not None
        return config.schemas

    def known(self) -> int:
        return sum(self.manager._replicas[key].state is not None for key in self.manager._replicas)

    async def rest(self) -> None:
        await asyncio.gather(*self.tasks)
        await self.disk.stop()
        assert not self.crashed


def test_a_small_decision_is_told_at_once(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        cluster = OneBroker(tmp_path)
        cluster.create(PARTITIONS_AT_ONCE)
        cluster.change()
        assert cluster.known() == PARTITIONS_AT_ONCE
        assert not cluster.tasks
        await cluster.rest()

    asyncio.run(scenario())


def test_a_leader_knows_the_versions_of_a_schema_at_once(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        first = schema_from_ddl("carrier string")
        second = rename_column(first, "carrier", "airline")
        cluster = OneBroker(tmp_path)
        cluster.create(1)
        key = PartitionKey(TOPIC_ID, 0)
        cluster.change()
        for _ in range(10_000):
            if cluster.manager.led_partitions():  # its log is open
                break
            await asyncio.sleep(0.001)
        assert cluster.schemas(key) is None
        for schema in (first, second):
            told = records_pb2.TopicSchemaRecord(topic_id=TOPIC_ID, schema=schema_to_wire(schema))
            cluster.apply(topic_schema=told)
            cluster.change()
        assert cluster.schemas(key) == TopicSchemas((first, second))
        assert cluster.manager.led_config(PartitionKey(TOPIC_ID, 1)) is None
        await cluster.rest()

    asyncio.run(scenario())


def test_a_large_decision_is_told_in_pieces_and_what_follows_meanwhile_with_its_newest_state(
    tmp_path: pathlib.Path,
) -> None:
    async def scenario() -> None:
        cluster = OneBroker(tmp_path)
        cluster.create(MANY)
        cluster.change()
        assert cluster.known() == PARTITIONS_AT_ONCE
        cluster.create(MANY, leader_epoch=1)
        cluster.change()
        assert cluster.known() == PARTITIONS_AT_ONCE, "it waits its turn"
        await cluster.rest()
        assert cluster.known() == MANY
        epochs = {replica.state.leader_epoch for replica in cluster.manager._replicas.values() if replica.state}
        assert epochs == {1}

    asyncio.run(scenario())


def test_a_partition_deleted_before_its_news_is_never_made(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        cluster = OneBroker(tmp_path)
        cluster.create(MANY)
        cluster.change()
        cluster.apply(topic_deletion=records_pb2.TopicDeletionRecord(topic_id=TOPIC_ID))
        cluster.change()
        await cluster.rest()
        assert cluster.known() == 0
        assert cluster.deletions
        assert PartitionKey(TOPIC_ID, MANY - 1) not in cluster.manager._replicas

    asyncio.run(scenario())
