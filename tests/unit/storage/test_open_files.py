"""Many files, few of them open: what is closed, what never is, and that no error of a sync gets lost between."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Callable
from typing import ClassVar

import pytest

from minilog.errors import OffsetOutOfRange
from minilog_broker.storage.files import File, FileSystem, OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.open_files import PooledFileSystem
from minilog_broker.storage.page_window import UNIT_BYTES
from tests.rules import proves
from tests.unit.storage.logs import KEY, SETTINGS, TOPIC, contents, fill
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.19")

MOST = 4


def made(files: FileSystem, root: str, count: int) -> list[File]:
    """So many synced files, each with its number in it."""
    found = []
    for number in range(count):
        file = files.open(f"{root}/{number}", create=True)
        file.write([b"%d" % number], 0)
        file.fdatasync()
        found.append(file)
    return found


def descriptors(root: pathlib.Path) -> int:
    """How many of this process's descriptors are files below `root`."""
    links = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(f"{root}/") for link in links if os.path.lexists(link))


def crashable(*paths: str) -> MemoryDisk:
    files = MemoryDisk()
    for path in paths:
        files.make_dir(path)
    return files


def test_hundreds_of_files_cost_as_many_descriptors_as_may_be_open(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST)
    files = made(pool, str(tmp_path), 300)
    assert [file.pread(10, 0) for file in files] == [b"%d" % number for number in range(300)]
    assert descriptors(tmp_path) == pool.open_count == MOST


def test_a_file_that_is_used_stays_open_and_one_that_is_not_goes(tmp_path: pathlib.Path) -> None:
    class Counting(OsFileSystem):
        opened: ClassVar[list[str]] = []

        def open(self, path: str, *, create: bool = False) -> File:
            self.opened.append(path)
            return super().open(path, create=create)

    disk = Counting()
    pool = PooledFileSystem(disk, MOST)
    used, *others = made(pool, str(tmp_path), 20)
    used.pread(1, 0)
    before = len(disk.opened)
    for other in others:
        used.pread(1, 0)
        other.pread(1, 0)
    assert f"{tmp_path}/0" not in disk.opened[before:]


def test_written_bytes_are_synced_by_their_descriptor_before_it_is_closed() -> None:
    disk = crashable("/d")
    pool = PooledFileSystem(disk, MOST)
    files = [pool.open(f"/d/many-{number}", create=True) for number in range(3 * MOST)]
    pool.fsync_dir("/d")
    for file in files:
        file.write([b"bytes"], 0)
    assert pool.open_count <= MOST
    disk.lose_power()
    kept = [disk.open(f"/d/many-{number}").pread(5, 0) == b"bytes" for number in range(3 * MOST)]
    assert all(kept[: 2 * MOST]), "what is not open any more is on the disk"


def test_files_that_are_made_and_changed_one_after_another_need_no_more_than_may_be_open(
    tmp_path: pathlib.Path,
) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST)
    files = []
    for number in range(50):
        files.append(pool.open(f"{tmp_path}/{number}", create=True))
        files[-1].truncate(0)  # as a new segment is made, and left until its first record
        assert pool.open_count <= MOST
    files[0].fdatasync()


def test_files_that_are_read_and_then_changed_in_turn_need_no_more_than_may_be_open(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST)
    files = made(pool, str(tmp_path), 50)
    for file in files:
        file.pread(1, 0)  # as a log looks at its first batch before it appends
        file.write([b"x"], 0)
        assert pool.open_count <= MOST + 1


def test_an_error_of_a_sync_that_made_room_is_told_to_the_files_owner_and_not_tried_again() -> None:
    disk = crashable("/d")
    pool = PooledFileSystem(disk, MOST)
    files = [pool.open(f"/d/{number}", create=True) for number in range(MOST)]
    for file in files:
        file.write([b"x"], 0)
    disk.fail("fdatasync", errno.EIO)
    other = pool.open("/d/other", create=True)
    other.write([b"x"], 0)  # the oldest is to be synced, and cannot be
    told = []
    for file in files:
        try:
            file.fdatasync()
        except OSError as error:
            told.append(error.errno)
    assert told == [errno.EIO]
    changes: list[Callable[[File], object]] = [
        lambda file: file.write([b"y"], 1),
        lambda file: file.truncate(0),
        lambda file: file.fdatasync(),
    ]
    for change in changes:
        with pytest.raises(OSError, match="an earlier sync of the file failed"):
            change(files[0])
    other.fdatasync()


