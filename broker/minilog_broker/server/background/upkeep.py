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

UPKEEP_INTERVAL_S = 5.0  # Kafka's interval of checkpoints: what a restart may have to learn again
_LOGS_AT_ONCE = 16


class OpenLogs:
    """The keys of all open logs as a round finds them, by so many as one slice may go through."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._keys: list[PartitionKey] = []

    def look(self, budget_bytes: int) -> int:
        """A slice: the first of a round."""
        self._keys = list(self._directory.logs)
        return 0

    def parts(self) -> Iterator[list[PartitionKey]]:
        """After `look`."""
        for first in range(0, len(self._keys), _LOGS_AT_ONCE):
            yield self._keys[first : first + _LOGS_AT_ONCE]


class Checkpoints:
    """Records of each log how far it is."""

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
    """Removes the files of logs that were set aside, when delete.delay.ms is over."""

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
    """Looks whether the disk is full, by its reserve; a change is logged once."""

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
                logger.warning("the disk has space again: this broker takes data")
            else:
                logger.error(
                    "the disk is full: data is refused here and others lead where they can; what was kept is for the "
                    "metadata log and checkpoints alone. Free some space, or lower retention"
                )
        return 0
