"""The check of a stopped broker's directory: one bit changed in each kind of file is found, and nothing changes."""

from __future__ import annotations

import errno
from random import Random

import msgspec
import pytest

from minilog.errors import UnsupportedVersion
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.snapshot import encode_snapshot
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.storage.check_findings import CheckVerdict, Report
from minilog_broker.storage.checkpoint import Checkpoint, write_checkpoint
from minilog_broker.storage.data_directory import DataDirectory, look_into
from minilog_broker.storage.directory_check import DirectoryCheck, segment_bytes
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.errors import DataDirectoryError, DataDirectoryInUse
from minilog_broker.storage.log import Log
from minilog_broker.storage.marks import write_mark
from minilog_broker.storage.producer_state import ProducerState
from minilog_broker.storage.segment_name import SegmentName
from minilog_broker.storage.snapshot_id import SnapshotId, snapshot_name
from minilog_tools.cli.check import upper_layers
from tests.unit.record_batch.batches import of_a_later_version
from tests.unit.storage.logs import DIRECTORY, KEY, SETTINGS, batch, compact, fill, open_log
from tests.world.disk import MemoryDisk

DATA = "/data"
METADATA = f"{DATA}/__cluster_metadata-0"
IMAGE = f"{METADATA}/{snapshot_name(SnapshotId(0, 0))}"
FIRST, LAST = (f"{DIRECTORY}/{base:020d}" for base in (0, 26))
PRODUCERS = f"{DIRECTORY}/{39:020d}.snapshot"
BATCH = 72


@pytest.fixture
def files() -> MemoryDisk:
    """A broker's directory after a clean stop, with three segments of 13 batches each and a metadata log."""
    files = MemoryDisk(Random(1))
    stop(files, clean=True)
    return files


def stop(files: MemoryDisk, *, clean: bool) -> None:
    directory = DataDirectory.open(files, DATA, 1, None, random_bytes=bytes)
    directory.set_cluster("c-1", [1])
    write_durable_file(files, f"{DATA}/quorum-vote", msgspec.json.encode(VoteState()))
    log = open_log(files)
    fill(log, 39)
    log.set_high_watermark(39)
    log.write_producer_snapshot(39, ProducerState().snapshot())
    log.write_checkpoint()
    log.close(clean=clean)
    files.make_dir(METADATA)
    metadata = Log.open(files, METADATA, METADATA_KEY, "__cluster_metadata", SETTINGS, unclean=True, create=True)
    metadata.close(clean=True)
    image = files.open(IMAGE, create=True)
    image.write([encode_snapshot(MetadataImage(), 0)], 0)
    if clean:
        directory.write_clean_stop(5)
    directory.close()


def check(files: MemoryDisk, *, repair: bool = False) -> Report:
    """Nothing changes, but by a repair."""
    before = contents(files)
    stopped = look_into(files, DATA)
    heard: list[int] = []
    total = segment_bytes(files, stopped)
    report = DirectoryCheck(
        files, stopped, upper_layers(), settings=SETTINGS, repair=files if repair else None, read=heard.append
    ).run()
    stopped.close()
    assert sum(heard) <= total
    assert repair or contents(files) == before
    return report


def contents(files: MemoryDisk) -> dict[str, bytes]:
    return {path: files.content(path) for path, inode in files.names.items() if inode is not None}


def flip(files: MemoryDisk, path: str, position: int) -> None:
    content = files.content(path)
    position %= len(content)
    files.damage(path, position, bytes([content[position] ^ 4]))


def found(report: Report) -> dict[str, CheckVerdict]:
    return {each.path: each.verdict for each in report.findings}


def test_a_directory_stopped_cleanly_is_sound(files: MemoryDisk) -> None:
    report = check(files)
    assert report.findings == ()
    assert (report.worst, report.broker_id, report.cluster_id) == (None, 1, "c-1")
    assert (report.counts.logs, report.counts.segments, report.counts.batch_bytes) == (2, 4, 39 * BATCH)


def test_a_directory_of_a_killed_broker_is_sound() -> None:
    files = MemoryDisk(Random(1))
    stop(files, clean=False)
    assert check(files).findings == ()


EACH_KIND = {
    f"{DATA}/broker.json": CheckVerdict.DAMAGED,
    f"{DATA}/quorum-vote": CheckVerdict.DAMAGED,
    f"{DATA}/clean-stop": CheckVerdict.CACHE,
    f"{FIRST}.log": CheckVerdict.DAMAGED,
    f"{LAST}.log": CheckVerdict.DAMAGED,
    f"{FIRST}.index": CheckVerdict.CACHE,
    f"{FIRST}.timeindex": CheckVerdict.CACHE,
    f"{LAST}.index": CheckVerdict.CACHE,
    f"{DIRECTORY}/leader-epoch": CheckVerdict.CACHE,
    f"{DIRECTORY}/checkpoint": CheckVerdict.DAMAGED,
    f"{DIRECTORY}/manifest": CheckVerdict.CACHE,
    f"{DIRECTORY}/topic-id": CheckVerdict.DAMAGED,
    PRODUCERS: CheckVerdict.CACHE,
    f"{METADATA}/topic-id": CheckVerdict.DAMAGED,
    IMAGE: CheckVerdict.DAMAGED,
}


