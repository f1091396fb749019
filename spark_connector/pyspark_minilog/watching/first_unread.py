"""The time of the first unread record of a query. A thread asks for it beside the query, which does not wait.

As with groups (reading/group.py), an error in the thread does not affect the query. The thread fetches one stored batch
of a partition, which has the record. It does so once a second at most, and for the few partitions with the most unread
records. A query that is far behind in thousands of partitions has other things to read.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.offsets import Partition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_SETTINGS = {"fetch.max.bytes": "1", "fetch.min.bytes": "1", "max.poll.bytes": "1", "auto.offset.reset": "error"}
_EVERY_S = 1.0
_WITHIN_S = 3.0
_MOST_PARTITIONS = 16


class FirstUnread:
    """Asks for the times of the first unread records, and keeps the last answer."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = dict(client)
        self._asked_s = float("-inf")
        self._worker: threading.Thread | None = None
        self._since_ms: dict[str, int] = {}

    def since_ms(self) -> dict[str, int]:
        """The timestamp of the first unread record of each topic, by the last answer."""
        return self._since_ms

    def ask(self, left: Mapping[Partition, tuple[int, int]]) -> None:
        """Ask soon, unless a question is under way or was answered just now. `left`: the unread offsets."""
        now_s = time.monotonic()
        if now_s < self._asked_s + _EVERY_S or (self._worker is not None and self._worker.is_alive()):
            return
        self._asked_s = now_s
        chosen = dict(heapq.nlargest(_MOST_PARTITIONS, left.items(), key=lambda item: item[1][1] - item[1][0]))
        self._worker = threading.Thread(target=self._work, args=(chosen,), name="minilog-unread", daemon=True)
        self._worker.start()

    def settle(self, timeout_s: float) -> None:
        """Wait for the answer, or until the time is over."""
        if self._worker is not None:
            self._worker.join(timeout_s)

    def _work(self, left: Mapping[Partition, tuple[int, int]]) -> None:
        try:
            self._since_ms = _look(self._client, left)
        except Exception as error:  # whatever it is, the query does not depend on it
            self._since_ms = {}
            logger.debug("the age of the first unread records is not known: %s", error)


def _look(client: Mapping[str, str], left: Mapping[Partition, tuple[int, int]]) -> dict[str, int]:
    """The timestamps of the first records, by topic, as far as they come in time. Raises MinilogError."""
    from minilog import Consumer, TopicPartition

    oldest_ms: dict[str, int] = {}
    waiting = dict(left)
    deadline_s = time.monotonic() + _WITHIN_S
    with lend(Consumer, {**client, **_SETTINGS}) as consumer:
        while waiting and time.monotonic() < deadline_s:
            consumer.assign(
                [TopicPartition(*partition, first, end_offset=last) for partition, (first, last) in waiting.items()]
            )
            batches = consumer.poll_arrow(max(0.0, deadline_s - time.monotonic()), metadata=True)
            for batch in batches:
                partition, at_ms = _first_of(batch)
                waiting.pop(partition, None)
                oldest_ms[partition.topic] = min(at_ms, oldest_ms.get(partition.topic, at_ms))
            if not batches:  # only markers and aborted records are left, or the batch does not come in time
                break
        consumer.assign([])
    return oldest_ms


def _first_of(batch: pa.RecordBatch) -> tuple[Partition, int]:
    """The partition of a batch, and the time of its first record. With a schema the names of these columns begin
    with _."""
    mark = "_" if "_timestamp" in batch.schema.names else ""
    topic, partition, at = (batch.column(mark + name)[0] for name in ("topic", "partition", "timestamp"))
    return Partition(topic.as_py(), partition.as_py()), at.value // 1000
