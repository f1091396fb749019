"""What is in memory is read without waiting; all else is left to who may wait. storage/files.py, run_reads.py."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from minilog.errors import CorruptMessage, OffsetOutOfRange
from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import NotInMemory, OsFile, OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.open_files import PooledFileSystem
from minilog_broker.storage.run_reads import read_run, read_run_now
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, KEY, TOPIC, fill, open_log
from tests.world.disk import MemoryDisk

LONG = 256 << 10


@dataclass(frozen=True)
class Wanted:
    offset: int
    max_bytes: int
    end_offset: int
    readable_end: int


def kernel(monkeypatch: pytest.MonkeyPatch, *answers: int | OSError) -> list[tuple[int, int]]:
    """The kernel's answers to reads that do not wait, in turn; returns what was asked: (bytes, position)."""
    asked: list[tuple[int, int]] = []
    waiting = list(answers)

    def preadv(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        asked.append((len(buffers[0]), position))
        answer = waiting.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "preadv", preadv)
    return asked


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> OsFile:
    monkeypatch.setattr("minilog_broker.storage.files._NOT_WAITING", 8)
    found = OsFileSystem().open(str(tmp_path / "file"), create=True)
    assert isinstance(found, OsFile)
    return found


def test_records_just_written_are_in_memory(tmp_path: pathlib.Path) -> None:
    found = OsFileSystem().open(str(tmp_path / "file"), create=True)
    content = os.urandom(LONG)
    found.write([content], 0)
    assert found.read_now(LONG, 0) in (content, None), "None: a system, or its file system, that cannot tell"
    assert found.read_now(LONG, 1) is None, "not all of it is there"


