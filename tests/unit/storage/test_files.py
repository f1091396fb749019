"""The real file system, and the small durable files on the simulated one."""

from __future__ import annotations

import errno
import os
import pathlib
from random import Random

import pytest

from minilog_broker.storage.durable_file import read_durable_file, remove_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem, OsFileSystem
from minilog_broker.storage.log import Log
from tests.unit.storage.logs import KEY, SETTINGS, TOPIC, contents, fill
from tests.world.disk import MemoryDisk, PowerLoss


@pytest.mark.parametrize("simulated", [False, True])
def test_both_file_systems_do_the_same(tmp_path: pathlib.Path, simulated: bool) -> None:
    files: FileSystem = MemoryDisk() if simulated else OsFileSystem()
    root = "/root" if simulated else str(tmp_path / "root")
    files.make_dir(root)
    files.make_dir(root)
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a")
    file = files.open(f"{root}/a", create=True)
    pieces = [bytes([number % 256]) * 3 for number in range(3000)]  # more than one system call takes
    file.write([b"ab", memoryview(b"cd"), b"", *pieces], 2)
    assert file.pread(8, 0) == b"\0\0abcd\0\0"
    assert file.size() == files.size(f"{root}/a") == 6 + 9000
    assert file.pread(9000, 6) == b"".join(pieces)
    file.truncate(3)
    file.fdatasync()
    assert file.pread(100, 0) == b"\0\0a"
    files.rename(f"{root}/a", f"{root}/b")
    files.fsync_dir(root)
    assert (files.list(root), files.exists(f"{root}/a"), files.exists(f"{root}/b")) == (["b"], False, True)
    files.remove(f"{root}/b")
    assert file.pread(100, 0) == b"\0\0a", "who holds a file may read it when its name is gone"
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"Bad file|not open"):
        file.pread(1, 0)
    files.remove_dir(root)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_lock_is_held_until_it_is_closed(tmp_path: pathlib.Path, simulated: bool) -> None:
    files: FileSystem = MemoryDisk() if simulated else OsFileSystem()
    path = "/lock" if simulated else str(tmp_path / "lock")
    lock = files.lock(path)
    assert lock is not None
    assert files.lock(path) is None
    lock.close()
    assert files.lock(path) is not None


def test_a_log_lives_on_a_real_disk(tmp_path: pathlib.Path) -> None:
    def opened(*, unclean: bool) -> Log:
        return Log.open(
            OsFileSystem(), str(tmp_path / "flights-3"), KEY, TOPIC, SETTINGS, unclean=unclean, create=unclean
        )

    log = opened(unclean=True)
    batches = fill(log, 40)
    log.truncate_to(35)
    batches = batches[:35] + fill(log, 5)
    log.close(clean=True)
    log = opened(unclean=False)
    assert log.recovery.scanned_bytes == 0
    assert contents(log) == batches
    log.close(clean=False)
    assert contents(opened(unclean=True)) == batches


def test_a_durable_file_is_the_old_one_or_the_new_one() -> None:
    for step in range(7):
        for seed in range(10):
            files = MemoryDisk(Random(seed))
            write_durable_file(files, "/state", b"old")
            files.die_after(step, PowerLoss)
            try:
                write_durable_file(files, "/state", b"the new one")
                done = True
            except PowerLoss:
                done = False
            files.lose_power()
            assert read_durable_file(files, "/state") in ([b"the new one"] if done else [b"old", b"the new one"])


@pytest.mark.parametrize("operation", ["open", "write", "fdatasync", "rename"])
def test_a_failed_write_leaves_the_old_file_and_no_other(operation: str) -> None:
    files = MemoryDisk()
    write_durable_file(files, "/state", b"old")
    files.fail(operation, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        write_durable_file(files, "/state", b"new")
    assert files.list("/") == ["state"]
    assert read_durable_file(files, "/state") == b"old"


def test_damage_is_seen_whatever_byte_it_hits() -> None:
    files = MemoryDisk()
    write_durable_file(files, "/state", b'{"vote": 3}')
    assert files.content("/state").startswith(b'{"vote": 3}\n'), "people can read it"
    for position in range(len(files.content("/state"))):
        write_durable_file(files, "/state", b'{"vote": 3}')
        files.damage("/state", position, bytes([files.content("/state")[position] ^ 1]))
        with pytest.raises(CorruptFile, match="/state is damaged"):
            read_durable_file(files, "/state")
    for size in range(len(files.content("/state"))):
        write_durable_file(files, "/state", b'{"vote": 3}')
        files.cut("/state", size)
        with pytest.raises(CorruptFile):
            read_durable_file(files, "/state")


def test_a_removed_file_does_not_come_back() -> None:
    for seed in range(10):
        files = MemoryDisk(Random(seed))
        write_durable_file(files, "/mark", b"")
        assert read_durable_file(files, "/mark") == b""
        remove_durable_file(files, "/mark")
        remove_durable_file(files, "/mark")
        files.lose_power()
        assert read_durable_file(files, "/mark") is None


def test_new_files_are_the_owners_alone(tmp_path: pathlib.Path) -> None:
    """Records are read under the brokers' rules, not by whoever has an account."""
    former = os.umask(0o022)
    try:
        files = OsFileSystem()
        files.make_dir(f"{tmp_path}/topic-0")
        files.open(f"{tmp_path}/topic-0/0.log", create=True).close()
        lock = files.lock(f"{tmp_path}/lock")
    finally:
        os.umask(former)
    assert lock is not None
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("topic-0", "topic-0/0.log", "lock")}
    assert modes == {"topic-0": 0o700, "topic-0/0.log": 0o600, "lock": 0o600}
