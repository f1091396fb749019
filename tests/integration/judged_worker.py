"""One worker of a queue in a process of its own, which writes down what happens to it.

    python -m tests.integration.judged_worker '{"settings": {...}, "topic": ..., "log": ..., "seed": 1, ...}'

It polls, works a moment on each message, and settles it: most by accept, some by release and reject. Values with some
numbers are poison: each worker releases or rejects them. It flushes before it polls again. With SIGTERM it leaves. With
SIGUSR1 its program hangs for `hang_s`, so that its locks end. A healthy worker accepts all but poison, and never hangs.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from minilog import QueueConsumer
from minilog.errors import InvalidRecordState, MinilogError, TimedOut, UnknownOutcome
from minilog.queues.message import Message
from tests.integration.queue_history import MessageRow, WorkerEvent

POLL_S = 0.2
MAX_POLL_INTERVAL_S = 4.0
RELEASED_PART, REJECTED_PART = 0.05, 0.01
LONGEST_DELAY_S = 0.5
POISON_EVERY, REJECTED_EVERY = 400, 300
_SPAN = re.compile(r"of offsets (\d+) to (\d+) of partition (\d+)")


class WorkerOrder(msgspec.Struct):
    """What the process is to do. `work_s`: the mean time for one message."""

    settings: dict[str, Any]
    topic: str
    log: str
    seed: int
    hang_s: float = 10.0
    work_s: float = 0.1
    healthy: bool = False


class JudgedWorker:
    """The program."""

    def __init__(self, order: WorkerOrder) -> None:
        self._order = order
        self._chance = random.Random(order.seed)
        self._log = os.open(pathlib.Path(order.log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._consumer = QueueConsumer({**order.settings, "max.poll.interval.ms": int(MAX_POLL_INTERVAL_S * 1000)})
        self._leaves = self._hangs = False

    def leave(self, *_: object) -> None:
        self._leaves = True
        self._consumer.wakeup()

    def hang(self, *_: object) -> None:
        self._hangs = not self._order.healthy

    def run(self) -> None:
        """Work until the command to leave comes."""
        self._subscribe()
        self._write("begun", time.monotonic())
        while not self._leaves:
            since_s = time.monotonic()
            try:
                messages = self._consumer.poll(timeout=POLL_S)
            except MinilogError as error:
                self._write("raised", since_s, words=f"{type(error).__name__}: {error}"[:200])
                continue
            if messages:
                self._write("handed", since_s, messages)
                self._work(messages)
        self._write("leaving", time.monotonic())
        self._consumer.close()
        self._write("left", time.monotonic())

    def _subscribe(self) -> None:
        while not self._leaves:
            try:
                self._consumer.subscribe([self._order.topic])
                return
            except MinilogError:  # brokers are killed all the time
                time.sleep(POLL_S)

    def _work(self, messages: list[Message]) -> None:
        settled: dict[tuple[int, int], Message] = {}
        for message in messages:
            if self._leaves:
                break
            if self._order.work_s:
                time.sleep(self._chance.expovariate(1.0 / self._order.work_s))
            if self._hangs:
                self._hangs = False
                time.sleep(self._order.hang_s)
            if self._settle(message):
                settled[message.partition, message.offset] = message
        self._flush(settled)

    def _settle(self, message: Message) -> bool:
        """Whether the client took the verdict."""
        verdict, since_s = self._verdict(message), time.monotonic()
        self._write(verdict, since_s, [message])
        try:
            if verdict == "release":
                message.release(self._chance.choice([0.0, self._chance.uniform(0.0, LONGEST_DELAY_S)]))
            else:
                getattr(message, verdict)()
        except InvalidRecordState:
            self._write("late", since_s, [message])
            return False
        return True

    def _verdict(self, message: Message) -> str:
        number = int((message.value or b"").partition(b"|")[0].rpartition(b":")[2])
        if number % POISON_EVERY == POISON_EVERY - 1:
            return "release"
        if number % REJECTED_EVERY == REJECTED_EVERY - 1:
            return "reject"
        drawn = 1.0 if self._order.healthy else self._chance.random()
        if drawn < REJECTED_PART:
            return "reject"
        return "release" if drawn < REJECTED_PART + RELEASED_PART else "accept"

    def _flush(self, settled: dict[tuple[int, int], Message]) -> None:
        """Learn what became of each verdict."""
        since_s = time.monotonic()
        while True:
            try:
                self._consumer.flush()
                break
            except TimedOut:
                continue
            except MinilogError as error:
                kind = "unsure" if isinstance(error, UnknownOutcome) else "failed"
                places = list(_places(str(error)))
                if not places or not isinstance(error, InvalidRecordState | UnknownOutcome):
                    self._write("raised", since_s, words=f"{type(error).__name__}: {error}"[:200])
                    kind, places = "unsure", places or list(settled)
                self._write(kind, since_s, [settled.pop(place) for place in places if place in settled])
        if settled:
            self._write("confirmed", since_s, settled.values())

    def _write(self, kind: str, since_s: float, messages: Iterable[Message] = (), words: str = "") -> None:
        rows = [_row(message) for message in messages]
        event = WorkerEvent(kind, time.monotonic(), since_s, rows, words)
        os.write(self._log, msgspec.json.encode(event) + b"\n")


def _row(message: Message) -> MessageRow:
    """The product has no need to show the end of a lock to programs."""
    lease = message.held.lease
    until_s = 0.0 if lease.is_lost else lease.lock_end_ms / 1000.0
    return MessageRow(message.partition, message.offset, message.delivery_count, until_s)


def _places(words: str) -> Iterable[tuple[int, int]]:
    """The partitions and offsets that an error names."""
    for first, last, partition in _SPAN.findall(words):
        for offset in range(int(first), int(last) + 1):
            yield int(partition), offset


def main() -> None:
    worker = JudgedWorker(msgspec.json.decode(sys.argv[1], type=WorkerOrder))
    signal.signal(signal.SIGTERM, worker.leave)
    signal.signal(signal.SIGUSR1, worker.hang)
    worker.run()


if __name__ == "__main__":
    main()
