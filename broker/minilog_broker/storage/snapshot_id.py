"""The id of a snapshot of the metadata image, and the name of its file."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(\d{20})-(\d{10})\.snapshot")


class SnapshotId(NamedTuple):
    """The id of a snapshot of all committed records below `end_offset`. `epoch` is that of the record before it."""

    end_offset: int
    epoch: int


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """The name of the snapshot's file. Names sort in the order of the snapshots."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.snapshot"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id of the snapshot with this file name. None if a file of that name is no snapshot of the image."""
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))
