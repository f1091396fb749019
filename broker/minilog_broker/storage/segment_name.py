"""The names of a segment's files.

    <base offset, 20 digits>.log                 generation 0: as it was appended
    <base offset, 20 digits>.<generation>.log    as it was written anew, from generation 1 on

Its index files are named alike, with other suffixes. A segment that is written anew has another name than the one in
whose place it comes. So both are there until one write of the manifest swaps them (manifest.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOG_SUFFIX = ".log"
_LOG_FILE = re.compile(r"(\d{20})(?:\.([1-9]\d{0,9}))?" + re.escape(LOG_SUFFIX))


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Names in order are in the order of their offsets, and of one offset in that of their generations."""

    base_offset: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.base_offset}.{self.generation}" if self.generation else str(self.base_offset)

    def file(self, suffix: str = LOG_SUFFIX) -> str:
        """The name of its file with this suffix."""
        generation = f".{self.generation}" if self.generation else ""
        return f"{self.base_offset:020d}{generation}{suffix}"

    def path(self, directory: str, suffix: str = LOG_SUFFIX) -> str:
        """The path of that file in the log's directory."""
        return f"{directory}/{self.file(suffix)}"

    def next_generation(self) -> SegmentName:
        """The name for what is written anew in the place of this one."""
        return SegmentName(self.base_offset, self.generation + 1)


def segment_names(files: Iterable[str]) -> list[SegmentName]:
    """The segments that have a `.log` file among these files of a log's directory, in order."""
    matches = (_LOG_FILE.fullmatch(file) for file in files)
    return sorted(SegmentName(int(match[1]), int(match[2] or 0)) for match in matches if match)
