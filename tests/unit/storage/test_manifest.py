"""Which segments a log has: what its manifest says, when that is swapped, and what recovery makes of it."""

from __future__ import annotations

import errno
import json
from random import Random

import pytest

from minilog.errors import UnsupportedVersion
from minilog_broker.storage.checkpoint import read_checkpoint, write_checkpoint
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.index import SegmentEnd
from minilog_broker.storage.log import Log
from minilog_broker.storage.manifest import SegmentState, read_manifest
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.crashable_files import CrashableFiles
from tests.unit.storage.logs import DIRECTORY, batch, contents, fill, open_log

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)  # two batches of 72 bytes
PATH = f"{DIRECTORY}/manifest"


@pytest.fixture
def files() -> CrashableFiles:
    return CrashableFiles(Random(1))


def filled(files: CrashableFiles, runs: int) -> tuple[Log, list[bytes]]:
    log = open_log(files, settings=SETTINGS)
    batches = fill(log, runs)
    log.set_high_watermark(log.log_end_offset)
    log.write_checkpoint()
    return log, batches


def reopened(files: CrashableFiles) -> Log:
    files.stop_process()
    return open_log(files, settings=SETTINGS)


def listed(files: CrashableFiles) -> list[tuple[int, SegmentState]]:
    manifest = read_manifest(files, DIRECTORY)
    assert manifest is not None
    return [(each.base_offset, each.state) for each in manifest]


def segment(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.log"


def without_indexes(files: CrashableFiles) -> None:
    for name in files.list(DIRECTORY):
        if name.endswith("index"):
            files.remove(f"{DIRECTORY}/{name}")


def test_a_log_of_one_segment_has_no_manifest(files: CrashableFiles) -> None:
    filled(files, 2)
    assert read_manifest(files, DIRECTORY) is None
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    assert not checkpoint.has_manifest


def test_a_manifest_tells_the_end_of_each_sealed_segment(files: CrashableFiles) -> None:
    filled(files, 5)
    assert listed(files) == [(0, SegmentState.SEALED), (2, SegmentState.SEALED), (4, SegmentState.ACTIVE)]
    manifest = read_manifest(files, DIRECTORY)
    assert manifest is not None
    assert [each.end for each in manifest] == [SegmentEnd(2, 144, 1000), SegmentEnd(4, 144, 3000), None]
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    assert checkpoint.has_manifest


def test_retention_truncation_and_a_new_beginning_swap_it(files: CrashableFiles) -> None:
    log, _ = filled(files, 9)
    log.advance_log_start(4)
    assert [base for base, _ in listed(files)] == [4, 6, 8]
    log.truncate_to(7)
    assert listed(files) == [(4, SegmentState.SEALED), (6, SegmentState.ACTIVE)]
    log.truncate_fully_and_start_at(20)
    assert listed(files) == [(20, SegmentState.ACTIVE)]


def test_sealed_segments_need_neither_an_index_nor_a_scan(files: CrashableFiles) -> None:
    _, batches = filled(files, 5)
    without_indexes(files)
    log = reopened(files)
    assert log.recovery.scanned_bytes == 72, "the active segment alone"
    assert contents(log) == batches


def test_a_sealed_segment_of_another_size_is_read(files: CrashableFiles) -> None:
    """What the manifest says of it does not hold: so its batches tell."""
    filled(files, 5)
    without_indexes(files)
    files.cut(segment(2), 72)
    log = reopened(files)
    assert log.recovery.damaged
    assert log.log_end_offset == 3


def test_a_segment_that_the_manifest_passes_over_is_removed(files: CrashableFiles) -> None:
    """As after a swap that was cut short before the old files were gone."""
    _, batches = filled(files, 5)
    files.open(segment(1), create=True).write([batch(1)], 0)
    log = reopened(files)
    assert not log.recovery.damaged
    assert contents(log) == batches
    assert not files.exists(segment(1))


def test_a_segment_behind_the_last_named_counts(files: CrashableFiles) -> None:
    """A segment was made, and its name was not yet written: whatever is in it stays."""
    _, batches = filled(files, 4)
    files.open(segment(4), create=True).write([batch(4)], 0)
    log = reopened(files)
    assert contents(log) == [*batches, batch(4)]
    assert [base for base, _ in listed(files)] == [0, 2, 4]


def test_where_the_manifest_is_damaged_the_files_tell(files: CrashableFiles) -> None:
    _, batches = filled(files, 5)
    files.damage(PATH, 3, b"\xff")
    log = reopened(files)
    assert not log.recovery.damaged
    assert "checksum" in log.recovery.reason
    assert contents(log) == batches
    assert [base for base, _ in listed(files)] == [0, 2, 4]


def test_a_manifest_that_an_earlier_version_let_grow_old_does_not_count(files: CrashableFiles) -> None:
    """It cut segments away and made others, and dropped the word that the manifest is kept."""
    _, batches = filled(files, 5)
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    stale = read_durable_file(files, PATH)
    assert stale is not None
    log = reopened(files)
    log.truncate_to(1)
    for base_offset in range(1, 4):
        files.open(segment(base_offset), create=True).write([batch(base_offset, epoch=7)], 0)
    write_durable_file(files, PATH, stale)
    recorded = json.loads(read_durable_file(files, f"{DIRECTORY}/checkpoint") or b"")
    del recorded["has_manifest"]
    write_durable_file(files, f"{DIRECTORY}/checkpoint", json.dumps(recorded).encode())
    log = reopened(files)
    assert contents(log) == [batches[0], *(batch(each, epoch=7) for each in range(1, 4))]
    assert [base for base, _ in listed(files)] == [0, 1, 2, 3]


def test_a_log_of_an_earlier_version_gets_one(files: CrashableFiles) -> None:
    filled(files, 5)
    files.remove(PATH)
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    write_checkpoint(
        files,
        DIRECTORY,
        type(checkpoint)(checkpoint.log_start_offset, checkpoint.high_watermark, checkpoint.durable_end_offset, True),
    )
    reopened(files)
    assert [base for base, _ in listed(files)] == [0, 2, 4]
    after = read_checkpoint(files, DIRECTORY)
    assert after is not None
    assert after.has_manifest


def test_states_of_a_later_version_are_refused_and_nothing_is_changed(files: CrashableFiles) -> None:
    filled(files, 5)
    later = b'{"segments":[{"base_offset":0,"state":"remote"},{"base_offset":4,"state":"active"}]}'
    write_durable_file(files, PATH, later)
    with pytest.raises(UnsupportedVersion, match="segments that are remote: a later version"):
        reopened(files)
    assert files.exists(segment(2))


def test_a_full_disk_takes_no_new_segment_and_the_log_goes_on(files: CrashableFiles) -> None:
    log, batches = filled(files, 2)
    files.fail("write", errno.ENOSPC, "manifest")
    with pytest.raises(OSError, match="space"):
        fill(log, 1)
    assert log.failed is None
    files._failures.clear()
    assert contents(log) == batches
