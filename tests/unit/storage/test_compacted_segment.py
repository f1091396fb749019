"""The writer of a segment that takes the place of others: what it takes, and what its file is until the swap."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import CorruptMessage
from minilog_broker.storage import compacted_segment
from minilog_broker.storage.index import SegmentEnd
from minilog_broker.storage.log import Log
from minilog_broker.storage.segment_name import SegmentName
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, batch, contents, fill, open_log, write_anew, writer_of
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.7")

SETTINGS = LogSettings(segment_bytes=200, index_interval_bytes=100)  # two batches of 72 bytes
TEMPORARY = f"{DIRECTORY}/{0:020d}.1.log.tmp"


@pytest.fixture
def log(files: MemoryDisk) -> Log:
    """Five segments of two batches."""
    log = open_log(files, settings=SETTINGS)
    fill(log, 10)
    return log


def test_a_finished_segment_is_synced_and_has_no_name_yet(files: MemoryDisk, log: Log) -> None:
    batches = [batch(0, records=2, timestamp_us=9000), batch(2), batch(3)]
    compacted = write_anew(files, log, log.sealed_segments[:2], batches)
    assert compacted.name == SegmentName(0, 1)
    assert compacted.end == SegmentEnd(4, 3 * 72, 9000)
    assert compacted.epoch_starts == ((0, 0),)
    assert (compacted.index.offsets.tolist(), compacted.index.positions.tolist()) == ([0, 3], [0, 144])
    inode = files.names[TEMPORARY]
    assert inode is not None
    assert inode.durable == b"".join(batches)
    assert not files.exists(compacted.name.path(DIRECTORY))


def test_a_writer_syncs_before_much_is_unsynced(files: MemoryDisk, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_segment, "MOST_UNSYNCED_BYTES", 100)
    writer = writer_of(files, log, log.sealed_segments[:2])
    durable = []
    for offset in range(3):
        writer.write(batch(offset))
        inode = files.names[TEMPORARY]
        assert inode is not None
        durable.append(len(inode.durable))
    assert durable == [0, 144, 144]


def test_runs_of_several_batches_are_taken(files: MemoryDisk, log: Log) -> None:
    writer = writer_of(files, log, log.sealed_segments[:2])
    writer.write(b"")
    writer.write(memoryview(batch(0) + batch(1, records=2)))
    assert (writer.next_offset, writer.size_bytes) == (3, 144)
    writer.write(batch(3))
    assert writer.finish().end.size_bytes == files.size(TEMPORARY) == 216


@pytest.mark.parametrize(
    ("batches", "refusal"),
    [
        ([batch(1)], "offsets 1 to 1 cannot stand at offset 0"),
        ([batch(0), batch(2)], "offsets 2 to 2 cannot stand at offset 1"),
        ([batch(0, records=2), batch(1)], "offsets 1 to 1 cannot stand at offset 2"),
        ([batch(0, records=2), batch(2, records=3)], "offsets 2 to 4 cannot stand at offset 2"),
        ([batch(0, epoch=2), batch(1, epoch=1)], "epoch 1 cannot follow epoch 2"),
    ],
)
@pytest.mark.parametrize("is_one_run", [True, False])
def test_each_offset_is_in_one_batch_in_the_order_of_epochs(
    files: MemoryDisk, log: Log, batches: list[bytes], refusal: str, is_one_run: bool
) -> None:
    writer = writer_of(files, log, log.sealed_segments[:2])
    *before, last = [b"".join(batches)] if is_one_run else batches
    for run in before:
        writer.write(run)
    with pytest.raises(ValueError, match=refusal):
        writer.write(last)


@pytest.mark.parametrize("batches", [[], [batch(0)]])
def test_a_segment_that_lacks_offsets_is_not_finished(files: MemoryDisk, log: Log, batches: list[bytes]) -> None:
    with pytest.raises(ValueError, match="batches are missing"):
        write_anew(files, log, log.sealed_segments[:2], batches)


def test_a_damaged_batch_and_one_of_another_partition_are_refused(files: MemoryDisk, log: Log) -> None:
    writer = writer_of(files, log, log.sealed_segments[:2])
    damaged = bytearray(batch(0, payload=bytes(80)))
    damaged[100] ^= 1
    with pytest.raises(CorruptMessage, match="crc"):
        writer.write(damaged)
    with pytest.raises(CorruptMessage, match="cut 2 bytes short"):
        writer.write(batch(0, payload=bytes(80))[:-2])
    writer._key = log.key._replace(partition=4)
    with pytest.raises(CorruptMessage, match="not meant for partition 4"):
        writer.write(batch(0))
    assert writer.size_bytes == 0


def test_an_abandoned_segment_is_gone_finished_or_not(files: MemoryDisk, log: Log) -> None:
    before = files.list(DIRECTORY)
    for is_finished in (False, True):
        writer = writer_of(files, log, log.sealed_segments[:2])
        writer.write(batch(0, records=4))
        if is_finished:
            writer.finish()
        assert files.list(DIRECTORY) != before
        writer.abandon()
        writer.abandon()
        assert files.list(DIRECTORY) == before
        with pytest.raises(ValueError, match="finished or abandoned"):
            writer.write(batch(0))


def test_a_failed_sync_is_not_tried_again(files: MemoryDisk, log: Log) -> None:
    writer = writer_of(files, log, log.sealed_segments[:2])
    writer.write(batch(0, records=4))
    files.fail("fdatasync", errno.EIO, ".tmp")
    with pytest.raises(OSError, match="Input/output"):
        writer.finish()
    with pytest.raises(ValueError, match="finished or abandoned"):
        writer.finish()
    writer.abandon()
    assert not files.exists(TEMPORARY)


def test_a_segment_of_a_former_life_is_written_over_and_a_start_removes_it(files: MemoryDisk, log: Log) -> None:
    writer = writer_of(files, log, log.sealed_segments[:2])
    writer.write(batch(0, payload=bytes(200)))
    writer = writer_of(files, log, log.sealed_segments[:2])
    writer.write(batch(0, records=4))
    assert files.size(TEMPORARY) == 72
    writer.finish()
    files.end_process()
    assert len(contents(open_log(files, settings=SETTINGS))) == 10
    assert not files.exists(TEMPORARY)
