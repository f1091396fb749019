"""Offsets by time and by size, which a thread that may wait for the disk looks up in the files of a log.

They belong to ends that were read before: records after these ends count for neither. (A client that learns that no
record is late enough begins at the end beside that answer.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from minilog.errors import MinilogError
from minilog.v1 import metadata_pb2
from minilog_broker.storage.log import Log

LookUp: TypeAlias = tuple[Log, metadata_pb2.ListOffsetsEntry, metadata_pb2.ListOffsetsResult]
LOOKED_UP_AT_ONCE = 10  # entries, of 64 sizes each: some milliseconds


def is_looked_up(entry: metadata_pb2.ListOffsetsEntry) -> bool:
    """Whether an entry needs the files."""
    return entry.HasField("timestamp_us") or bool(entry.sizes_bytes)


def look_up_all(
    wanted: Iterable[LookUp],
) -> list[OSError | MinilogError | None]:
    """Add to each result the offsets of its entry. The answer has the error of each, None without one."""
    failed: list[OSError | MinilogError | None] = []
    for log, entry, result in wanted:
        try:
            _look_up_where_it_is(log, entry, result)
            failed.append(None)
        except (OSError, MinilogError) as error:
            failed.append(error)
    return failed


def _look_up_where_it_is(
    log: Log, entry: metadata_pb2.ListOffsetsEntry, result: metadata_pb2.ListOffsetsResult
) -> None:
    """Look up an entry. A segment may be deleted during the search. Then the log begins behind it, and the search
    begins anew."""
    try:
        _look_up(log, entry, result)
    except FileNotFoundError:
        _look_up(log, entry, result)


def _look_up(log: Log, entry: metadata_pb2.ListOffsetsEntry, result: metadata_pb2.ListOffsetsResult) -> None:
    del result.sizes[:]
    if entry.HasField("timestamp_us"):
        match = log.offset_for_timestamp(entry.timestamp_us)
        if match is not None and match[0] < result.last_stable_offset:
            result.offset, result.timestamp_us = match
    if entry.sizes_bytes:
        marks = log.offsets_at_sizes(entry.from_offset, entry.sizes_bytes, result.high_watermark)
        result.sizes.extend(metadata_pb2.OffsetAtSize(offset=at, size_bytes=size) for at, size in marks)
