"""Many producers in one process, by turns: SYSTEM SERVERS TOPIC PRODUCERS RECORDS RECORD_BYTES. As minilog_client.

Each writes record by record on Kafka's side, whose client batches them, and 100 records at once on minilog's.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pyarrow as pa

from benchmarks.clients.values import values

_AT_ONCE = 100
_BUFFER_BYTES = 256 << 20  # of all producers together
_ANSWER_WITHIN_S = 120.0


def minilog(servers: str, topic: str, count: int, records: int, record_bytes: int) -> dict[str, float]:
    from minilog import Producer

    room = max(4 << 20, _BUFFER_BYTES // count)
    producers = [Producer({"bootstrap.servers": servers, "buffer.memory": room}) for _ in range(count)]
    batch = pa.RecordBatch.from_arrays([pa.array(values(_AT_ONCE, record_bytes), pa.binary())], ["value"])
    for producer in producers:
        producer.send(topic, b"connected").result(_ANSWER_WITHIN_S)
    started_s = time.monotonic()
    futures = [producers[number % count].send_batch(topic, batch) for number in range(records // _AT_ONCE)]
    for producer in producers:
        producer.flush()
    seconds = time.monotonic() - started_s
    for future in futures:
        future.result(_ANSWER_WITHIN_S)
    for producer in producers:
        producer.close()
    written = len(futures) * _AT_ONCE
    return {"records": written, "sent": written + count, "seconds": seconds}


def kafka(servers: str, topic: str, count: int, records: int, record_bytes: int) -> dict[str, float]:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "log_level": 3}
    producers, wanted = [Producer(settings) for _ in range(count)], values(10_000, record_bytes)
    for producer in producers:
        producer.produce(topic, b"connected")
    for producer in producers:
        producer.flush(_ANSWER_WITHIN_S)
    failed: list[object] = []

    def done(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def produce(producer: Any, value: bytes) -> bool:
        try:
            producer.produce(topic, value, on_delivery=done)
        except BufferError:
            producer.poll(0.05)
            return False
        return True

    started_s = time.monotonic()
    for number in range(records):
        producer = producers[number % count]
        while not produce(producer, wanted[number % len(wanted)]):
            pass
        if number % 1_024 < count:
            producer.poll(0)
    left = sum(producer.flush(_ANSWER_WITHIN_S) for producer in producers)
    seconds = time.monotonic() - started_s
    if left or failed:
        raise SystemExit(f"{left} records are left, {len(failed)} failed: {failed[:1]}")
    return {"records": records, "sent": records + count, "seconds": seconds}


def main() -> None:
    system, servers, topic, count, records, record_bytes = sys.argv[1:]
    work = {"minilog": minilog, "kafka": kafka}[system]
    print(json.dumps(work(servers, topic, int(count), int(records), int(record_bytes))))


if __name__ == "__main__":
    main()
