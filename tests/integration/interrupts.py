"""An exception that a signal raises, at random moments of each call: python -m tests.integration.interrupts --times 200

    call     what must agree afterwards
    poll     what is handed out, one offset after the other from the first to the last, with what is committed
    send     each acknowledged record with the log, key and value; each of an interrupted call is there once, or not
    commit   what is committed is the offset before, or the one that was asked for; the next one works
    close    every future is done; what it says is so in the log; a second close returns

No call hangs, and the next one works. The handler raises while a frame of the client is running, nowhere else: what
comes between a call's return and the assignment of its result is no business of the client (docs/guides/processes.md).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any

import pyarrow as pa

import minilog
from minilog import Admin, Closed, Consumer, NewTopic, Producer, TopicPartition, UnknownOutcome
from tests.cluster import running_cluster

_CLIENT = str(pathlib.Path(minilog.__file__).parent)
_HANG_S = 30.0
_SHORTEST_S, _LONGEST_S = 0.000_05, 0.5
RECORDS = 20_000


class Interrupt(BaseException):
    """What the handler raises, as KeyboardInterrupt."""


class Interrupter:
    """Rings once in the midst of calls, at a moment within about the time that they take."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._took_s = 0.001
        self._is_armed = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, _: int, frame: FrameType | None) -> None:
        while self._is_armed and frame is not None:
            if frame.f_code.co_filename.startswith(_CLIENT):
                self._is_armed = False
                raise Interrupt
            frame = frame.f_back

    def interrupts(self, call: Callable[[], object]) -> bool:
        """Was it interrupted? Else it returned."""
        began_s, self._is_armed = time.monotonic(), True
        signal.setitimer(signal.ITIMER_REAL, max(_SHORTEST_S, self._chance.uniform(0.0, 1.2 * self._took_s)))
        try:
            call()
        except Interrupt:
            self._took_s = min(1.15 * self._took_s, _LONGEST_S)
            return True
        finally:
            self._is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._took_s = 0.5 * (self._took_s + time.monotonic() - began_s)
        return False


class Failed(Exception):
    """Something does not agree."""


def check(is_right: object, wrong: str) -> None:
    if not is_right:
        raise Failed(wrong)


