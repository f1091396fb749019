"""What storage refuses, as errors of the one hierarchy. A failing disk itself is an OSError, as the system gave it."""

from __future__ import annotations

from minilog.errors import MinilogError, StorageError


class DataDirectoryError(MinilogError):
    """A data directory that this broker may not use, or whose files say something that cannot be."""

    code = "STORAGE_ERROR"


class DataDirectoryInUse(DataDirectoryError):
    """Another process holds the lock of the data directory."""


class CorruptFile(StorageError):
    """A small durable file whose checksum is wrong: it was damaged, a crash cannot leave it so."""
