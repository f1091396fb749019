"""What a source of a queue has planned for a micro-batch: its records, or none because their locks had ended.

The process of the source decides that, and the process that commits the sink must know it: a lock that had ended for
the source may hold again for the sink, when a transaction of an earlier driver is aborted in between. Both processes
are on the driver's machine, and share the folders of the driver. So a small file there has the decision. Another driver
has other folders, and Spark deletes them at the end of the driver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_DRIVER = "SPARK_LOCAL_DIRS"  # folders with commas between them, of this driver alone (open_attempt.py)
_FOLDER = "minilog-queues"
_READ, _LOST = "read", "lost"


def note_planned(name: str, *, reads: bool, environment: Mapping[str, str] = os.environ) -> None:
    """Note the decision about the batch of this name. Raises OSError."""
    folder = _folder(environment)
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{name}.{os.getpid()}"
    written.write_text(_READ if reads else _LOST)
    written.replace(folder / name)


def is_read(name: str, environment: Mapping[str, str] = os.environ) -> bool | None:
    """Whether the source reads the batch of this name. None if it has noted nothing."""
    folder = _folder(environment)
    if folder is None:
        return None
    try:
        return (folder / name).read_text() == _READ
    except FileNotFoundError:
        return None


def forget_planned(name: str, environment: Mapping[str, str] = os.environ) -> None:
    """The batch has ended."""
    folder = _folder(environment)
    if folder is not None:
        (folder / name).unlink(missing_ok=True)


def _folder(environment: Mapping[str, str]) -> Path | None:
    folders = environment.get(_DRIVER)
    return Path(folders.split(",")[0]) / _FOLDER if folders else None
