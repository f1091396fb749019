"""The names of a segment's files.

    <base offset, 20 digits>.log                 generation 0: the appended batches
    <base offset, 20 digits>.<generation>.log    generation 1 and above: a compacted segment

The index files have the same names, with other suffixes. A compacted segment has another name than the segment that it
replaces. So both files are there until one write of the manifest swaps them (manifest.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOG_SUFFIX = ".log"
_LOG_FILE = re.compile(r"(\d{20})(?:\.([1-9]\d{0,9}))?" + re.escape(LOG_SUFFIX))


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The name of a segment. Names sort by base offset, and then by generation."""

    base_offset: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.base_offset}.{self.generation}" if self.generation else str(self.base_offset)

    def file(self, suffix: str = LOG_SUFFIX) -> str:
        """The name of the segment's file with this suffix."""
        generation = f".{self.generation}" if self.generation else ""
        return f"{self.base_offset:020d}{generation}{suffix}"

    def path(self, directory: str, suffix: str = LOG_SUFFIX) -> str:
        """The path of that file in the log's directory."""
        return f"{directory}/{self.file(suffix)}"

    def next_generation(self) -> SegmentName:
        """The name of the compacted segment that replaces this one."""
        return SegmentName(self.base_offset, self.generation + 1)


def segment_names(files: Iterable[str]) -> list[SegmentName]:
    """The segments that have a `.log` file among these files of a log's directory, in order."""
    matches = (_LOG_FILE.fullmatch(file) for file in files)
    return sorted(SegmentName(int(match[1]), int(match[2] or 0)) for match in matches if match)
