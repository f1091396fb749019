"""How the file descriptors of this process are shared out: between segment files, connections and all else."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from minilog_broker.failure import CommandFailed

OUT_OF_FILES_WORDS = (
    "no file descriptor was left: this broker ends. Raise the limit of open files (ulimit -n), or lower max.connections"
)

LEAST = 128  # below it nothing works well: a broker of three has about forty open before any client comes
MOST_SEGMENT_FILES = 10_000  # what is open beyond has no use: opening one costs some microseconds


@dataclass(frozen=True, slots=True)
class Descriptors:
    """A half for segment files, a quarter for connections of clients; a quarter for what the broker opens besides:
    links to other brokers, metadata, checkpoints."""

    limit: int

    @property
    def segment_files(self) -> int:
        return min(self.limit // 2, MOST_SEGMENT_FILES)

    def connections(self, wanted: int, ports: int = 1) -> int:
        """How many of the `wanted` ones each of so many ports can hold."""
        return min(wanted, self.limit // 4 // ports)


def raise_limit() -> Descriptors:
    """Raise the soft limit of open files to the hard one. CommandFailed where that is too low for a broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # macOS says "unlimited", and means less
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    if limit < LEAST:
        raise CommandFailed(
            f"this process may open {limit} files, a broker needs {LEAST} at the least: raise the limit (ulimit -n)"
        )
    return Descriptors(limit)
