"""A signal may end `send` and `send_batch` at any step with an exception: the accumulator stays whole."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from minilog.partition_key import PartitionKey
from minilog.producer import accumulator as accumulator_module
from minilog.producer import batch as batch_module
from minilog.producer import futures as futures_module
from minilog.producer.accumulator import Accumulator
from minilog.producer.batch import Batch, threaded_records
from minilog.producer.futures import RecordFuture
from tests.unit.client.test_accumulator import CACHE, TOPIC_INFO, accumulator

_FILES = (accumulator_module.__file__, batch_module.__file__, futures_module.__file__)
_LOOKS_FOR_SIGNALS = ("RESUME", "JUMP_BACKWARD", "CALL", "CALL_KW", "CALL_FUNCTION_EX")  # when it has executed them


class _Interrupt(BaseException):
    """What a handler of a signal raises."""


def interrupted_after(steps: int, call: Callable[[], object]) -> bool:
    """End it at that step of all in the accumulator and its batches at which the interpreter looks for signals. Was
    there such a step?"""
    left = steps
    executed: dict[FrameType, str] = {}  # last, by frame

    def step(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in _FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= executed.get(frame) in _LOOKS_FOR_SIGNALS
            if left < 0:
                sys.settrace(None)
                raise _Interrupt
            executed[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        call()
    except _Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def send(to: Accumulator, value: bytes, partition: int | None, future: Any = None) -> Any:
    future = future or RecordFuture()
    to.append(TOPIC_INFO, partition, b"k" if partition is None else None, value, None, 7, future, 0.0)
    return future


def send_columns(to: Accumulator, future: Any) -> None:
    parts = [(number, pa.RecordBatch.from_pydict({"value": [b"c%d" % number]})) for number in range(3)]
    to.append_columns(TOPIC_INFO, parts, future, 0.0)


def drained(to: Accumulator) -> list[Batch]:
    """All that comes out of it, settled."""
    last = to.begin_flush()
    found = []
    for key in to.newly_ready(0.0):
        while (batch := to.take(key, 0.0)) is not None:
            found.append(batch)
    assert not to.keys(), "nothing is left"
    for batch in found:
        batch.completion.delivered(100)
        to.settled(batch)
    assert to.is_settled(last), "a flush would wait for ever"
    assert to.used_bytes() == 0
    return found


def whole(batch: Batch) -> bool:
    lists = (batch.keys, batch.timestamps_us, batch.headers)
    return batch.columns is not None or all(len(each) == len(batch.values) for each in lists)


def accumulating(threads: bool) -> Accumulator:
    to = accumulator(batch_size=60)
    if threads:
        to._completion = threaded_records
    return to


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "asyncio"])
def test_a_send_that_is_ended_at_any_step_takes_its_record_or_not(threads: bool) -> None:
    steps, is_there, taken = 0, True, 0
    while is_there:
        to = accumulating(threads)
        make: Callable[[], Any] = RecordFuture if threads else Future
        futures = {value: send(to, value, 0, make()) for value in (b"a", b"b")}
        is_there = interrupted_after(steps, partial(send, to, b"torn" * 10, 0, make()))  # it begins a batch
        futures |= {value: send(to, value, 0, make()) for value in (b"c", b"d")}
        batches = drained(to)
        assert all(map(whole, batches))
        values = [value for batch in batches for value in batch.values]
        assert [each for each in values if each in futures] == list(futures)
        places = {b"a": 100, b"b": 101}
        for batch in batches:
            places |= {value: 100 + number for number, value in enumerate(batch.values)}
        assert {value: future.result(0).offset for value, future in futures.items()} == {
            value: places[value] for value in futures
        }
        taken += len(values) == 5
        steps += 1
    assert steps > 10
    assert 0 < taken < steps


def test_a_batch_of_columns_that_is_ended_at_any_step_is_taken_whole_or_not_at_all() -> None:
    steps, is_there = 0, True
    while is_there:
        to = accumulator()
        before = [send(to, b"before", number, Future()) for number in range(2)]
        torn: Future[Any] = Future()
        is_there = interrupted_after(steps, partial(send_columns, to, torn))
        after = send(to, b"after", 1, Future())
        batches = drained(to)
        assert [future.done() for future in (*before, after)] == [True] * 3
        parts = [batch.key for batch in batches if batch.columns is not None]
        assert len(parts) in (0, 3)
        assert torn.done() == (len(parts) == 3)
        assert len(parts) == 3 or is_there
        steps += 1
    assert steps > 10


def test_records_taken_before_are_not_forgotten_on_their_way() -> None:
    to = accumulator()
    future = send(to, b"first", 0, Future())
    to.begin_flush()
    [key] = to.newly_ready(0.0)
    assert key == PartitionKey(TOPIC_INFO.topic_id, 0)
    under_way = to.take(key, 0.0)
    assert under_way is not None
    assert interrupted_after(6, lambda: send(to, b"second", 0, Future()))
    last = to.begin_flush()
    assert not to.is_settled(last)
    under_way.completion.delivered(0)
    to.settled(under_way)
    drained(to)
    assert future.result(0).offset == 0
    assert CACHE.topics
