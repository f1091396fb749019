"""Every change that a log makes to its disk, stopped in the middle, with different luck: it comes back sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import append, contents, crashes_of, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.6")

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)
LUCK = 6  # seeds of what a crash loses


def crashes(prepare: Callable[[Log], object], change: Callable[[Log], object]) -> Iterator[tuple[MemoryDisk, int]]:
    """The disk after a crash in the middle of each step of `change`, and the number of the step."""

    def opened(files: MemoryDisk) -> Log:
        log = open_log(files, settings=SETTINGS)
        prepare(log)
        return log

    yield from crashes_of(LUCK, opened, lambda _, log: change(log))


def reopen(files: MemoryDisk, step: int) -> Log:
    log = open_log(files, settings=SETTINGS)
    assert not log.recovery.damaged, f"step {step}: {log.recovery.reason}"
    return log


def ten_batches(log: Log) -> None:
    """Five segments of two batches, all durable, the high watermark at the end."""
    fill(log, 10)
    log.set_high_watermark(10)
    log.write_checkpoint()


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    return fill(open_log(MemoryDisk()), 12)


def test_creating_a_log_leaves_one_that_can_be_created_again() -> None:
    for step in range(30):
        for seed in range(LUCK):
            files = MemoryDisk(Random(seed))
            files.survives(partial(open_log, files), step)
            log = reopen(files, step)
            assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_an_append_that_rolls_loses_nothing_that_was_flushed(expected: list[bytes]) -> None:
    def append_and_flush(log: Log) -> None:
        append(log, 2, epoch=0)
        log.flush()

    for files, step in crashes(ten_batches, append_and_flush):
        log = reopen(files, step)
        assert 10 <= log.log_end_offset <= 12
        assert contents(log) == expected[: log.log_end_offset]


def test_flushed_records_survive_as_soon_as_flush_returned(expected: list[bytes]) -> None:
    for runs in range(1, 8):
        files = MemoryDisk(Random(runs))
        fill(open_log(files, settings=SETTINGS), runs)
        files.lose_power()
        assert contents(reopen(files, 0)) == expected[:runs]


def test_recovered_records_survive_a_second_crash(expected: list[bytes]) -> None:
    for seed in range(30):
        files = MemoryDisk(Random(seed))
        append(open_log(files, settings=SETTINGS), 2)
        files.end_process()  # killed: the page cache still has it, the disk does not
        end = reopen(files, 0).durable_end_offset
        files.lose_power()
        assert end == 2
        assert contents(reopen(files, 0)) == expected[:end]


@pytest.mark.parametrize("end_offset", [1, 4, 5, 9])
def test_truncation_over_segments_leaves_the_old_end_or_a_later_one_than_asked(
    end_offset: int, expected: list[bytes]
) -> None:
    for files, step in crashes(ten_batches, lambda log: log.truncate_to(end_offset)):
        log = reopen(files, step)
        assert end_offset <= log.log_end_offset <= 10
        assert contents(log) == expected[: log.log_end_offset]


def test_records_behind_a_truncation_are_never_mixed_with_cut_ones(expected: list[bytes]) -> None:
    def truncate_and_append(log: Log) -> None:
        log.truncate_to(5)
        append(log, 2, epoch=1, payload=b"another")
        log.flush()

    for files, step in crashes(ten_batches, truncate_and_append):
        log = reopen(files, step)
        found = contents(log)
        old = found == expected[: len(found)]
        new = len(found) <= 7 and found[:5] == expected[:5] and log.epochs.epoch_for_offset(len(found) - 1) == 1
        assert len(found) >= 5
        assert old or new


@pytest.mark.parametrize("offset", [2, 5, 8, 10])
def test_moving_the_log_start_leaves_no_gap(offset: int, expected: list[bytes]) -> None:
    for files, step in crashes(ten_batches, lambda log: log.advance_log_start(offset)):
        log = reopen(files, step)
        assert log.log_start_offset in (0, offset)
        assert log.log_end_offset == 10
        assert contents(log)[-1:] == (expected[9:10] if log.log_start_offset < 10 else [])


def test_starting_anew_leaves_the_new_start_or_a_sound_rest(expected: list[bytes]) -> None:
    for files, step in crashes(ten_batches, lambda log: log.truncate_fully_and_start_at(50)):
        log = reopen(files, step)
        assert (log.log_start_offset, log.log_end_offset) in ((50, 50), (0, 10))


def test_an_epoch_is_in_the_file_before_its_first_batch_is_in_the_log() -> None:
    def begin_epoch(log: Log) -> None:
        log.assign_epoch(7, 10)
        append(log, 1, epoch=7)

    for files, step in crashes(ten_batches, begin_epoch):
        log = reopen(files, step)
        assert log.epochs.latest_epoch == (7 if log.log_end_offset == 11 else 0)


def test_a_snapshot_above_the_end_is_gone_before_others_take_its_offsets() -> None:
    def truncate_and_append(log: Log) -> None:
        log.truncate_to(5)
        log.replace_later_producer_snapshots(b"as of 5")
        append(log, 5, payload=b"others")
        log.flush()

    def prepare(log: Log) -> None:
        ten_batches(log)
        log.write_producer_snapshot(4, b"below")
        log.write_producer_snapshot(9, b"above")

    for files, step in crashes(prepare, truncate_and_append):
        log = reopen(files, step)
        offset, snapshot = log.load_producer_snapshot() or (0, b"")
        cut = contents(log)[5:6] != [] and b"others" in contents(log)[5]
        if cut:
            assert (offset, snapshot, log.later_producer_snapshots()) == (5, b"as of 5", [])
        elif log.log_end_offset >= 9:
            assert (offset, snapshot) == (9, b"above")
        else:  # what was above is not lost before it is replaced
            assert log.later_producer_snapshots() == ([b"above"] if offset == 4 else []) or offset == 5


def test_a_crash_in_the_middle_of_recovery_is_recovered_from(expected: list[bytes]) -> None:
    for step in range(12):
        for seed in range(LUCK):
            files = MemoryDisk(Random(seed))
            log = open_log(files, settings=SETTINGS)
            ten_batches(log)
            append(log, 1)
            files.lose_power()
            files.survives(partial(open_log, files, settings=SETTINGS), step)
            files.end_process()
            log = reopen(files, step)
            assert contents(log) == expected[: log.log_end_offset]
            assert log.log_end_offset >= 10
