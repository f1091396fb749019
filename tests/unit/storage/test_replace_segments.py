"""A log whose sealed segments are written anew: the swap, its crashes and failing disks, and readers meanwhile."""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.header import decode_header
from minilog_broker.storage import checkpoint, manifest
from minilog_broker.storage.files import File, OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.manifest import read_manifest
from minilog_broker.storage.open_files import PooledFileSystem
from minilog_broker.storage.segment_name import SegmentName, segment_names
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import (
    DIRECTORY,
    KEY,
    TOPIC,
    batch,
    compact,
    contents,
    crashes_of,
    fill,
    open_log,
    write_anew,
)
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.7")

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)  # two batches of 72 bytes
LUCK = 6  # seeds of what a crash loses
OLD = [batch(offset) for offset in range(10)]
TWO_TO_SIX = [batch(2, records=3, timestamp_us=4000), batch(5)]  # in the place of two segments
COMPACTED = [*OLD[:2], *TWO_TO_SIX, *OLD[6:]]
NAMES = [SegmentName(0), SegmentName(2, 1), SegmentName(6), SegmentName(8)]


def ten_batches(files: MemoryDisk) -> Log:
    """Five segments of two batches, all durable, the high watermark at the end."""
    log = open_log(files, settings=SETTINGS)
    fill(log, 10)
    log.set_high_watermark(10)
    log.write_checkpoint()
    return log


@pytest.fixture
def log(files: MemoryDisk) -> Log:
    return ten_batches(files)


def reopened(files: MemoryDisk, *, unclean: bool = True) -> Log:
    files.end_process()
    log = open_log(files, settings=SETTINGS, unclean=unclean)
    assert not log.recovery.damaged, log.recovery.reason
    return log


def names(files: MemoryDisk) -> list[SegmentName]:
    return segment_names(files.list(DIRECTORY))


def is_whole(files: MemoryDisk, log: Log) -> None:
    """Each offset is in one batch, and there are just the files that the manifest names."""
    offset = 0
    for one in contents(log):
        header = decode_header(one)
        assert header.base_offset == offset or (offset == 0 and header.base_offset <= log.log_start_offset)
        offset = header.next_offset
    assert offset == log.log_end_offset
    listed = read_manifest(files, DIRECTORY)
    assert listed is not None
    assert names(files) == [each.name for each in listed]
    assert not [name for name in files.list(DIRECTORY) if name.endswith(".tmp")]


# the swap


@pytest.mark.parametrize("unclean", [True, False])
def test_readers_find_the_new_batches_now_and_in_the_next_life(files: MemoryDisk, log: Log, unclean: bool) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)
    assert contents(log) == COMPACTED
    assert names(files) == NAMES
    assert log.size_bytes == len(b"".join(COMPACTED))
    if not unclean:
        log.close(clean=True)
    log = reopened(files, unclean=unclean)
    assert log.recovery.scanned_bytes == (144 if unclean else 0), "the index of what was written anew vouches for it"
    assert contents(log) == COMPACTED
    is_whole(files, log)


def test_an_offset_between_the_records_is_read_with_the_batch_around_it(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)
    assert log.read(4, 1) == TWO_TO_SIX[0]
    assert log.batch_base(4) == 2
    assert log.offset_for_timestamp(3500) == (2, 4000)
    assert log.offsets_at_sizes(2, [1], 10) == [(6, 144)]
    assert [header.base_offset for header, _ in log.replay(0)] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_rewritten_segments_are_rewritten_again(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)
    compact(files, log, 0, 2, [batch(0, records=6)])
    compact(files, log, 0, 1, [batch(0, records=5), batch(5)])
    assert names(files) == [SegmentName(0, 2), SegmentName(6), SegmentName(8)]
    assert contents(reopened(files)) == [batch(0, records=5), batch(5), *OLD[6:]]


def test_the_log_goes_on_behind_it(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 0, 4, [batch(0, records=8)])
    more = fill(log, 3)
    log = reopened(files)
    assert contents(log) == [batch(0, records=8), *OLD[8:], *more]
    is_whole(files, log)


@pytest.mark.parametrize(
    ("first", "behind", "change"),
    [
        (0, 0, lambda log: None),
        (0, 2, lambda log: log.advance_log_start(4)),
        (1, 3, lambda log: log.truncate_to(5)),
        (1, 3, lambda log: log.truncate_to(3)),
        (3, 4, lambda log: log.truncate_to(7)),
        (0, 2, lambda log: log.truncate_fully_and_start_at(0)),
    ],
    ids=["none", "retention", "a truncation", "a deeper truncation", "it is active now", "the log began anew"],
)
def test_segments_that_are_not_there_any_more_are_not_replaced(
    files: MemoryDisk, log: Log, first: int, behind: int, change: Callable[[Log], object]
) -> None:
    former = log.sealed_segments[first:behind]
    compacted = write_anew(files, log, former or log.sealed_segments[:1], OLD[2 * first : 2 * behind or 2])
    change(log)
    before = contents(log)
    with pytest.raises(ValueError, match="compact what it has now"):
        log.replace_segments(former, compacted)
    assert (contents(log), log.failed) == (before, None)


