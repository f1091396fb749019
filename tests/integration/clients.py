"""Clients that keep a history while brokers are killed, stopped and cut off: a writer and a reader, each a thread.

The writer has default settings but for what a test gives: acks=all, idempotent, delivery.timeout.ms of two minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from minilog import Admin, Consumer, Producer, RecordMetadata, TopicPartition
from minilog.errors import MinilogError, UnknownOutcome
from tests.integration.forms import RECORDS, Form
from tests.integration.history import History, Stored


@dataclass
class Watch:
    """Waits for a write of each partition that was sent after the fault was complete and is acknowledged."""

    fault_s: float
    since_s: float
    missing: set[int]
    recovered_s: dict[int, float] = field(default_factory=dict)
    """Seconds after the fault began, by partition."""


def client_settings(client: str | Mapping[str, Any]) -> dict[str, Any]:
    """Of a client that is said by its settings, or, of a cluster in the clear, by where the brokers are."""
    return {"bootstrap.servers": client} if isinstance(client, str) else dict(client)


class Writer:
    """Writes numbered values as fast as `in_flight`, and a pause after each, allow; keeps the history until stopped."""

    def __init__(
        self,
        client: str | Mapping[str, Any],
        topic: str,
        *,
        name: str = "writer",
        value_bytes: int = 200,
        in_flight: int = 500,
        pause_s: float = 0.0,
        settings: dict[str, object] | None = None,
        form: Form = RECORDS,
    ) -> None:
        self.history = History()
        self._form = form
        self.name = name
        self._producer = Producer({**client_settings(client), "client.id": name, **(settings or {})})
        self._topic = topic
        self._padding = b"." * value_bytes
        self._window = threading.Semaphore(in_flight)
        self._pause_s = pause_s
        self._changed = threading.Condition()
        self._watches: list[Watch] = []
        self._stop = threading.Event()
        self._last_acknowledged_s = time.monotonic()
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)
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

    def watch(self, partitions: Iterable[int], fault_s: float) -> Watch:
        """When is a write to each of these partitions, sent from now on, acknowledged? Counted from `fault_s`."""
        watch = Watch(fault_s, time.monotonic(), set(partitions))
        with self._changed:
            self._watches.append(watch)
        return watch

    def failover_s(self, watch: Watch, timeout_s: float = 60.0) -> float:
        """Seconds from the fault until every watched partition had acknowledged a write."""
        with self._changed:
            done = self._changed.wait_for(lambda: not watch.missing, timeout_s)
            self._watches.remove(watch)
        assert done, f"no write to partitions {sorted(watch.missing)} was acknowledged within {timeout_s} s"
        return max(watch.recovered_s.values(), default=0.0)

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
            value = f"{self.name}:{number}|".encode() + self._padding
            future, sent_s = self._send(number, value), time.monotonic()
            if future is None:
                self._window.release()
                time.sleep(0.05)
            else:
                future.add_done_callback(partial(self._answered, value, sent_s))
                number += 1
            if self._pause_s:
                self._stop.wait(self._pause_s)

    def _send(self, number: int, value: bytes) -> Future[RecordMetadata] | None:
        """None where the producer would not take it: nothing happened."""
        try:
            return self._producer.send(self._topic, **self._form.sending(number, value))
        except MinilogError:
            return None

    def _answered(self, value: bytes, sent_s: float, done: Future[RecordMetadata]) -> None:
        history, now_s = self.history, time.monotonic()
        with self._changed:
            error = done.exception()
            if error is None:
                metadata = done.result()
                partition = metadata.partition
                history.acknowledged[value] = (partition, metadata.offset)
                history.acknowledged_at(partition, now_s)
                history.longest_stall_s = max(history.longest_stall_s, now_s - self._last_acknowledged_s)
                self._last_acknowledged_s = now_s
                self._tell_watches(partition, sent_s, now_s)
            elif isinstance(error, UnknownOutcome):
                history.unknown.add(value)
            else:
                history.failed[value] = repr(error)
        self._window.release()

    def _tell_watches(self, partition: int, sent_s: float, now_s: float) -> None:
        for watch in self._watches:
            if partition in watch.missing and sent_s >= watch.since_s:
                watch.missing.discard(partition)
                watch.recovered_s[partition] = now_s - watch.fault_s
                self._changed.notify_all()


class Reader:
    """Reads a topic from its start as it grows, until it is stopped."""

    def __init__(self, client: str | Mapping[str, Any], topic: str, partitions: int, *, form: Form = RECORDS) -> None:
        self._form = form
        self.read: Stored = {each: [] for each in range(partitions)}
        self.errors: list[MinilogError] = []
        self._consumer = Consumer({**client_settings(client), "client.id": "reader"})
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="reader", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> Stored:
        """What was read."""
        self._stop.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the reader hangs"
        self._consumer.close()
        return self.read

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                take(self._consumer, self.read, timeout_s=0.2, form=self._form)
            except MinilogError as error:
                self.errors.append(error)


def take(consumer: Consumer, read: Stored, timeout_s: float, *, form: Form = RECORDS) -> None:
    """Put what the next poll gives to what was read."""
    for batch in consumer.poll_arrow(timeout=timeout_s, **form.polling):
        columns = batch.select(form.columns).to_pydict()
        for partition, offset, value in zip(*columns.values(), strict=True):
            read[partition].append((offset, value))


def read_all(
    client: str | Mapping[str, Any],
    topic: str,
    timeout_s: float = 60.0,
    *,
    isolation: str = "read_committed",
    form: Form = RECORDS,
) -> Stored:
    """(offset, value) of every record by partition, up to what such a reader finds to be the end at this moment."""
    settings = {**client_settings(client), "isolation.level": isolation}
    with Admin(settings) as admin:
        partitions = [each.partition for each in admin.describe_topics([topic])[0].partitions]
        ends = admin.list_offsets({TopicPartition(topic, p): "latest" for p in partitions})
    bounds = [TopicPartition(topic, tp.partition, 0, end_offset=end) for tp, end in ends.items()]
    stored: Stored = {p: [] for p in partitions}
    deadline = time.monotonic() + timeout_s
    with Consumer(settings) as consumer:
        consumer.assign(bounds)
        while not consumer.finished():
            if time.monotonic() > deadline:
                raise MinilogError(f"reading {topic} up to {bounds} did not finish in {timeout_s} s")
            take(consumer, stored, timeout_s=1.0, form=form)
    return stored
