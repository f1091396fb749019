"""The manifest of a log: its segments in their order, each with its state, in the durable file `manifest`.

    active    the last one. The log appends to it, and only its batches show where it ends.
    sealed    all before it. They are synced, and neither their end nor their size changes any more.

One write swaps the whole list. From then on the list counts: a file that it does not name is the rest of an unfinished
change, and recovery removes it. Behind the last named segment recovery accepts all files that are not empty. Such a
file is there if a crash interrupted a truncation, or if the log made a segment and had not named it yet.

A log has no manifest until it has its second segment. If it begins anew, it has none until it has a second one again.
An earlier version does not know the file, and changes segments without it. So the manifest counts only if the
checkpoint has the flag `has_manifest`. An earlier version drops the flag with the first checkpoint that it writes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from minilog.errors import UnsupportedVersion
from minilog_broker.storage.durable_file import read_durable_file, remove_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.index import SegmentEnd
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.segment_name import SegmentName

FILE_NAME = "manifest"


class SegmentState(enum.Enum):
    """The state of a listed segment. The module's table has the meanings."""

    ACTIVE = "active"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """One segment of a manifest. `end` is the end of a sealed segment. It is None for the active one."""

    name: SegmentName
    state: SegmentState
    end: SegmentEnd | None = None


Manifest = tuple[ListedSegment, ...]
"""All segments of a log, the active one last."""


class _Written(msgspec.Struct, omit_defaults=True):
    """A segment as the file has it. A state that this version does not know comes from a later version."""

    base_offset: int
    state: str
    end: SegmentEnd | None = None
    generation: int = 0

    @property
    def name(self) -> SegmentName:
        return SegmentName(self.base_offset, self.generation)


class _File(msgspec.Struct):
    segments: list[_Written]


class ManifestFile:
    """The manifest of one log. `recorded` is the one that was recorded last, None if there is none."""

    def __init__(self, files: FileSystem, directory: str, recorded: Manifest | None) -> None:
        self.recorded = recorded
        self._files = files
        self._directory = directory

    def swap(self, segments: Sequence[Segment]) -> None:
        """Make `segments` the list of segments, durably on return. Raises OSError.

        If the file has that list already, nothing is written. The same holds for one segment without a manifest."""
        manifest = manifest_of(segments)
        if manifest != self.recorded and (len(manifest) > 1 or self.recorded is not None):
            written = _File(
                [
                    _Written(listed.name.base_offset, listed.state.value, listed.end, listed.name.generation)
                    for listed in manifest
                ]
            )
            write_durable_file(self._files, f"{self._directory}/{FILE_NAME}", msgspec.json.encode(written))
            self.recorded = manifest

    def is_in_place(self) -> bool:
        """Whether the file still has the recorded list. A failed write may have replaced it. Raises OSError."""
        try:
            return read_manifest(self._files, self._directory) == self.recorded
        except CorruptFile:
            return False

    def forget(self) -> None:
        """Remove the manifest, durably. That takes no space on the disk. Raises OSError."""
        if self.recorded is not None:
            remove_durable_file(self._files, f"{self._directory}/{FILE_NAME}")
            self.recorded = None


def manifest_of(segments: Sequence[Segment]) -> Manifest:
    """The manifest that lists these segments."""
    sealed = [ListedSegment(segment.name, SegmentState.SEALED, segment.end) for segment in segments[:-1]]
    return (*sealed, ListedSegment(segments[-1].name, SegmentState.ACTIVE))


def read_manifest(files: FileSystem, directory: str) -> Manifest | None:
    """The manifest of the log in `directory`. None if there is none.

    Raises CorruptFile, UnsupportedVersion if a later version wrote it."""
    path = f"{directory}/{FILE_NAME}"
    content = read_durable_file(files, path)
    if content is None:
        return None
    try:
        written = msgspec.json.decode(content, type=_File).segments
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path} is not a manifest: {error}") from error
    states = {state.value: state for state in SegmentState}
    if later := sorted({listed.state for listed in written} - states.keys()):
        raise UnsupportedVersion(
            f"{path} lists segments with the states {', '.join(later)}: a later version wrote it. Start that version"
        )
    manifest = tuple(ListedSegment(listed.name, states[listed.state], listed.end) for listed in written)
    if not _is_whole(manifest):
        raise CorruptFile(f"{path} is not a manifest: it does not list segments in order, the last one active")
    return manifest


def _is_whole(manifest: Manifest) -> bool:
    bases = [segment.name.base_offset for segment in manifest]
    are_named = all(segment.name.generation >= 0 for segment in manifest)
    ends = [segment.end for segment in manifest if segment.state is SegmentState.SEALED and segment.end is not None]
    has_active = bool(manifest) and manifest[-1].state is SegmentState.ACTIVE
    return (
        has_active and are_named and len(ends) == len(manifest) - 1 and all(low < high for low, high in pairwise(bases))
    )
