"""Programs that fork, end, and call back: each is one function, run as `python -m tests.integration.process_edges NAME
SERVERS`; test_process_edges judges what they print and how they end."""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from minilog import Admin, BufferExhausted, Closed, Consumer, Producer, TopicPartition
from minilog.sync.transaction import Transactions

TOPIC = "edges"
P0 = TopicPartition(TOPIC, 0)
_GIVEN: dict[str, Any] = {"topic": TOPIC, "value": b"x", "columns": pa.record_batch({"value": [b"x"]}), "partition": P0}


def _arguments(call: Callable[..., Any]) -> dict[str, Any]:
    """Something for each that has to be given."""
    needed = [each for each in inspect.signature(call).parameters.values() if each.default is each.empty]
    return {each.name: _GIVEN.get(each.name, []) for each in needed}


def _answer(call: Callable[[], Any]) -> str:
    began_s = time.monotonic()
    try:
        found = call()
        if hasattr(found, "__enter__"):  # a transaction
            found.__enter__()
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    else:
        answer = "returned"
    return answer if time.monotonic() - began_s < 1.0 else f"late: {answer}"


def _every_call(client: object) -> Iterator[tuple[str, str]]:
    for name in sorted(dir(client), key=lambda each: (each == "close", each)):
        if not name.startswith("_"):
            call = getattr(client, name)
            yield f"{type(client).__name__}.{name}", _answer(lambda at=call: at(**_arguments(at)))  # type: ignore[misc]


def _in_a_child(told: Callable[[], Any]) -> Any:
    """What the child says, as JSON by a pipe."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, json.dumps(told()).encode())
        except BaseException as error:
            os.write(writing, json.dumps(repr(error)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = json.loads(pipe.read() or b'"the child said nothing"')
    os.wait()
    return found


def _end_of_a_child() -> int:
    """How a child ends that makes no call."""
    child_id = os.fork()
    if child_id == 0:
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1])


def fork_with_open_clients(servers: dict[str, Any]) -> None:
    """Each public call of each kind of client, in the child: {call: its answer}."""
    producer = Producer({**servers, "transactional.id": f"forks-{os.getpid()}"})
    plain, admin, transactions = Producer({**servers, "linger.ms": "60000"}), Admin(servers), Transactions(servers)
    plain.send(TOPIC, b"of the parent")
    plain.flush(10)
    open_record = plain.send(TOPIC, b"lingers")
    consumer = Consumer({**servers, "group.id": "forks", "auto.offset.reset": "earliest"})
    consumer.assign([P0])
    consumer.poll(0.1)
    admin.describe_cluster()
    with producer.transaction():
        producer.send(TOPIC, b"in a transaction").result(10)

    def told() -> dict[str, str]:
        found = {"future": _answer(lambda: open_record.result(5))}
        for client in (plain, producer, consumer, admin, transactions):
            found |= {f"{name} of {index}": answer for index, (name, answer) in enumerate(_every_call(client))}
        for kind in (Producer, Consumer, Admin, Transactions):
            found[f"new {kind.__name__}"] = _answer(lambda at=kind: at(servers))  # type: ignore[misc]
        return found

    child, ends = _in_a_child(told), [_end_of_a_child() for _ in range(6)]
    print(json.dumps({"child": child, "ends": ends, "parent": _every_client_works(plain, consumer, admin)}))
    for client in (plain, producer, consumer, admin, transactions):
        client.close()


def _every_client_works(producer: Producer, consumer: Consumer, admin: Admin) -> str:
    future = producer.send(TOPIC, b"of the parent, afterwards")
    producer.flush(10)
    consumer.commit()
    return f"{future.result(0).topic} {len(admin.describe_cluster().brokers)}"


def fork_and_let_go(servers: dict[str, Any]) -> None:
    """How children end that let their parent's clients go, and how the parent's connections are then: what it writes
    behind each child."""
    producer, consumer, admin = Producer(servers), Consumer(servers), Admin(servers)
    producer.send(TOPIC, b"of the parent").result(30)
    consumer.assign([P0])
    consumer.poll(0.1)
    admin.describe_cluster()
    ends, answers = [], []
    for _ in range(6):
        child_id = os.fork()
        if child_id == 0:
            del producer, consumer, admin
            gc.collect()
            sys.exit(7)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child_id, 0)[1]))
        answers.append(_answer(lambda: producer.send(TOPIC, b"behind a child").result(30)))
    print(json.dumps([ends, answers]))
    for client in (producer, consumer, admin):
        client.close()


def fork_with_closed_clients(servers: dict[str, Any]) -> None:
    """What is written by: a child of no clients, the parent, a child of clients that are closed."""

    def written() -> str:
        with Producer(servers) as producer, Admin(servers) as admin:
            admin.describe_cluster()
            return producer.send(TOPIC, b"one").result(30).topic

    print(json.dumps([_in_a_child(written), written(), _in_a_child(written)]))


class _Log(logging.Handler):
    """Writes what is logged into a topic."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer = producer

    def emit(self, record: logging.LogRecord) -> None:
        self.producer.send(TOPIC, self.format(record).encode())

    def flush(self) -> None:
        self.producer.flush(5)


