"""The reserve on a disk of bounded size: who may write when it is full, and when data may again."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

import pytest

from minilog.record_batch.header import Buffer
from minilog_broker.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from minilog_broker.storage.files import File
from minilog_broker.storage.log import Log
from minilog_broker.storage.reserve import RETRY_S, Reserve
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import append, contents, open_log
from tests.world.disk import DiskFile, MemoryDisk

pytestmark = proves("DK.14")

SIZE = 1000


class BoundedFile(DiskFile):
    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """As far as there is space; then ENOSPC, with what fitted in the file."""
        files, data = self._disk, b"".join(bytes(buffer) for buffer in buffers)
        assert isinstance(files, BoundedFiles)
        grows = position + len(data) - len(self._inode.live)
        if grows > files.free_bytes:
            super().write([data[: max(0, len(data) - grows + files.free_bytes)]], position)
            raise OSError(errno.ENOSPC, "full", self._path)
        super().write([data], position)


class BoundedFiles(MemoryDisk):
    capacity_bytes = 100_000

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - sum(len(inode.live) for inode in self.names.values() if inode is not None)

    def open(self, path: str, *, create: bool = False) -> File:
        super().open(path, create=create)
        inode = self.names[path]
        assert inode is not None
        return BoundedFile(self, inode, path)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += RETRY_S  # each look is late enough for another try
        return self.now_s


def full(log: Log, reserve: Reserve) -> None:
    """Append data until the disk is full."""

    def until_it_is() -> None:
        for _ in range(10_000):
            reserve.write_data(lambda: append(log, payload=bytes(200)))

    with pytest.raises(OSError, match="full"):
        until_it_is()


@pytest.fixture
def files() -> BoundedFiles:
    return BoundedFiles()


@pytest.fixture
def log(files: BoundedFiles) -> Log:
    return open_log(files, settings=LogSettings(segment_bytes=20_000))  # few: what lists them is far below the reserve


@pytest.fixture
def reserve(files: BoundedFiles, log: Log) -> Reserve:
    reserve = Reserve(files, "/data", Clock(), SIZE)
    assert reserve.hold()
    assert files.size("/data/reserve") == SIZE
    return reserve


def test_a_full_disk_refuses_data_and_takes_metadata(files: BoundedFiles, log: Log, reserve: Reserve) -> None:
    full(log, reserve)
    before = contents(log)
    assert not reserve.held
    assert files.free_bytes >= SIZE
    for number in range(3):
        checkpoint = Checkpoint(0, number, number, True)
        reserve.write_metadata(partial(write_checkpoint, files, log.directory, checkpoint))
        with pytest.raises(OSError, match="using the space reserved for it"):
            reserve.write_data(lambda: append(log))
    assert contents(log) == before
    assert files.free_bytes > SIZE / 2, "data took what was kept"


def test_metadata_that_meets_the_full_disk_first_is_written_in_the_reserve(
    files: BoundedFiles, log: Log, reserve: Reserve
) -> None:
    files.capacity_bytes = SIZE + sum(len(inode.live) for inode in files.names.values() if inode is not None) - SIZE
    assert files.free_bytes == 0
    reserve.write_metadata(lambda: append(log, payload=bytes(400)))
    assert len(contents(log)) == 1
    assert not reserve.held
    reserve.write_metadata(lambda: write_checkpoint(files, log.directory, Checkpoint(0, 1, 1, True)))
    assert read_checkpoint(files, log.directory) == Checkpoint(0, 1, 1, True)


def test_with_nothing_left_metadata_fails_too(files: BoundedFiles, log: Log, reserve: Reserve) -> None:
    full(log, reserve)
    files.capacity_bytes -= files.free_bytes
    with pytest.raises(OSError, match="full"):
        reserve.write_metadata(lambda: append(log, payload=bytes(400)))
    assert log.failed is None, "it may go on when there is space"


def test_data_goes_on_when_there_is_space_beyond_the_reserve(files: BoundedFiles, log: Log, reserve: Reserve) -> None:
    full(log, reserve)
    files.capacity_bytes += SIZE // 2
    with pytest.raises(OSError, match="using the space reserved for it"):
        reserve.write_data(lambda: append(log))
    files.capacity_bytes += 2 * SIZE
    reserve.write_data(lambda: append(log))
    assert reserve.held
    assert files.size("/data/reserve") == SIZE


def test_a_full_disk_is_not_tried_with_every_batch(files: BoundedFiles, log: Log) -> None:
    clock = Clock()
    reserve = Reserve(files, "/data", clock, SIZE)
    assert reserve.hold()
    full(log, reserve)
    changes = files.changes
    reserve._clock_s = lambda: clock.now_s  # time stands still
    for _ in range(100):
        with pytest.raises(OSError, match="using the space reserved for it"):
            reserve.write_data(lambda: append(log))
    assert files.changes == changes


def test_a_disk_too_small_for_it_refuses_data_from_the_start(files: BoundedFiles, log: Log) -> None:
    files.capacity_bytes = files.capacity_bytes - files.free_bytes + SIZE
    reserve = Reserve(files, "/data", Clock(), SIZE)
    assert not reserve.hold()
    assert not files.exists("/data/reserve")


def test_the_next_life_has_it_at_once_and_half_of_one_is_made_anew(files: BoundedFiles, reserve: Reserve) -> None:
    changes = files.changes
    assert Reserve(files, "/data", Clock(), SIZE).hold()
    assert files.changes == changes
    files.cut("/data/reserve", SIZE // 2)
    assert Reserve(files, "/data", Clock(), SIZE).hold()
    assert files.size("/data/reserve") == SIZE


def test_another_error_is_no_full_disk(files: BoundedFiles, log: Log, reserve: Reserve) -> None:
    files.fail("write", errno.EIO, ".log")
    with pytest.raises(OSError, match="Input/output"):
        reserve.write_data(lambda: append(log))
    assert reserve.held
