"""The log as its users see it: what append, flush, read, truncation and retention promise, and what errors leave."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.header import decode_header
from minilog_broker.replication.replica_effects import PlacedBatches
from minilog_broker.storage.errors import DamagedCopy
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.retention import FUTURE_US, HeldSegment
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.logs import DIRECTORY, append, batch, contents, fill, open_log, run_of
from tests.world.disk import DiskFile, MemoryDisk


@pytest.fixture
def log(files: MemoryDisk) -> Log:
    return open_log(files)


def log_files(files: MemoryDisk) -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(".log")]


class TestAppendAndFlush:
    def test_appended_is_readable_and_flushed_is_durable(self, log: Log) -> None:
        (one,) = append(log)
        assert (log.log_end_offset, log.durable_end_offset) == (1, 0)
        assert log.read(0, 1000) == one
        log.flush()
        assert log.durable_end_offset == 1

    def test_under_flush_policy_os_the_durable_end_is_the_end(self, files: MemoryDisk) -> None:
        log = open_log(files, settings=LogSettings(flush_on_append=False))
        append(log, 3)
        assert log.durable_end_offset == 3

    def test_a_run_is_one_write_and_a_flush_one_sync(self, log: Log, files: MemoryDisk) -> None:
        append(log)
        before = files.changes
        append(log, 5)
        log.flush()
        log.flush()
        assert files.changes - before == 2

    def test_a_run_may_be_in_pieces_that_are_not_batches(self, log: Log) -> None:
        batches = [batch(0, payload=b"first"), batch(1)]
        whole = b"".join(batches)
        headers = tuple(decode_header(one) for one in batches)
        log.append(PlacedBatches(headers, (whole[:24], memoryview(whole)[24:100], whole[100:])))
        assert contents(log) == batches

    def test_a_run_that_does_not_fit_on_is_refused(self, log: Log) -> None:
        append(log, 2)
        for run in (run_of([batch(1)]), run_of([batch(3)])):
            with pytest.raises(ValueError, match="does not begin at the log's end"):
                log.append(run)
        with pytest.raises(ValueError, match="its buffers have others"):
            log.append(PlacedBatches((decode_header(batch(2)),), (batch(2)[:-1],)))
        assert log.log_end_offset == 2

    def test_segments_are_rolled_by_size_and_by_time(self, files: MemoryDisk) -> None:
        log = open_log(files, settings=LogSettings(segment_bytes=300, segment_ms=1000))
        fill(log, 9)
        assert log_files(files) == [f"{base:020d}.log" for base in (0, 4, 8)]
        log.append(run_of([batch(9, timestamp_us=8000 + 1_000_001)]))
        assert log_files(files)[-1] == f"{9:020d}.log"

    def test_epochs_that_begin_in_a_run_are_recorded(self, log: Log) -> None:
        log.append(run_of([batch(0, epoch=1), batch(1, epoch=1), batch(2, epoch=4)]))
        assert log.epochs.entries == ((1, 0), (4, 2))
        assert [log.epoch_before(offset) for offset in (0, 1, 3, 4)] == [None, 1, 4, None]

    def test_the_high_watermark_is_never_above_what_is_durable(self, log: Log) -> None:
        append(log, 3)
        log.set_high_watermark(3)
        assert log.high_watermark == 0
        log.flush()
        log.set_high_watermark(2)
        assert log.high_watermark == 2


class TestErrors:
    def test_a_full_disk_takes_the_write_back_and_the_log_goes_on(self, log: Log, files: MemoryDisk) -> None:
        fill(log, 2)
        files.fail("write", errno.ENOSPC, ".log")
        with pytest.raises(OSError, match="No space"):
            append(log, 3)
        assert log.log_end_offset == 2
        assert files.size(f"{DIRECTORY}/{log_files(files)[0]}") == 2 * 72
        fill(log, 1)
        assert len(contents(log)) == 3

    def test_a_full_disk_that_cannot_be_cut_back_fails_the_log(self, log: Log, files: MemoryDisk) -> None:
        files.fail("write", errno.ENOSPC, ".log")
        files.fail("truncate", errno.EIO, ".log")
        with pytest.raises(OSError, match="Input/output"):
            append(log)
        with pytest.raises(OSError, match="takes no more writes"):
            append(log)

    @pytest.mark.parametrize("operation", ["write", "fdatasync"])
    def test_after_an_io_error_nothing_is_written_any_more(self, log: Log, files: MemoryDisk, operation: str) -> None:
        first = fill(log, 1)
        files.fail(operation, errno.EIO, ".log")
        with pytest.raises(OSError, match="Input/output"):
            fill(log, 1)
        assert log.durable_end_offset == 1
        for change in (lambda: append(log), log.flush, lambda: log.truncate_to(0), log.write_checkpoint):
            with pytest.raises(OSError, match="takes no more writes") as raised:
                change()
            assert raised.value.errno == errno.EIO
        assert log.read(0, 10) == first[0], "reading goes on"
        with pytest.raises(OSError, match="takes no more writes"):
            log.close(clean=True)

    @pytest.mark.parametrize("operation", ["open", "fsync_dir", "fdatasync"])
    def test_a_roll_that_fails_never_lets_the_old_segment_grow_over_the_new(
        self, files: MemoryDisk, operation: str
    ) -> None:
        log = open_log(files, settings=LogSettings(segment_bytes=200))
        batches = fill(log, 2)
        files.fail(operation, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            append(log)
        if log.failed is None:
            batches += fill(log, 1)
        files.lose_power()
        log = open_log(files)
        assert not log.recovery.damaged
        assert contents(log) == batches

    def test_a_full_disk_under_the_epoch_file_changes_nothing(self, log: Log, files: MemoryDisk) -> None:
        files.fail("write", errno.ENOSPC, "leader-epoch")
        with pytest.raises(OSError, match="No space"):
            log.assign_epoch(3, 0)
        assert log.epochs.latest_epoch is None
        log.assign_epoch(3, 0)
        assert log.epochs.latest_epoch == 3

    def test_a_full_disk_under_the_checkpoint_of_a_cut_leaves_the_log_as_it_was(
        self, log: Log, files: MemoryDisk
    ) -> None:
        batches = fill(log, 3)
        log.set_high_watermark(3)
        log.write_checkpoint()
        files.fail("write", errno.ENOSPC, "checkpoint")
        with pytest.raises(OSError, match="No space"):
            log.truncate_to(1)
        assert contents(log) == batches
        assert (log.log_end_offset, log.durable_end_offset, log.high_watermark) == (3, 3, 3)
        assert log.truncate_to(1) == 1
        fill(log, 1)
        files.lose_power()
        assert len(contents(open_log(files))) == 2

    def test_a_full_disk_under_the_checkpoint_of_starting_anew_leaves_the_log_as_it_was(
        self, log: Log, files: MemoryDisk
    ) -> None:
        batches = fill(log, 3)
        files.fail("write", errno.ENOSPC, "checkpoint")
        with pytest.raises(OSError, match="No space"):
            log.truncate_fully_and_start_at(7)
        assert contents(log) == batches
        log.truncate_fully_and_start_at(7)
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)

    def test_a_full_disk_under_the_epochs_of_a_cut_log_is_made_good_before_the_next_record(
        self, log: Log, files: MemoryDisk
    ) -> None:
        append(log, epoch=1)
        append(log, epoch=2)
        log.flush()
        files.fail("write", errno.ENOSPC, "leader-epoch")
        assert log.truncate_to(1) == 1
        assert log.epochs.entries == ((1, 0),)
        files.fail("write", errno.ENOSPC, "leader-epoch")
        with pytest.raises(OSError, match="No space"):
            append(log, epoch=1)
        append(log, epoch=1)
        log.flush()
        files.lose_power()
        assert open_log(files).epochs.entries == ((1, 0),)

    def test_a_closed_log_takes_nothing(self, log: Log) -> None:
        log.close(clean=True)
        with pytest.raises(OSError, match="is closed"):
            append(log)


class TestRead:
    def test_batches_are_whole_and_bounded(self, log: Log) -> None:
        batches = fill(log, 6)
        assert log.read(0, 3 * 72) == log.read(0, 3 * 72 + 71) == b"".join(batches[:3])
        assert log.read(1, 3 * 72) == b"".join(batches[1:3]), "it may end at an index entry, so that nothing is walked"
        assert log.read(1, 1) == batches[1], "the first batch goes whatever its size"
        assert log.read(1, 1000, end_offset=3) == b"".join(batches[1:3])
        assert log.read(6, 1000) == log.read(2, 1000, end_offset=2) == b""

    def test_the_first_batch_contains_the_offset(self, log: Log) -> None:
        batches = fill(log, 4, records=10)
        assert log.read(15, 72) == batches[1]
        assert log.read(15, 1000, end_offset=25) == batches[1]
        assert log.read(15, 1000, end_offset=19) == b""

    def test_outside_the_log_is_out_of_range(self, log: Log) -> None:
        fill(log, 3)
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRange):
                log.read(offset, 100)

    def test_a_read_is_one_pread_of_the_wanted_bytes(self, files: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(files, settings=LogSettings())
        batches = fill(log, 20, payload=bytes(8000))
        preads: list[int] = []
        pread = DiskFile.pread

        def counted(file: DiskFile, size: int, position: int) -> bytes:
            preads.append(size)
            return pread(file, size, position)

        monkeypatch.setattr(DiskFile, "pread", counted)
        assert log.read(7, 4 * len(batches[0])) == b"".join(batches[7:11])
        assert preads == [4 * len(batches[0])]

    def test_the_first_batch_at_or_after_a_time_is_found(self, log: Log) -> None:
        fill(log, 40)  # in several segments; timestamp = offset * 1000
        assert log.offset_for_timestamp(-5) == (0, 0)
        assert log.offset_for_timestamp(22_500) == (23, 23_000)
        assert log.offset_for_timestamp(39_001) is None

    def test_time_may_go_back(self, log: Log) -> None:
        times = [50, 10, 10, 90, 20, 70, 100, 30]
        log.append(run_of([batch(offset, timestamp_us=time) for offset, time in enumerate(times)]))
        for wanted in range(101):
            expected = next(offset for offset, time in enumerate(times) if time >= wanted)
            assert log.offset_for_timestamp(wanted) == (expected, times[expected])


class TestTruncation:
    def test_inside_a_batch_the_whole_batch_goes(self, log: Log) -> None:
        batches = fill(log, 4, records=10)
        assert log.truncate_to(25) == 20
        assert contents(log) == batches[:2]
        assert log.truncate_to(30) == 20, "never extended"

    def test_epochs_and_snapshots_are_cut_along(self, log: Log) -> None:
        for epoch in (1, 2, 5):
            append(log, 2, epoch=epoch)
        log.write_producer_snapshot(2, b"two")
        log.write_producer_snapshot(6, b"six")
        log.truncate_to(3)
        assert log.epochs.entries == ((1, 0), (2, 2))
        assert log.load_producer_snapshot() == (2, b"two")

    def test_below_the_start_the_log_begins_there(self, log: Log) -> None:
        log.truncate_fully_and_start_at(100)
        fill(log, 3)
        log.truncate_to(50)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)

    def test_a_log_that_starts_anew_has_no_past(self, log: Log, files: MemoryDisk) -> None:
        fill(log, 30)
        log.write_producer_snapshot(30, b"old")
        log.truncate_fully_and_start_at(500)
        assert (log.log_start_offset, log.durable_end_offset, log.log_end_offset) == (500, 500, 500)
        assert (log.epochs.entries, log.load_producer_snapshot(), len(log_files(files))) == ((), None, 1)
        batches = fill(log, 2)
        assert contents(log) == batches


class TestRetention:
    def test_the_start_moves_to_the_high_watermark_at_most(self, log: Log, files: MemoryDisk) -> None:
        batches = fill(log, 40)
        log.set_high_watermark(30)
        before = len(log_files(files))
        assert log.advance_log_start(35) == before - len(log_files(files)) > 0
        assert log.log_start_offset == 30
        assert log.epochs.entries == ((0, 30),)
        assert log.epoch_before(30) is None
        assert contents(log) == batches[30:]
        with pytest.raises(OffsetOutOfRange):
            log.read(29, 100)

    def test_too_old_and_too_much_go_and_the_rest_stays(self, files: MemoryDisk) -> None:
        log = open_log(files, settings=LogSettings(segment_bytes=300, retention_ms=10, retention_bytes=-1))
        fill(log, 20)  # one record a millisecond
        assert log.apply_retention(25_000) == 0, "nothing above the high watermark"
        log.set_high_watermark(20)
        assert log.apply_retention(22_000) == 3
        assert log.log_start_offset == 12
        log.settings = LogSettings(segment_bytes=300, retention_ms=-1, retention_bytes=5 * 72)
        assert log.apply_retention(0) == 0
        log.settings = LogSettings(segment_bytes=300, retention_ms=-1, retention_bytes=4 * 72)
        assert log.apply_retention(0) == 1

    def test_a_record_of_the_future_holds_retention_and_is_named(self, files: MemoryDisk) -> None:
        """Microseconds that were given as milliseconds."""
        log = open_log(files, settings=LogSettings(segment_bytes=300, retention_ms=10))
        fill(log, 20)
        log.set_high_watermark(20)
        early_us = 2_999 - FUTURE_US
        assert log.retention_held(early_us) == HeldSegment(0, 4, 3_000)
        assert log.retention_held(early_us + 1) is None
        log.settings = LogSettings(segment_bytes=300, retention_ms=-1)
        assert log.retention_held(early_us) is None, "nothing is to be deleted by age"

    def test_an_idle_log_ends_up_empty(self, files: MemoryDisk) -> None:
        log = open_log(files, settings=LogSettings(retention_ms=10))
        fill(log, 5)
        log.set_high_watermark(5)
        log.apply_retention(10**9)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)


class TestProducerSnapshots:
    def test_state_is_the_newest_snapshot_and_the_headers_behind_it(self, log: Log) -> None:
        expected = ProducerState()
        for sequence in range(12):
            one = batch(sequence, producer=(7, 0, sequence))
            log.append(run_of([one]))
            expected.apply(decode_header(one))
            if sequence in (3, 6, 9):
                log.write_producer_snapshot(sequence + 1, expected.snapshot())
        assert log.load_producer_snapshot() == (10, (log.load_producer_snapshot() or (0, b""))[1])
        assert recover_producer_state(log) == expected

    def test_two_are_kept_and_a_damaged_one_is_passed_over(self, log: Log, files: MemoryDisk) -> None:
        fill(log, 5)
        for offset in (1, 3, 5):
            log.write_producer_snapshot(offset, b"%d" % offset)
        assert sum(name.endswith(".snapshot") for name in files.list(DIRECTORY)) == 2
        files.damage(f"{DIRECTORY}/{5:020d}.snapshot", 0, b"x")
        assert log.load_producer_snapshot() == (3, b"3")

    def test_a_snapshot_above_the_end_is_refused(self, log: Log) -> None:
        with pytest.raises(ValueError, match="above the end"):
            log.write_producer_snapshot(1, b"")


def test_a_truncation_that_meets_damage_cuts_nothing_and_says_so(log: Log, files: MemoryDisk) -> None:
    fill(log, 3)
    log.flush()
    before = log.log_end_offset
    files.damage(f"{DIRECTORY}/{0:020d}.log", 3, b"\xff")
    with pytest.raises(DamagedCopy, match="offset 0"):
        log.truncate_to(1)
    assert log.log_end_offset == before
    with pytest.raises(OSError, match="takes no more writes"):
        append(log)
