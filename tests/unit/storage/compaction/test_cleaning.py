"""Whole cleanings of a log on a disk: what is read afterwards, what a crash leaves, which producers are known."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.header import decode_header
from minilog_broker.storage.cleaning import Cleaning
from minilog_broker.storage.compaction.due import CompactionSettings, dirty_bytes, next_clean_to
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.record_batch.batches import NOW_US
from tests.unit.storage.compaction.keyed_logs import KEY, LARGE_BUFFER_BYTES, UNTYPED, KeyedLog, read
from tests.unit.storage.logs import DIRECTORY, batch, contents, crashes_of, run_of
from tests.world.disk import MemoryDisk

pytestmark = proves("K1", "K2", "K3", "K4", "K5", "K6")

SETTINGS = LogSettings(segment_bytes=2_000, index_interval_bytes=500)
LUCK = 2  # seeds of what a crash loses
FEW = 10  # batches, where each step of a cleaning crashes
KEYS = [b"a", b"b", b"c", b"d"]


def written(chance: Random, batches: int = 24) -> KeyedLog:
    """A log with producers, deletions, records without a key, and transactions of both ends."""
    log = KeyedLog()
    for number in range(batches):
        entries = [
            (chance.choice([*KEYS, None]), chance.choice([b"value", b"other", None]))
            for _ in range(chance.randint(1, 4))
        ]
        kind = chance.randrange(4)
        if kind == 0:
            log.write(entries, producer_id=100 + number, transactional=True)
            log.mark(100 + number, committed=chance.random() < 0.5)
        else:
            log.write(entries, producer_id=7 + kind)
    return log


def open_log(files: MemoryDisk, *, create: bool = False) -> Log:
    if create:
        files.make_dir("/data")
        files.fsync_dir("/")
    return Log.open(files, DIRECTORY, KEY, "accounts", SETTINGS, unclean=True, create=create)


def state_of(log: Log) -> ProducerState:
    state = recover_producer_state(log)
    log.set_high_watermark(log.log_end_offset, state.transactions.last_stable_offset(log.log_end_offset))
    return state


def stored(files: MemoryDisk, log: KeyedLog) -> Log:
    """The log on a disk, all durable and committed."""
    on_disk = open_log(files, create=True)
    refill(on_disk, log)
    return on_disk


def refill(on_disk: Log, log: KeyedLog) -> None:
    for one in log.batches:
        on_disk.append(run_of([one]))
    on_disk.sync()
    on_disk.set_high_watermark(on_disk.log_end_offset)
    on_disk.write_checkpoint()


def carry_out(files: MemoryDisk, log: Log, state: ProducerState, *, buffer_bytes: int = LARGE_BUFFER_BYTES) -> int:
    """Carry out the point that the log has begun. Returns the number of replacements."""
    aborted = frozenset(state.transactions.aborted_within(0, log.compaction.begun.clean_to))
    point = log.compaction.begun
    cleaning = Cleaning(log, point, files, UNTYPED, aborted, buffer_bytes, lambda size_bytes: None)
    count = 0
    for replacement in filter(None, cleaning.steps()):
        log.replace_segments(replacement.former, replacement.compacted)
        count += 1
    log.finish_compaction(point, cleaning.begins)
    return count


def compact(files: MemoryDisk, log: Log, point: CompactionPoint) -> None:
    state = state_of(log)
    log.begin_compaction(point, log.log_end_offset, state.snapshot())
    carry_out(files, log, state)


def ends(log: Log) -> list[int]:
    """The ends of the sealed segments."""
    return [segment.end.end_offset for segment in log.sealed_segments]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("buffer_bytes", [LARGE_BUFFER_BYTES, 40])
def test_a_log_that_is_cleaned_twice_has_the_records_that_the_rule_keeps(seed: int, buffer_bytes: int) -> None:
    files, expected = MemoryDisk(Random(seed)), written(Random(seed))
    log = stored(files, expected)
    middle = ends(log)[len(ends(log)) // 2]
    for point in (CompactionPoint(middle, 0), CompactionPoint(ends(log)[-1], middle)):
        state = state_of(log)
        log.begin_compaction(point, log.log_end_offset, state.snapshot())
        carry_out(files, log, state, buffer_bytes=buffer_bytes)
        assert not log.compaction.is_due
        records = [record.content for record in expected.survivors(point.clean_to, point.deletes_before)]
        assert read(contents(log)) == records
        assert read(contents(open_log(files))) == records, "and in the next life"


def test_a_point_within_the_active_segment_seals_it_first() -> None:
    files, expected = MemoryDisk(Random(1)), written(Random(1))
    log = stored(files, expected)
    compact(files, log, CompactionPoint(log.log_end_offset, 0))
    assert log.sealed_end_offset == log.log_end_offset
    assert read(contents(log)) == [record.content for record in expected.survivors(log.log_end_offset, 0)]


def test_a_cut_that_opens_a_sealed_segment_ends_no_cleaning_before_it_is_sealed_again() -> None:
    """Found by the simulator (seed 48100265): the cleaning passed over the open segment, and was done."""
    files, expected = MemoryDisk(Random(1)), written(Random(1))
    log, end = stored(files, expected), expected.end
    log.begin_compaction(CompactionPoint(end, 0), end, state_of(log).snapshot())
    log.append(run_of([batch(end, epoch=decode_header(expected.batches[-1]).partition_leader_epoch)]))
    log.truncate_to(end)
    assert log.sealed_end_offset < end
    with pytest.raises(OffsetOutOfRange, match="not all below"):
        carry_out(files, log, state_of(log))
    log.seal_below(end)
    carry_out(files, log, state_of(log))
    assert not log.compaction.is_due
    assert read(contents(log)) == [record.content for record in expected.survivors(end, 0)]


def test_a_second_cleaning_of_the_same_point_writes_nothing() -> None:
    files = MemoryDisk(Random(1))
    log = stored(files, written(Random(1)))
    compact(files, log, CompactionPoint(ends(log)[-1], 0))
    before = contents(log)
    log.begin_compaction(CompactionPoint(log.compaction.done.clean_to, 1), log.log_end_offset, state_of(log).snapshot())
    assert log.compaction.is_due
    while carry_out(files, log, state_of(log)):
        """Small segments have joined: once more."""
    assert read(contents(log)) == read(before)


def crashes(seed: int, point: CompactionPoint) -> Iterator[tuple[MemoryDisk, int]]:
    """The disk after a crash in the middle of each step of a compaction."""

    def compact(files: MemoryDisk, log: Log) -> None:
        state = state_of(log)
        log.begin_compaction(point, log.log_end_offset, state.snapshot())
        carry_out(files, log, state)

    yield from crashes_of(LUCK, lambda files: stored(files, written(Random(seed), FEW)), compact)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_at_any_step_shows_no_older_record_and_loses_no_newest_one(seed: int) -> None:
    expected = written(Random(seed), FEW)
    bounds = ends(stored(MemoryDisk(Random(0)), expected))
    point = CompactionPoint(bounds[-1], bounds[-2])
    whole = {record.offset for record in expected.records}
    stay = {record.offset for record in expected.survivors(point.clean_to, point.deletes_before)}
    newest_at = {record.key: record.offset for record in expected.records if not expected.is_aborted(record)}
    for files, step in crashes(seed, point):
        log = open_log(files)
        assert not log.recovery.damaged, f"step {step}: {log.recovery.reason}"
        state = state_of(log)
        aborted = set(state.transactions.aborted_within(0, log.log_end_offset))
        offsets = {
            row["offset"]
            for batch in contents(log)
            if not decode_header(batch).is_control and not decode_header(batch).is_aborted(aborted)
            for row in read([batch])
        }
        assert stay <= offsets <= whole, f"step {step}"
        for record in expected.records:
            if record.key is not None and record.offset in offsets and record.offset < newest_at[record.key]:
                later = {
                    other.offset
                    for other in expected.records
                    if other.key == record.key and other.offset > record.offset
                }
                assert later & offsets, f"step {step}: an older record of {record.key!r} became the newest"
        if log.compaction.is_due:
            carry_out(files, log, state)
            assert {row["offset"] for row in read(contents(log))} == stay, f"step {step}: the next life ends it"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_producer_whose_records_went_is_known_after_a_crash_at_any_step(seed: int) -> None:
    log = stored(MemoryDisk(Random(0)), written(Random(seed), FEW))
    before = state_of(log)
    point = CompactionPoint(ends(log)[-1], ends(log)[-1])
    for files, step in crashes(seed, point):
        after = state_of(open_log(files))
        for producer_id in (8, 9, 10):
            assert after.entry(producer_id) == before.entry(producer_id), f"step {step}"


def test_the_next_point_needs_its_share_of_dirty_bytes() -> None:
    files = MemoryDisk(Random(1))
    log = stored(files, written(Random(1)))
    settings = CompactionSettings(min_dirty_ratio=0.5, min_lag_us=0, max_lag_us=None)
    assert next_clean_to(log, settings, None) == ends(log)[-1], "all of it is dirty"
    compact(files, log, CompactionPoint(ends(log)[-1], 0))
    assert next_clean_to(log, settings, None) is None
    log.set_high_watermark(log.log_end_offset, 0)
    assert (dirty_bytes(log).dirty_bytes, dirty_bytes(log).clean_bytes) == (0, 0), (
        "nothing above the last stable offset"
    )


def test_lags_hold_a_cleaning_back_and_ask_for_one() -> None:
    log = stored(MemoryDisk(Random(1)), written(Random(1)))
    young = CompactionSettings(min_dirty_ratio=0.0, min_lag_us=1_000, max_lag_us=None)
    assert next_clean_to(log, young, NOW_US) is None
    assert next_clean_to(log, young, None) is None, "no trusted clock: no record is old enough"
    assert next_clean_to(log, young, NOW_US + 10_000) == ends(log)[-1]
    overdue = CompactionSettings(min_dirty_ratio=1.1, min_lag_us=0, max_lag_us=1_000)
    assert next_clean_to(log, overdue, NOW_US) is None
    assert next_clean_to(log, overdue, None) is None
    assert next_clean_to(log, overdue, NOW_US + 10_000) == ends(log)[-1]


def test_a_point_above_the_last_stable_offset_is_not_begun() -> None:
    """The core lowers it when a cut begins, and the disk may still have the command in its queue."""
    log = stored(MemoryDisk(Random(1)), written(Random(1)))
    log.set_high_watermark(log.log_end_offset, 3)
    log.begin_compaction(CompactionPoint(4, 0), log.log_end_offset, b"")
    assert log.compaction.begun == CompactionPoint()


def test_a_log_that_begins_anew_has_begun_no_compaction() -> None:
    files = MemoryDisk(Random(1))
    log = stored(files, written(Random(1)))
    compact(files, log, CompactionPoint(ends(log)[-1], 0))
    begun, begins = log.compaction.begun, log.begins
    log.truncate_fully_and_start_at(0)
    assert log.compaction.begun == CompactionPoint()
    refill(log, written(Random(1)))
    log.begin_compaction(begun, log.log_end_offset, state_of(log).snapshot())
    log.finish_compaction(begun, begins)
    assert open_log(files).compaction.done == CompactionPoint(), "the late end of a cleaning from before does not count"


def test_a_cleaning_ends_though_the_next_point_has_begun_meanwhile() -> None:
    files, expected = MemoryDisk(Random(1)), written(Random(1))
    log = stored(files, expected)
    state, bounds = state_of(log), ends(log)
    first, second = CompactionPoint(bounds[0], 0), CompactionPoint(bounds[-1], 0)
    log.begin_compaction(first, log.log_end_offset, state.snapshot())
    aborted = frozenset(state.transactions.aborted_within(0, first.clean_to))
    cleaning = Cleaning(log, first, files, UNTYPED, aborted, LARGE_BUFFER_BYTES, lambda size_bytes: None)
    log.begin_compaction(second, log.log_end_offset, state.snapshot())
    for replacement in filter(None, cleaning.steps()):
        log.replace_segments(replacement.former, replacement.compacted)
    log.finish_compaction(first, cleaning.begins)
    assert (log.compaction.begun, log.compaction.done) == (second, first)
    carry_out(files, log, state)
    assert read(contents(log)) == [record.content for record in expected.survivors(second.clean_to, 0)]


def test_a_disk_that_is_full_in_the_middle_leaves_the_log_as_it_was() -> None:
    files, expected = MemoryDisk(Random(1)), written(Random(1))
    log = stored(files, expected)
    state, before = state_of(log), contents(log)
    log.begin_compaction(CompactionPoint(ends(log)[-1], 0), log.log_end_offset, state.snapshot())
    files.fail("write", errno.ENOSPC, ".log.tmp")
    with pytest.raises(OSError, match="No space left"):
        carry_out(files, log, state)
    assert contents(log) == before
    assert not [name for name in files.list(DIRECTORY) if name.endswith(".tmp")]
    carry_out(files, log, state)
    point = log.compaction.done
    assert read(contents(log)) == [record.content for record in expected.survivors(point.clean_to, 0)]


def test_a_cleaning_rests_behind_each_piece_of_the_table_and_each_group_of_segments() -> None:
    """So a large copy holds up no other one for longer than its turn."""
    files, expected = MemoryDisk(Random(1)), written(Random(1))
    log = stored(files, expected)
    point = CompactionPoint(ends(log)[-1], 0)
    log.begin_compaction(point, log.log_end_offset, state_of(log).snapshot())
    pieces = list[int]()
    cleaning = Cleaning(log, point, files, UNTYPED, frozenset(), LARGE_BUFFER_BYTES, pieces.append)
    steps = cleaning.steps()
    assert next(steps) is None
    assert len(pieces) == 1
    assert cleaning.is_of(log)
    log.truncate_fully_and_start_at(log.log_end_offset + 1)
    assert not cleaning.is_of(log)
