"""Sends the year part by part, and counts the records that the brokers have acknowledged.

At most three parts are under way. So while a partition waits for a new leader, the others run ahead by days and not by
months. The job's watermark has room for that.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from collections.abc import Callable

import pyarrow as pa

from minilog import Producer
from minilog.types import BatchMetadata
from minilog_tools.demo.data import YearPart

_PARTS_UNDER_WAY = 3

_Answer = concurrent.futures.Future[list[BatchMetadata]]


class Publisher:
    """One producer for both topics. `acknowledged` is read by other threads, which may also wait for it."""

    def __init__(self, bootstrap_servers: str, total_records: int, on_progress: Callable[[int], None]) -> None:
        self.acknowledged = 0
        self._total_records = total_records
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._under_way: collections.deque[tuple[int, _Answer]] = collections.deque()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers})

    def publish(self, part: YearPart) -> None:
        """Send one part. If three are under way, wait first. Raises the failure of an earlier part."""
        while len(self._under_way) >= 2 * _PARTS_UNDER_WAY:
            self._settle()
        self.send("weather", part.weather)
        self.send("flights", part.flights)

    def send(self, topic: str, rows: pa.RecordBatch) -> None:
        """Send some rows of one topic, and do not wait for their acknowledgement."""
        if rows.num_rows:
            self._under_way.append((rows.num_rows, self._producer.send_batch(topic, rows)))

    def settle_all(self) -> None:
        """Wait until everything that was sent is acknowledged. Raises the first failure."""
        while self._under_way:
            self._settle()

    def wait_for(self, fraction: float, stop: threading.Event) -> None:
        """Wait until this fraction of all records is acknowledged, or `stop` is set."""
        with self._changed:
            while not stop.is_set() and self.acknowledged < fraction * self._total_records:
                self._changed.wait(0.2)

    def close(self, *, deliver: bool) -> None:
        """Close the producer. Without `deliver` it gives up at once the records that are under way."""
        self._producer.close(timeout=None if deliver else 0.0)

    def _settle(self) -> None:
        count, answer = self._under_way[0]
        answer.result()
        self._under_way.popleft()
        with self._changed:
            self.acknowledged += count
            self._changed.notify_all()
        self._on_progress(self.acknowledged)
