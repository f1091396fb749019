"""Segments that were written anew: what their files are called, and which of several files of one offset count."""

from __future__ import annotations

from random import Random

import pytest

from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.index import INDEX_SUFFIX
from minilog_broker.storage.log import Log
from minilog_broker.storage.manifest import read_manifest
from minilog_broker.storage.segment_name import SegmentName, segment_names
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, batch, contents, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.7")

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)  # two batches of 72 bytes
MANIFEST = f"{DIRECTORY}/manifest"
WRITTEN_ANEW = [batch(0, records=3), batch(3)]  # in the place of four batches of two segments
NEW = SegmentName(0, 1)


def test_a_name_in_a_listing_is_the_name_that_was_given() -> None:
    names = [SegmentName(0), SegmentName(0, 1), SegmentName(0, 10), SegmentName(7), SegmentName(10**19, 2)]
    assert segment_names([name.file() for name in reversed(names)]) == names
    assert SegmentName(7).file() == "00000000000000000007.log", "as before there were generations"
    assert SegmentName(7, 2).file(INDEX_SUFFIX) == "00000000000000000007.2.index"
    assert SegmentName(7, 2).path("/d") == "/d/00000000000000000007.2.log"
    assert SegmentName(7, 2).next_generation() == SegmentName(7, 3)


@pytest.mark.parametrize("end", [".0.log", ".01.log", ".-1.log", "..log", ".x.log", ".1.log.tmp", ".log.damaged", ".1"])
def test_other_files_are_no_segments(end: str) -> None:
    assert segment_names([f"{0:020d}{end}", "0.log", "manifest"]) == []


@pytest.fixture
def files() -> MemoryDisk:
    """Five segments of two batches."""
    files = MemoryDisk(Random(1))
    log = open_log(files, settings=SETTINGS)
    fill(log, 10)
    log.set_high_watermark(10)
    log.write_checkpoint()
    files.end_process()
    return files


def reopened(files: MemoryDisk, *, unclean: bool = True) -> Log:
    files.end_process()
    log = open_log(files, settings=SETTINGS, unclean=unclean)
    assert not log.recovery.damaged, log.recovery.reason
    return log


def put(files: MemoryDisk, name: SegmentName, batches: list[bytes]) -> None:
    file = files.open(name.path(DIRECTORY), create=True)
    file.write(batches, 0)
    file.fdatasync()
    files.fsync_dir(DIRECTORY)


def lists(files: MemoryDisk, first: bytes) -> None:
    """Let the manifest name other segments in the place of the first two."""
    manifest = read_durable_file(files, MANIFEST)
    assert manifest is not None
    rest = manifest[manifest.index(b'{"base_offset":4') :]
    write_durable_file(files, MANIFEST, b'{"segments":[' + first + b"," + rest)


def names(files: MemoryDisk) -> list[SegmentName]:
    return segment_names(files.list(DIRECTORY))


WITH_THE_NEW_ONE = [NEW, *(SegmentName(base) for base in (4, 6, 8))]
WITH_THE_OLD_ONES = [SegmentName(base) for base in (0, 2, 4, 6, 8)]
NAMES_THE_NEW_ONE = (
    b'{"base_offset":0,"state":"sealed","end":{"end_offset":4,"size_bytes":144,"max_timestamp_us":3000},"generation":1}'
)


def test_a_manifest_without_generations_has_no_word_of_them(files: MemoryDisk) -> None:
    assert b"generation" not in (read_durable_file(files, MANIFEST) or b"")


def test_a_manifest_says_which_generation_counts(files: MemoryDisk) -> None:
    put(files, NEW, WRITTEN_ANEW)
    lists(files, NAMES_THE_NEW_ONE)
    log = reopened(files)
    assert names(files) == WITH_THE_NEW_ONE, "the files in whose place it came had not been removed yet"
    assert contents(log)[:2] == WRITTEN_ANEW
    assert log.log_end_offset == 10
    manifest = read_manifest(files, DIRECTORY)
    assert manifest is not None
    assert [listed.name for listed in manifest] == WITH_THE_NEW_ONE


def test_a_generation_that_the_manifest_does_not_name_is_removed(files: MemoryDisk) -> None:
    put(files, NEW, WRITTEN_ANEW)
    log = reopened(files)
    assert names(files) == WITH_THE_OLD_ONES
    assert len(contents(log)) == 10


def test_a_negative_generation_makes_no_manifest(files: MemoryDisk) -> None:
    lists(files, NAMES_THE_NEW_ONE.replace(b'"generation":1', b'"generation":-1'))
    log = reopened(files)
    assert "is not a manifest" in log.recovery.reason
    assert names(files) == WITH_THE_OLD_ONES


@pytest.mark.parametrize("lost", [(), (0,), (2,), (0, 2)])
@pytest.mark.parametrize("log_start", [0, 1, 2, 3])
@pytest.mark.parametrize("has_index", [True, False])
def test_without_a_manifest_what_was_written_anew_counts_and_what_it_holds_goes(
    files: MemoryDisk, lost: tuple[int, ...], log_start: int, has_index: bool
) -> None:
    """Of the former segments any may be gone already, at any log start."""
    log = reopened(files)
    log.set_high_watermark(10)
    log.advance_log_start(log_start)
    put(files, NEW, WRITTEN_ANEW)
    lists(files, NAMES_THE_NEW_ONE)
    if has_index:
        reopened(files).close(clean=True)
        for base in (0, 2):
            put(files, SegmentName(base), [batch(base), batch(base + 1)])
    for base in lost:
        if files.exists(SegmentName(base).path(DIRECTORY)):
            files.lose(SegmentName(base).path(DIRECTORY))
    files.damage(MANIFEST, 3, b"\xff")
    log = reopened(files)
    assert names(files) == WITH_THE_NEW_ONE
    assert (log.log_start_offset, log.log_end_offset) == (log_start, 10)
    assert contents(log)[-6:] == [batch(offset) for offset in range(4, 10)]


def test_without_a_manifest_the_last_generation_counts(files: MemoryDisk) -> None:
    put(files, NEW, WRITTEN_ANEW)
    put(files, SegmentName(0, 2), [batch(0, records=4)])
    files.damage(MANIFEST, 3, b"\xff")
    log = reopened(files)
    assert contents(log)[0] == batch(0, records=4)
    assert names(files) == [SegmentName(0, 2), *WITH_THE_NEW_ONE[1:]]


def test_a_rewritten_segment_may_become_the_active_one(files: MemoryDisk) -> None:
    put(files, NEW, WRITTEN_ANEW)
    lists(files, NAMES_THE_NEW_ONE)
    log = reopened(files)
    log.truncate_to(3)
    written = fill(log, 1)
    log = reopened(files)
    assert contents(log) == [WRITTEN_ANEW[0], *written]
    assert names(files) == [NEW]