def test_only_neighbours_are_replaced_by_just_their_offsets_and_epochs(files: MemoryDisk, log: Log) -> None:
    first, second, third, _ = log.sealed_segments
    whole = write_anew(files, log, [first, second], [batch(0, records=4)])
    for former in ([first, third], [second, first], [first, first], [log._segments[-1]]):
        with pytest.raises(ValueError, match="compact what it has now"):
            log.replace_segments(former, whole)
    for former in ([first], [second], [first, second, third]):
        with pytest.raises(ValueError, match="cannot take the place of the segments from"):
            log.replace_segments(former, whole)
    with pytest.raises(ValueError, match="cannot take the place of the segments from 0 to the end 4"):
        log.replace_segments([first, second], replace(whole, name=SegmentName(0)))
    other_epoch = write_anew(files, log, [first, second], [batch(0, records=4, epoch=3)])
    with pytest.raises(ValueError, match="has other leader epochs than the log"):
        log.replace_segments([first, second], other_epoch)
    assert (contents(log), log.failed) == (OLD, None)
    is_whole(files, reopened(files))


def test_epochs_begin_where_they_began(files: MemoryDisk) -> None:
    log = open_log(files, settings=SETTINGS)
    fill(log, 3)
    fill(log, 3, epoch=4)
    with pytest.raises(ValueError, match="has other leader epochs"):
        compact(files, log, 0, 2, [batch(0, records=2), batch(2, records=2, epoch=4)])
    compact(files, log, 0, 2, [batch(0, records=3), batch(3, epoch=4)])
    files.lose(f"{DIRECTORY}/leader-epoch")
    log = reopened(files)
    assert log.epochs.entries == ((0, 0), (4, 3))


def test_the_log_start_may_lie_inside(files: MemoryDisk, log: Log) -> None:
    log.advance_log_start(3)
    compact(files, log, 0, 2, TWO_TO_SIX)
    assert contents(log) == [*TWO_TO_SIX, *OLD[6:]]
    log = reopened(files)
    assert log.log_start_offset == 3
    assert contents(log) == [*TWO_TO_SIX, *OLD[6:]]


# truncation and retention of what was written anew


@pytest.mark.parametrize(("end_offset", "kept"), [(8, 8), (6, 6), (5, 5), (4, 2), (3, 2), (2, 2), (1, 1), (0, 0)])
def test_a_truncation_cuts_at_the_batch_around_its_offset(
    files: MemoryDisk, log: Log, end_offset: int, kept: int
) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)
    assert log.truncate_to(end_offset) == kept
    more = fill(log, 4, epoch=1)
    log = reopened(files)
    assert contents(log) == [*(one for one in COMPACTED if decode_header(one).next_offset <= kept), *more]
    is_whole(files, log)


@pytest.mark.parametrize(("offset", "left"), [(1, 4), (2, 3), (4, 3), (6, 2), (10, 1)])
def test_retention_removes_it_in_its_turn(files: MemoryDisk, log: Log, offset: int, left: int) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)
    log.advance_log_start(offset)
    assert names(files) == NAMES[-left:]
    log = reopened(files)
    assert (log.log_start_offset, log.log_end_offset) == (offset, 10)
    assert contents(log) == [one for one in COMPACTED if decode_header(one).next_offset > offset]


def test_retention_by_time_goes_by_the_time_stamps_that_are_left(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 0, 2, [batch(0, records=4, timestamp_us=3000)])
    log.settings = replace(SETTINGS, retention_ms=1)
    assert log.apply_retention(4001) == 1
    assert (log.log_start_offset, names(files)[0]) == (4, SegmentName(4))


# crashes


def compact_the_middle(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 1, 3, TWO_TO_SIX)


def compact_again(files: MemoryDisk, log: Log) -> None:
    compact(files, log, 0, 2, [batch(0), batch(1, records=5, timestamp_us=5000)])


def no_manifest_counts(files: MemoryDisk) -> Log:
    """As where the disk was full at the start: the checkpoint has no word of the manifest."""
    log = ten_batches(files)
    log._manifest.forget()
    log._checkpoint.has_manifest = False
    log.write_checkpoint()
    return log


def compacted_once(files: MemoryDisk) -> Log:
    log = ten_batches(files)
    compact_the_middle(files, log)
    return log


