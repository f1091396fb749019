"""The replay of the committed metadata log into one broker's image (V13): decisions, and snapshots in their place.

    wish of the node                 action
    a read by next_committed()       the bytes go to take_committed(), and its decisions are applied in order
    LoadSnapshot(id)                 the bytes of the file go to `load`: the image becomes the snapshot's, and the node
                                     gets the voters in it

A snapshot of the image is due after a number of bytes of log. It has all that is committed below its end, and the log
may start there from then on. A snapshot is due at once after a change of the voters. It shows a later start that the
change is committed, and that the former voters are needed no more.
"""

from __future__ import annotations

from minilog.errors import CorruptMessage, StorageError
from minilog.record_batch.header import Buffer
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import CommittedRead
from minilog_broker.storage.snapshot_id import SnapshotId


class MetadataReplay:
    """The owner of a broker's image, which applies committed decisions and snapshots to it.

    Nothing else changes `image`. After `replay` or `load` the image has its changes. `snapshot_bytes` may be replaced.
    """

    def __init__(self, node: QuorumNode, image: MetadataImage, *, snapshot_bytes: int) -> None:
        self.image = image
        self._node = node
        self.snapshot_bytes = snapshot_bytes
        self._bytes_behind = 0  # bytes of log since the last snapshot, taken or loaded
        self._epoch = 0  # of the last record applied

    def replay(self, read: CommittedRead, run: Buffer) -> bool:
        """Apply the next committed decisions, which were read from the log. True where there were any.

        Raises InconsistentClusterId or InconsistentVoters where they show that this broker is of another cluster, and
        UnsupportedVersion where a later version wrote them.
        """
        decisions = self._node.take_committed(read, run)
        for decision in decisions:
            apply_decision(self.image, decision.base_offset, decision.end_offset, decision.records)
            self._bytes_behind += decision.size_bytes
            self._epoch = decision.epoch
            if any(record.HasField("voter_replaced") or record.HasField("voters") for record in decision.records):
                self._bytes_behind = max(self._bytes_behind, self.snapshot_bytes)
        return bool(decisions)

    def load(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Carry out LoadSnapshot with the content of its file. Raises StorageError where the file, which was sound at
        its arrival, is damaged now."""
        try:
            loaded = decode_snapshot(content, snapshot_id)
        except CorruptMessage as error:
            raise StorageError(
                f"{error}: set the data directory aside, and start with an empty one. Replace the broker as a voter "
                "if it is one"
            ) from error
        self.image.become(loaded)
        self._bytes_behind, self._epoch = 0, snapshot_id.epoch
        self._node.snapshot_loaded(
            snapshot_id,
            loaded.cluster_id,
            loaded.voters,
            loaded.level,
            has_addresses=loaded.has_voter_addresses,
        )

    def snapshot_due(self) -> tuple[SnapshotId, bytes] | None:
        """The next snapshot and its content, to be written now, where enough log is behind the last one; else None."""
        if self._bytes_behind < self.snapshot_bytes:
            return None
        self._bytes_behind = 0
        return self.take_snapshot()

    def take_snapshot(self) -> tuple[SnapshotId, bytes]:
        """A snapshot of the image at this time."""
        return SnapshotId(self.image.end_offset, self._epoch), encode_snapshot(self.image, self._epoch)
