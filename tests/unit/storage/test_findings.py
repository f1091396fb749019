"""What a copy is worth after an unclean start: torn tails, doubt, and how long they are remembered (recovery.py)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Finding
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, SETTINGS, append, batch, contents, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.5")

FIRST = f"{DIRECTORY}/{0:020d}.log"
OS = replace(SETTINGS, flush_on_append=False)
BATCH_BYTES = 72


def reopened(
    files: MemoryDisk, *, settings: LogSettings = SETTINGS, boot_id: str = "boot-2", unclean: bool = True
) -> Log:
    files.end_process()
    return open_log(files, settings=settings, boot_id=boot_id, unclean=unclean)


def recorded(files: MemoryDisk, runs: int, *, settings: LogSettings = SETTINGS) -> Log:
    """A log whose checkpoint says that all of `runs` is durable."""
    log = open_log(files, boot_id="boot-1", settings=settings)
    fill(log, runs)
    log.sync()
    log.write_checkpoint()
    return log


class TestTornTails:
    """The end was cut above all that is recorded: never synced, or rotten; this log alone cannot tell."""

    def test_a_valid_batch_behind_a_hole_above_the_recorded_end_is_a_torn_tail(self, files: MemoryDisk) -> None:
        before = contents(recorded(files, 3))
        files.damage(FIRST, 3 * BATCH_BYTES, bytes(BATCH_BYTES) + batch(4))
        log = reopened(files)
        assert (log.recovery.finding, log.log_end_offset, log.recovery.cut_bytes) == (Finding.TORN, 3, 2 * BATCH_BYTES)
        assert contents(log) == before

    def test_a_hole_below_the_recorded_end_is_damage(self, files: MemoryDisk) -> None:
        recorded(files, 3)
        files.damage(FIRST, 2 * BATCH_BYTES, bytes(BATCH_BYTES) + batch(3))
        assert reopened(files).recovery.finding is Finding.DAMAGED

    @pytest.mark.parametrize("cut", [lambda log: log.truncate_to(1), lambda log: log.truncate_fully_and_start_at(9)])
    def test_damage_is_told_again_where_a_full_disk_let_nothing_be_cut(
        self, files: MemoryDisk, cut: Callable[[Log], object]
    ) -> None:
        recorded(files, 3)
        files.damage(FIRST, 2 * BATCH_BYTES, bytes(BATCH_BYTES) + batch(3))
        log = reopened(files)
        files.fail("write", errno.ENOSPC, "checkpoint")
        with pytest.raises(OSError, match="No space"):
            cut(log)
        assert reopened(files).recovery.finding is Finding.DAMAGED

    @pytest.mark.parametrize("hole", [0, 5, 20, 71])
    @pytest.mark.parametrize("behind", [0, 2])
    def test_a_hole_below_the_log_start_is_damage_where_it_hides_what_is_above(
        self, files: MemoryDisk, behind: int, hole: int
    ) -> None:
        """Found by the simulator: a voter whose metadata log rotted below its start came back without its newest
        entries, and led."""
        log = recorded(files, 3)
        log.high_watermark = log.last_stable_offset = 3
        log.advance_log_start(3)
        fill(log, behind)
        log.sync()
        files.damage(FIRST, BATCH_BYTES + hole, b"\xff")
        log = reopened(files)
        assert log.recovery.finding is (Finding.DAMAGED if behind else Finding.TORN)
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)

    def test_a_log_that_ends_with_a_whole_batch_is_whole_however_old_the_record_is(self, files: MemoryDisk) -> None:
        fill(recorded(files, 1), 5)
        log = reopened(files)
        assert (log.recovery.finding, log.log_end_offset) == (Finding.WHOLE, 6)

    def test_a_torn_tail_is_reported_again_until_the_copy_is_in_an_isr(self, files: MemoryDisk) -> None:
        recorded(files, 3)
        files.damage(FIRST, 3 * BATCH_BYTES, batch(3)[:50])
        reopened(files)
        files.lose_power()
        log = open_log(files, boot_id="boot-3")
        assert log.recovery.finding is Finding.TORN
        fill(log, 2)  # it has begun to fetch: what it lacks may be further behind
        log = reopened(files)
        assert log.recovery.finding is Finding.TORN
        log.forget_torn_tail()
        assert not log.has_torn_tail
        assert reopened(files).recovery.finding is Finding.WHOLE

    def test_the_mark_is_there_before_anything_is_cut(self, files: MemoryDisk) -> None:
        recorded(files, 3)
        files.damage(FIRST, 3 * BATCH_BYTES, batch(3)[:50])
        files.end_process()
        files.fail("truncate", 5, FIRST)
        with pytest.raises(OSError, match="Input/output"):
            open_log(files, boot_id="boot-2")
        files.lose_power()
        files.cut(FIRST, 3 * BATCH_BYTES)
        assert open_log(files, boot_id="boot-2").recovery.finding is Finding.TORN


class TestDoubt:
    """What was counted and not synced may be missing, and nothing shows it."""

    @pytest.mark.parametrize(
        ("boot_id", "finding"),
        [("boot-1", Finding.WHOLE), ("boot-2", Finding.DOUBTFUL), ("", Finding.DOUBTFUL)],
    )
    def test_under_os_only_the_boot_in_which_it_was_written_has_all(
        self, files: MemoryDisk, boot_id: str, finding: Finding
    ) -> None:
        append(recorded(files, 3, settings=OS))
        assert reopened(files, settings=OS, boot_id=boot_id).recovery.finding is finding

    def test_the_policy_it_was_written_under_counts_and_not_todays(self, files: MemoryDisk) -> None:
        append(recorded(files, 3, settings=OS))
        assert reopened(files, settings=SETTINGS).recovery.finding is Finding.DOUBTFUL

    def test_records_written_under_fsync_are_whole_whatever_is_set_today(self, files: MemoryDisk) -> None:
        fill(recorded(files, 3), 1)
        assert reopened(files, settings=OS).recovery.finding is Finding.WHOLE

    @proves("DK.11")
    def test_a_policy_that_becomes_weaker_is_recorded_before_anything_counts_under_it(self, files: MemoryDisk) -> None:
        log = recorded(files, 3)
        log.settings = OS
        append(log)
        assert log.durable_end_offset == 4
        assert reopened(files).recovery.finding is Finding.DOUBTFUL

    @proves("DK.11")
    def test_a_policy_that_becomes_stronger_is_recorded_when_all_is_synced(self, files: MemoryDisk) -> None:
        log = recorded(files, 3, settings=OS)
        append(log)
        log.settings = SETTINGS
        log.write_checkpoint()
        files.end_process()
        assert open_log(files, boot_id="boot-2").recovery.finding is Finding.DOUBTFUL

    def test_a_policy_that_became_stronger_counts_from_the_first_sync_on(self, files: MemoryDisk) -> None:
        log = recorded(files, 3, settings=OS)
        append(log)
        log.settings = SETTINGS
        fill(log, 1)
        log.write_checkpoint()
        assert reopened(files).recovery.finding is Finding.WHOLE

    def test_records_that_wait_for_a_sync_get_it_under_a_weaker_policy_too(self, files: MemoryDisk) -> None:
        log = recorded(files, 3)
        append(log)
        log.settings = OS
        log.flush()
        assert log.durable_end_offset == 4

    def test_another_boot_is_recorded_before_anything_counts_in_it(self, files: MemoryDisk) -> None:
        recorded(files, 3, settings=OS).close(clean=True)
        append(reopened(files, settings=OS, boot_id="boot-2", unclean=False))
        assert reopened(files, settings=OS, boot_id="boot-2").recovery.finding is Finding.WHOLE
        append(open_log(files, settings=OS, boot_id="boot-2"))
        assert reopened(files, settings=OS, boot_id="boot-1").recovery.finding is Finding.DOUBTFUL

    def test_doubt_is_reported_again_until_the_next_life_writes_in_the_same_boot_too(self, files: MemoryDisk) -> None:
        append(recorded(files, 3, settings=OS))
        reopened(files, settings=OS).close(clean=True)  # before it could tell anybody
        log = reopened(files, settings=OS)
        assert log.recovery.finding is Finding.DOUBTFUL
        append(log)
        assert reopened(files, settings=OS).recovery.finding is Finding.WHOLE

    def test_records_without_a_checkpoint_are_doubtful_and_an_empty_log_is_not(self, files: MemoryDisk) -> None:
        open_log(files)
        files.lose(f"{DIRECTORY}/checkpoint")
        log = reopened(files)
        assert log.recovery.finding is Finding.WHOLE
        fill(log, 2)
        files.lose(f"{DIRECTORY}/checkpoint")
        assert reopened(files).recovery.finding is Finding.DOUBTFUL

    def test_a_clean_stop_has_synced_all(self, files: MemoryDisk) -> None:
        log = recorded(files, 3, settings=OS)
        append(log)
        log.close(clean=True)
        assert reopened(files, settings=OS, unclean=False).recovery.finding is Finding.WHOLE
