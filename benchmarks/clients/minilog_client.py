"""minilog's side: SERVERS KIND TOPIC PARTITIONS RECORDS RECORD_BYTES [RATE]. Prints {"records", "seconds", ...}.

arrow      `Producer.send_batch` of Arrow batches of about 1 MiB
records    `Producer.send`, record by record, each with a callback
consume    `Consumer.poll_arrow` from the beginning to the present end
latency    one record at a time, RATE a second, from `send` to its acknowledgement
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa

from benchmarks.clients.secured import client_settings
from benchmarks.clients.values import quantiles_ms, values
from minilog import Admin, Consumer, Producer, RecordMetadata, TopicPartition

_BATCH_BYTES = 1 << 20
_OFFSET_BYTES = 12  # of a record in an Arrow batch, besides its value
_ANSWER_WITHIN_S = 120.0
_WARM_RECORDS = 50


class Client:
    """One program's work."""

    def __init__(self, servers: str, topic: str, partitions: int, records: int, record_bytes: int, rate: float) -> None:
        self._settings = {"bootstrap.servers": servers, **client_settings("minilog")}
        self._topic, self._partitions = topic, partitions
        self._records, self._record_bytes, self._rate = records, record_bytes, rate

    def arrow(self) -> dict[str, float]:
        per_batch = max(1, _BATCH_BYTES // (self._record_bytes + _OFFSET_BYTES))
        batch = pa.RecordBatch.from_arrays([pa.array(values(per_batch, self._record_bytes), pa.binary())], ["value"])
        rounds = max(1, self._records // per_batch)
        with Producer(self._settings) as producer:
            producer.send_batch(self._topic, batch).result(_ANSWER_WITHIN_S)  # connected
            started_s = time.monotonic()
            futures = [producer.send_batch(self._topic, batch) for _ in range(rounds)]
            producer.flush()
            seconds = time.monotonic() - started_s
            for future in futures:
                future.result(_ANSWER_WITHIN_S)
        return {"records": rounds * per_batch, "sent": (rounds + 1) * per_batch, "seconds": seconds}

    def records(self) -> dict[str, float]:
        wanted = values(10_000, self._record_bytes)
        failed: list[BaseException] = []

        def done(future: Future[RecordMetadata]) -> None:
            if (error := future.exception()) is not None:
                failed.append(error)

        with Producer(self._settings) as producer:
            producer.send(self._topic, wanted[0]).result(_ANSWER_WITHIN_S)
            started_s = time.monotonic()
            for number in range(self._records):
                producer.send(self._topic, wanted[number % len(wanted)]).add_done_callback(done)
            producer.flush()
            seconds = time.monotonic() - started_s
        if failed:
            raise SystemExit(f"{len(failed)} records were not written: {failed[0]}")
        return {"records": self._records, "sent": self._records + 1, "seconds": seconds}

    def consume(self) -> dict[str, float]:
        asked = {TopicPartition(self._topic, each): "latest" for each in range(self._partitions)}
        with Admin(self._settings) as admin:
            ends = admin.list_offsets(asked)
        found = 0
        started_s = time.monotonic()
        with Consumer(self._settings) as consumer:
            consumer.assign([TopicPartition(self._topic, at.partition, 0, end_offset=end) for at, end in ends.items()])
            while not consumer.finished():
                found += sum(batch.num_rows for batch in consumer.poll_arrow(timeout=1.0))
            seconds = time.monotonic() - started_s
        return {"records": found, "seconds": seconds}

    def latency(self) -> dict[str, float]:
        value, latencies_ns = values(1, self._record_bytes)[0], list[int]()
        with Producer(self._settings) as producer:
            for _ in range(_WARM_RECORDS):
                producer.send(self._topic, value).result(_ANSWER_WITHIN_S)

            def send() -> None:
                began_ns = time.monotonic_ns()
                future = producer.send(self._topic, value)
                future.add_done_callback(lambda _: latencies_ns.append(time.monotonic_ns() - began_ns))

            seconds = at_a_rate(send, self._records, self._rate)
            producer.flush()
        return {"records": len(latencies_ns), "seconds": seconds, **quantiles_ms(latencies_ns)}


def at_a_rate(work: Callable[[], None], times: int, rate: float) -> float:
    """Call it so many times, `rate` times a second, however long it takes; the seconds of all."""
    started_s = time.monotonic()
    for number in range(times):
        wait_s = started_s + number / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        work()
    return time.monotonic() - started_s


def main() -> None:
    servers, kind, topic, partitions, records, record_bytes, *rest = sys.argv[1:]
    rate = float(rest[0]) if rest else 0.0
    client = Client(servers, topic, int(partitions), int(records), int(record_bytes), rate)
    kinds = {"arrow": client.arrow, "records": client.records, "consume": client.consume, "latency": client.latency}
    print(json.dumps(kinds[kind]()))


if __name__ == "__main__":
    main()
