"""The checkpoint of a log: the offsets that the next life may rely on, in the durable file `checkpoint`.

Recovery compares the log with it. A log that ends below the recorded high watermark or durable end has lost records
that it promised to keep. So a truncation lowers both in the checkpoint, durably, before it removes records.

The checkpoint also records how the log promised the records above these ends. `flush_on_append` means that no record
counted as durable before it was synced. The log takes that back, durably, before the first append that counts without a
sync. It sets it again only when all is synced. So while a policy changes, the weaker one counts for new records.

The checkpoint also has the compaction of this copy (compaction_point.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from minilog_broker.storage.compaction_point import COPY_NOT_COMPACTED, CopyCompaction
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem

FILE_NAME = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The offsets that were recorded last. `durable_end_offset` is the end of the records that fdatasync had covered,
    under either flush policy."""

    log_start_offset: int
    high_watermark: int
    durable_end_offset: int
    flush_on_append: bool  # whether no record above these ends counted as durable before it was synced
    boot_id: str = ""  # of the kernel that ran when the checkpoint was written; empty if it is not known
    has_manifest: bool = False  # whether the manifest counts (manifest.py)
    compaction: CopyCompaction = COPY_NOT_COMPACTED

    def covers_all(self, boot_id: str) -> bool:
        """Whether a crash has lost no record that counted as durable.

        This is so if each record was synced, or if the same boot still has it in its page cache."""
        return self.flush_on_append or self.boot_id == boot_id != ""


class CheckpointFile:
    """The checkpoint of one log. `recorded` is the one that was recorded last, None if there is none.

    The next call of `record` stores the flag `has_manifest`."""

    def __init__(self, files: FileSystem, directory: str, recorded: Checkpoint | None, boot_id: str) -> None:
        self.recorded = recorded
        self.has_manifest = recorded is not None and recorded.has_manifest
        self._files = files
        self._directory = directory
        self._boot_id = boot_id

    @property
    def compaction(self) -> CopyCompaction:
        """The recorded compaction of the copy."""
        return COPY_NOT_COMPACTED if self.recorded is None else self.recorded.compaction

    def record(
        self,
        log_start: int,
        high_watermark: int,
        durable_end: int,
        *,
        flush_on_append: bool,
        compaction: CopyCompaction | None = None,
    ) -> None:
        """Record these offsets, durably on return. If the file has them already, nothing is written.

        `compaction` None: the recorded one stays."""
        ends = log_start, max(log_start, high_watermark), max(log_start, durable_end)
        compaction = self.compaction if compaction is None else compaction
        checkpoint = Checkpoint(*ends, flush_on_append, self._boot_id, self.has_manifest, compaction)
        if checkpoint != self.recorded:
            write_checkpoint(self._files, self._directory, checkpoint)
            self.recorded = checkpoint

    def promises_above(self, end_offset: int) -> bool:
        """Whether the checkpoint promises records at or above `end_offset`. Also true if there is no checkpoint."""
        recorded = self.recorded
        return recorded is None or max(recorded.high_watermark, recorded.durable_end_offset) > end_offset

    @property
    def expects_unsynced(self) -> bool:
        """Whether the checkpoint says that in this boot a record may count before it is synced."""
        recorded = self.recorded
        return recorded is not None and not recorded.flush_on_append and recorded.boot_id == self._boot_id


def read_checkpoint(files: FileSystem, directory: str) -> Checkpoint | None:
    """The checkpoint of the log in `directory`. None if there is no checkpoint. Raises CorruptFile."""
    path = f"{directory}/{FILE_NAME}"
    content = read_durable_file(files, path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path} is not a checkpoint: {error}") from error


def write_checkpoint(files: FileSystem, directory: str, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of the log in `directory`. It is durable on return."""
    write_durable_file(files, f"{directory}/{FILE_NAME}", msgspec.json.encode(checkpoint))
