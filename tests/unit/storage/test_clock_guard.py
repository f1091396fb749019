"""The clock guard: what suspends deletion by age, and what lets it go on; and a log whose clock is not trusted."""

from __future__ import annotations

import pytest

from minilog_broker.storage.clock_guard import MAX_JUMP_S, ClockGuard, ClockNews
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.13")


def guard() -> ClockGuard:
    return ClockGuard(wall_s=1_000_000.0, monotonic_s=50.0)


def test_clocks_that_run_together_are_trusted_however_long() -> None:
    clocks = guard()
    for hours in (1, 24, 9_000):
        news = clocks.look(wall_s=1_000_000.0 + hours * 3600, monotonic_s=50.0 + hours * 3600)
        assert news is ClockNews.NOTHING
        assert clocks.trusted


@pytest.mark.parametrize("jump_s", [MAX_JUMP_S + 1, -MAX_JUMP_S - 1, 1e9, -1e6])
def test_a_jump_suspends_and_is_told_once(jump_s: float) -> None:
    clocks = guard()
    assert clocks.look(wall_s=1_000_060.0 + jump_s, monotonic_s=110.0) is ClockNews.JUMPED
    assert clocks.look(wall_s=1_000_120.0 + jump_s, monotonic_s=170.0) is ClockNews.NOTHING
    assert not clocks.trusted
    assert clocks.jump_s == pytest.approx(jump_s)


def test_up_to_an_hour_is_no_jump() -> None:
    clocks = guard()
    assert clocks.look(wall_s=1_000_060.0 + MAX_JUMP_S, monotonic_s=110.0) is ClockNews.NOTHING
    assert clocks.trusted


def test_small_steps_add_up() -> None:
    """Each below an hour: together they are a jump all the same."""
    clocks = guard()
    assert clocks.look(wall_s=1_000_000.0 + 3_000, monotonic_s=50.0) is ClockNews.NOTHING
    assert clocks.look(wall_s=1_000_000.0 + 6_000, monotonic_s=50.0) is ClockNews.JUMPED


def test_a_jump_that_is_undone_lets_deletion_go_on() -> None:
    clocks = guard()
    clocks.look(wall_s=9_000_000.0, monotonic_s=110.0)
    assert clocks.look(wall_s=1_000_100.0, monotonic_s=160.0) is ClockNews.RESUMED
    assert clocks.trusted
    assert clocks.look(wall_s=1_000_160.0, monotonic_s=210.0) is ClockNews.NOTHING


def test_without_a_clock_nothing_is_deleted_by_age_and_all_that_is_too_much() -> None:
    files = MemoryDisk()
    settings = LogSettings(segment_bytes=300, retention_ms=1, retention_bytes=1_000)
    log = open_log(files, settings=settings)
    fill(log, 30, payload=bytes(50))
    log.set_high_watermark(log.log_end_offset)
    log.apply_retention(None)
    assert 0 < log.log_start_offset < log.log_end_offset
    assert 1_000 <= log.size_bytes < 1_400
    before = log.log_start_offset
    assert log.apply_retention(None) == 0
    assert log.log_start_offset == before
    log.apply_retention(10**12)
    assert log.log_start_offset == log.log_end_offset, "with one, all of it is too old"