AGAIN = [batch(0), batch(1, records=5, timestamp_us=5000), *OLD[6:]]
CASES = {
    "for the first time": (ten_batches, compact_the_middle, OLD, COMPACTED),
    "again": (compacted_once, compact_again, COMPACTED, AGAIN),
    "no manifest counts": (no_manifest_counts, compact_the_middle, OLD, COMPACTED),
}
Case = tuple[Callable[[MemoryDisk], Log], Callable[[MemoryDisk, Log], None], list[bytes], list[bytes]]


def crashes(case: Case, luck: int = LUCK) -> Iterator[tuple[MemoryDisk, int]]:
    """The disk after a crash in the middle of each step, and the number of the step."""
    prepare, change, _, _ = case
    yield from crashes_of(luck, prepare, change, least_steps=11)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_crash_leaves_the_former_segments_or_the_new_one(case: Case) -> None:
    found = set()
    for files, step in crashes(case):
        log = reopened(files)
        assert contents(log) in case[2:], f"step {step}"
        assert log.high_watermark == 10
        is_whole(files, log)
        found.add(contents(log) == case[2])
        more = fill(log, 3)
        assert contents(reopened(files))[-3:] == more
    assert found == {True, False}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_crash_while_recovering_from_it_changes_nothing(case: Case) -> None:
    for crashed, step in crashes(case, luck=2):
        for recovering in range(0, 14, 3):
            files = crashed.copy()
            files.survives(partial(open_log, files, settings=SETTINGS), recovering)
            files.end_process()
            log = reopened(files)
            assert contents(log) in case[2:], f"step {step}, then {recovering}"
            is_whole(files, log)


def test_a_manifest_that_is_damaged_in_the_middle_of_it_costs_nothing() -> None:
    """A crash, and bits that flip in the only file that names the segments."""
    for files, step in crashes(CASES["again"]):
        files.damage(f"{DIRECTORY}/{manifest.FILE_NAME}", 3, b"\xff")
        log = reopened(files)
        assert contents(log) in CASES["again"][2:], f"step {step}"
        is_whole(files, log)


@pytest.mark.parametrize("end_offset", [3, 5, 7])
def test_a_crash_in_a_truncation_leaves_the_old_end_or_a_later_one_than_asked(end_offset: int) -> None:
    def truncate(_: MemoryDisk, log: Log) -> None:
        log.truncate_to(end_offset)

    for files, step in crashes((compacted_once, truncate, COMPACTED, [])):
        log = reopened(files)
        found = contents(log)
        assert found == COMPACTED[: len(found)], f"step {step}"
        assert log.log_end_offset >= (2 if end_offset < 5 else end_offset), "the batch around it begins at 2"


# failing disks


@pytest.mark.parametrize("operation", ["rename", "write", "fdatasync", "open", "fsync_dir"])
@pytest.mark.parametrize("path", [".1.log", "manifest", DIRECTORY])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_leaves_the_log_as_it_was_or_failed(
    files: MemoryDisk, log: Log, operation: str, path: str, error: int
) -> None:
    former = log.sealed_segments[1:3]
    compacted = write_anew(files, log, former, TWO_TO_SIX)
    files.fail(operation, error, path)
    try:
        log.replace_segments(former, compacted)
    except OSError:
        if log.failed is None:
            assert error == errno.ENOSPC
            assert log.sealed_segments[1:3] == former
            assert contents(log) == OLD
            assert NAMES[1] not in names(files), "a full disk keeps no file that nobody uses"
    files.calm()
    more = [] if log.failed else fill(log, 1)
    files.lose_power()
    log = reopened(files)
    assert contents(log) in ([*OLD, *more], [*COMPACTED, *more])
    is_whole(files, log)


@pytest.mark.parametrize("operation", ["write", "fsync_dir"])
def test_a_swap_that_met_a_full_disk_works_in_the_space_of_the_reserve(
    files: MemoryDisk, log: Log, operation: str
) -> None:
    """Reserve.write_metadata calls it again. The first attempt had given the segment its name, and removed it."""
    former = log.sealed_segments[1:3]
    compacted = write_anew(files, log, former, TWO_TO_SIX)
    files.fail(operation, errno.ENOSPC, "manifest" if operation == "write" else DIRECTORY)
    with pytest.raises(OSError, match="No space"):
        log.replace_segments(former, compacted)
    files.calm()
    log.replace_segments(former, compacted)
    assert log.failed is None
    assert contents(log) == COMPACTED


def test_a_full_disk_after_the_manifest_was_replaced_fails_the_log_and_loses_nothing(
    files: MemoryDisk, log: Log
) -> None:
    """The write of the manifest failed only when its directory was synced: nobody knows which one a crash leaves."""
    former = log.sealed_segments[1:3]
    compacted = write_anew(files, log, former, TWO_TO_SIX)
    fail_the_second_sync_of_names(files)
    with pytest.raises(OSError, match="the manifest may name"):
        log.replace_segments(former, compacted)
    assert log.failed is not None
    for seed in range(LUCK):
        crashed = files.copy()
        crashed.random = Random(seed)
        crashed.lose_power()
        log = reopened(crashed)
        assert contents(log) in (OLD, COMPACTED)
        is_whole(crashed, log)


