"""The disk thread: group commit, and what a failure drops. Loop and disk are held by turns, nobody sleeps."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from minilog.errors import CorruptMessage
from minilog_broker.server.disk.disk_thread import BoundedLane, CommandGroups, DiskCommand, DiskThread
from minilog_broker.storage.errors import DamagedCopy

FULL = OSError(errno.ENOSPC, "no space left on device")
TAKES_AT_MOST_S = 10.0


@dataclass(eq=False)
class Recorded:
    """A log that only counts, and refuses what does not fit on as Log does."""

    durable_end_offset: int = 0
    end_offset: int = 0
    failures: list[OSError] = field(default_factory=list)
    flush_failures: list[OSError] = field(default_factory=list)
    syncs: int = 0

    def append(self, offset: int) -> None:
        if offset != self.end_offset:
            raise ValueError(f"a run at offset {offset} does not fit on")
        if self.failures:
            raise self.failures.pop()
        self.end_offset += 1

    def flush(self) -> None:
        if self.flush_failures:
            raise self.flush_failures.pop()
        self.syncs += 1
        self.durable_end_offset = self.end_offset


class HeldDisk:
    """A disk thread that can be held, and what it told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.crashed: list[BaseException] = []
        self.disk = DiskThread("test-disk", asyncio.get_running_loop(), self.crashed.append)

    def append(self, log: Recorded, offset: int) -> None:
        self.disk.submit(
            DiskCommand(
                work=lambda: log.append(offset),
                on_done=lambda _: self.told.append(("appended", offset)),
                on_failed=lambda error: self.told.append(("failed", offset, error.errno)),
                log=log,
                flush=log,
                on_flushed=lambda end: self.told.append(("flushed", end)),
            )
        )

    def hold(self) -> Callable[[], None]:
        """Keep the disk thread busy until the returned is called, so that what follows waits in the queue."""
        gate = threading.Event()
        self.disk.submit(DiskCommand(lambda: gate.wait(TAKES_AT_MOST_S), lambda _: None, lambda _: None))
        return gate.set

    async def settle(self) -> None:
        """Until the disk has done, and told, all it was given."""
        await asyncio.wait_for(self.disk.call(lambda: None), TAKES_AT_MOST_S)
        await asyncio.wait_for(self.disk.call(lambda: None), TAKES_AT_MOST_S)  # behind the first one's syncs


def in_cluster(scene: Callable[[HeldDisk], Coroutine[Any, Any, None]]) -> HeldDisk:
    async def play() -> HeldDisk:
        cluster = HeldDisk()
        try:
            await scene(cluster)
        finally:
            await cluster.disk.stop()
        return cluster

    return asyncio.run(play())


def test_appends_that_wait_together_are_synced_once() -> None:
    log = Recorded()

    async def scene(cluster: HeldDisk) -> None:
        release = cluster.hold()
        for offset in range(3):
            cluster.append(log, offset)
        release()
        await cluster.settle()

    assert in_cluster(scene).told[-1] == ("flushed", 3)
    assert log.syncs <= 2


def test_appends_behind_a_failed_one_are_dropped_and_reported_once() -> None:
    log, other = Recorded(failures=[FULL]), Recorded()

    async def scene(cluster: HeldDisk) -> None:
        release = cluster.hold()
        for offset in range(3):
            cluster.append(log, offset)
        cluster.append(other, 0)
        release()
        await cluster.settle()

    cluster = in_cluster(scene)
    assert not cluster.crashed
    assert cluster.told == [("failed", 0, errno.ENOSPC), ("appended", 0), ("flushed", 1)]
    assert (log.end_offset, other.end_offset) == (0, 1)


