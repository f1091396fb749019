"""Records at a steady rate to every partition: SYSTEM SERVERS TOPIC PARTITIONS INTERVAL_MS. Until standard input ends.

Each partition gets a record in each interval, and the partitions follow one another. A value is the time when the
record was sent (group_members.py). A record that is not written ends the program with an error.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from benchmarks.clients.secured import client_settings

_STEP_S = 0.005
_failed: list[object] = []


def write(send: Callable[[int, bytes], None], partitions: int, interval_ms: float, over: threading.Event) -> None:
    """Call it for each record that is due: a partition, a value. What is late is sent at once."""
    started_s, count = time.monotonic(), 0
    while not over.wait(_STEP_S) and not _failed:
        due = int((time.monotonic() - started_s) * 1_000.0 / interval_ms * partitions)
        for number in range(count, due):
            send(number % partitions, time.monotonic_ns().to_bytes(8, "little"))
        count = due
    if _failed:
        raise SystemExit(f"{len(_failed)} records were not written: {_failed[0]}")


def minilog(servers: str, topic: str, partitions: int, interval_ms: float, over: threading.Event) -> None:
    from minilog import Producer, RecordMetadata

    def done(future: Future[RecordMetadata]) -> None:
        if (error := future.exception()) is not None:
            _failed.append(error)

    def send(partition: int, value: bytes) -> None:
        producer.send(topic, value, partition=partition).add_done_callback(done)

    with Producer({"bootstrap.servers": servers, **client_settings("minilog")}) as producer:
        write(send, partitions, interval_ms, over)


def kafka(servers: str, topic: str, partitions: int, interval_ms: float, over: threading.Event) -> None:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "log_level": 3}
    producer = Producer({**settings, **client_settings("kafka")})

    def done(error: object, _: object) -> None:
        if error is not None:
            _failed.append(error)

    def send(partition: int, value: bytes) -> None:
        producer.produce(topic, value, partition=partition, on_delivery=done)
        producer.poll(0)

    write(send, partitions, interval_ms, over)
    producer.flush(60)


def main() -> None:
    system, servers, topic, partitions, interval_ms = sys.argv[1:]
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    {"minilog": minilog, "kafka": kafka}[system](servers, topic, int(partitions), float(interval_ms), over)


if __name__ == "__main__":
    main()