class Runs:
    """All kinds over one cluster."""

    def __init__(self, servers: str, times: int, seed: int) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": servers}
        self.times = times
        self.chance = random.Random(seed)
        self.name = f"interrupts-{seed}-{time.time_ns()}"
        with Admin(self.settings) as admin:
            admin.create_topics([NewTopic(f"{self.name}-{kind}", 1) for kind in ("poll", "send", "close")])

    def topic(self, kind: str) -> TopicPartition:
        return TopicPartition(f"{self.name}-{kind}", 0)

    def until_enough(self, once: Callable[[Interrupter], bool]) -> int:
        """So many interrupts; how many calls it took."""
        interrupter, hits, calls = Interrupter(self.chance), 0, 0
        while hits < self.times:
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            hits += once(interrupter)
            calls += 1
        faulthandler.cancel_dump_traceback_later()
        return calls

    # -- poll

    def poll(self) -> int:
        at = self.topic("poll")
        with Producer(self.settings) as producer:
            for number in range(RECORDS):
                producer.send(at.topic, b"%d" % number)
        consumer = Consumer({**self.settings, "group.id": self.name, "max.poll.bytes": "200000"})
        consumer.assign({at: 0})
        expected = 0

        def read(timeout_s: float) -> list[int]:
            if self.chance.random() < 0.5:
                return [record.offset for record in consumer.poll(timeout_s)]
            return [offset for rows in consumer.poll_arrow(timeout_s) for offset in rows.column("offset").to_pylist()]

        def once(interrupter: Interrupter) -> bool:
            nonlocal expected
            found: list[int] = []
            hit = interrupter.interrupts(lambda: found.extend(read(0.02)))
            check(found == list(range(expected, expected + len(found))), f"at {expected}: {found[:3]} to {found[-3:]}")
            expected += len(found)
            self._settled(consumer, at, expected)
            if expected == RECORDS and not found:
                consumer.seek(at, 0)
                expected = 0
            return hit

        calls = self.until_enough(once)
        while expected < RECORDS:
            found = read(5.0)
            check(found and found == list(range(expected, expected + len(found))), f"{found[:3]} at {expected}")
            expected += len(found)
        consumer.close()
        return calls

    def _settled(self, consumer: Consumer, at: TopicPartition, expected: int) -> None:
        """By whichever call comes next."""
        match self.chance.randrange(4):
            case 0:
                consumer.commit()
                committed = consumer.committed([at])[at] or 0
                check(committed == expected, f"{expected} is handed out, {committed} committed")
            case 1:
                position = consumer.position(at)
                check(position == expected, f"{expected} is handed out, the position is {position}")
            case _:
                pass  # the next poll

    # -- send

    def send(self) -> int:
        at, number = self.topic("send"), 0
        taken: dict[int, Future[Any]] = {}
        maybe: list[range] = []
        producer = Producer({**self.settings, "linger.ms": "1", "batch.size": "2000", "buffer.memory": "60000"})

        def some() -> None:
            nonlocal number
            for _ in range(30):
                number += 1
                taken[number] = producer.send(at.topic, b"%d" % number, key=b"%d" % number, partition=0)
            rows = [b"%d" % each for each in range(number + 1, number + 4)]
            number += 3
            producer.send_batch(at.topic, pa.record_batch({"key": rows, "value": rows}), 0)
            if self.chance.random() < 0.2:
                producer.flush()

        def once(interrupter: Interrupter) -> bool:
            nonlocal number
            first = number + 1
            hit = interrupter.interrupts(some)
            maybe.append(range(first, number + 1))
            return hit

        calls = self.until_enough(once)
        taken[number + 1] = producer.send(at.topic, b"%d" % (number + 1), key=b"%d" % (number + 1), partition=0)
        producer.flush(20.0)
        check(all(future.done() for future in taken.values()), "a future is open after the flush")
        log = self._log(at)
        for each, future in taken.items():
            check(log.get(future.result(0).offset) == each, f"{each} is not at {future.result(0).offset}")
        check(len(set(log.values())) == len(log), "a record is there twice")
        possible = {each for numbers in maybe for each in numbers} | set(taken)
        check(set(log.values()) <= possible, "there is what was never sent")
        producer.close()
        return calls

    def _log(self, at: TopicPartition) -> dict[int, int]:
        """What is there, by offset."""
        found: dict[int, int] = {}
        with Admin(self.settings) as admin, Consumer(self.settings) as consumer:
            end = admin.list_offsets({at: "latest"})[at]
            consumer.assign([TopicPartition(at.topic, 0, 0, end)])
            while not consumer.finished():
                for record in consumer.poll(1.0):
                    check(record.key == record.value, f"{record.value!r} has the key {record.key!r}")
                    found[record.offset] = int(record.value or b"")
        return found

    # -- commit

    def commit(self) -> int:
        at, known = self.topic("poll"), 0
        consumer = Consumer({**self.settings, "group.id": f"{self.name}-commit"})
        consumer.commit({at: 0})

        def once(interrupter: Interrupter) -> bool:
            nonlocal known
            hit = interrupter.interrupts(lambda: consumer.commit({at: known + 1}))
            committed = consumer.committed([at])[at] or 0
            check(committed in ((known, known + 1) if hit else (known + 1,)), f"{committed} is committed at {known}")
            consumer.commit({at: known + 2})
            check(consumer.committed([at])[at] == known + 2, f"the commit after {known + 1} is lost")
            known += 2
            return hit

        calls = self.until_enough(once)
        consumer.close()
        return calls

    # -- close

    def close(self) -> int:
        at, number = self.topic("close"), 0
        sent: dict[int, Future[Any]] = {}

        def once(interrupter: Interrupter) -> bool:
            nonlocal number
            producer, mine = Producer(self.settings), range(number, number + 20)
            number = mine.stop
            for each in mine:
                sent[each] = producer.send(at.topic, b"%d" % each, key=b"%d" % each)
            hit = interrupter.interrupts(producer.close)
            producer.close()
            check(all(sent[each].done() for each in mine), "a future is open after close")
            return hit

        calls = self.until_enough(once)
        log = {value: offset for offset, value in self._log(at).items()}
        for each, future in sent.items():
            match future.exception(0):
                case None:
                    check(log.get(each) == future.result(0).offset, f"{each} is acknowledged, and not there")
                case Closed() as error:
                    check(each not in log, f"{each} is there: {error}")
                case error:
                    check(isinstance(error, UnknownOutcome), f"{each}: {error!r}")
        return calls

    def run(self) -> dict[str, dict[str, float]]:
        found = {}
        for kind in (self.poll, self.send, self.commit, self.close):
            began_s = time.monotonic()
            calls = kind()
            found[kind.__name__] = {
                "interrupts": self.times,
                "calls": calls,
                "seconds": round(time.monotonic() - began_s, 1),
            }
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200, help="interrupts of each call")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", help="a cluster that runs; else one is started")
    chosen = parser.parse_args()
    if chosen.servers:
        print(json.dumps(Runs(chosen.servers, chosen.times, chosen.seed).run()))
        return 0
    with tempfile.TemporaryDirectory() as folder, running_cluster(pathlib.Path(folder), 1) as cluster:
        print(json.dumps(Runs(cluster.bootstrap_servers, chosen.times, chosen.seed).run(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
