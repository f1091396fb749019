"""The metadata log as the quorum's core sees it: a replica's log (replication.replica_log) that begins at a snapshot.

Below its start there is a snapshot. The snapshot's name has the epoch of the record before the start. Committed entries
are never cut, whoever asks for it.
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
    """The metadata log with its snapshots. `snapshots`: the snapshots that can be sent, the newest first."""

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
        """The newest snapshot, if there is one."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def last_entry(self) -> tuple[int, int]:
        """(epoch of the last record, -1 if there never was one; end offset). Votes compare it."""
        return (-1 if self.last_epoch is None else self.last_epoch), self.end

    def add_snapshot(self, snapshot_id: SnapshotId) -> None:
        """The snapshot is durable. The one before it stays for brokers that are fetching it, and until the log start
        has moved up."""
        if snapshot_id not in self.snapshots:
            self.snapshots = sorted([snapshot_id, *self.snapshots], reverse=True)[:2]

    def begin_truncation(self, end_offset: int) -> None:
        """Raises InconsistentClusterId if committed entries would go."""
        if end_offset < self.high_watermark:
            raise InconsistentClusterId(
                f"the log of the quorum's leader parts from our metadata log at offset {end_offset}, but ours is "
                f"committed up to {self.high_watermark}: the leader belongs to another cluster, or has lost its disk"
            )
        self._cuts_asked += 1
        super().begin_truncation(end_offset)

    def truncated(self) -> None:
        """One of the cuts is done. `truncating` stays true as long as another one is to come."""
        self._cuts_asked -= 1
        if self._cuts_asked <= 0:
            self._cuts_asked = 0
            super().truncated()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch`, and its end. The epoch before the log's start counts, too."""
        common_epoch, end_offset = self.log.epochs.end_offset_for(epoch, log_end)
        base = self.base
        if common_epoch == NO_COMMON_EPOCH and base is not None and epoch >= base.epoch:
            return base.epoch, base.end_offset
        return common_epoch, end_offset
