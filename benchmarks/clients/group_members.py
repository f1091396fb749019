"""Members of one group: SYSTEM SERVERS TOPIC GROUP FIRST COUNT FILE. A line on standard input lets them join, and the
next line, or its end, lets them leave. The members have the numbers FIRST, FIRST + 1, and so on.

FILE gets a row for each record (benchmarks/handovers.py), as soon as a member has read it. A value is the time when it
was sent, by the clock that all processes of the machine share.

minilog's members share one event loop. Each member of confluent-kafka has a thread that polls, beside those of its own.
"""

from __future__ import annotations

import asyncio
import pathlib
import struct
import sys
import threading
import time
from typing import Any

from benchmarks.clients.secured import client_settings

_ROW = struct.Struct("=5q")
_METADATA_MS = 300_000  # as long as Kafka's default: minilog's own is 5 s
_POLL_S = 1.0


class Rows:
    """The file. One write for each poll, and nothing is kept here: the process may be killed."""

    def __init__(self, path: pathlib.Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(self, member: int, records: list[tuple[int, int, bytes]]) -> None:
        """A member has read these: partition, offset, value."""
        now_ns = time.monotonic_ns()
        self._file.write(
            b"".join(
                _ROW.pack(member, partition, offset, int.from_bytes(value, "little"), now_ns)
                for partition, offset, value in records
            )
        )


def _common_settings(servers: str, group: str) -> dict[str, object]:
    """The settings that have the same names on both sides."""
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": "consumer",
        "enable.auto.commit": True,
        "auto.offset.reset": "latest",
        "metadata.max.age.ms": _METADATA_MS,
    }


class MinilogMembers:
    """Members on the event loop of this process."""

    def __init__(self, servers: str, topic: str, group: str, numbers: range, rows: Rows) -> None:
        self._topic, self._numbers, self._rows = topic, numbers, rows
        self._settings = {**_common_settings(servers, group), **client_settings("minilog")}

    def run(self) -> None:
        """Until a line comes."""
        from minilog.net.event_loop import new_event_loop

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        from minilog.aio import Consumer

        consumers = [Consumer(self._settings) for _ in self._numbers]
        await asyncio.to_thread(sys.stdin.readline)
        reading = [
            asyncio.create_task(self._read(number, consumer))
            for number, consumer in zip(self._numbers, consumers, strict=True)
        ]
        await asyncio.to_thread(sys.stdin.readline)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    async def _read(self, number: int, consumer: Any) -> None:
        await consumer.subscribe([self._topic])
        while True:
            if records := await consumer.poll(_POLL_S):
                self._rows.note(number, [(record.partition, record.offset, record.value) for record in records])


class KafkaMembers:
    """Members with a thread each. Many that have nothing to read are polled by one thread, in turn."""

    def __init__(self, servers: str, topic: str, group: str, numbers: range, rows: Rows) -> None:
        self._topic, self._numbers, self._rows = topic, numbers, rows
        self._over = threading.Event()
        self._settings = {**_common_settings(servers, group), "log_level": 3, **client_settings("kafka")}

    def run(self) -> None:
        """Until a line comes."""
        from confluent_kafka import Consumer

        consumers = [Consumer(self._settings) for _ in self._numbers]
        sys.stdin.readline()
        reading = [
            threading.Thread(target=self._read, args=(number, consumer))
            for number, consumer in zip(self._numbers, consumers, strict=True)
        ]
        for thread in reading:
            thread.start()
        sys.stdin.readline()
        self._over.set()
        for thread in reading:
            thread.join()

    def _read(self, number: int, consumer: Any) -> None:
        consumer.subscribe([self._topic])
        while not self._over.is_set():
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._rows.note(number, [(message.partition(), message.offset(), message.value())])
        consumer.close()


def main() -> None:
    system, servers, topic, group, first, count, path = sys.argv[1:]
    numbers = range(int(first), int(first) + int(count))
    members = MinilogMembers if system == "minilog" else KafkaMembers
    members(servers, topic, group, numbers, Rows(pathlib.Path(path))).run()


if __name__ == "__main__":
    main()