@pytest.mark.parametrize("position", [0, 30, 65, -1], ids=["begin", "in it", "further", "end"])
@pytest.mark.parametrize("path", EACH_KIND)
def test_a_changed_bit_is_found_and_named(files: MemoryDisk, path: str, position: int) -> None:
    flip(files, path, position)
    report = check(files)
    assert found(report) == {path: EACH_KIND[path]}
    assert all(each.what and each.remedy for each in report.findings)


@pytest.mark.parametrize(
    ("mark", "verdict"),
    [("damaged", CheckVerdict.DAMAGED), ("doubtful", CheckVerdict.DOUBTFUL), ("torn-tail", CheckVerdict.TORN_TAIL)],
)
@pytest.mark.parametrize("rotten", [False, True])
def test_a_mark_counts_even_where_it_is_damaged_itself(
    files: MemoryDisk, mark: str, verdict: CheckVerdict, rotten: bool
) -> None:
    write_mark(files, DIRECTORY, mark, "so it was")
    if rotten:
        flip(files, f"{DIRECTORY}/{mark}", 1)
    report = check(files)
    assert found(report) == {f"{DIRECTORY}/{mark}": verdict}
    assert ("checksum" in report.findings[0].what) == rotten


@pytest.mark.parametrize(
    "path", [each for each in EACH_KIND if not each.endswith((".snapshot", "clean-stop", ".json"))]
)
def test_a_file_that_is_missing_is_found(files: MemoryDisk, path: str) -> None:
    files.lose(path)
    if path == f"{METADATA}/topic-id":
        assert found(check(files)) == {path: CheckVerdict.DAMAGED}
    elif path.endswith(".log"):
        verdicts = found(check(files))
        assert verdicts == {DIRECTORY: CheckVerdict.DAMAGED}
    else:
        assert found(check(files)) == {path: EACH_KIND[path]}


def test_segments_behind_a_damaged_one_are_read_too(files: MemoryDisk) -> None:
    for path in (f"{FIRST}.log", f"{LAST}.log"):
        flip(files, path, 100)
    assert found(check(files)) == {f"{FIRST}.log": CheckVerdict.DAMAGED, f"{LAST}.log": CheckVerdict.DAMAGED}


def test_whether_a_bad_tail_was_acknowledged_is_not_known() -> None:
    files = MemoryDisk(Random(1))
    stop(files, clean=False)
    files.damage(f"{LAST}.log", 13 * BATCH, batch(39)[:50])
    report = check(files)
    assert (found(report), report.worst) == ({f"{LAST}.log": CheckVerdict.TORN_TAIL}, CheckVerdict.TORN_TAIL)
    assert (
        "nothing here tells whether the 50 bytes are an unfinished write or acknowledged" in report.findings[0].remedy
    )


def test_a_changed_bit_in_the_last_records_before_a_kill_is_not_called_unacknowledged() -> None:
    """The end of these records was not recorded yet. So it cannot be told from an unfinished write."""
    files = MemoryDisk(Random(1))
    stop(files, clean=False)
    write_checkpoint(files, DIRECTORY, Checkpoint(0, 26, 26, flush_on_append=True, has_manifest=True))
    flip(files, f"{LAST}.log", 100)
    report = check(files)
    assert (found(report), report.worst) == ({f"{LAST}.log": CheckVerdict.TORN_TAIL}, CheckVerdict.TORN_TAIL)
    assert "never acknowledged" not in report.findings[0].remedy
    assert "copy the directory before" in report.findings[0].remedy


def test_records_not_synced_at_a_power_loss_are_doubtful(files: MemoryDisk) -> None:
    files.lose(f"{DATA}/clean-stop")
    write_checkpoint(files, DIRECTORY, Checkpoint(0, 39, 39, flush_on_append=False, boot_id="b-1", has_manifest=True))
    assert found(check(files)) == {f"{DIRECTORY}/checkpoint": CheckVerdict.DOUBTFUL}


def test_a_producer_snapshot_without_another_or_all_records_is_damage(files: MemoryDisk) -> None:
    write_checkpoint(files, DIRECTORY, Checkpoint(5, 39, 39, flush_on_append=True, has_manifest=True))
    flip(files, PRODUCERS, 20)
    verdicts = found(check(files))
    assert verdicts[PRODUCERS] is CheckVerdict.DAMAGED


@pytest.mark.parametrize("name", ["clean-stop", "quorum-vote", "flights-3/checkpoint", "flights-3/manifest"])
def test_a_file_with_its_checksum_that_says_something_else_is_found(files: MemoryDisk, name: str) -> None:
    path = f"{DATA}/{name}"
    write_durable_file(files, path, b'{"epoch": []')
    assert found(check(files)) == {path: EACH_KIND[path]}


