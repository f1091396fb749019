"""Which segments a log has: what its manifest says, when that is swapped, and what recovery makes of it."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from minilog.errors import UnsupportedVersion
from minilog_broker.storage.checkpoint import read_checkpoint, write_checkpoint
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.index import SegmentEnd
from minilog_broker.storage.log import Log
from minilog_broker.storage.manifest import SegmentState, read_manifest
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, batch, contents, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.6")

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)  # two batches of 72 bytes
PATH = f"{DIRECTORY}/manifest"


def filled(files: MemoryDisk, runs: int) -> tuple[Log, list[bytes]]:
    log = open_log(files, settings=SETTINGS)
    batches = fill(log, runs)
    log.set_high_watermark(log.log_end_offset)
    log.write_checkpoint()
    return log, batches


def reopened(files: MemoryDisk, *, unclean: bool = True) -> Log:
    files.end_process()
    return open_log(files, settings=SETTINGS, unclean=unclean)


def listed(files: MemoryDisk) -> list[tuple[int, SegmentState]]:
    manifest = read_manifest(files, DIRECTORY)
    assert manifest is not None
    return [(each.name.base_offset, each.state) for each in manifest]


def forget_the_manifest(files: MemoryDisk) -> None:
    """As an earlier version leaves a log."""
    files.remove(PATH)
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    write_checkpoint(files, DIRECTORY, replace(checkpoint, has_manifest=False))


def segment(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.log"


def test_a_log_of_one_segment_has_no_manifest(files: MemoryDisk) -> None:
    filled(files, 2)
    assert read_manifest(files, DIRECTORY) is None
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    assert not checkpoint.has_manifest


def test_a_manifest_tells_the_end_of_each_sealed_segment(files: MemoryDisk) -> None:
    filled(files, 5)
    assert listed(files) == [(0, SegmentState.SEALED), (2, SegmentState.SEALED), (4, SegmentState.ACTIVE)]
    manifest = read_manifest(files, DIRECTORY)
    assert manifest is not None
    assert [each.end for each in manifest] == [SegmentEnd(2, 144, 1000), SegmentEnd(4, 144, 3000), None]
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    assert checkpoint.has_manifest


def test_retention_truncation_and_a_new_beginning_swap_it(files: MemoryDisk) -> None:
    log, _ = filled(files, 9)
    log.advance_log_start(4)
    assert [base for base, _ in listed(files)] == [4, 6, 8]
    log.truncate_to(7)
    assert listed(files) == [(4, SegmentState.SEALED), (6, SegmentState.ACTIVE)]
    log.truncate_fully_and_start_at(20)
    assert read_manifest(files, DIRECTORY) is None, "until there is a second segment"


def test_a_segment_that_the_manifest_passes_over_is_removed(files: MemoryDisk) -> None:
    """As after a swap that was cut short before the old files were gone."""
    _, batches = filled(files, 5)
    files.open(segment(1), create=True).write([batch(1)], 0)
    log = reopened(files)
    assert not log.recovery.damaged
    assert contents(log) == batches
    assert not files.exists(segment(1))


def test_a_segment_behind_the_last_named_counts(files: MemoryDisk) -> None:
    """A segment was made, and its name was not yet written: whatever is in it stays."""
    _, batches = filled(files, 4)
    files.open(segment(4), create=True).write([batch(4)], 0)
    log = reopened(files)
    assert contents(log) == [*batches, batch(4)]
    assert [base for base, _ in listed(files)] == [0, 2, 4]


def test_where_the_manifest_is_damaged_the_files_tell(files: MemoryDisk) -> None:
    _, batches = filled(files, 5)
    files.damage(PATH, 3, b"\xff")
    log = reopened(files)
    assert not log.recovery.damaged
    assert "checksum" in log.recovery.reason
    assert contents(log) == batches
    assert [base for base, _ in listed(files)] == [0, 2, 4]


def test_a_manifest_that_an_earlier_version_let_grow_old_does_not_count(files: MemoryDisk) -> None:
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


def test_a_log_of_an_earlier_version_gets_one(files: MemoryDisk) -> None:
    filled(files, 5)
    forget_the_manifest(files)
    reopened(files).write_checkpoint()
    assert [base for base, _ in listed(files)] == [0, 2, 4]
    after = read_checkpoint(files, DIRECTORY)
    assert after is not None
    assert after.has_manifest


def test_a_log_of_an_earlier_version_opens_on_a_full_disk(files: MemoryDisk) -> None:
    """There is no space for the word that the manifest is kept: the files tell until there is."""
    _, batches = filled(files, 5)
    forget_the_manifest(files)
    files.end_process()
    files.fail("write", errno.ENOSPC, "checkpoint")
    assert contents(open_log(files, settings=SETTINGS)) == batches


@pytest.mark.parametrize(
    "segments",
    [
        "",
        '{"base_offset":4,"state":"sealed","end":{"end_offset":5,"size_bytes":72}}',
        '{"base_offset":4,"state":"active"},{"base_offset":6,"state":"active"}',
        '{"base_offset":0,"state":"sealed"},{"base_offset":4,"state":"active"}',
        '{"base_offset":4,"state":"sealed","end":{"end_offset":5,"size_bytes":72}},{"base_offset":0,"state":"active"}',
    ],
)
def test_texts_that_no_broker_writes_are_no_manifest(files: MemoryDisk, segments: str) -> None:
    _, batches = filled(files, 5)
    write_durable_file(files, PATH, b'{"segments":[%s]}' % segments.encode())
    log = reopened(files)
    assert "is not a manifest" in log.recovery.reason
    assert contents(log) == batches


def test_states_of_a_later_version_are_refused_and_nothing_is_changed(files: MemoryDisk) -> None:
    filled(files, 5)
    later = b'{"segments":[{"base_offset":0,"state":"remote"},{"base_offset":4,"state":"active"}]}'
    write_durable_file(files, PATH, later)
    with pytest.raises(UnsupportedVersion, match="segments with the states remote: a later version"):
        reopened(files)
    assert files.exists(segment(2))


@pytest.mark.parametrize("kind", ["append", "retention"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_roll_that_meets_a_full_disk_leaves_nothing_behind(files: MemoryDisk, kind: str, clean: bool) -> None:
    """What is appended later lies where the new segment would have begun."""
    log, batches = filled(files, 1)
    files.fail("write", errno.ENOSPC, "manifest")
    log.settings = replace(SETTINGS, retention_ms=0)
    with pytest.raises(OSError, match="space"):
        _ = fill(log, 1, payload=bytes(120)) if kind == "append" else log.apply_retention(1 << 50)
    assert log.failed is None
    files.calm()
    log.settings = SETTINGS
    batches += fill(log, 1)
    if clean:
        log.close(clean=True)
    log = reopened(files, unclean=not clean)
    assert not log.recovery.damaged, log.recovery.reason
    assert contents(log) == batches


def test_an_empty_segment_that_nobody_named_is_removed(files: MemoryDisk) -> None:
    """Power was lost after a roll met a full disk, and the removal of its file was not durable."""
    _, batches = filled(files, 5)
    files.open(segment(4 + 1), create=True)
    batches += fill(reopened(files), 1)
    files.open(segment(4 + 1), create=True)
    log = reopened(files)
    assert not log.recovery.damaged, log.recovery.reason
    assert contents(log) == batches


@pytest.mark.parametrize("offset", range(9))
def test_a_log_that_begins_anew_is_never_damaged_by_a_crash(offset: int) -> None:
    step = 0
    while True:
        files = MemoryDisk(Random(step))
        log, _ = filled(files, 9)
        if files.survives(partial(log.truncate_fully_and_start_at, offset), step):
            return
        log = open_log(files, settings=SETTINGS)
        assert not log.recovery.damaged, f"step {step}: {log.recovery.reason}"
        step += 1


def test_a_list_that_could_not_be_written_after_damage_does_not_count(files: MemoryDisk) -> None:
    log, _ = filled(files, 9)
    log.advance_log_start(5)
    files.damage(segment(4), 0, bytes(144))
    without_index_of(files, 4)
    files.end_process()
    files.fail("write", errno.ENOSPC, "manifest")
    log = open_log(files, settings=SETTINGS)
    assert log.recovery.damaged
    files.calm()
    batches = fill(log, 1)
    log = reopened(files)
    assert contents(log) == batches, "its segment lies below the last that the old list names"


def without_index_of(files: MemoryDisk, base_offset: int) -> None:
    for suffix in ("index", "timeindex"):
        files.remove(f"{DIRECTORY}/{base_offset:020d}.{suffix}")
