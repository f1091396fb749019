"""Recovery's verdict, in small durable files of a log's directory. So a second crash does not change the verdict.

    damaged     promised records are missing                    until the first write of a life, which comes after
    doubtful    acknowledged records may be missing             the report to the controller
    torn-tail   the end was cut above all recorded ends         until the replica is in an ISR under a leader

Recovery writes a mark before it cuts anything. A mark that is damaged itself counts as set.
"""

from __future__ import annotations

from minilog_broker.storage.durable_file import read_durable_file, remove_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem

DAMAGED = "damaged"
DOUBTFUL = "doubtful"
TORN_TAIL = "torn-tail"


def read_mark(files: FileSystem, directory: str, mark: str) -> str | None:
    """The reason that a mark gives. None if there is no mark."""
    try:
        reason = read_durable_file(files, f"{directory}/{mark}")
    except CorruptFile:
        return f"found {mark} before"
    return None if reason is None else reason.decode(errors="replace")


def write_mark(files: FileSystem, directory: str, mark: str, reason: str) -> None:
    """Write a mark. It is durable on return."""
    write_durable_file(files, f"{directory}/{mark}", reason.encode())


def remove_mark(files: FileSystem, directory: str, mark: str) -> None:
    """Remove a mark, durably. If it is not there, nothing happens."""
    remove_durable_file(files, f"{directory}/{mark}")
