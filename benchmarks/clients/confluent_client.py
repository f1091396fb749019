"""confluent-kafka, Kafka's side in Python: SERVERS KIND TOPIC PARTITIONS RECORDS RECORD_BYTES [RATE [NAME=VALUE ...]].

records    `Producer.produce`, record by record, each with a callback; idempotent, acks=all
consume    `Consumer.consume` of 10,000 at a time, from the beginning to the present end
latency    one record at a time, RATE a second, from `produce` to its acknowledgement
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clients.minilog_client import at_a_rate
from benchmarks.clients.secured import client_settings
from benchmarks.clients.values import quantiles_ms, values

_AT_ONCE = 10_000
_WARM_RECORDS = 50


class Client:
    """One program's work."""

    def __init__(
        self, servers: str, topic: str, partitions: int, records: int, record_bytes: int, rate: float,
        settings: dict[str, str],
    ) -> None:  # fmt: skip
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "log_level": 3,
            **client_settings("kafka"),
            **settings,
        }
        self._topic, self._partitions = topic, partitions
        self._records, self._record_bytes, self._rate = records, record_bytes, rate
        self._failed: list[object] = []
        self._acknowledged = 0

    def _producer(self) -> Any:
        return Producer({"acks": "all", "enable.idempotence": True, **self._settings})

    def _done(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)
        self._acknowledged += 1

    def records(self) -> dict[str, float]:
        wanted = values(10_000, self._record_bytes)
        producer = self._producer()
        producer.produce(self._topic, wanted[0])
        producer.flush(30)
        started_s = time.monotonic()
        for number in range(self._records):
            while not self._produce(producer, wanted[number % len(wanted)]):
                producer.poll(0.05)
            if not number % 1_024:
                producer.poll(0)
        left = producer.flush(120)
        seconds = time.monotonic() - started_s
        if left or self._failed or self._acknowledged != self._records:
            raise SystemExit(f"{left} records are left, {len(self._failed)} failed: {self._failed[:1]}")
        return {"records": self._records, "sent": self._records + 1, "seconds": seconds}

    def _produce(self, producer: Any, value: bytes) -> bool:
        try:
            producer.produce(self._topic, value, on_delivery=self._done)
        except BufferError:
            return False
        return True

    def consume(self) -> dict[str, float]:
        settings = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "earliest", **self._settings}
        consumer = Consumer(settings)
        places = [TopicPartition(self._topic, each, 0) for each in range(self._partitions)]
        wanted = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)
        consumer.close()
        started_s, found = time.monotonic(), 0
        consumer = Consumer(settings)
        consumer.assign(places)
        while found < wanted:
            messages = consumer.consume(_AT_ONCE, timeout=0.5)
            if any(message.error() is not None for message in messages):
                raise SystemExit("a record could not be read")
            found += len(messages)
        seconds = time.monotonic() - started_s
        consumer.close()
        return {"records": found, "seconds": seconds}

    def latency(self) -> dict[str, float]:
        value, latencies_ns = values(1, self._record_bytes)[0], list[int]()
        producer, over = self._producer(), threading.Event()
        for _ in range(_WARM_RECORDS):
            producer.produce(self._topic, value)
            producer.flush(10)

        def poll() -> None:
            while not over.is_set():
                producer.poll(0.1)

        poller = threading.Thread(target=poll)
        poller.start()

        def send() -> None:
            began_ns = time.monotonic_ns()
            producer.produce(
                self._topic, value, on_delivery=lambda *_: latencies_ns.append(time.monotonic_ns() - began_ns)
            )

        seconds = at_a_rate(send, self._records, self._rate)
        producer.flush(30)
        over.set()
        poller.join()
        return {"records": len(latencies_ns), "seconds": seconds, **quantiles_ms(latencies_ns)}


def main() -> None:
    servers, kind, topic, partitions, records, record_bytes, *rest = sys.argv[1:]
    settings = dict(each.split("=", 1) for each in rest[1:])
    rate = float(rest[0]) if rest else 0.0
    client = Client(servers, topic, int(partitions), int(records), int(record_bytes), rate, settings)
    kinds = {"records": client.records, "consume": client.consume, "latency": client.latency}
    print(json.dumps(kinds[kind]()))


if __name__ == "__main__":
    main()
