"""The threads that wait for the disk on behalf of readers. server/disk/reader_threads.py."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from minilog_broker.server.disk.disk_stall import LEAST_STALL_MS, DiskAnswer, DiskStall
from minilog_broker.server.disk.reader_threads import DiskRead, ReaderThreads, ReadTurns, carry_out, result_of
from tests.rules import proves

pytestmark = proves("RD.2")


class Turns:
    """Turns without threads: what is begun ends when the test says so."""

    def __init__(self, most: int) -> None:
        self.begun: list[DiskRead] = []
        self.told: list[Any] = []
        self.turns = ReadTurns(most, self.begun.append)

    def ask(self, name: str, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self.turns.submit(DiskRead(lambda: name, self.told.append, self.told.append, is_wanted))

    def end(self) -> None:
        self.turns.ended(carry_out(self.begun.pop(0)))


def test_so_many_are_read_at_a_time_and_in_the_order_in_which_they_were_asked_for() -> None:
    reading = Turns(2)
    for name in "abcd":
        reading.ask(name)
    assert (len(reading.begun), reading.turns.waiting) == (2, 4)
    while reading.begun:
        reading.end()
    assert reading.told == ["a", "b", "c", "d"]
    assert reading.turns.waiting == 0


@proves("RD.4")
def test_cancelled_reads_are_not_begun_and_report_nothing() -> None:
    reading, wanted = Turns(1), [True]
    reading.ask("first")
    reading.ask("second", lambda: wanted[0])
    reading.ask("third")
    wanted[0] = False
    reading.end()
    reading.end()
    assert reading.told == [None, "first", "third"]


@proves("DK.10")
def test_reads_that_all_hang_are_a_disk_that_does_not_answer() -> None:
    reading = Turns(2)
    reading.ask("hangs")
    assert reading.turns.step is None, "one bad file is no bad disk"
    reading.ask("hangs, too")
    now_ms = 0.0
    stall = DiskStall(reading.turns, LEAST_STALL_MS, lambda: now_ms)
    answers = []
    for _ in range(10):
        now_ms += 500.0
        answers.append(stall.look())
    assert answers[-1] is DiskAnswer.STALLED
    reading.end()
    reading.ask("another")
    assert stall.look() is DiskAnswer.IN_TIME


def test_behind_the_end_nothing_is_told_and_nothing_begins() -> None:
    reading = Turns(1)
    reading.ask("first")
    reading.ask("second")
    reading.turns.end()
    reading.ask("third")
    reading.end()
    assert (reading.told, reading.begun) == ([], [])


def test_an_error_of_the_disk_is_told_and_another_is_not_the_disks() -> None:
    def fails(error: Exception) -> Callable[[], Any]:
        def work() -> Any:
            raise error

        return work

    told: list[Any] = []
    carry_out(DiskRead(fails(OSError(errno.EIO, "the disk failed")), told.append, told.append))()
    assert isinstance(told[0], OSError)
    with pytest.raises(ZeroDivisionError):
        carry_out(DiskRead(fails(ZeroDivisionError()), told.append, told.append))


def test_threads_read_beside_the_loop_and_a_fault_of_our_own_is_told() -> None:
    async def scenario() -> None:
        crashed: list[BaseException] = []
        fault = asyncio.Event()

        def on_crash(error: BaseException) -> None:
            crashed.append(error)
            fault.set()

        readers = ReaderThreads("reader", 2, asyncio.get_running_loop(), on_crash)
        try:
            names = await asyncio.gather(
                *(result_of(readers, lambda: threading.current_thread().name) for _ in range(8))
            )
            assert set(names) <= {"reader-0", "reader-1"}
            with pytest.raises(OSError, match="the disk failed"):
                await result_of(readers, _raise_io_error)
            readers.submit(DiskRead(_divide_by_zero, crashed.append, crashed.append))
            await fault.wait()
            assert isinstance(crashed[0], ZeroDivisionError)
        finally:
            await readers.stop()

    asyncio.run(scenario())


def test_while_one_read_hangs_others_go_on_and_the_stop_waits_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minilog_broker.server.disk.reader_threads.STOP_S", 0.01)

    async def scenario() -> None:
        crashed: list[BaseException] = []
        hangs = threading.Event()
        readers = ReaderThreads("reader", 2, asyncio.get_running_loop(), crashed.append)
        told: list[Any] = []
        readers.submit(DiskRead(hangs.wait, told.append, told.append))
        assert await result_of(readers, lambda: "read") == "read"
        await readers.stop()
        hangs.set()
        assert (told, crashed) == ([], [])

    asyncio.run(scenario())


def _raise_io_error() -> None:
    raise OSError(errno.EIO, "the disk failed")


def _divide_by_zero() -> float:
    return 1 / 0
