"""The checkpoint of a log: the offsets that the next life may rely on, in the durable file `checkpoint`.

Recovery compares the log with it. A log that ends below the recorded high watermark or durable end has lost records
that it promised to keep. So a truncation lowers both in the checkpoint, durably, before it removes records.

The checkpoint also records how the log promised the records above these ends. `flush_on_append` means that no record
counted as durable before it was synced. The log takes that back, durably, before the first append that counts without a
sync. It sets it again only when all is synced. So while a policy changes, the weaker one counts for new records.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem

FILE_NAME = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets as last recorded; `durable_end_offset` is what fdatasync had covered, under either flush policy."""

    log_start_offset: int
    high_watermark: int
    durable_end_offset: int
    flush_on_append: bool  # see the module's text
    boot_id: str = ""  # of the kernel that ran when it was written; empty: not known
    has_manifest: bool = False  # whether the manifest counts (manifest.py)

    def covers_all(self, boot_id: str) -> bool:
        """Whether a crash has left all that was counted: it was synced, or is in the page cache of the same boot."""
        return self.flush_on_append or self.boot_id == boot_id != ""


class CheckpointFile:
    """The checkpoint of one log as it was recorded last, None where there is none.

    `has_manifest`: what is recorded from the next time on."""

    def __init__(self, files: FileSystem, directory: str, recorded: Checkpoint | None, boot_id: str) -> None:
        self.recorded = recorded
        self.has_manifest = recorded is not None and recorded.has_manifest
        self._files = files
        self._directory = directory
        self._boot_id = boot_id

    def record(self, log_start: int, high_watermark: int, durable_end: int, *, flush_on_append: bool) -> None:
        """Durable on return; nothing is written where it says so already."""
        ends = log_start, max(log_start, high_watermark), max(log_start, durable_end)
        checkpoint = Checkpoint(*ends, flush_on_append, self._boot_id, self.has_manifest)
        if checkpoint != self.recorded:
            write_checkpoint(self._files, self._directory, checkpoint)
            self.recorded = checkpoint

    def promises_above(self, end_offset: int) -> bool:
        """Whether a log that ends at `end_offset` has lost something, by what is recorded; or nothing is recorded."""
        recorded = self.recorded
        return recorded is None or max(recorded.high_watermark, recorded.durable_end_offset) > end_offset

    @property
    def expects_unsynced(self) -> bool:
        """Whether it says that what is appended in this boot may count before it is synced."""
        recorded = self.recorded
        return recorded is not None and not recorded.flush_on_append and recorded.boot_id == self._boot_id


def read_checkpoint(files: FileSystem, directory: str) -> Checkpoint | None:
    """The checkpoint of the log in `directory`, None where there is none. Raises CorruptFile."""
    path = f"{directory}/{FILE_NAME}"
    content = read_durable_file(files, path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path} is not a checkpoint: {error}") from error


def write_checkpoint(files: FileSystem, directory: str, checkpoint: Checkpoint) -> None:
    """Durable on return."""
    write_durable_file(files, f"{directory}/{FILE_NAME}", msgspec.json.encode(checkpoint))
