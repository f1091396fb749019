"""When the first record that a query has left unread was written: asked beside the query, which does not wait for it.

As with groups (group.py): a thread of its own, and what goes wrong is no matter of the query's. Of each partition one
stored batch is fetched, which has the record. That is done at most once a second, and for those few partitions that
have most before them: a source of thousands that is far behind has other things to read.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_minilog.clients import lend
from pyspark_minilog.offsets import Partition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_SETTINGS = {"fetch.max.bytes": "1", "fetch.min.bytes": "1", "max.poll.bytes": "1", "auto.offset.reset": "error"}
_EVERY_S = 1.0
_WITHIN_S = 3.0
_MOST_PARTITIONS = 16


class FirstUnread:
    """Asks for the ages of what is left unread, and knows the last answer."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = dict(client)
        self._asked_s = float("-inf")
        self._worker: threading.Thread | None = None
        self._since_ms: dict[str, int] = {}

    def since_ms(self) -> dict[str, int]:
        """The timestamp of the first record of each topic, as heard of last."""
        return self._since_ms

    def ask(self, left: Mapping[Partition, tuple[int, int]]) -> None:
        """Find out soon, unless that is under way already, or was done just now. `left`: offsets that are unread."""
        now_s = time.monotonic()
        if now_s < self._asked_s + _EVERY_S or (self._worker is not None and self._worker.is_alive()):
            return
        self._asked_s = now_s
        chosen = dict(heapq.nlargest(_MOST_PARTITIONS, left.items(), key=lambda each: each[1][1] - each[1][0]))
        self._worker = threading.Thread(target=self._work, args=(chosen,), name="minilog-unread", daemon=True)
        self._worker.start()

    def settle(self, timeout_s: float) -> None:
        """Wait until the answer is there, or the time is over."""
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

    found: dict[str, int] = {}
    waiting = dict(left)
    deadline_s = time.monotonic() + _WITHIN_S
    with lend(Consumer, {**client, **_SETTINGS}) as consumer:
        while waiting and time.monotonic() < deadline_s:
            consumer.assign([TopicPartition(*each, first, end_offset=last) for each, (first, last) in waiting.items()])
            batches = consumer.poll_arrow(max(0.0, deadline_s - time.monotonic()), metadata=True)
            for batch in batches:
                each, at_ms = _first_of(batch)
                waiting.pop(each, None)
                found[each.topic] = min(at_ms, found.get(each.topic, at_ms))
            if not batches:  # what is left are markers and aborted records, or it does not come in time
                break
        consumer.assign([])
    return found


def _first_of(batch: pa.RecordBatch) -> tuple[Partition, int]:
    """Where a batch is from, and when its first record was written; of a topic with a schema names begin with _."""
    mark = "_" if "_timestamp" in batch.schema.names else ""
    topic, partition, at = (batch.column(mark + name)[0] for name in ("topic", "partition", "timestamp"))
    return Partition(topic.as_py(), partition.as_py()), at.value // 1000
