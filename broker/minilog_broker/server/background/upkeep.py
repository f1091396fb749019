"""The small jobs that keep a broker's logs in order: checkpoints, deleted logs, the reserve of the disk."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import structlog

from minilog.partition_key import PartitionKey
from minilog_broker.server.background.jobs import Round
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.storage.reserve import Reserve

logger = structlog.get_logger()

UPKEEP_INTERVAL_S = 5.0  # Kafka's interval of checkpoints: the progress that a restart may lose
_LOGS_AT_ONCE = 16


class OpenLogs:
    """The keys of all open logs at the begin of a round, in parts for one slice each."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._keys: list[PartitionKey] = []

    def look(self, budget_bytes: int) -> int:
        """The first slice of a round."""
        self._keys = list(self._directory.logs)
        return 0

    def parts(self) -> Iterator[list[PartitionKey]]:
        """The parts, after `look`."""
        for first in range(0, len(self._keys), _LOGS_AT_ONCE):
            yield self._keys[first : first + _LOGS_AT_ONCE]


class Checkpoints:
    """Records the progress of each log."""

    name = "checkpoints"
    interval_s = UPKEEP_INTERVAL_S

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._open_logs = OpenLogs(directory)

    def round(self) -> Round:
        yield self._open_logs.look
        for keys in self._open_logs.parts():
            yield functools.partial(self._write, keys)

    def _write(self, keys: list[PartitionKey], budget_bytes: int) -> int:
        self._directory.write_checkpoints(keys)
        return 0


class DeletedLogs:
    """Removes the files of deleted logs when delete.delay.ms is over."""

    name = "deleted logs"
    interval_s = UPKEEP_INTERVAL_S

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._are_gone = False

    def round(self) -> Round:
        self._are_gone = False
        while not self._are_gone:
            yield self._purge

    def _purge(self, budget_bytes: int) -> int:
        freed_bytes = self._directory.purge(budget_bytes)
        self._are_gone = freed_bytes is None
        return freed_bytes or 0


class Space:
    """Checks by its reserve whether the disk is full. A change has one line in the log."""

    name = "the disk's reserve"
    interval_s = UPKEEP_INTERVAL_S

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._was_held = True

    def round(self) -> Round:
        yield self._look

    def _look(self, budget_bytes: int) -> int:
        held = self._reserve.hold()
        if held != self._was_held:
            self._was_held = held
            if held:
                logger.warning("the disk has space again: the broker takes data")
            else:
                logger.error(
                    "the disk is full: the broker refuses data, and other brokers lead where they can. The reserve is "
                    "only for the metadata log and checkpoints. Free some space, or lower retention"
                )
        return 0
