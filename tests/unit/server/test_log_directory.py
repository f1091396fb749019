"""The data logs of a broker at its start: what cannot be read is the matter of one replica, and is not forgotten."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from minilog.errors import StorageError
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import PLACEMENT_BYTES, decode_header, placement
from minilog.v1.peer_pb2 import RecoveryFinding
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.partition_state import CleanupPolicy, PartitionState
from minilog_broker.replication.replica_effects import OpenLog, PartitionOffline, PlacedBatches
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.clients.registration import recovered_replicas, unsettled_replicas
from minilog_broker.server.disk.log_directory import FoundLog, LogDirectory, log_settings
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import recover_producer_state
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.controller.cluster import DEFAULTS
from tests.unit.replication.broker import batch
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.12")

KEYS = [PartitionKey(bytes([number] * 16), 0) for number in (1, 2, 3)]
BROKEN = KEYS[1]
WHOLE = [KEYS[0], KEYS[2]]
PATH = "/data/t2-0"
FIRST = f"{PATH}/{0:020d}.log"
STATE = PartitionState(
    BROKEN, "t2", (1,), (1,), (), (), leader_id=1, leader_epoch=1, partition_epoch=1, leader_broker_epoch=5
)


def append(log: Log, key: PartitionKey, count: int, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> None:
    for _ in range(count):
        data = batch(key=key, producer=producer)
        header = replace(decode_header(data), base_offset=log.log_end_offset, partition_leader_epoch=0)
        placed = placement(data, header.base_offset, 0), memoryview(data)[PLACEMENT_BYTES:]
        log.append(PlacedBatches((header,), placed))


def opened(files: MemoryDisk) -> tuple[DataDirectory, LogDirectory]:
    directory = DataDirectory.open(files, "/data", 1, None, boot_id="boot", process_id=7)
    return directory, LogDirectory(files, directory, delete_delay_ms=0)


@pytest.fixture
def files() -> MemoryDisk:
    """Three logs of an unclean stop, three records in each."""
    files = MemoryDisk(random.Random(1))
    directory, logs = opened(files)
    for key in KEYS:
        log = logs.create(OpenLog(key, f"t{key.topic_id[0]}", DEFAULTS))
        append(log, key, 3)
        log.sync()
        log.write_checkpoint()
    directory.close()
    files.end_process()
    return files


def unreadable_segment(files: MemoryDisk) -> None:
    files.fail("pread", errno.EIO, FIRST)


def unreadable_checkpoint(files: MemoryDisk) -> None:
    files.fail("pread", errno.EIO, f"{PATH}/checkpoint")


def unreadable_epochs(files: MemoryDisk) -> None:
    files.fail("pread", errno.EIO, f"{PATH}/leader-epoch")


UNREADABLE = pytest.mark.parametrize("spoil", [unreadable_segment, unreadable_checkpoint, unreadable_epochs])


def keys_of(found: list[FoundLog]) -> list[PartitionKey]:
    return [each.key for each in found]


@UNREADABLE
def test_a_log_that_cannot_be_read_is_reported_and_the_others_are_served(
    files: MemoryDisk, spoil: Callable[[MemoryDisk], None]
) -> None:
    spoil(files)
    _, logs = opened(files)
    found = logs.recover()
    assert keys_of(found) == WHOLE
    assert list(logs.unreadable) == [BROKEN]
    told = {each.partition_id.topic_id: each.finding for each in recovered_replicas(found, logs)}
    assert told[BROKEN.topic_id] == RecoveryFinding.RECOVERY_FINDING_UNREADABLE
    assert {told[key.topic_id] for key in WHOLE} == {RecoveryFinding.RECOVERY_FINDING_WHOLE}
    assert [each.partition_id.topic_id for each in unsettled_replicas(logs)] == [BROKEN.topic_id]


def test_a_replica_whose_log_cannot_be_read_is_offline_and_is_not_made_anew() -> None:
    manager = ReplicaManager(1, ReplicationSettings(), random.Random(1), ClusterLevel(SUPPORTED_LEVELS))
    manager.adopt_unreadable(BROKEN, "Input/output error", 0.0)
    manager.set_broker_epoch(5, 0.0)
    manager.apply_image([STATE], [], {BROKEN.topic_id: DEFAULTS}, {BROKEN.topic_id: "t2"}, {}, 0.0)
    assert manager.take_effects() == [PartitionOffline(BROKEN, "Input/output error", damaged=False)]


def test_a_stop_with_a_log_that_was_never_opened_is_not_clean(files: MemoryDisk) -> None:
    unreadable_segment(files)
    _, logs = opened(files)
    logs.recover()
    assert not logs.close(), "its torn tail would be taken for what a clean stop left"


def test_a_log_that_could_not_be_read_is_set_aside_with_its_topic(files: MemoryDisk) -> None:
    unreadable_segment(files)
    directory, logs = opened(files)
    logs.recover()
    logs.delete(BROKEN)
    assert not files.exists(PATH)
    (aside,) = directory.partitions_set_aside()
    logs.purge(1 << 40)
    assert not files.exists(aside)


def damaged_topic_id(files: MemoryDisk) -> None:
    files.damage(f"{PATH}/topic-id", 3, b"\xff")


def missing_topic_id(files: MemoryDisk) -> None:
    files.lose(f"{PATH}/topic-id")


@pytest.mark.parametrize("spoil", [damaged_topic_id, missing_topic_id])
def test_data_that_nobody_can_name_is_neither_adopted_nor_the_end_of_the_start(
    files: MemoryDisk, spoil: Callable[[MemoryDisk], None]
) -> None:
    spoil(files)
    _, logs = opened(files)
    assert keys_of(logs.recover()) == WHOLE
    with pytest.raises(StorageError, match=r"[Ss]et /data/t2-0 aside"):
        logs.create(OpenLog(BROKEN, "t2", DEFAULTS))


def test_a_directory_whose_topic_id_could_not_be_read_once_is_opened_as_after_an_unclean_stop(
    files: MemoryDisk,
) -> None:
    files.damage(FIRST, files.size(FIRST), bytes(100))
    files.fail("pread", errno.EIO, f"{PATH}/topic-id")
    _, logs = opened(files)
    assert keys_of(logs.recover()) == WHOLE
    assert logs.create(OpenLog(BROKEN, "t2", DEFAULTS)).recovery.cut_bytes == 100


def test_a_log_of_which_nobody_knows_whose_it_is_has_the_name_of_a_replica(files: MemoryDisk) -> None:
    """Seed 981044: said to be none it was recorded as damaged, and it was the only copy."""
    files.fail("pread", errno.EIO, f"{PATH}/topic-id")
    _, logs = opened(files)
    found = logs.recover()
    logs.name_unreadable([replace(STATE, topic_name="t9"), STATE])
    told = {each.partition_id.topic_id: each.finding for each in recovered_replicas(found, logs)}
    assert told[BROKEN.topic_id] == RecoveryFinding.RECOVERY_FINDING_UNREADABLE
    assert len(told) == len(KEYS)
    assert not logs.close()


def test_a_log_that_rotted_where_its_epochs_are_read_from_is_damaged_and_not_unreadable(files: MemoryDisk) -> None:
    """Seed 981040: its epochs had rotted too, and it stayed offline for ever."""
    directory, logs = opened(files)
    logs.recover()
    log = logs.logs[BROKEN]
    log.configure(log_settings(replace(DEFAULTS, segment_bytes=1024)))
    append(log, BROKEN, 20)
    log.sync()
    log.write_checkpoint()
    directory.close()
    files.end_process()
    files.damage(FIRST, 3, b"\xff")
    files.damage(f"{PATH}/leader-epoch", 3, b"\xff")
    _, logs = opened(files)
    found = {each.key: each.log.recovery.damaged for each in logs.recover()}
    assert found == {KEYS[0]: False, BROKEN: True, KEYS[2]: False}
    assert logs.unreadable == {}


def test_a_foreign_file_named_like_a_log_does_not_end_the_start(files: MemoryDisk) -> None:
    files.open("/data/notes-1", create=True)
    _, logs = opened(files)
    assert keys_of(logs.recover()) == KEYS


def test_a_copy_set_aside_that_cannot_be_removed_holds_up_no_other(files: MemoryDisk) -> None:
    _, logs = opened(files)
    logs.recover()
    logs.delete(KEYS[0])
    logs.delete(KEYS[1])
    files.fail("remove", errno.EACCES, "/data/t1-0")
    while logs.purge(1 << 40) is not None:
        pass
    assert [name for name in files.list("/data") if name.endswith("-delete")] != []
    assert not any(name.startswith("t2-0.") for name in files.list("/data"))
    logs.purge(1 << 40)


def stopped(files: MemoryDisk, directory: DataDirectory) -> None:
    directory.close()
    files.end_process()


def test_a_producer_is_known_by_what_it_wrote_behind_the_snapshot(files: MemoryDisk) -> None:
    directory, logs = opened(files)
    log = logs.recover()[0].log
    append(log, KEYS[0], 1, producer=(7, 0, 0))
    log.sync()
    log.write_producer_snapshot(log.log_end_offset, recover_producer_state(log).snapshot())
    append(log, KEYS[0], 1, producer=(7, 0, 1))
    log.sync()
    stopped(files, directory)
    entry = opened(files)[1].recover()[0].producer_state.entry(7)
    assert entry is not None
    assert entry.next_sequence == 2


def test_damage_that_a_reader_met_is_known_to_the_next_life(files: MemoryDisk) -> None:
    directory, logs = opened(files)
    logs.recover()
    log = logs.logs[BROKEN]
    log.configure(replace(log.settings, segment_bytes=log.settings.index_interval_bytes))
    append(log, BROKEN, 100)
    log.sync()
    log.write_checkpoint()
    stopped(files, directory)
    files.damage(FIRST, files.size(FIRST) // 2, b"\xff")
    directory, logs = opened(files)
    assert damaged(logs) == [], "sealed segments with a fitting index are not read"
    logs.mark_damaged(BROKEN, "a reader met a wrong checksum")
    stopped(files, directory)
    assert damaged(opened(files)[1]) == [BROKEN]


def damaged(logs: LogDirectory) -> list[PartitionKey]:
    return [each.key for each in logs.recover() if each.log.recovery.damaged]


def test_a_torn_tail_is_told_with_every_heartbeat_until_the_replica_is_in_an_isr(files: MemoryDisk) -> None:
    files.damage(FIRST, files.size(FIRST), bytes(100))
    _, logs = opened(files)
    logs.recover()
    (told,) = unsettled_replicas(logs)
    assert (told.finding, told.last_epoch, told.end_offset) == (RecoveryFinding.RECOVERY_FINDING_TORN, 0, 3)
    append(logs.logs[BROKEN], BROKEN, 1)
    assert unsettled_replicas(logs)[0].end_offset == 4
    logs.logs[BROKEN].forget_torn_tail()
    assert unsettled_replicas(logs) == []


@proves("DK.8")
def test_retention_lets_go_of_no_more_than_a_slice_may_and_goes_on_with_the_next(files: MemoryDisk) -> None:
    _, logs = opened(files)
    logs.recover()
    log = logs.logs[KEYS[0]]
    log.settings = LogSettings(segment_bytes=100, retention_bytes=0)
    append(log, KEYS[0], 6)
    log.sync()
    log.set_high_watermark(log.log_end_offset)
    assert log.apply_retention(None, 1) == 1, "one segment goes in any case"
    assert log.apply_retention(None, 1 << 40) > 1
    assert log.apply_retention(None, 1 << 40) == 0


def test_a_log_that_is_only_compacted_has_no_retention() -> None:
    config = replace(DEFAULTS, retention_ms=7, retention_bytes=8)
    assert (log_settings(config).retention_ms, log_settings(config).retention_bytes) == (7, 8)
    compacted = log_settings(replace(config, cleanup_policy=CleanupPolicy.COMPACT))
    assert (compacted.retention_ms, compacted.retention_bytes) == (-1, -1)
    both = log_settings(replace(config, cleanup_policy=CleanupPolicy.COMPACT | CleanupPolicy.DELETE))
    assert (both.retention_ms, both.retention_bytes) == (7, 8)


def test_a_compacted_log_begins_a_segment_at_least_every_max_compaction_lag_ms() -> None:
    config = replace(DEFAULTS, segment_ms=50, max_compaction_lag_ms=20)
    assert log_settings(config).segment_ms == 50
    assert log_settings(replace(config, cleanup_policy=CleanupPolicy.COMPACT)).segment_ms == 20
    rare = replace(config, cleanup_policy=CleanupPolicy.COMPACT, max_compaction_lag_ms=60)
    assert log_settings(rare).segment_ms == 50
