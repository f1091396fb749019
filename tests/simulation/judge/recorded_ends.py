"""What the durable `checkpoint` beside each copy promises to the next life, against the copy. V1.

log start         never goes back, but where the log begins anew: none of its former files is left
durable end       what is recorded as synced is on the disk; at the log start it promises nothing
high watermark    is at most the durable end; under flush.policy=os at most the end
a truncation      takes nothing away that is promised when it begins

A checkpoint is looked at when it is written, and five times a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog_broker.quorum.records import METADATA_KEY
from tests.judges.violation import Violation
from tests.simulation.judge.copies import Copy
from tests.world.stored import content_of

if TYPE_CHECKING:
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.truth import Truth
    from tests.world.disk import Inode

_NAME = "/checkpoint"


@dataclass(slots=True)
class _Recorded:
    """A checkpoint that was seen, and the files of the log then. `least_start`: below it the log may not begin while
    one of those files is there; a death may leave them beside a checkpoint that says that it begins anew. `before`:
    what a loss of power leaves there instead, in this boot of the machine; None: this one is on the disk."""

    stored: bytes
    start: int
    least_start: int
    high_watermark: int
    durable_end: int
    files: list[Inode]
    boots: int
    before: _Recorded | None

    @property
    def says_empty(self) -> bool:
        """It begins anew there: what is left of the former log is on its way out."""
        return self.start == self.high_watermark == self.durable_end


class RecordedEnds:
    """Looks at the checkpoint of each copy, and compares it with the disk that it lies on."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._seen: dict[tuple[Copy, PartitionKey], _Recorded] = {}

    def written(self, number: int, path: str) -> None:
        """A file of a host took this name."""
        if path.endswith(_NAME):
            for copy, key, partition in self._truth.all_copies():
                if copy.host.number == number and path == copy.path + _NAME:
                    self._look_at(copy, key, partition, copy.host.disk.content(path))

    def look(self) -> None:
        """At all copies."""
        for copy, key, partition in self._truth.all_copies():
            disk, path = copy.host.disk, copy.path + _NAME
            stored = disk.durable_content(path)
            if not disk.exists(path) or stored == disk.content(path):  # else another one is about to be durable
                self._look_at(copy, key, partition, stored)

    def _look_at(self, copy: Copy, key: PartitionKey, partition: JudgedPartition | None, stored: bytes | None) -> None:
        seen, cut = self._seen.get((copy, key)), copy.live.take_cut(__name__)
        if seen is not None and seen.before is not None and seen.boots != copy.host.boots:
            seen = seen.before
        if stored is None or self._is_damaged(copy, key) or (partition is not None and partition.exempt):
            self._seen.pop((copy, key), None)
            return
        is_durable = stored == copy.host.disk.durable_content(copy.path + _NAME)
        if seen is None or seen.stored != stored:
            seen = self._seen[copy, key] = self._read(copy, key, stored, seen)
        elif cut is not None and max(seen.high_watermark, seen.durable_end) > cut:
            text = f"b{copy.host.number} cuts {copy.path} to {cut}, and its checkpoint promises {seen.durable_end} "
            raise Violation("V1", f"{text}and {seen.high_watermark}")
        if is_durable:
            seen.before = None
        self._check_ends(copy, key, partition, seen)

    def _is_damaged(self, copy: Copy, key: PartitionKey) -> bool:
        if key == METADATA_KEY:
            return any(path.startswith(copy.path) for path, _, _ in copy.host.disk.flips)
        return self._truth.damage.excuses(copy.host.number, key)

    def _read(self, copy: Copy, key: PartitionKey, stored: bytes, before: _Recorded | None) -> _Recorded:
        said = json.loads(content_of(stored) or b"")
        files = copy.live.files
        start = int(said["log_start_offset"])
        found = _Recorded(
            stored,
            start,
            least_start=start,
            high_watermark=int(said["high_watermark"]),
            durable_end=int(said["durable_end_offset"]),
            files=files,
            boots=copy.host.boots,
            before=before if before is None or before.before is None else before.before,
        )
        if before is not None and start < before.least_start and any(each in files for each in before.files):
            if not found.says_empty:
                text = (
                    f"the log {copy.path} on b{copy.host.number} began at {before.least_start}, and begins at {start}"
                )
                raise Violation("V1", f"{text} now")
            found.least_start, found.files = before.least_start, before.files
        return found

    def _check_ends(
        self, copy: Copy, key: PartitionKey, partition: JudgedPartition | None, recorded: _Recorded
    ) -> None:
        if recorded.says_empty:
            return
        synced = copy.durable.end
        if recorded.durable_end > max(synced, recorded.start):
            text = f"on b{copy.host.number} {copy.path} is recorded as durable up to {recorded.durable_end}, on the "
            raise Violation("V1", f"{text}disk is {synced}")
        end = copy.live.end if partition is not None and partition.unsynced_since_s is not None else synced
        if recorded.high_watermark > end:
            text = f"on b{copy.host.number} the high watermark {recorded.high_watermark} of {copy.path} is recorded, "
            raise Violation("V1", f"{text}and the log ends at {end}")