def test_reading_waits_for_no_sync_and_goes_one_above_where_all_are_dirty() -> None:
    disk = crashable("/d")
    pool = PooledFileSystem(disk, MOST)
    clean = made(pool, "/d", 3 * MOST)
    for number in range(MOST):
        pool.open(f"/d/dirty-{number}", create=True).write([b"x"], 0)
    kept = [pool.open(f"/d/kept-{number}", create=True) for number in range(MOST)]
    for file in kept:
        file.write([b"x"], 0)
    disk.fail("fdatasync", errno.EIO)  # who synced now would meet it
    assert [file.pread(2, 0) for file in clean] == [b"%d" % number for number in range(3 * MOST)]
    assert pool.open_count <= MOST + 1


def test_where_the_process_has_no_descriptor_left_half_of_the_pool_is_given_back(tmp_path: pathlib.Path) -> None:
    class Starved(OsFileSystem):
        refused = 0

        def open(self, path: str, *, create: bool = False) -> File:
            if path.endswith("/last") and not self.refused:
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files", path)
            return super().open(path, create=create)

    starved = Starved()
    pool = PooledFileSystem(starved, 10)
    files = made(pool, str(tmp_path), 10)
    last = pool.open(f"{tmp_path}/last", create=True)
    assert (starved.refused, pool.open_count) == (1, 5)
    assert last.size() == 0
    assert files[0].pread(1, 0) == b"0"


def test_a_file_that_nobody_holds_or_that_is_closed_is_not_open(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST)
    first, second = made(pool, str(tmp_path), 2)
    first.close()
    first.close()
    del second
    assert descriptors(tmp_path) == pool.open_count == 0


def test_logs_whose_segments_are_closed_and_opened_again_are_the_same_logs(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), 2)
    logs = [
        Log.open(pool, str(tmp_path / f"log-{number}"), KEY, TOPIC, SETTINGS, unclean=False, create=True)
        for number in range(6)
    ]
    written = [[batch for _ in range(5) for batch in fill(log, 10)] for log in logs]
    assert [contents(log) for log in logs] == written
    assert [log.durable_end_offset for log in logs] == [50] * 6
    assert pool.open_count <= 2
    logs[0].truncate_to(20)
    logs[0].set_high_watermark(20)
    logs[0].advance_log_start(15)
    assert logs[0].read(15, 1 << 20)


def test_a_reader_of_a_segment_that_is_removed_meanwhile_is_told_that_its_offset_is_gone(
    tmp_path: pathlib.Path,
) -> None:
    pool = PooledFileSystem(OsFileSystem(), 1)
    log = Log.open(pool, str(tmp_path / "log"), KEY, TOPIC, SETTINGS, unclean=False, create=True)
    fill(log, 50)
    first = log._segments[0]
    log.set_high_watermark(50)
    log.advance_log_start(40)
    with pytest.raises(OffsetOutOfRange, match="was removed before offset 0 was read"):
        first.batch_base(0)
    with pytest.raises(OffsetOutOfRange, match="was removed before offset 0 was read"):
        first.read(0, 1 << 20, 1)


def test_pages_that_leave_the_cache_are_on_the_disk(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST, page_cache_bytes=UNIT_BYTES)
    file = pool.open(f"{tmp_path}/log", create=True)
    written = [bytes([number]) * UNIT_BYTES for number in range(5)]
    for number, data in enumerate(written):
        file.write([data], number * UNIT_BYTES)
        if number != 3:  # what is not synced stays as well
            file.fdatasync()
    assert [file.pread(UNIT_BYTES, number * UNIT_BYTES) for number in range(5)] == written


def test_the_window_keeps_no_file_open_and_forgets_nothing_of_one_that_is_closed(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), MOST, page_cache_bytes=2 * UNIT_BYTES)
    first = pool.open(f"{tmp_path}/first", create=True)
    first.write([bytes(2 * UNIT_BYTES)], 0)
    first.close()
    assert descriptors(tmp_path) == 0, "a deleted log gives its space back at once"
    second = pool.open(f"{tmp_path}/second", create=True)
    second.write([bytes(2 * UNIT_BYTES)], 0)
    assert descriptors(tmp_path) == 1
