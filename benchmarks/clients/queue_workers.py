"""Workers of a queue: COMMAND SYSTEM SERVERS TOPIC COUNT WORKERS BATCH RATE. The last line says what they did.

    send   the topic gets COUNT messages
    take   the workers take and accept COUNT messages, each by itself
    live   the workers wait, and the topic gets COUNT messages at this rate: the time from `send` to a worker
    idle   minilog's workers wait on one event loop, until the input of this process ends

The figures of `take` begin with the first message: members of Kafka's share groups wait some seconds for their
partitions. minilog's and Kafka's workers have a thread each, those of NATS share an event loop. A value begins with the
message's number and the time of `send`, by the clock of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from benchmarks.clients.values import quantiles_ms

RECORD_BYTES = 300
_HEAD = struct.Struct("=qq")
_PADDING = os.urandom(RECORD_BYTES - _HEAD.size)
_POLL_S = 0.5
_WITHIN_S = 120.0
_WARM_UP_SHARE = 0.2  # of the messages at a rate


class Taken:
    """The messages that workers have taken. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: set[int] = set()
        self.deliveries = 0
        self.delays_ns: list[int] = []
        self.first_s = self.last_s = 0.0

    def note(self, values: Iterable[bytes]) -> None:
        """A worker's program has these."""
        now_ns = time.monotonic_ns()
        heads = [_HEAD.unpack_from(value) for value in values]
        with self._lock:
            self.first_s = self.first_s or now_ns / 1e9
            self.last_s = now_ns / 1e9
            self.deliveries += len(heads)
            self._numbers.update(number for number, _ in heads)
            self.delays_ns += [now_ns - sent_ns for _, sent_ns in heads]

    @property
    def messages(self) -> int:
        return len(self._numbers)


class Peer(ABC):
    """One system. `work` is called once for each worker, in a thread of its own, and ends after `over`."""

    def __init__(self, servers: str, topic: str, batch: int) -> None:
        self._servers, self._topic, self._batch = servers, topic, batch
        self.taken, self.over = Taken(), threading.Event()
        self._number = itertools.count()

    def value(self) -> bytes:
        return _HEAD.pack(next(self._number), time.monotonic_ns()) + _PADDING

    def run(self, workers: int, count: int, rate: float) -> None:
        """Until the workers have taken so many messages. Rate 0: they are there."""
        threads = self.start(workers)
        if rate:
            self.wait_for_workers()
            self.send(count, rate)
        deadline_s = time.monotonic() + _WITHIN_S
        while self.taken.messages < count and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self.over.set()
        for thread in threads:
            thread.join()

    def start(self, workers: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=self.work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        return threads

    def wait_for_workers(self) -> None:
        """One message after another, until workers take them."""
        while not self.taken.messages:
            self.send(1, 0.0)
            time.sleep(0.2)
        time.sleep(2.0)
        self.taken, self._number = Taken(), itertools.count()

    def pace(self, count: int, rate: float) -> Iterable[int]:
        """Each number, when it is due."""
        began_s = time.monotonic()
        for number in range(count):
            if rate:
                time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            yield number

    @abstractmethod
    def send(self, count: int, rate: float) -> None:
        """Send so many messages, and wait until all are acknowledged. Rate 0: as fast as possible."""

    @abstractmethod
    def work(self) -> None:
        """Take messages and accept each."""


class Minilog(Peer):
    def send(self, count: int, rate: float) -> None:
        from minilog import Producer

        with Producer({"bootstrap.servers": self._servers}) as producer:
            for _ in self.pace(count, rate):
                producer.send(self._topic, self.value())

    def work(self) -> None:
        from minilog import QueueConsumer

        settings = {"bootstrap.servers": self._servers, "queue": self._topic, "max.poll.records": self._batch}
        with QueueConsumer(settings) as consumer:
            consumer.subscribe([self._topic])
            while not self.over.is_set():
                messages = consumer.poll(timeout=_POLL_S)
                self.taken.note(message.value or b"" for message in messages)
                for message in messages:
                    message.accept()


class Kafka(Peer):
    def send(self, count: int, rate: float) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "queue.buffering.max.messages": 2_000_000})
        for _ in self.pace(count, rate):
            producer.produce(self._topic, self.value())
            producer.poll(0)
        producer.flush()

    def work(self) -> None:
        from confluent_kafka import ShareConsumer

        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._topic,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": self._batch,
            }
        )
        consumer.subscribe([self._topic])
        while not self.over.is_set():
            messages = [message for message in consumer.poll(_POLL_S) if message.error() is None]
            self.taken.note(message.value() or b"" for message in messages)
            for message in messages:
                consumer.acknowledge(message)
            if messages:
                consumer.commit_async()
        consumer.close()


