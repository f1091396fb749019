"""What recovery found, in small durable files of a log's directory: so that a second crash changes nothing of it.

    damaged     something that was promised is missing          until the first write of a life, which comes after
    doubtful    something that was counted may be missing       the controller was told
    torn-tail   the end was cut above all that was recorded      until the replica is in an ISR under a leader

Written before anything is cut. A mark that is damaged itself counts as there.
"""

from __future__ import annotations

from minilog_broker.storage.durable_file import read_durable_file, remove_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem

DAMAGED = "damaged"
DOUBTFUL = "doubtful"
TORN_TAIL = "torn-tail"


def read_mark(files: FileSystem, directory: str, mark: str) -> str | None:
    """Why the mark was written; None where there is none."""
    try:
        reason = read_durable_file(files, f"{directory}/{mark}")
    except CorruptFile:
        return f"found {mark} before"
    return None if reason is None else reason.decode(errors="replace")


def write_mark(files: FileSystem, directory: str, mark: str, reason: str) -> None:
    """Durable on return."""
    write_durable_file(files, f"{directory}/{mark}", reason.encode())


def remove_mark(files: FileSystem, directory: str, mark: str) -> None:
    """Durably; nothing where it is not there."""
    remove_durable_file(files, f"{directory}/{mark}")