def test_a_disk_that_does_not_give_a_segment_is_damage(files: MemoryDisk) -> None:
    files.fail("pread", errno.EIO, f"{26:020d}.log")
    assert found(check(files)) == {f"{LAST}.log": CheckVerdict.DAMAGED}


@pytest.mark.parametrize("name", ["broker.json", "clean-stop", "quorum-vote", "flights-3/checkpoint"])
def test_a_file_that_may_not_be_read_was_not_checked(files: MemoryDisk, name: str) -> None:
    stopped = look_into(files, DATA)
    files.fail("pread", errno.EACCES, name)
    report = DirectoryCheck(files, stopped, upper_layers(), settings=SETTINGS).run()
    assert CheckVerdict.NOT_CHECKED in found(report).values()


class TestRepairs:
    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("lost", [False, True])
    def test_an_index_is_written_as_it_was_and_nothing_else(self, files: MemoryDisk, suffix: str, lost: bool) -> None:
        sound = contents(files)
        if lost:
            files.lose(FIRST + suffix)
        else:
            flip(files, FIRST + suffix, 50)
        report = check(files, repair=True)
        assert [(each.path, each.repaired) for each in report.findings] == [(FIRST + suffix, True)]
        assert contents(files) == sound

    def test_a_file_that_is_no_index_is_left_as_it_is(self, files: MemoryDisk) -> None:
        for path in EACH_KIND:
            if not path.endswith("index"):
                flip(files, path, 20)
        before = contents(files)
        assert not any(each.repaired for each in check(files, repair=True).findings)
        assert contents(files) == before

    def test_a_full_disk_is_told(self, files: MemoryDisk) -> None:
        files.lose(f"{FIRST}.index")
        files.fail("write", errno.ENOSPC)
        finding = check(files, repair=True).findings[0]
        assert not finding.repaired
        assert "could not write it again" in finding.remedy


class TestRefusals:
    def test_a_directory_in_use_names_the_process(self, files: MemoryDisk) -> None:
        DataDirectory.open(files, DATA, 1, "c-1", process_id=77)
        with pytest.raises(DataDirectoryInUse, match="in use by process 77"):
            look_into(files, DATA)

    def test_a_directory_of_nobody_is_none(self, files: MemoryDisk) -> None:
        with pytest.raises(DataDirectoryError, match=r"has no broker\.json"):
            look_into(files, DIRECTORY)

    def test_a_later_level_is_named_and_the_lock_given_up(self, files: MemoryDisk) -> None:
        write_durable_file(files, f"{DATA}/broker.json", b'{"level": 99}')
        for _ in range(2):
            with pytest.raises(UnsupportedVersion, match="is at level 99"):
                look_into(files, DATA)

    def test_a_batch_of_a_later_version_was_not_checked(self, files: MemoryDisk) -> None:
        files.damage(f"{LAST}.log", 13 * BATCH, of_a_later_version(batch(39), *KEY))
        report = check(files)
        assert (found(report), report.worst) == ({f"{LAST}.log": CheckVerdict.NOT_CHECKED}, CheckVerdict.NOT_CHECKED)
        assert "later version" in report.findings[0].what

    def test_a_manifest_of_a_later_version_was_not_checked(self, files: MemoryDisk) -> None:
        content = b'{"segments": [{"base_offset": 0, "state": "elsewhere"}]}'
        write_durable_file(files, f"{DIRECTORY}/manifest", content)
        assert found(check(files)) == {f"{DIRECTORY}/manifest": CheckVerdict.NOT_CHECKED}


def test_segments_that_were_written_anew_are_checked_by_their_names(files: MemoryDisk) -> None:
    log = open_log(files, unclean=False)
    compact(files, log, 0, 2, [batch(0, records=20), batch(20, records=6)])
    log.close(clean=True)
    report = check(files)
    assert report.findings == ()
    assert (report.counts.segments, report.counts.batch_bytes) == (3, 15 * BATCH)
    new = f"{DIRECTORY}/{0:020d}.1"
    flip(files, f"{new}.index", 40)
    files.lose(f"{new}.timeindex")
    assert found(check(files)) == {f"{new}.index": CheckVerdict.CACHE, f"{new}.timeindex": CheckVerdict.CACHE}
    assert all(each.repaired for each in check(files, repair=True).findings)
    assert check(files).findings == ()
    flip(files, f"{new}.log", 80)
    assert found(check(files)) == {f"{new}.log": CheckVerdict.DAMAGED}


def test_remains_of_an_unfinished_change_are_no_finding(files: MemoryDisk) -> None:
    """The next start removes it, so the check does not read it."""
    for name in (SegmentName(0, 1).file(), SegmentName(13, 1).file(".log.tmp")):
        files.open(f"{DIRECTORY}/{name}", create=True).write([b"half"], 0)
    report = check(files)
    assert (report.findings, report.counts.segments) == ((), 4)
