"""The disk in memory keeps, loses, tears and refuses what a real one may."""

from __future__ import annotations

import errno
import random

import pytest

from tests.world.disk import MemoryDisk, PowerLoss


def written(disk: MemoryDisk, path: str = "/file", content: bytes = b"content") -> None:
    file = disk.open(path, create=True)
    file.write([content], 0)
    file.fdatasync()
    disk.fsync_dir("/")


def test_synced_bytes_survive_and_others_may_be_lost() -> None:
    contents = set()
    for seed in range(50):
        disk = MemoryDisk(random.Random(seed))
        written(disk)
        disk.open("/file").write([b"unsynced"], 7)
        disk.lose_power()
        contents.add(disk.content("/file"))
        assert disk.content("/file").startswith(b"content")
    assert {b"content", b"contentunsynced"} < contents  # and torn ones


def test_a_name_that_was_not_synced_may_be_lost() -> None:
    there = set()
    for seed in range(20):
        disk = MemoryDisk(random.Random(seed))
        disk.open("/file", create=True).fdatasync()
        disk.lose_power()
        there.add(disk.exists("/file"))
    assert there == {True, False}


def test_pending_changes_of_a_directory_go_where_it_goes() -> None:
    found = set()
    for seed in range(20):
        disk = MemoryDisk(random.Random(seed))
        disk.make_dir("/log")
        disk.open("/log/old", create=True).fdatasync()
        disk.fsync_dir("/log")
        disk.open("/log/new", create=True).fdatasync()
        disk.rename("/log", "/aside")
        disk.fsync_dir("/")
        disk.lose_power()
        found.add(tuple(sorted(disk.names)))
    assert found == {("/", "/aside", "/aside/old"), ("/", "/aside", "/aside/new", "/aside/old")}


def test_power_may_be_lost_in_the_middle_of_a_change() -> None:
    disk = MemoryDisk(random.Random(0))
    written(disk)
    disk.die_after(0, PowerLoss)
    with pytest.raises(PowerLoss):
        disk.open("/file").write([b"more"], 7)


def test_a_full_disk_takes_nothing_that_makes_a_file_longer() -> None:
    disk = MemoryDisk(random.Random(0))
    written(disk)
    disk.fill("/file")
    file = disk.open("/file")
    file.write([b"CON"], 0)
    with pytest.raises(OSError, match="No space") as raised:
        file.write([b"more"], 7)
    assert raised.value.errno == errno.ENOSPC


def test_bytes_of_a_failed_sync_go_with_the_process() -> None:
    contents = set()
    for seed in range(20):
        disk = MemoryDisk(random.Random(seed))
        written(disk)
        file = disk.open("/file")
        file.write([b"more"], 7)
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            file.fdatasync()
        disk.end_process()
        contents.add(disk.content("/file"))
    assert b"content" in contents