def test_appends_between_the_failure_and_its_report_are_dropped_too() -> None:
    log = Recorded(failures=[FULL])

    async def scene(cluster: HeldDisk) -> None:
        cluster.append(log, 0)
        failed = threading.Event()
        cluster.disk.submit(DiskCommand(failed.set, lambda _: None, lambda _: None))
        failed.wait(TAKES_AT_MOST_S)  # the loop is kept from hearing of it
        cluster.append(log, 1)
        await cluster.settle()

    cluster = in_cluster(scene)
    assert not cluster.crashed
    assert cluster.told == [("failed", 0, errno.ENOSPC)]


def test_appends_after_the_report_of_the_failure_are_carried_out() -> None:
    log = Recorded(failures=[FULL, FULL])

    async def scene(cluster: HeldDisk) -> None:
        for _ in range(3):
            cluster.append(log, 0)
            await cluster.settle()

    cluster = in_cluster(scene)
    assert cluster.told == [*[("failed", 0, errno.ENOSPC)] * 2, ("appended", 0), ("flushed", 1)]


def test_the_answer_to_a_failure_is_carried_out_though_it_is_given_while_it_is_told() -> None:
    log = Recorded(failures=[FULL])

    async def scene(cluster: HeldDisk) -> None:
        again = lambda _: cluster.append(log, 0)  # noqa: E731
        cluster.disk.submit(DiskCommand(lambda: log.append(0), lambda _: None, again, log=log))
        await cluster.settle()
        await cluster.settle()

    assert in_cluster(scene).told == [("appended", 0), ("flushed", 1)]


def test_a_failed_sync_is_told_once_for_all_it_would_have_covered() -> None:
    log = Recorded(flush_failures=[OSError(errno.EIO, "input/output error")])

    async def scene(cluster: HeldDisk) -> None:
        release = cluster.hold()
        cluster.append(log, 0)
        cluster.append(log, 1)
        release()
        await cluster.settle()

    told = in_cluster(scene).told
    assert told[:1] + told[-1:] == [("appended", 0), ("failed", 1, errno.EIO)]
    assert len(told) == 3


def test_a_fault_of_our_own_ends_the_thread_and_is_told() -> None:
    async def scene(cluster: HeldDisk) -> None:
        cluster.append(Recorded(), 7)
        cluster.disk._thread.join(TAKES_AT_MOST_S)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    (crash,) = in_cluster(scene).crashed
    with pytest.raises(ValueError, match="offset 7 does not fit on"):
        raise crash


class Thread:
    """Takes commands, and does one when it is told to."""

    def __init__(self) -> None:
        self.given: list[DiskCommand] = []

    def submit(self, command: DiskCommand) -> None:
        self.given.append(command)

    def do_one(self, error: OSError | None = None) -> None:
        command = self.given.pop(0)
        result = command.work()
        command.on_done(result) if error is None else command.on_failed(error)


def giving(number: int) -> Callable[[], int]:
    return lambda: number


def test_of_many_logs_that_are_made_or_dropped_a_few_are_with_the_thread_at_a_time_in_order_whether_they_fail() -> None:
    thread, told = Thread(), list[object]()
    lane = BoundedLane(thread, 3)
    for number in range(10):
        lane.submit(DiskCommand(giving(number), told.append, told.append))
    failure = OSError(errno.EIO, "the disk failed")
    for done in range(10):
        assert len(thread.given) == min(3, 10 - done)
        thread.do_one(failure if done == 4 else None)
    assert told == [0, 1, 2, 3, failure, 5, 6, 7, 8, 9]
    lane.submit(DiskCommand(lambda: "later", told.append, told.append))
    assert len(thread.given) == 1


def test_damage_that_a_command_meets_is_told_as_damage() -> None:
    """Its log fails as by any error of the disk, and its copy can be fetched again; by EIO alone it could not."""
    told: list[OSError] = []
    groups = CommandGroups()

    def work() -> None:
        raise CorruptMessage("the header checksum of the record batch at offset 0 is wrong")

    answers, _ = groups.run([groups.give(DiskCommand(work, told.append, told.append, "log"))])
    for tell in answers:
        tell()
    assert [type(error) for error in told] == [DamagedCopy]
    assert told[0].errno == errno.EIO
