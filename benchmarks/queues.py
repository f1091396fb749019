"""T21, queues: `python -m benchmarks.queues`. Three brokers, and workers that lease and settle.

First a backlog: how many messages a second are leased and settled, and the CPU of the brokers for 1,000 of them. Then
messages at a rate: the time from `send` to the program of a worker. Last, idle workers: the CPU of all brokers less
that without them. The workers are threads of one process. Each message is accepted by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable

from benchmarks.accounting import cpu_s, settle, touch_memory
from benchmarks.clients.values import quantiles_ms, values
from benchmarks.processes import wait_until
from benchmarks.systems.minilog import MinilogCluster
from minilog import Admin, NewTopic, Producer, QueueConsumer, aio

BACKLOG, LIVE, IDLE = "backlog", "live", "idle"
PARTITIONS = 4
RECORD_BYTES = 300
_WITHIN_S = 300.0
_TOUCHED_GIB = 1.0
_POLL_S = 0.5


class Workers:
    """Threads that take messages of one queue, and accept each."""

    def __init__(self, servers: str, topic: str, count: int, max_records: int) -> None:
        self._config = {"bootstrap.servers": servers, "queue": topic, "max.poll.records": max_records}
        self._topic = topic
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.settled = 0
        self.delays_ns: list[int] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with QueueConsumer(self._config) as consumer:
            consumer.subscribe([self._topic])
            while not self._ended.is_set():
                messages = consumer.poll(timeout=_POLL_S)
                now_ms = time.time() * 1_000.0
                for message in messages:
                    message.accept()
                with self._lock:
                    self.settled += len(messages)
                    self.delays_ns += [int((now_ms - message.timestamp) * 1e6) for message in messages]

    def end(self) -> None:
        """Settle all, and end the threads."""
        self._ended.set()
        for thread in self._threads:
            thread.join()


class Measured:
    """The CPU of the brokers in a block."""

    def __init__(self, cluster: MinilogCluster) -> None:
        self._pids = list(cluster.pids.values())
        self._began_s, self._cpu_s = time.monotonic(), self._cpu()

    def _cpu(self) -> float:
        return sum(cpu_s(pid) for pid in self._pids)

    def taken(self) -> tuple[float, float]:
        """(seconds, CPU seconds of the brokers) since the begin."""
        return time.monotonic() - self._began_s, self._cpu() - self._cpu_s


def backlog(cluster: MinilogCluster, chosen: argparse.Namespace) -> None:
    """Lease and settle what is there."""
    with Producer({"bootstrap.servers": cluster.servers}) as producer:
        for number, value in enumerate(values(chosen.messages, RECORD_BYTES)):
            producer.send(BACKLOG, value, partition=number % PARTITIONS)
        producer.flush()
    settle()
    measured = Measured(cluster)
    workers = Workers(cluster.servers, BACKLOG, chosen.workers, chosen.batch)
    wait_until(lambda: workers.settled >= chosen.messages, "the backlog", _WITHIN_S)
    workers.end()
    seconds, cpu = measured.taken()
    with Admin({"bootstrap.servers": cluster.servers}) as admin:
        settled = sum(partition.settled_to for partition in admin.describe_queue(BACKLOG).partitions)
    print(
        f"backlog: {settled:,} messages leased and settled by {chosen.workers} workers, {chosen.batch} a lease, in "
        f"{seconds:.1f} s: {settled / seconds:,.0f} a second, {cpu / settled * 1e6:.1f} ms of CPU of the brokers for "
        "1,000",
        flush=True,
    )


def live(cluster: MinilogCluster, chosen: argparse.Namespace) -> None:
    """Deliver messages as they come."""
    workers = Workers(cluster.servers, LIVE, chosen.workers, chosen.batch)
    value = values(1, RECORD_BYTES)[0]
    measured = Measured(cluster)
    with Producer({"bootstrap.servers": cluster.servers}) as producer:
        began_s = due_s = time.monotonic()
        while due_s < began_s + chosen.live_s:
            time.sleep(max(0.0, due_s - time.monotonic()))
            producer.send(LIVE, value)
            due_s += 1.0 / chosen.rate
        producer.flush()
    seconds, cpu = measured.taken()
    workers.end()
    delays = quantiles_ms(workers.delays_ns[len(workers.delays_ns) // 5 :])  # without the first fifth, which warms up
    print(
        f"live: {chosen.rate:,.0f} messages a second: p50 {delays['p50']:.1f} ms, p99 {delays['p99']:.1f} ms from send "
        f"to a worker's program, {cpu / seconds * 100:.0f} % of a core for the brokers",
        flush=True,
    )


async def _idle(cluster: MinilogCluster, chosen: argparse.Namespace) -> None:
    await asyncio.sleep(chosen.idle_s)
    calm = Measured(cluster)
    await asyncio.sleep(chosen.idle_s)
    calm_s, calm_cpu = calm.taken()
    async with contextlib.AsyncExitStack() as stack:
        config = {"bootstrap.servers": cluster.servers, "queue": IDLE}
        consumers = [await stack.enter_async_context(aio.QueueConsumer(config)) for _ in range(chosen.idle)]
        for consumer in consumers:
            await consumer.subscribe([IDLE])
        polls = [asyncio.ensure_future(_poll(consumer)) for consumer in consumers]
        await asyncio.sleep(chosen.idle_s)
        busy = Measured(cluster)
        await asyncio.sleep(chosen.idle_s)
        seconds, cpu = busy.taken()
        for poll in polls:
            poll.cancel()
    more = cpu / seconds - calm_cpu / calm_s
    print(f"idle: {chosen.idle} workers without work cost the brokers {more * 100:.1f} % of a core", flush=True)


async def _poll(consumer: aio.QueueConsumer) -> None:
    while True:
        await consumer.poll(timeout=30.0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="of the backlog")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=100, help="max.poll.records")
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second")
    parser.add_argument("--live-s", type=float, default=15.0)
    parser.add_argument("--idle", type=int, default=200, help="idle workers")
    parser.add_argument("--idle-s", type=float, default=10.0)
    return parser.parse_args()


def main() -> None:
    chosen = parse()
    touch_memory(_TOUCHED_GIB)
    with tempfile.TemporaryDirectory(prefix="minilog-queues-") as folder:
        cluster = MinilogCluster(pathlib.Path(folder), {"flush.policy": "os"})
        try:
            with Admin({"bootstrap.servers": cluster.servers}) as admin:
                admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (BACKLOG, LIVE, IDLE)])
            parts: list[Callable[[], None]] = [
                lambda: backlog(cluster, chosen),
                lambda: live(cluster, chosen),
                lambda: asyncio.run(_idle(cluster, chosen)),
            ]
            for part in parts:
                part()
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
