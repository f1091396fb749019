"""The checkpoint of a log: what the next life may rely on, in the durable file `checkpoint`.

Recovery compares with it: a log that ends below the high watermark or the recorded durable end has lost something that
was promised. So both are lowered here, durably, before a truncation takes the records away.
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
    flush_on_append: bool  # the policy of the life that wrote it

    @property
    def promised_end_offset(self) -> int:
        """A log that ends below this has lost something."""
        return max(self.log_start_offset, self.high_watermark, self.durable_end_offset)


def read_checkpoint(files: FileSystem, directory: str) -> Checkpoint | None:
    """The checkpoint of the log in `directory`, None where there is none. Raises CorruptFile."""
    path = f"{directory}/{FILE_NAME}"
    content = read_durable_file(files, path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path} is no checkpoint: {error}") from error


def write_checkpoint(files: FileSystem, directory: str, checkpoint: Checkpoint) -> None:
    """Durable on return."""
    write_durable_file(files, f"{directory}/{FILE_NAME}", msgspec.json.encode(checkpoint))
