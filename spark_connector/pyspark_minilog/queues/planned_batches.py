"""What becomes of a micro-batch of a queue, between the two processes of the driver that decide it.

    READ      the source reads the batch                          the sink settles its messages
    LOST      the source reads nothing: its locks had ended       the sink settles nothing
    SETTLED   a sink that settles has committed the batch         the source accepts nothing

A lock that had ended for the source may hold again for the sink, when a transaction of an earlier driver is aborted in
between. So the sink asks no coordinator, and believes the source. Both processes are on the driver's machine, and share
the folders of the driver. A small file there has the state of a batch. Another driver has other folders, and Spark
deletes them at the end of the driver.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from pathlib import Path

_DRIVER = "SPARK_LOCAL_DIRS"  # folders with commas between them, of this driver alone (writing/open_attempt.py)
_FOLDER = "minilog-queues"


class BatchState(enum.Enum):
    """The state of a planned batch."""

    READ = "read"
    LOST = "lost"
    SETTLED = "settled"


def note_batch(name: str, state: BatchState, environment: Mapping[str, str] = os.environ) -> None:
    """Note the state of the batch of this name. Raises OSError."""
    folder = _folder(environment)
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{name}.{os.getpid()}"
    written.write_text(state.value)
    written.replace(folder / name)


def noted_batch(name: str, environment: Mapping[str, str] = os.environ) -> BatchState | None:
    """The state of the batch of this name. None if nothing is noted."""
    folder = _folder(environment)
    if folder is None:
        return None
    try:
        return BatchState((folder / name).read_text())
    except FileNotFoundError:
        return None


def forget_batch(name: str, environment: Mapping[str, str] = os.environ) -> None:
    """The batch is done."""
    folder = _folder(environment)
    if folder is not None:
        (folder / name).unlink(missing_ok=True)


def _folder(environment: Mapping[str, str]) -> Path | None:
    folders = environment.get(_DRIVER)
    return Path(folders.split(",")[0]) / _FOLDER if folders else None
