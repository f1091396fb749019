"""The id of a snapshot of the metadata image, and the name of its file."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(\d{20})-(\d{10})\.snapshot")


class SnapshotId(NamedTuple):
    """A snapshot has all that is committed below `end_offset`; `epoch` is that of the record before it."""

    end_offset: int
    epoch: int


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """The name of its file; names sort as the snapshots do."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.snapshot"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """None where a file of that name is no snapshot of the image."""
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))
