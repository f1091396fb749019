"""T7: a leader is killed (SIGKILL) while a producer writes: how long until a write after it is acknowledged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import wait_until
from benchmarks.systems import System
from benchmarks.workloads import Turn, Workload

VALUE = b"x" * 100
EVERY_S = 0.005
FOUND_WITHIN_S = 60.0
_Acknowledged = list[tuple[float, float]]  # when it was sent, and when it was acknowledged


@contextmanager
def _writing_to_minilog(servers: str, topic: str) -> Iterator[_Acknowledged]:
    from minilog import Producer

    acknowledged: _Acknowledged = []
    over = threading.Event()

    def write() -> None:
        with Producer({"bootstrap.servers": servers}) as producer:
            while not over.wait(EVERY_S):
                sent_s = time.monotonic()

                def done(future: object, sent_s: float = sent_s) -> None:
                    if future.exception() is None:  # type: ignore[attr-defined]
                        acknowledged.append((sent_s, time.monotonic()))

                producer.send(topic, VALUE).add_done_callback(done)

    with _thread(write, over):
        yield acknowledged


@contextmanager
def _writing_to_kafka(servers: str, topic: str) -> Iterator[_Acknowledged]:
    from confluent_kafka import Producer

    acknowledged: _Acknowledged = []
    over = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "log_level": 0})

    def write() -> None:
        while not over.is_set():
            sent_s = time.monotonic()

            def done(error: object, _: object, sent_s: float = sent_s) -> None:
                if error is None:
                    acknowledged.append((sent_s, time.monotonic()))

            producer.produce(topic, VALUE, on_delivery=done)
            producer.poll(EVERY_S)
        producer.flush(60)

    with _thread(write, over):
        yield acknowledged


@contextmanager
def _thread(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _stall_s(system: System, topic: str, acknowledged: _Acknowledged) -> float:
    """Kill the leader, and bring it back."""
    wait_until(lambda: bool(acknowledged), "the first acknowledgement")
    time.sleep(random.uniform(1.0, 2.0))
    leader, seen = system.leader(topic), len(acknowledged)
    killed_s = time.monotonic()
    system.kill(leader)

    def first() -> float | None:
        return min((at_s for sent_s, at_s in acknowledged[seen:] if sent_s > killed_s), default=None)

    wait_until(lambda: first() is not None, "a write after the leader's death", FOUND_WITHIN_S)
    found_s = first()
    assert found_s is not None
    system.start(leader)
    system.wait_in_sync(topic, 1)
    return found_s - killed_s


def _contestant(
    find: Callable[[Arena], System], write: Callable[[str, str], AbstractContextManager[_Acknowledged]], kills: int
) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        system, topic = find(arena), arena.name("failover")
        system.create(topic, 1, is_synced=True)

        def turn(_: int) -> Run:
            with write(system.servers, topic) as acknowledged:
                stalls_s = [_stall_s(system, topic, acknowledged) for _ in range(kills)]
            cost = arena.measure(system, lambda: max(stalls_s))
            return Run(max(stalls_s), cost, details={f"kill {n}": each for n, each in enumerate(stalls_s, 1)})

        return turn

    return prepare


def failover(kills: int, kafka_kills: int) -> Workload:
    """The figure of a run is the worst of its kills."""
    contestants = {
        "minilog": _contestant(lambda arena: arena.minilog, _writing_to_minilog, kills),
        "kafka": _contestant(lambda arena: arena.kafka, _writing_to_kafka, kafka_kills),
    }
    title = f"SIGKILL of a leader to the next acknowledged write, the worst of {kills} (Kafka: of {kafka_kills})"
    return Workload(Target("T7", title, "s", Better.LOWER, None), "minilog", "kafka", contestants, warm_ups=0)
