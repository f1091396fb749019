"""Reads the query's id and the offsets of a micro-batch from the query's checkpoint, if the driver can read it.

Spark writes the offsets before a batch runs, and reads them back, unchanged, to replay it. The file has a line with its
form and a line with metadata, and then one line for each source: in form v1 its offset, or -, and in form v2 the same
behind the name of the source and a colon. Form v2 comes with spark.sql.streaming.offsetLog.formatVersion=2, and with
sources that have names. Spark passes a sink only the folder of the checkpoint, if it was given as an option. For the
digest of a replay this module reads only folders of this machine, local or mounted. A sink that settles a queue must
read the offsets, from any file system that pyarrow knows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_UNNAMED, _NAMED = "v1", "v2"
_HEADER_LINES = 2  # version and metadata: the latter has the time of planning, which is no offset
_MAX_METADATA_BYTES = 64 * 1024  # one line, of the query's id
_SHOWN_CHARACTERS = 100
_MAX_LINE_BYTES = 64 * 1024 * 1024  # a million partitions of one source are half of it


class UnknownForm(ValueError):
    """The offsets of a checkpoint have a form that this version does not know. The text is the form."""


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The offsets of a micro-batch, one of each source, and their `offsets_digest`."""

    offsets: tuple[str, ...]
    digest: bytes


def query_id(checkpoint: str | None) -> str | None:
    """The id of the query, or None if the driver cannot read it."""
    folder = None if checkpoint is None else _local(checkpoint)
    if folder is None:
        return None
    try:
        with (folder / "metadata").open("rb") as written:
            metadata = json.loads(written.read(_MAX_METADATA_BYTES))
    except (OSError, ValueError) as error:
        logger.debug("the id of the query is not known: %s", error)
        return None
    named = metadata.get("id") if isinstance(metadata, dict) else None
    return named if isinstance(named, str) else None


def offsets_digest(checkpoint: str | None, batch_id: int) -> bytes:
    """SHA-256 of the offsets of a micro-batch, of all sources. Empty if the driver cannot read them."""
    folder = None if checkpoint is None else _local(checkpoint)
    if folder is None:
        return b""
    digest = hashlib.sha256()
    lines = 0
    try:
        with (folder / "offsets" / str(batch_id)).open("rb") as written:
            for lines, line in enumerate(iter(lambda: written.readline(_MAX_LINE_BYTES), b""), start=1):
                if lines > _HEADER_LINES:
                    digest.update(line.rstrip(b"\n") + b"\n")
    except OSError as error:
        logger.debug("the offsets of micro-batch %d are not compared: %s", batch_id, error)
        return b""
    return digest.digest() if lines > _HEADER_LINES else b""


def batch_offsets(checkpoint: str, batch_id: int) -> BatchOffsets | None:
    """The offsets of a micro-batch, from any file system that pyarrow knows. None if there is no such batch. Raises
    OSError, ValueError, and UnknownForm."""
    import pyarrow.fs

    local = _local(checkpoint)
    if local is None:
        files, folder = pyarrow.fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", checkpoint))
    else:
        files, folder = pyarrow.fs.LocalFileSystem(), str(local)
    try:
        with files.open_input_stream(f"{folder}/offsets/{batch_id}") as written:
            return read_offsets(written.read())
    except FileNotFoundError:
        return None


def read_offsets(written: bytes) -> BatchOffsets:
    """The content of a file of offsets. Raises UnknownForm, ValueError."""
    form, *lines = written.decode().removesuffix("\n").split("\n")
    if form not in (_UNNAMED, _NAMED):
        raise UnknownForm(form)
    lines = lines[_HEADER_LINES - 1 :]
    digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).digest()
    return BatchOffsets(tuple(_offset(line) if form == _NAMED else line for line in lines), digest)


def _offset(line: str) -> str:
    name, colon, offset = line.partition(":")
    if not name or not colon:
        raise ValueError(f"a line of form {_NAMED} has no name of a source: {line[:_SHOWN_CHARACTERS]}")
    return offset


def is_local(checkpoint: str) -> bool:
    """Whether the folder may be on this machine."""
    return _local(checkpoint) is not None


def _local(checkpoint: str) -> Path | None:
    """The folder, if it may be on this machine. Like Spark, it unquotes nothing."""
    path = re.sub(r"^file:(//[^/]*)?", "", checkpoint)
    return None if "://" in path else Path(path)
