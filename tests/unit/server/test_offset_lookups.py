"""Offsets that are looked up in the files, beside the loop. server/disk/offset_lookups.py."""

from __future__ import annotations

import errno

import pytest

from minilog.v1 import metadata_pb2
from minilog_broker.server.disk.offset_lookups import is_looked_up, look_up_all
from tests.unit.storage.logs import fill, open_log
from tests.world.disk import MemoryDisk


def told(end: int) -> metadata_pb2.ListOffsetsResult:
    return metadata_pb2.ListOffsetsResult(last_stable_offset=end, high_watermark=end, log_end_offset=end)


def test_the_ends_alone_need_no_look() -> None:
    assert not is_looked_up(metadata_pb2.ListOffsetsEntry())
    assert is_looked_up(metadata_pb2.ListOffsetsEntry(timestamp_us=0))
    assert is_looked_up(metadata_pb2.ListOffsetsEntry(sizes_bytes=[1]))


def test_records_behind_the_given_ends_are_not_found() -> None:
    log = open_log(MemoryDisk())
    fill(log, 4)
    entry = metadata_pb2.ListOffsetsEntry(timestamp_us=log._segments[0].end.max_timestamp_us)
    before, now = told(3), told(4)
    assert look_up_all([(log, entry, before), (log, entry, now)]) == [None, None]
    assert not before.HasField("offset")
    assert now.offset == 3


def test_a_segment_that_is_deleted_under_the_look_is_looked_for_where_the_log_begins_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = open_log(MemoryDisk())
    fill(log, 4)
    entry, result = metadata_pb2.ListOffsetsEntry(timestamp_us=0), told(4)
    look, missing = type(log).offset_for_timestamp, [FileNotFoundError(errno.ENOENT, "no such file")]

    def deleted_once(self: object, timestamp_us: int) -> tuple[int, int] | None:
        if missing:
            raise missing.pop()
        return look(log, timestamp_us)

    monkeypatch.setattr(type(log), "offset_for_timestamp", deleted_once)
    assert look_up_all([(log, entry, result)]) == [None]
    assert result.offset == 0


def test_a_log_that_cannot_be_read_is_reported_beside_the_others() -> None:
    files = MemoryDisk()
    log, broken = open_log(files), open_log(MemoryDisk())
    fill(log, 2)
    fill(broken, 2)
    broken._segments[0].file.close()
    entry = metadata_pb2.ListOffsetsEntry(timestamp_us=0)
    failed, nothing = look_up_all([(broken, entry, told(2)), (log, entry, told(2))])
    assert isinstance(failed, OSError)
    assert nothing is None