class JetStream(Peer):
    def send(self, count: int, rate: float) -> None:
        asyncio.run(self._send(count, rate))

    async def _send(self, count: int, rate: float) -> None:
        import nats

        connection = await nats.connect(self._servers.split(","))
        stream = connection.jetstream(publish_async_max_pending=1_000)
        due_s = time.monotonic()
        acknowledged = []
        for _ in range(count):
            if rate:
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                due_s += 1.0 / rate
            acknowledged.append(await stream.publish_async(self._topic, self.value()))
        await asyncio.gather(*acknowledged)
        await connection.close()

    def start(self, workers: int) -> list[threading.Thread]:
        thread = threading.Thread(target=lambda: asyncio.run(self._work(workers)))
        thread.start()
        return [thread]

    async def _work(self, workers: int) -> None:
        import nats

        connections = [await nats.connect(self._servers.split(",")) for _ in range(workers)]
        await asyncio.gather(*map(self._take, connections))

    async def _take(self, connection: Any) -> None:
        subscription = await connection.jetstream().pull_subscribe(self._topic, durable="workers")
        while not self.over.is_set():
            try:
                messages = await subscription.fetch(self._batch, timeout=_POLL_S)
            except TimeoutError:
                continue
            self.taken.note(message.data for message in messages)
            for message in messages:
                await message.ack()
        await connection.drain()

    def work(self) -> None:
        """The workers have no threads."""


async def wait_idly(servers: str, topic: str, workers: int) -> None:
    """Workers that poll and get nothing."""
    from minilog import aio

    async def poll(consumer: aio.QueueConsumer) -> None:
        while True:
            await consumer.poll(timeout=30.0)

    async with contextlib.AsyncExitStack() as stack:
        settings = {"bootstrap.servers": servers, "queue": topic}
        consumers = [await stack.enter_async_context(aio.QueueConsumer(settings)) for _ in range(workers)]
        for consumer in consumers:
            await consumer.subscribe([topic])
        polls = [asyncio.create_task(poll(consumer)) for consumer in consumers]
        await asyncio.to_thread(sys.stdin.read)
        for task in polls:
            task.cancel()


PEERS: dict[str, type[Peer]] = {"minilog": Minilog, "kafka": Kafka, "jetstream": JetStream}


def main() -> None:
    command, system, servers, topic, count, workers, batch, rate = sys.argv[1:]
    if command == "idle":
        asyncio.run(wait_idly(servers, topic, int(workers)))
        return
    peer = PEERS[system](servers, topic, int(batch))
    if command == "send":
        peer.send(int(count), 0.0)
        print(json.dumps({"messages": int(count)}))
        return
    peer.run(int(workers), int(count), float(rate) if command == "live" else 0.0)
    taken = peer.taken
    figures = {
        "messages": taken.messages,
        "deliveries": taken.deliveries,
        "seconds": taken.last_s - taken.first_s,
        **quantiles_ms(taken.delays_ns[int(len(taken.delays_ns) * _WARM_UP_SHARE) :]),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
