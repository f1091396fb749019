"""One record of Kafka at a time at a rate, in a thread: what benchmarks.scrub.Sending is for minilog."""

from __future__ import annotations

import threading
import time

from benchmarks.clients.values import values

RECORD_BYTES = 300


class KafkaSending(threading.Thread):
    """`taken` gives the latencies, in ns, since the last call."""

    def __init__(self, servers: str, topic: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic, self._rate = servers, topic, rate
        self._latencies_ns: list[int] = []
        self._ended = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "linger.ms": 0})
        value, due_s = values(1, RECORD_BYTES)[0], time.monotonic()
        while not self._ended.is_set():
            due_s += 1.0 / self._rate
            self._send(producer, value)
            while (rest_s := due_s - time.monotonic()) > 0:
                producer.poll(rest_s)
        producer.flush()

    def _send(self, producer: object, value: bytes) -> None:
        began_ns = time.monotonic_ns()

        def done(error: object, message: object) -> None:
            if error is not None:
                raise SystemExit(f"a record failed: {error}")
            self._latencies_ns.append(time.monotonic_ns() - began_ns)

        producer.produce(self._topic, value, on_delivery=done)  # type: ignore[attr-defined]

    def taken(self) -> list[int]:
        taken, self._latencies_ns = self._latencies_ns, []
        return taken

    def end(self) -> None:
        self._ended.set()
        self.join()
