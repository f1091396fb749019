"""Reads the query's id and the offsets of a micro-batch from the query's checkpoint, if the driver can read it.

Spark writes the offsets before a batch runs, and reads them back, unchanged, to replay it. The file has a line with a
version and a line with metadata, and then one line for each source. Spark passes a sink only the folder of the
checkpoint, if it was given as an option. For the digest of a replay this module reads only folders of this machine,
local or mounted. A sink that settles a queue must read the offsets, from any file system that pyarrow knows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

_VERSION = "v1"
_HEADER_LINES = 2  # version and metadata: the latter has the time of planning, which is no offset
_MAX_METADATA_BYTES = 64 * 1024  # one line, of the query's id
_MAX_LINE_BYTES = 64 * 1024 * 1024  # a million partitions of one source are half of it


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


def offset_lines(checkpoint: str, batch_id: int) -> list[str] | None:
    """The offsets of a micro-batch, one line for each source, from any file system that pyarrow knows. None if there is
    no such batch. Raises OSError, ValueError."""
    import pyarrow.fs

    local = _local(checkpoint)
    if local is None:
        files, folder = pyarrow.fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", checkpoint))
    else:
        files, folder = pyarrow.fs.LocalFileSystem(), str(local)
    try:
        with files.open_input_stream(f"{folder}/offsets/{batch_id}") as written:
            lines: list[str] = written.read().decode().splitlines()
    except FileNotFoundError:
        return None
    if lines[:1] != [_VERSION]:
        raise ValueError(
            f"offsets/{batch_id} of checkpoint {checkpoint} has the form {lines[:1]}, and this version reads {_VERSION}"
        )
    return lines[_HEADER_LINES:]


def digest_of(lines: Iterable[str]) -> bytes:
    """SHA-256 of the offsets of a micro-batch, the same as `offsets_digest`."""
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).digest()


def _local(checkpoint: str) -> Path | None:
    """The folder, if it may be on this machine. Like Spark, it unquotes nothing."""
    path = re.sub(r"^file:(//[^/]*)?", "", checkpoint)
    return None if "://" in path else Path(path)
