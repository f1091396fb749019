"""A history of writes and what the log held afterwards, judged (V2, V7, V14, V16 of REPLICATION.md).

A write is acknowledged (with an offset), failed (surely not written) or unknown (may be there, once). Of what the log
holds: each acknowledged value stands exactly once, at its offset; each unknown one at most once; no failed one; and
nothing that nobody wrote.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field

from minilog import Admin, Consumer, Producer, TopicPartition
from minilog.errors import MinilogError, UnknownOutcome


@dataclass
class History:
    """What became of each value written."""

    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    failed: dict[bytes, str] = field(default_factory=dict)
    longest_stall_s: float = 0.0

    def judge(self, stored: dict[int, list[tuple[int, bytes]]]) -> list[str]:
        """Every way in which `stored` ((offset, value) by partition) breaks the promise; empty: none."""
        places = {value: (partition, offset) for partition, records in stored.items() for offset, value in records}
        counts = Counter(value for records in stored.values() for _, value in records)
        wrong = [f"{value!r} stands {count} times" for value, count in counts.items() if count > 1]
        for value, place in self.acknowledged.items():
            if places.get(value) != place:
                wrong.append(f"{value!r} was acknowledged at {place}, it stands at {places.get(value)}")
        known = self.acknowledged.keys() | self.unknown
        wrong += [
            f"{value!r} stands at {place} though it was not acknowledged nor unknown"
            for value, place in places.items()
            if value not in known
        ]
        for partition, records in stored.items():
            offsets = [offset for offset, _ in records]
            if offsets != list(range(offsets[0] if offsets else 0, len(offsets))):
                wrong.append(f"partition {partition} has gaps in its offsets")
        return wrong


class Writer:
    """Writes numbered values in a thread of its own until it is stopped, and keeps the history."""

    def __init__(self, bootstrap_servers: str, topic: str, *, value_bytes: int = 200, in_flight: int = 500) -> None:
        self.history = History()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 2, "client.id": "writer"})
        self._topic = topic
        self._padding = b"." * value_bytes
        self._window = threading.Semaphore(in_flight)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._last_acknowledged_s = time.monotonic()
        self._thread = threading.Thread(target=self._write, name="history-writer", daemon=True)
        self._thread.start()

    def acknowledged(self) -> int:
        return len(self.history.acknowledged)

    def wait_for_more(self, count: int, timeout_s: float = 60.0) -> None:
        """Until `count` more values are acknowledged than now."""
        goal, deadline = self.acknowledged() + count, time.monotonic() + timeout_s
        while self.acknowledged() < goal:
            if time.monotonic() > deadline:
                raise AssertionError(f"only {self.acknowledged()} of {goal} values were acknowledged in {timeout_s} s")
            time.sleep(0.01)

    def stop(self, timeout_s: float = 150.0) -> History:
        """Stop writing, wait for every answer, and give the history."""
        self._stop.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the writer hangs"
        self._producer.flush(timeout_s)
        self._producer.close()
        return self.history

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            if not self._window.acquire(timeout=0.1):
                continue
            value = b"%d|" % number + self._padding
            future = self._producer.send(self._topic, value=value, key=b"%d" % (number % 97))
            future.add_done_callback(lambda done, value=value: self._answered(value, done))  # type: ignore[misc]
            number += 1

    def _answered(self, value: bytes, done: Future[object]) -> None:
        history, now = self.history, time.monotonic()
        with self._lock:
            error = done.exception()
            if error is None:
                metadata = done.result()
                history.acknowledged[value] = (metadata.partition, metadata.offset)  # type: ignore[attr-defined]
                history.longest_stall_s = max(history.longest_stall_s, now - self._last_acknowledged_s)
                self._last_acknowledged_s = now
            elif isinstance(error, UnknownOutcome):
                history.unknown.add(value)
            else:
                history.failed[value] = repr(error)
        self._window.release()


def read_all(bootstrap_servers: str, topic: str, timeout_s: float = 60.0) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) of every committed record by partition, up to the high watermarks of this moment."""
    with Admin({"bootstrap.servers": bootstrap_servers}) as admin:
        partitions = [each.partition for each in admin.describe_topics([topic])[0].partitions]
        ends = admin.list_offsets({TopicPartition(topic, p): "latest" for p in partitions})
    bounds = [TopicPartition(topic, tp.partition, 0, end_offset=end) for tp, end in ends.items()]
    stored: dict[int, list[tuple[int, bytes]]] = {p: [] for p in partitions}
    deadline = time.monotonic() + timeout_s
    with Consumer({"bootstrap.servers": bootstrap_servers}) as consumer:
        consumer.assign(bounds)
        while not consumer.finished():
            if time.monotonic() > deadline:
                raise MinilogError(f"reading {topic} up to {bounds} did not finish in {timeout_s} s")
            for batch in consumer.poll_arrow(timeout=1.0):
                columns = batch.select(["partition", "offset", "value"]).to_pydict()
                for partition, offset, value in zip(*columns.values(), strict=True):
                    stored[partition].append((offset, value))
    return stored
