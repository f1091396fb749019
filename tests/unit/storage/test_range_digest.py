"""The digest of a range of a log: the same with any segments, and an error where a bit is wrong."""

from __future__ import annotations

import pathlib
import random

import pytest

from minilog.errors import CorruptMessage, OffsetOutOfRange
from minilog_broker.storage.files import PIECE_BYTES, OsFileSystem, Quiet
from minilog_broker.storage.log import Log
from minilog_broker.storage.range_digest import RangeReading, digest_range
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, SETTINGS, fill, open_log
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.4")

ALL_BYTES = 1 << 30


def filled(settings: LogSettings = SETTINGS, files: MemoryDisk | None = None) -> Log:
    log = open_log(files or MemoryDisk(), settings=settings)
    fill(log, 100)
    return log


def test_segments_make_no_difference() -> None:
    small, large = filled(), filled(LogSettings())
    assert small.sealed_end_offset > 0 == large.sealed_end_offset
    assert digest_range(small, 0, 100, ALL_BYTES) == digest_range(large, 0, 100, ALL_BYTES)
    assert digest_range(small, 0, 100, ALL_BYTES).end_offset == 100


def test_pieces_go_on_where_the_one_before_ended() -> None:
    log, offset, pieces = filled(), 0, 0
    while offset < 100:
        range_digest = digest_range(log, offset, 100, 500)
        assert offset < range_digest.end_offset <= 100
        offset, pieces = range_digest.end_offset, pieces + 1
    assert pieces > 3


@pytest.mark.parametrize("slice_bytes", [1, 100, 1_000])
def test_slices_make_no_difference(slice_bytes: int) -> None:
    log = filled()
    reading = RangeReading(log, 10, 90, ALL_BYTES)
    while not reading.is_done:
        assert reading.read_slice(slice_bytes) > 0
    assert reading.digest() == digest_range(log, 10, 90, ALL_BYTES)


def test_long_work_pauses_between_its_parts() -> None:
    log, pauses = filled(LogSettings()), list[None]()
    reading = RangeReading(log, 0, 100, ALL_BYTES, lambda: pauses.append(None))
    reading.read_slice(ALL_BYTES)
    assert reading.is_done
    assert len(pauses) >= 2
    assert reading.digest() == digest_range(log, 0, 100, ALL_BYTES)


@pytest.mark.parametrize(
    ("size_bytes", "expected_pauses"),
    [(0, 0), (1, 0), (PIECE_BYTES, 0), (PIECE_BYTES + 1, 1), (3 * PIECE_BYTES, 2), (9 * PIECE_BYTES, 4)],
)
def test_a_quiet_read_is_in_pieces(tmp_path: pathlib.Path, size_bytes: int, expected_pauses: int) -> None:
    """The last one asks for more than the file has, and gets what there is."""
    content = random.Random(1).randbytes(5 * PIECE_BYTES - 7)
    file = OsFileSystem().open(str(tmp_path / "log"), create=True)
    file.write([content], 0)
    pauses = list[None]()
    assert Quiet(file, lambda: pauses.append(None)).pread(size_bytes, 11) == content[11 : 11 + size_bytes]
    assert len(pauses) == expected_pauses


def test_other_records_have_another_digest() -> None:
    log = filled()
    assert digest_range(log, 0, 50, ALL_BYTES).digest != digest_range(log, 50, 100, ALL_BYTES).digest


def test_a_flipped_bit_is_damage() -> None:
    files = MemoryDisk()
    log = filled(files=files)
    path = f"{DIRECTORY}/{0:020d}.log"
    file = files.open(path)
    content = bytearray(file.pread(file.size(), 0))
    content[500] ^= 1
    file.write([bytes(content)], 0)
    with pytest.raises(CorruptMessage):
        digest_range(log, 0, 100, ALL_BYTES)


def test_deleted_records_cannot_be_compared() -> None:
    log = filled()
    log.set_high_watermark(100)
    log.flush()
    log.set_high_watermark(100)
    log.advance_log_start(50)
    with pytest.raises(OffsetOutOfRange):
        digest_range(log, 0, 100, ALL_BYTES)
