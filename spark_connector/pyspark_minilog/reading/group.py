"""The group of a query. It has the progress of the query, for tools that show lag, and another query may begin there.

The checkpoint alone decides where a query goes on. The group follows it, some milliseconds later. So a failure to store
never fails a query, and storing never holds a query up. A thread stores beside the query. The newest positions replace
positions that still wait, and an error is a warning. A note beside the offsets says that a Spark query stored them, and
on which host its driver runs.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable, Mapping

from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.offsets import Partition, Positions

logger = logging.getLogger(__name__)


def committed(client: Mapping[str, str], group: str, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
    """The committed offsets of a group, or None for a partition without one. Raises MinilogError."""
    from minilog import Consumer, TopicPartition

    by_client_name = {TopicPartition(*partition): partition for partition in partitions}
    with lend(Consumer, {**client, "group.id": group}) as consumer:
        return {
            by_client_name[topic_partition]: offset
            for topic_partition, offset in consumer.committed(by_client_name).items()
        }


class GroupProgress:
    """Stores the progress of a query under its group."""

    def __init__(self, client: Mapping[str, str], group: str) -> None:
        self._client = dict(client)
        self._group = group
        self._guard = threading.Lock()
        self._stored: Positions = {}
        self._waiting: Positions | None = None
        self._worker: threading.Thread | None = None

    def store(self, positions: Positions) -> None:
        """Store these positions soon, unless they are stored already."""
        with self._guard:
            if positions == (self._stored if self._waiting is None else self._waiting):
                return
            self._waiting = positions
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="minilog-group", daemon=True)
                self._worker.start()

    def settle(self, timeout_s: float) -> None:
        """Wait until nothing is left to store, or the time is over."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._guard:
                positions, self._waiting = self._waiting, None
                if positions is None:
                    self._worker = None
                    return
                self._stored = positions
            self._commit(positions)

    def _commit(self, positions: Positions) -> None:
        from minilog import Consumer, TopicPartition
        from minilog.groups.spark_note import spark_note

        offsets = {TopicPartition(*partition): offset for partition, offset in positions.items()}
        try:
            with lend(Consumer, {**self._client, "group.id": self._group}) as consumer:
                consumer.commit(offsets, metadata=spark_note(socket.gethostname()))
        except Exception as error:  # the query does not depend on an error of the group
            logger.warning("the progress of the query was not stored for group '%s': %s", self._group, error)