@proves("RD.1")
def test_a_long_read_looks_at_both_ends_before_it_is_given_memory(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = kernel(monkeypatch, 1, BlockingIOError())
    assert file.read_now(LONG, 4096) is None
    assert asked == [(1, 4096), (1, 4096 + LONG - 1)]


@proves("RD.1")
@pytest.mark.parametrize(
    "answer", [0, 99, BlockingIOError(), OSError(errno.EOPNOTSUPP, "no"), OSError(errno.EINVAL, "no")]
)
def test_a_range_not_known_to_be_in_memory_is_none(
    file: OsFile, monkeypatch: pytest.MonkeyPatch, answer: int | OSError
) -> None:
    kernel(monkeypatch, answer)
    assert file.read_now(100, 0) is None


def test_where_the_system_cannot_tell_nobody_asks(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minilog_broker.storage.files._NOT_WAITING", None)
    asked = kernel(monkeypatch)
    assert file.read_now(100, 0) is None
    assert asked == []


@proves("RD.1")
def test_a_file_of_the_pool_that_is_closed_is_not_opened_by_who_must_not_wait() -> None:
    files = MemoryDisk()
    pool = PooledFileSystem(files, 2)
    first = pool.open("/first", create=True)
    first.write([b"content"], 0)
    first.fdatasync()
    assert first.read_now(7, 0) == b"content"
    others = [pool.open(f"/other-{number}", create=True) for number in range(3)]
    assert first.read_now(7, 0) is None
    assert first.pread(7, 0) == b"content"
    assert first.read_now(7, 0) == b"content"
    assert len(others) == 3


def test_a_file_that_is_closed_while_it_is_read_stays_that_file(tmp_path: pathlib.Path) -> None:
    """Its descriptor could be another file's by then."""
    pool = PooledFileSystem(OsFileSystem(), 2)
    path = str(tmp_path / "file")
    file = pool.open(path, create=True)
    file.write([b"content"], 0)
    held = file._to_read()  # type: ignore[attr-defined]  # by a reader's thread, in the middle of its read
    file.close()
    assert held.pread(7, 0) == b"content"


class TestRuns:
    def test_a_run_in_memory_is_the_same_as_the_awaited_one(self) -> None:
        log = open_log(MemoryDisk())
        fill(log, 40, records=3)
        for offset in range(0, 119, 7):
            for end, readable in ((120, 120), (100, 120), (offset + 1, 120), (offset, 120)):
                wanted = Wanted(offset, 300, end, readable)
                assert read_run_now(log, wanted) == read_run(log, wanted)

    def test_an_end_inside_of_the_first_batch_brings_that_batch_alone(self) -> None:
        log = open_log(MemoryDisk())
        batches = fill(log, 4, records=10)
        assert read_run(log, Wanted(12, 1000, 15, 40)) == batches[1]
        assert read_run(log, Wanted(12, 1000, 15, 19)) == b"", "it is not all readable"
        assert read_run(log, Wanted(12, 1000, 12, 40)) == b""

    def test_a_run_outside_the_log_is_empty(self) -> None:
        log = open_log(MemoryDisk())
        fill(log, 4)
        log.set_high_watermark(4)
        log.flush()
        log.set_high_watermark(4)
        log.advance_log_start(2)
        wanted = Wanted(1, 1000, 4, 4)
        assert read_run(log, wanted) == read_run_now(log, wanted) == b""

    def test_a_log_of_which_nothing_was_read_yet_is_waited_for_once(self) -> None:
        files = MemoryDisk()
        log = open_log(files)
        batches = fill(log, 3)
        log.close(clean=True)
        log = open_log(files)
        segment = log._segments[0]
        segment._file = segment._index = None
        with pytest.raises(NotInMemory):
            log.read_now(0, 1000)
        assert log.read(0, 1000) == b"".join(batches)
        assert log.read_now(0, 1000) == b"".join(batches)

    def test_damage_is_met_by_the_awaited_read(self) -> None:
        files = MemoryDisk()
        log = open_log(files)
        fill(log, 3)
        (inode,) = (inode for name, inode in files.names.items() if name.endswith(".log") and inode is not None)
        inode.live[0] ^= 1
        wanted = Wanted(0, 1000, 3, 3)
        assert read_run_now(log, wanted) is None
        with pytest.raises(CorruptMessage):
            read_run(log, wanted)

    @proves("RD.6")
    def test_a_file_that_ends_too_soon_is_an_error_and_no_shorter_run(self) -> None:
        files = MemoryDisk()
        log = open_log(files)
        batches = fill(log, 3)
        (inode,) = (inode for name, inode in files.names.items() if name.endswith(".log") and inode is not None)
        del inode.live[len(batches[0]) + 100 :]
        wanted = Wanted(0, 1000, 3, 3)
        assert read_run_now(log, wanted) is None
        with pytest.raises(CorruptMessage):
            read_run(log, wanted)

    @proves("RD.6")
    def test_an_error_in_the_middle_of_a_run_is_met_by_who_waits_and_nothing_comes(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = Log.open(OsFileSystem(), str(tmp_path / "t-0"), KEY, TOPIC, LogSettings(), unclean=False, create=True)
        fill(log, 3)
        real = os.pread

        def pread(descriptor: int, size_bytes: int, position: int) -> bytes:
            raise OSError(errno.EIO, "the disk failed")

        def preadv(descriptor: int, buffers: Sequence[Buffer], position: int, flags: int) -> int:
            raise OSError(errno.EIO, "the disk failed")

        monkeypatch.setattr(os, "pread", pread)
        monkeypatch.setattr(os, "preadv", preadv)
        wanted = Wanted(0, 1000, 3, 3)
        assert read_run_now(log, wanted) is None
        with pytest.raises(OSError, match="the disk failed"):
            read_run(log, wanted)
        monkeypatch.setattr(os, "pread", real)

    def test_outside_the_log_is_out_of_range_for_who_does_not_wait_too(self) -> None:
        log = open_log(MemoryDisk())
        fill(log, 3)
        with pytest.raises(OffsetOutOfRange):
            log.read_now(4, 100)
        assert log.directory == DIRECTORY