class _Holder:
    """Sends its last words."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def __del__(self) -> None:
        self.producer.send(TOPIC, b"deleted")


def end_without_close(servers: dict[str, Any]) -> None:
    """Everything that may use a client at the end does: prints what became of it."""
    producer, consumer = Producer({**servers, "client.id": "forgetful", "linger.ms": "60000"}), Consumer(servers)
    producer.send(TOPIC, b"warm")
    consumer.assign([P0])

    def tell(name: str, call: Callable[[], Any]) -> None:
        print(f"{name}: {_answer(call)}", flush=True)

    # The clients' own function is registered with the first of them: this one runs before it, those below after it.
    atexit.register(tell, "before", lambda: producer.send(TOPIC, b"before"))
    logging.getLogger().addHandler(_Log(producer))
    _waiting.append(threading.Thread(target=lambda: tell("thread in poll", lambda: consumer.poll(60.0)), daemon=True))
    _waiting[0].start()
    for number in range(200):
        producer.send(TOPIC, b"%d" % number)

    def left_open() -> Iterator[int]:
        with producer:
            yield 1

    generator, holder = left_open(), _Holder(producer)
    next(generator)
    globals()["_left"] = (generator, holder)
    time.sleep(0.3)
    print("the end", flush=True)


def _after() -> None:
    """Registered before any client is made: it runs after they have ended, and sees that a call has ended with them."""
    _waiting[0].join(10.0)
    for name, kind in (("Producer", Producer), ("Admin", Admin)):
        print(f"new {name} after: {_answer(lambda at=kind: at(_servers))}", flush=True)  # type: ignore[misc]


def leave_a_producer(servers: dict[str, Any]) -> None:
    """What is sent by a producer that nobody holds arrives."""
    future = Producer({**servers, "linger.ms": "60000"}).send(TOPIC, b"left")
    print(future.result(10).topic)


def send_in_callbacks(servers: dict[str, Any]) -> None:
    """Each record's callback sends another one, into a full buffer; and waits for one."""
    slowest_s, refused, waits = 0.0, 0, ""
    small = {**servers, "buffer.memory": "1048576", "max.block.ms": "10000", "batch.size": "65536"}
    with Producer(small) as producer:
        producer.send(TOPIC, b"warm").result(10)

        def again(_: Any) -> None:
            nonlocal refused, waits
            if future is not None and not future.done():
                waits = waits or _answer(lambda: future.result(5))
            try:
                producer.send(TOPIC, b"y" * 20_000)
                producer.send_batch(TOPIC, pa.table({"value": [b"z" * 20_000]}))
                producer.send("a-topic-that-is-not-known", b"z")
            except BufferExhausted as error:
                refused += "callback" in str(error)
            except RuntimeError:
                pass  # metadata was needed
            except Closed:
                pass  # the last of them

        future: Any = None
        for _ in range(300):
            began_s = time.monotonic()
            future = producer.send(TOPIC, b"x" * 20_000)
            future.add_done_callback(again)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
    print(json.dumps({"slowest_s": slowest_s, "refused": refused, "waits": waits}))


_servers: dict[str, Any] = {}
_waiting: list[threading.Thread] = []

if __name__ == "__main__":
    _servers["bootstrap.servers"] = sys.argv[2]
    if sys.argv[1] == end_without_close.__name__:
        atexit.register(_after)
    {
        each.__name__: each
        for each in (
            fork_with_open_clients,
            fork_with_closed_clients,
            fork_and_let_go,
            end_without_close,
            leave_a_producer,
            send_in_callbacks,
        )
    }[sys.argv[1]](_servers)
