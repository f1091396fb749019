"""What recovery calls a torn tail, what it calls damage, and what it rebuilds."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import CorruptMessage
from minilog_broker.storage.errors import DataDirectoryError
from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Finding, mark_damaged
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, SETTINGS, append, batch, contents, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.5")

FIRST = f"{DIRECTORY}/{0:020d}.log"


def kill_and_reopen(files: MemoryDisk, *, settings: LogSettings = SETTINGS) -> Log:
    files.end_process()
    return open_log(files, settings=settings)


def segments(files: MemoryDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in files.list(DIRECTORY) if name.endswith(".log")]


def checkpointed(log: Log, runs: int) -> list[bytes]:
    batches = fill(log, runs)
    log.set_high_watermark(log.log_end_offset)
    log.write_checkpoint()
    return batches


def test_a_torn_tail_is_cut_and_is_no_damage(files: MemoryDisk) -> None:
    batches = checkpointed(open_log(files), 3)
    files.damage(FIRST, 3 * 72, batch(3)[:50])
    log = kill_and_reopen(files)
    assert not log.recovery.damaged
    assert log.recovery.cut_bytes == 50
    assert contents(log) == batches
    assert files.size(FIRST) == 3 * 72


def test_zeros_at_the_end_are_a_torn_tail(files: MemoryDisk) -> None:
    batches = checkpointed(open_log(files), 3)
    files.damage(FIRST, 3 * 72, bytes(5000))
    log = kill_and_reopen(files)
    assert not log.recovery.damaged
    assert contents(log) == batches


def test_an_invalid_batch_below_what_was_promised_is_damage(files: MemoryDisk) -> None:
    checkpointed(open_log(files), 5)
    files.damage(FIRST, 2 * 72 + 30, b"\xff")
    log = kill_and_reopen(files)
    assert log.recovery.damaged
    assert "the log ends at 2" in log.recovery.reason
    assert log.log_end_offset == 2
    assert len(files.content(FIRST + ".damaged")) == 5 * 72, "what was cut is kept for an operator"


@pytest.mark.parametrize("high_watermark", [0, 5])
def test_an_end_below_what_was_promised_is_damage(files: MemoryDisk, high_watermark: int) -> None:
    log = open_log(files)
    fill(log, 5)
    log.set_high_watermark(high_watermark)  # the recorded durable end alone tells as well
    log.write_checkpoint()
    files.cut(FIRST, 4 * 72)
    log = kill_and_reopen(files)
    assert log.recovery.damaged
    assert (log.log_end_offset, log.high_watermark) == (4, min(4, high_watermark))


def test_under_flush_policy_os_only_what_was_synced_or_below_the_high_watermark_is_promised(
    files: MemoryDisk,
) -> None:
    settings = LogSettings(flush_on_append=False)
    log = open_log(files, settings=settings)
    append(log, 5)
    log.flush()
    assert log.durable_end_offset == 5
    log.write_checkpoint()
    files.cut(FIRST, 2 * 72)
    log = kill_and_reopen(files, settings=settings)
    assert log.recovery.finding is Finding.DOUBTFUL
    append(log, 3)
    log.set_high_watermark(5)
    log.write_checkpoint()
    files.cut(FIRST, 2 * 72)
    assert kill_and_reopen(files, settings=settings).recovery.damaged


def test_a_segment_missing_in_the_middle_is_damage(files: MemoryDisk) -> None:
    checkpointed(open_log(files), 40)
    files.lose(segments(files)[1])
    log = kill_and_reopen(files)
    assert log.recovery.damaged
    assert 0 < log.log_end_offset < 40
    assert len(segments(files)) == 1


@pytest.mark.parametrize("index", [0, -1])
def test_a_first_or_last_segment_that_is_missing_is_damage(files: MemoryDisk, index: int) -> None:
    checkpointed(open_log(files), 40)
    files.lose(segments(files)[index])
    assert kill_and_reopen(files).recovery.damaged


def test_a_bad_batch_in_a_segment_that_is_read_is_damage_although_a_sealed_one_is_trusted(
    files: MemoryDisk,
) -> None:
    checkpointed(open_log(files), 40)
    files.damage(segments(files)[1], 75, b"\xff")
    assert not kill_and_reopen(files).recovery.damaged, "sealed segments that a manifest or an index vouches for"
    files.lose(segments(files)[1].replace(".log", ".index"))
    files.lose(f"{DIRECTORY}/manifest")
    log = kill_and_reopen(files)
    assert log.recovery.damaged
    assert "not whole" in log.recovery.reason


def test_a_torn_tail_without_a_checkpoint_is_damage_for_nobody_can_tell(files: MemoryDisk) -> None:
    fill(open_log(files), 3)
    files.damage(f"{DIRECTORY}/checkpoint", 0, b"\xff\xff")
    assert not kill_and_reopen(files).recovery.damaged, "nothing was cut"
    files.damage(f"{DIRECTORY}/checkpoint", 0, b"\xff\xff")
    files.cut(FIRST, 2 * 72 + 8)
    assert kill_and_reopen(files).recovery.damaged


def test_damage_is_told_again_after_a_crash_and_until_the_next_life_writes(files: MemoryDisk) -> None:
    checkpointed(open_log(files), 5)
    files.damage(FIRST, 2 * 72 + 30, b"\xff")
    kill_and_reopen(files)
    files.lose_power()
    log = open_log(files)
    assert log.recovery.damaged
    assert "the log ends at 2" in log.recovery.reason
    fill(log, 1)
    log.write_checkpoint()
    assert not kill_and_reopen(files).recovery.damaged


def test_a_damaged_replica_that_starts_anew_is_damaged_no_more(files: MemoryDisk) -> None:
    checkpointed(open_log(files), 5)
    files.cut(FIRST, 72)
    log = kill_and_reopen(files)
    log.truncate_fully_and_start_at(100)
    log = kill_and_reopen(files)
    assert not log.recovery.damaged
    assert log.log_end_offset == 100


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "wrong", "short"])
@pytest.mark.parametrize("unclean", [True, False])
def test_indexes_are_rebuilt(files: MemoryDisk, suffix: str, harm: str, unclean: bool) -> None:
    log = open_log(files)
    batches = fill(log, 40)
    log.close(clean=True)
    files.end_process()
    for path in [f"{DIRECTORY}/{name}" for name in files.list(DIRECTORY) if name.endswith(suffix)]:
        match harm:
            case "missing":
                files.lose(path)
            case "wrong":
                files.damage(path, 60, b"\xff\xff")
            case _:
                files.cut(path, files.size(path) - 8)
    log = open_log(files, unclean=unclean)
    assert not log.recovery.damaged
    assert contents(log) == batches
    assert log.offset_for_timestamp(33_000) == (33, 33_000)


def test_an_index_that_lies_with_a_right_checksum_is_found_out_by_the_read(files: MemoryDisk) -> None:
    log = open_log(files)
    batches = fill(log, 10)
    index = log._segments[0].index
    for entry in range(1, len(index)):
        index.positions[entry] += 8
    assert log.read(index.offsets[-1], 72) == batches[index.offsets[-1]]
    assert contents(log) == batches


def test_a_read_of_a_damaged_file_is_refused_not_answered_short(files: MemoryDisk) -> None:
    log = open_log(files)
    fill(log, 6)
    files.damage(FIRST, 3 * 72, b"XXXX")
    with pytest.raises(CorruptMessage):
        log.read(3, 72)
    files.cut(FIRST, 72 + 10)
    with pytest.raises(CorruptMessage):
        log.read(1, 1000)


@pytest.mark.parametrize("harm", ["missing", "damaged", "wrong"])
def test_the_epoch_file_is_rebuilt_from_the_batches(files: MemoryDisk, harm: str) -> None:
    log = open_log(files)
    for epoch in (0, 3, 4):
        append(log, 3, epoch=epoch)
    log.flush()
    path = f"{DIRECTORY}/leader-epoch"
    match harm:
        case "missing":
            files.lose(path)
        case "damaged":
            files.damage(path, 3, b"\xff")
        case _:
            log.epochs.truncate_from_end(5)
            log._store_epochs(log.epochs)
    log = kill_and_reopen(files)
    assert log.epochs.entries == ((0, 0), (3, 3), (4, 6))


def test_an_epoch_that_was_recorded_and_never_written_is_forgotten(files: MemoryDisk) -> None:
    log = open_log(files)
    fill(log, 3)
    log.assign_epoch(9, 3)
    assert kill_and_reopen(files).epochs.entries == ((0, 0),)


def test_a_clean_start_reads_no_batch(files: MemoryDisk) -> None:
    log = open_log(files)
    batches = fill(log, 40)
    log.close(clean=True)
    files.end_process()
    log = open_log(files, unclean=False)
    assert log.recovery.scanned_bytes == 0
    assert contents(log) == batches
    assert kill_and_reopen(files).recovery.scanned_bytes > 0


def test_after_a_clean_stop_even_a_torn_tail_is_damage(files: MemoryDisk) -> None:
    log = open_log(files)
    fill(log, 3)
    log.close(clean=True)
    files.end_process()
    files.cut(FIRST, 2 * 72 + 10)
    assert open_log(files, unclean=False).recovery.damaged


def test_a_failed_sync_fails_the_recovery(files: MemoryDisk) -> None:
    append(open_log(files), 3)
    files.end_process()
    files.fail("fdatasync", errno.EIO, ".log")
    with pytest.raises(OSError, match="Input/output"):
        open_log(files)


def test_a_directory_of_another_topic_is_refused(files: MemoryDisk) -> None:
    open_log(files)
    files.lose(f"{DIRECTORY}/topic-id")
    with pytest.raises(DataDirectoryError, match="which names its partition"):
        open_log(files, create=False)


def test_batches_of_another_partition_are_not_ours(files: MemoryDisk) -> None:
    fill(open_log(files), 1)
    other = bytearray(batch(1))
    other[24] ^= 1  # the crc covers topic id and partition
    files.damage(FIRST, 72, bytes(other))
    log = kill_and_reopen(files)
    assert log.log_end_offset == 1


def test_rot_that_was_met_while_reading_is_found_by_the_next_start_although_the_index_vouches(
    files: MemoryDisk,
) -> None:
    batches = checkpointed(open_log(files), 40)
    files.damage(segments(files)[0], 75, b"\xff")
    assert not kill_and_reopen(files).recovery.damaged, "sealed segments with a fitting index are not read"
    mark_damaged(files, DIRECTORY, "a reader met a wrong checksum")
    log = kill_and_reopen(files)
    assert log.recovery.damaged
    assert contents(log) == batches[:1]
