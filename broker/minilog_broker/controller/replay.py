"""The replay of the committed metadata log into one broker's image (V13): decisions, and snapshots in their place.

    the node says                     what is done
    next_committed() is to be read    what is read is given to take_committed(): its decisions are applied, in order
    LoadSnapshot(id)                  what is read of its file is given to `load`: the image becomes the snapshot's, and
                                      the node is told the voters in it

Every so many bytes of log a snapshot of the image is due: all that is committed below its end, which is where the log
may start from then on. One is due at once when the voters change: a start knows by it that this is committed, and that
the voters before it are needed no more.
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

    Nothing else changes `image`. After `replay` or `load` the image tells its changes. `snapshot_bytes` may be
    replaced.
    """

    def __init__(self, node: QuorumNode, image: MetadataImage, *, snapshot_bytes: int) -> None:
        self.image = image
        self._node = node
        self.snapshot_bytes = snapshot_bytes
        self._bytes_behind = 0  # of log applied since the last snapshot, taken or loaded
        self._epoch = 0  # of the last record applied

    def replay(self, asked: CommittedRead, run: Buffer) -> bool:
        """Apply the next committed decisions, which were read; whether there were any.

        Raises InconsistentClusterId or InconsistentVoters where they say that we do not belong here, UnsupportedVersion
        where a later version wrote them.
        """
        decisions = self._node.take_committed(asked, run)
        for decision in decisions:
            apply_decision(self.image, decision.base_offset, decision.end_offset, decision.records)
            self._bytes_behind += decision.size_bytes
            self._epoch = decision.epoch
            if any(record.HasField("voter_replaced") or record.HasField("voters") for record in decision.records):
                self._bytes_behind = max(self._bytes_behind, self.snapshot_bytes)
        return bool(decisions)

    def load(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Carry out LoadSnapshot with the content of its file. Raises StorageError where the file, checked when it
        came, is damaged now."""
        try:
            loaded = decode_snapshot(content, snapshot_id)
        except CorruptMessage as error:
            raise StorageError(
                f"{error}: set the data directory aside and start with an empty one; a voter is then to be replaced"
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
        """When enough log is behind the last snapshot: the next one and its content, to be written now; else None."""
        if self._bytes_behind < self.snapshot_bytes:
            return None
        self._bytes_behind = 0
        return self.take_snapshot()

    def take_snapshot(self) -> tuple[SnapshotId, bytes]:
        """A snapshot of the image as it is now."""
        return SnapshotId(self.image.end_offset, self._epoch), encode_snapshot(self.image, self._epoch)
