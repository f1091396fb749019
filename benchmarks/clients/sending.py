"""Records one by one at a rate, in a thread, to minilog or to Kafka, each with its time until the acknowledgement."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future
from functools import partial
from typing import Any

from benchmarks.clients.values import values
from minilog import Producer, RecordMetadata

RECORD_BYTES = 300


class SendingAtARate(threading.Thread, ABC):
    """A producer of `rate` records a second to one topic, with acks=all."""

    def __init__(self, servers: str, topic: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic, self._rate = servers, topic, rate
        self._latencies_ns: list[int] = []
        self._ended = threading.Event()

    @abstractmethod
    def run(self) -> None:
        """Send until the end."""

    def _acknowledged(self, began_ns: int) -> None:
        self._latencies_ns.append(time.monotonic_ns() - began_ns)

    def taken(self) -> list[int]:
        """The latencies since the last call, in ns."""
        taken, self._latencies_ns = self._latencies_ns, []
        return taken

    def end(self) -> None:
        """End, and wait for the thread."""
        self._ended.set()
        self.join()


class Sending(SendingAtARate):
    """To minilog."""

    def run(self) -> None:
        value = values(1, RECORD_BYTES)[0]
        with Producer({"bootstrap.servers": self._servers}) as producer:
            due_s = time.monotonic()
            while not self._ended.wait(max(0.0, due_s - time.monotonic())):
                due_s += 1.0 / self._rate
                began_ns = time.monotonic_ns()
                producer.send(self._topic, value).add_done_callback(partial(self._done, began_ns))

    def _done(self, began_ns: int, future: Future[RecordMetadata]) -> None:
        future.result()
        self._acknowledged(began_ns)


class KafkaSending(SendingAtARate):
    """To Kafka, by confluent-kafka."""

    def run(self) -> None:
        from confluent_kafka import Producer as KafkaProducer

        producer = KafkaProducer({"bootstrap.servers": self._servers, "acks": "all", "linger.ms": 0})
        value, due_s = values(1, RECORD_BYTES)[0], time.monotonic()
        while not self._ended.is_set():
            due_s += 1.0 / self._rate
            producer.produce(self._topic, value, on_delivery=partial(self._done, time.monotonic_ns()))
            while (rest_s := due_s - time.monotonic()) > 0:
                producer.poll(rest_s)
        producer.flush()

    def _done(self, began_ns: int, error: Any, message: Any) -> None:
        if error is not None:
            raise SystemExit(f"a record failed: {error}")
        self._acknowledged(began_ns)
