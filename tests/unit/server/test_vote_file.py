"""What a directory that belongs to a cluster must have: its vote, and its name (V11)."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from minilog.errors import StorageError
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.server.disk.disk_thread import DiskThread
from minilog_broker.server.disk.metadata_log import MetadataLogDisk
from minilog_broker.server.disk.vote_file import FILE_NAME, open_vote, write_vote
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.errors import DataDirectoryError
from minilog_broker.storage.log import Log
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.settings import LogSettings
from tests.unit.server.test_log_directory import append
from tests.world.disk import MemoryDisk

VOTE = VoteState(7, 2, b"d" * 16)
PATH = f"/data/{FILE_NAME}"


@pytest.fixture
def files() -> MemoryDisk:
    return MemoryDisk(Random(1))


def opened(files: MemoryDisk, *, belongs: bool = False) -> tuple[DataDirectory, Log]:
    directory = DataDirectory.open(files, "/data", 3, None, boot_id="boot", process_id=7)
    if belongs:
        directory.set_cluster("c" * 32, [1, 2, 3])
    path = directory.partition_path(CLUSTER_METADATA_TOPIC_NAME, 0)
    settings = LogSettings()
    return directory, Log.open(
        files, path, METADATA_KEY, CLUSTER_METADATA_TOPIC_NAME, settings, unclean=True, create=True
    )


def test_a_new_directory_gets_a_vote_file_that_is_there_after_a_crash(files: MemoryDisk) -> None:
    assert open_vote(files, *opened(files)) == VoteState()
    files.lose_power()
    assert files.exists(PATH)


def test_the_vote_of_a_former_life_is_known(files: MemoryDisk) -> None:
    write_vote(files, opened(files)[0], VOTE)
    files.lose_power()
    assert open_vote(files, *opened(files)) == VOTE


def test_a_voter_that_starts_again_knows_for_whom_it_has_voted(files: MemoryDisk) -> None:
    async def started() -> VoteState:
        directory = DataDirectory.open(files, "/data", 3, None, boot_id="boot", process_id=7)
        reserve = Reserve(files, directory.path, lambda: 0.0)
        disk = DiskThread("metadata", asyncio.get_running_loop(), failures.append)
        metadata_log = MetadataLogDisk(files, directory, reserve, disk, failures.append)
        await metadata_log.stop()
        return metadata_log.vote

    failures: list[BaseException] = []

    write_vote(files, opened(files)[0], VOTE)
    files.lose_power()
    assert asyncio.run(started()) == VOTE
    assert failures == []


def test_a_directory_of_a_cluster_without_a_vote_file_is_refused_with_the_remedy(files: MemoryDisk) -> None:
    with pytest.raises(StorageError, match=r"could vote twice.*replace-voter 3"):
        open_vote(files, *opened(files, belongs=True))
    assert not files.exists(PATH), "a second start must not find one"


def test_entries_of_the_metadata_log_tell_too_that_it_may_have_voted(files: MemoryDisk) -> None:
    directory, log = opened(files)
    append(log, METADATA_KEY, 1)
    with pytest.raises(StorageError, match="could vote twice"):
        open_vote(files, directory, log)


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"no json"])
def test_a_damaged_vote_file_is_refused_with_the_remedy(files: MemoryDisk, content: bytes) -> None:
    directory, log = opened(files)
    write_vote(files, directory, VOTE)
    files.damage(PATH, 0, content)
    with pytest.raises(StorageError, match=r"is damaged.*replace-voter 3"):
        open_vote(files, directory, log)


def test_a_vote_file_that_cannot_be_read_is_refused_with_what_to_do(files: MemoryDisk) -> None:
    directory, log = opened(files)
    write_vote(files, directory, VOTE)
    files.fail("pread", errno.EIO, PATH)
    with pytest.raises(StorageError, match=r"cannot be read.*Repair the disk and start again"):
        open_vote(files, directory, log)


def test_logs_without_the_file_that_says_whose_they_are_are_not_taken_for_a_new_broker(files: MemoryDisk) -> None:
    opened(files)[0].close()
    files.lose("/data/broker.json")
    files.end_process()
    with pytest.raises(DataDirectoryError, match=r"1 logs, __cluster_metadata-0 among them, but no broker.json"):
        opened(files)
