"""flush.policy changes under a log that has records: what the disk has, and what is recorded of it, at each moment."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from minilog_broker.storage.checkpoint import read_checkpoint
from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Finding
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, SETTINGS, append, contents, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("ISR.12")

FSYNC, OS = SETTINGS, replace(SETTINGS, flush_on_append=False)


def recorded_fsync(files: MemoryDisk) -> bool:
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    return checkpoint.flush_on_append


def reopened(files: MemoryDisk, settings: LogSettings = FSYNC) -> Log:
    files.lose_power()
    return open_log(files, create=False, settings=settings)


def test_to_fsync_what_was_there_is_synced_first(files: MemoryDisk) -> None:
    log = open_log(files, settings=OS)
    batches = append(log, 3)
    log.configure(FSYNC)
    assert recorded_fsync(files)
    log = reopened(files)
    assert contents(log) == batches
    assert log.recovery.finding is Finding.WHOLE


def test_to_fsync_no_moment_has_the_policy_recorded_and_the_records_unsynced(files: MemoryDisk) -> None:
    log = open_log(files, settings=OS)
    append(log, 3)
    files.fail("fdatasync", errno.EIO, ".log")
    with pytest.raises(OSError):
        log.configure(FSYNC)
    assert not recorded_fsync(files)
    with pytest.raises(OSError, match="takes no more writes"):
        append(log)
    assert reopened(files).recovery.finding is Finding.DOUBTFUL


def test_under_fsync_what_comes_later_is_durable_when_it_is_synced(files: MemoryDisk) -> None:
    log = open_log(files, settings=OS)
    append(log)
    log.configure(FSYNC)
    append(log)
    assert log.durable_end_offset == 1
    log.flush()
    assert log.durable_end_offset == 2


def test_to_os_it_is_recorded_before_anything_counts_unsynced(files: MemoryDisk) -> None:
    log = open_log(files, settings=FSYNC)
    append(log)
    log.configure(OS)
    assert not recorded_fsync(files)
    assert log.durable_end_offset == 1
    append(log)
    assert log.durable_end_offset == 2
    assert reopened(files).recovery.finding is Finding.DOUBTFUL


def test_under_os_what_took_the_place_of_cut_records_is_not_recorded_as_synced(files: MemoryDisk) -> None:
    log = open_log(files, settings=OS)
    append(log, 3)
    log.sync()
    log.truncate_to(1)
    append(log)
    log.write_checkpoint()
    checkpoint = read_checkpoint(files, DIRECTORY)
    assert checkpoint is not None
    assert checkpoint.durable_end_offset == 1
    assert reopened(files, OS).recovery.finding is Finding.DOUBTFUL, "no promise is broken: DAMAGED would be wrong"


def test_to_os_where_it_cannot_be_recorded_the_log_takes_nothing_more(files: MemoryDisk) -> None:
    log = open_log(files, settings=FSYNC)
    files.fail("write", errno.ENOSPC, "checkpoint")
    with pytest.raises(OSError):
        log.configure(OS)
    with pytest.raises(OSError, match="takes no more writes"):
        append(log)


def test_opened_under_another_policy_it_is_recorded_at_once(files: MemoryDisk) -> None:
    open_log(files, settings=FSYNC).close(clean=True)
    open_log(files, create=False, settings=OS)
    assert not recorded_fsync(files)


def test_other_settings_cost_no_write(files: MemoryDisk) -> None:
    log = open_log(files)
    append(log)
    before = files.changes
    log.configure(replace(FSYNC, segment_bytes=2000))
    assert files.changes == before
    assert log.durable_end_offset == 0
