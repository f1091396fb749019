"""The metadata log as the quorum's core knows it: a replica's log (replication.replica_log) that begins at a snapshot.

Below its start there is a snapshot; the epoch of the record before the start is known from the snapshot's name. What is
committed is never cut, whoever asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog.errors import InconsistentClusterId
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.divergence import NO_COMMON_EPOCH
from minilog_broker.storage.snapshot_id import SnapshotId

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log


class MetadataLog(ReplicaLog):
    """The metadata log with its snapshots. `snapshots`: the ones that can be sent, the newest first."""

    def __init__(self, log: Log, snapshot: SnapshotId | None) -> None:
        self.snapshots = [] if snapshot is None else [snapshot]
        self._cuts_asked = 0  # a snapshot may come while the disk still truncates: the last answer counts
        super().__init__(log)

    def _adopt_ends(self) -> None:
        super()._adopt_ends()
        if self.last_epoch is None and (base := self.base) is not None and base.end_offset == self.end:
            self.last_epoch = base.epoch

    @property
    def base(self) -> SnapshotId | None:
        """The snapshot at which the log begins; None where it begins at 0."""
        return next((snapshot for snapshot in self.snapshots if snapshot.end_offset == self.log_start), None)

    @property
    def snapshot(self) -> SnapshotId | None:
        """The newest one."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def last_entry(self) -> tuple[int, int]:
        """(epoch of the last record, -1 where there never was one; end offset): what votes compare."""
        return (-1 if self.last_epoch is None else self.last_epoch), self.end

    def add_snapshot(self, snapshot_id: SnapshotId) -> None:
        """It is durable. The one before is kept for those who are fetching it, and until the log has moved up."""
        if snapshot_id not in self.snapshots:
            self.snapshots = sorted([snapshot_id, *self.snapshots], reverse=True)[:2]

    def begin_truncation(self, end_offset: int) -> None:
        """Raises InconsistentClusterId where committed entries would go."""
        if end_offset < self.high_watermark:
            raise InconsistentClusterId(
                f"the quorum's leader leaves our metadata log at offset {end_offset}, of which {self.high_watermark} "
                f"are committed: it is another cluster's, or has lost its disk"
            )
        self._cuts_asked += 1
        super().begin_truncation(end_offset)

    def truncated(self) -> None:
        """One of the cuts is done; `truncating` as long as another is to come."""
        self._cuts_asked -= 1
        if self._cuts_asked <= 0:
            self._cuts_asked = 0
            super().truncated()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, the one before the start included, and where it ends."""
        common_epoch, end_offset = self.log.epochs.end_offset_for(epoch, log_end)
        base = self.base
        if common_epoch == NO_COMMON_EPOCH and base is not None and epoch >= base.epoch:
            return base.epoch, base.end_offset
        return common_epoch, end_offset
