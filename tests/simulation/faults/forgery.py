"""Records of one copy become others, under right checksums: what no disk does by itself, and a fault of ours might.

It befalls the weak machine alone (ground.py), in sealed segments, and only where all replicas have the batch: so two of
three copies have what was written. A scrub has to find it, and the broker has to fetch the records again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minilog.errors import CorruptMessage
from minilog.record_batch.header import HEADER_BYTES, batch_crc, decode_header, encode_header, iterate_headers
from minilog_broker.storage.checkpoint import read_checkpoint
from minilog_broker.storage.errors import CorruptFile
from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from minilog.partition_key import PartitionKey
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost

UNSEALED = 2  # segments at the end: the last one, and one that is not sealed on each replica, or not committed yet


@dataclass(frozen=True, slots=True)
class ForgedBatch:
    """A batch that was put in the place of another one."""

    host: SimulatedHost
    directory: str
    content: bytes

    @property
    def is_there(self) -> bool:
        """Whether the copy still has it, at or above its log start: what lies below in the same file is deleted."""
        return decode_header(self.content).next_offset > self._log_start_offset and any(
            self.content in content for content in segments_of(self.host, self.directory).values()
        )

    @property
    def _log_start_offset(self) -> int:
        """0 where no file has it."""
        with contextlib.suppress(CorruptFile):
            if self.host.disk.exists(self.directory):
                checkpoint = read_checkpoint(self.host.disk, self.directory)
                return 0 if checkpoint is None else checkpoint.log_start_offset
        return 0


def segments_of(host: SimulatedHost, directory: str) -> dict[str, bytes]:
    """The content of each segment of a log by its path, in their order."""
    names = sorted(path for path in host.disk.names if path.startswith(f"{directory}/") and path.endswith(".log"))
    return {path: bytes(host.disk.content(path)) for path in names}


def forged(key: PartitionKey, batch: bytes) -> bytes:
    """The batch with another last byte, and right checksums."""
    ((_, header),) = iterate_headers(batch)
    changed = bytearray(batch)
    changed[-1] ^= 1
    crc = batch_crc(key.topic_id, key.partition, bytes(changed))
    changed[:HEADER_BYTES] = encode_header(replace(header, crc=crc))
    return bytes(changed)


def put(host: SimulatedHost, path: str, position: int, before: bytes, after: bytes) -> None:
    """Write `after` over `before`, in the page cache and on the disk."""
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        for bit in range(8):
            if (one ^ other) >> bit & 1:
                host.disk.flip_bit(path, position + index, bit)


class Forgery:
    """See the module's text."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def forge(self) -> bool:
        """A batch of the weak machine."""
        ground, host = self._ground, self._ground.weak_host()
        if host is None:
            return False
        spots = [
            (key, directory, path, position, batch)
            for at, key in ground.workload.keys.items()
            for directory in [f"{DATA_PATH}/{at.topic}-{at.partition}"]
            for path, position, batch in self._batches(host, directory)
        ]
        if not spots:
            return False
        key, directory, path, position, batch = ground.random.choice(spots)
        after = forged(key, batch)
        put(host, path, position, batch, after)
        ground.forged.append(ForgedBatch(host, directory, after))
        ground.rotten = host
        ground.erred.add(host.name)
        host.ails("rot")
        ground.cluster.note(f"{host.name}: a batch of {path} is forged at {position}")
        return True

    def _batches(self, host: SimulatedHost, directory: str) -> list[tuple[str, int, bytes]]:
        """(path, position, content) of batches that may be forged."""
        others = [other for other in self._ground.cluster.hosts.values() if other is not host]
        elsewhere = [b"".join(segments_of(other, directory).values()) for other in others]
        copies = [content for content in elsewhere if content]
        if len(copies) < 2:
            return []
        return [
            (path, position, batch)
            for path, content in list(segments_of(host, directory).items())[:-UNSEALED]
            for position, batch in _whole_batches(content)
            if sum(batch in copy for copy in copies) >= 2
        ]


def _whole_batches(content: bytes) -> list[tuple[int, bytes]]:
    """As far as they can be read."""
    batches = []
    try:
        for position, header in iterate_headers(content):
            batches.append((position, content[position : position + header.length]))
    except CorruptMessage:
        """The bytes behind are rotten already, or torn."""
    return batches
