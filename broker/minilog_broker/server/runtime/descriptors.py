"""The shares of this process's file descriptors: for segment files, connections and all else."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from minilog_broker.failure import CommandFailed

OUT_OF_FILES_WORDS = (
    "no file descriptor is left, and the broker ends. Raise the limit of open files (ulimit -n), or lower "
    "max.connections"
)

LEAST = 128  # fewer do not suffice: a broker of three has about forty open before any client comes
MOST_SEGMENT_FILES = 10_000  # more open files have no use: to open one costs some microseconds


@dataclass(frozen=True, slots=True)
class Descriptors:
    """A half for segment files, a quarter for connections of clients, and a quarter for other files of the broker:
    links to other brokers, metadata, checkpoints."""

    limit: int

    @property
    def segment_files(self) -> int:
        return min(self.limit // 2, MOST_SEGMENT_FILES)

    def connections(self, wanted: int, ports: int = 1) -> int:
        """The number of the `wanted` connections that each of `ports` ports can hold."""
        return min(wanted, self.limit // 4 // ports)


def raise_limit() -> Descriptors:
    """Raise the soft limit of open files to the hard one. Raises CommandFailed where that is too low for a broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # macOS reports "unlimited", and allows less
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    if limit < LEAST:
        raise CommandFailed(
            f"this process may open {limit} files, and a broker needs at least {LEAST}: raise the limit (ulimit -n)"
        )
    return Descriptors(limit)