def fail_the_second_sync_of_names(files: MemoryDisk) -> None:
    sync, calls = files.fsync_dir, []

    def fsync_dir(path: str) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        sync(path)

    files.fsync_dir = fsync_dir  # type: ignore[method-assign]


def test_a_failed_log_replaces_nothing(files: MemoryDisk, log: Log) -> None:
    compacted = write_anew(files, log, log.sealed_segments[:1], [batch(0, records=2)])
    log.failed = OSError(errno.EIO, "as before")
    with pytest.raises(OSError, match="takes no more writes"):
        log.replace_segments(log.sealed_segments[:1], compacted)


# readers meanwhile


class SwapAtOpen(OsFileSystem):
    """Something happens to the log between a reader's look at its segments and the opening of a file."""

    def __init__(self) -> None:
        self.before_open: Callable[[], object] | None = None

    def open(self, path: str, *, create: bool = False) -> File:
        if (change := self.before_open) is not None and path.endswith(f"{2:020d}.log"):
            self.before_open = None
            change()
        return super().open(path, create=create)


_INDEX_ALONE = ("offsets_at_sizes", True)  # it opens no segment
READS: dict[str, tuple[Callable[[Log], object], object]] = {
    "read": (lambda log: log.read(3, 1), TWO_TO_SIX[0]),
    "batch_base": (lambda log: log.batch_base(3), 2),
    "offset_for_timestamp": (lambda log: log.offset_for_timestamp(2500), (2, 4000)),
    "offsets_at_sizes": (lambda log: log.offsets_at_sizes(2, [1], 6), [(6, 144)]),
}


@pytest.mark.parametrize(
    ("kind", "has_index"), [(kind, each) for kind in READS for each in (True, False) if (kind, each) != _INDEX_ALONE]
)
def test_a_reader_whose_file_went_meanwhile_reads_what_took_its_place(
    tmp_path: pathlib.Path, kind: str, has_index: bool
) -> None:
    disk = SwapAtOpen()
    pool = PooledFileSystem(disk, 1)
    log = Log.open(pool, str(tmp_path / "log"), KEY, TOPIC, SETTINGS, unclean=False, create=True)
    fill(log, 10)
    log.close(clean=True)
    log = Log.open(pool, str(tmp_path / "log"), KEY, TOPIC, SETTINGS, unclean=False, create=False)
    read, expected = READS[kind]
    for path in [] if has_index else (tmp_path / "log").glob("*index"):
        path.unlink()

    def swap() -> None:
        former = log.sealed_segments[1:3]
        log.replace_segments(former, write_anew(OsFileSystem(), log, former, TWO_TO_SIX))

    disk.before_open = swap
    assert read(log) == expected
    assert disk.before_open is None


def test_a_reader_whose_file_retention_took_meanwhile_is_told_so(tmp_path: pathlib.Path) -> None:
    disk = SwapAtOpen()
    pool = PooledFileSystem(disk, 1)
    log = Log.open(pool, str(tmp_path / "log"), KEY, TOPIC, SETTINGS, unclean=False, create=True)
    fill(log, 10)
    log.set_high_watermark(10)
    disk.before_open = partial(log.advance_log_start, 6)
    with pytest.raises(OffsetOutOfRange, match="holds no offset 3"):
        log.read(3, 1)
    assert log.offset_for_timestamp(2500) == (6, 6000)


def test_a_file_that_is_just_lost_is_an_error_of_the_disk(tmp_path: pathlib.Path) -> None:
    pool = PooledFileSystem(OsFileSystem(), 1)
    log = Log.open(pool, str(tmp_path / "log"), KEY, TOPIC, SETTINGS, unclean=False, create=True)
    fill(log, 10)
    pathlib.Path(log.sealed_segments[1].path).unlink()
    with pytest.raises(FileNotFoundError):
        log.read(3, 1)


def test_a_reader_of_the_former_segment_reads_on_in_it(files: MemoryDisk, log: Log) -> None:
    former = log.sealed_segments[1]
    first = former.read(2, 1, 4)
    compact(files, log, 1, 3, TWO_TO_SIX)
    assert first + former.read(3, 1, 4) == b"".join(OLD[2:4])


def test_checkpoints_are_as_before(files: MemoryDisk, log: Log) -> None:
    before = checkpoint.read_checkpoint(files, DIRECTORY)
    compact(files, log, 1, 3, TWO_TO_SIX)
    assert checkpoint.read_checkpoint(files, DIRECTORY) == before
