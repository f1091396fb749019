"""Offsets by time and by size, looked up in the files of a log by a thread that may wait for the disk.

They are those of the ends that were told before: what was written since is in neither. (Who is told that no record is
as late as it wants begins at the end that stands beside that.)
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
    """Whether the files have to be asked for it."""
    return entry.HasField("timestamp_us") or bool(entry.sizes_bytes)


def look_up_all(
    wanted: Iterable[LookUp],
) -> list[OSError | MinilogError | None]:
    """Add to each result what its entry asks for; what could not be read of each."""
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
    """A segment may be deleted under the look: then the log has begun behind it, and is looked at again."""
    try:
        _look_up(log, entry, result)
    except FileNotFoundError:
        _look_up(log, entry, result)


def _look_up(log: Log, entry: metadata_pb2.ListOffsetsEntry, result: metadata_pb2.ListOffsetsResult) -> None:
    del result.sizes[:]
    if entry.HasField("timestamp_us"):
        found = log.offset_for_timestamp(entry.timestamp_us)
        if found is not None and found[0] < result.last_stable_offset:
            result.offset, result.timestamp_us = found
    if entry.sizes_bytes:
        marks = log.offsets_at_sizes(entry.from_offset, entry.sizes_bytes, result.high_watermark)
        result.sizes.extend(metadata_pb2.OffsetAtSize(offset=at, size_bytes=size) for at, size in marks)
