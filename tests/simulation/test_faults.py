"""What befalls whole brokers does what it says: deaths in the middle, disks that hang, err and take time, refusals; and
what may be lost is reckoned from disks and histories."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog_broker.server.disk.disk_thread import DiskCommand
from tests.judges.violation import Violation
from tests.simulation.clients.history import History, Outcome, Write
from tests.simulation.clients.operations import Operations
from tests.simulation.clients.retention import Retention
from tests.simulation.clients.transacting import Transacting
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.faults import Faults
from tests.simulation.judge.exceptions import UNCLEAN, Exceptions
from tests.simulation.machines.calls import Channel
from tests.simulation.machines.host import AGAIN_S, DATA_PATH, PORT
from tests.simulation.machines.machine import SimulatedMachine
from tests.simulation.machines.network import SimulatedPipe
from tests.simulation.plan import FAULTS, LATER, OLDER, Plan
from tests.simulation.run import apart
from tests.world.disk import Killed
from tests.world.loop import Process, VirtualLoop

KEY = PartitionKey(bytes(16), 0)
AT = TopicPartition("t0", 0)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(1, Plan())
    yield made
    made.loop.close()


def workload_of(cluster: SimulatedCluster, history: History) -> Workload:
    workload = Workload(cluster, history)
    workload.keys[AT] = KEY
    workload.replicas[KEY] = ["b1", "b2", "b3"]
    return workload


def test_every_fault_of_a_plan_is_a_method_of_one_kind(cluster: SimulatedCluster) -> None:
    workload = workload_of(cluster, History())
    faults = Faults(cluster, workload, Transacting(cluster, workload))
    assert set(faults._by_name) == set(FAULTS)


# -- processes


def test_a_process_dies_between_two_callbacks_of_one_moment() -> None:
    loop, process = VirtualLoop(), Process("one")
    ran: list[int] = []

    async def live() -> None:
        for number in range(10):
            ran.append(number)
            await asyncio.sleep(0)

    def die() -> None:
        process.dead = True

    async def run() -> None:
        process.die, process.callbacks_left = die, 3
        loop.spawn(process, live())
        await asyncio.sleep(1.0)

    loop.run_until_complete(run())
    assert ran == [0, 1, 2]
    for task in process.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def test_a_threads_work_is_told_when_its_reading_is_done() -> None:
    loop, process = VirtualLoop(), Process("one")
    worked_s = [0.0]
    process.busy_s = lambda: worked_s[0]

    def read() -> str:
        worked_s[0] += 2.5
        return "all"

    async def run() -> tuple[str, float]:
        return await asyncio.to_thread(read), loop.now_s

    found, now_s = loop.run_until_complete(loop.spawn(process, run()))
    assert found == "all"
    assert now_s == pytest.approx(2.5)
    loop.close()


def test_a_machine_of_whose_process_death_was_asked_is_killed_and_started_again(cluster: SimulatedCluster) -> None:
    host, ran = cluster.hosts[1], [0]

    async def live() -> None:
        while True:
            ran[0] += 1
            await asyncio.sleep(0.001)

    async def direct() -> None:
        host.start()
        assert host.process is not None
        task = cluster.loop.spawn(host.process, live())
        host.die_after(20, Killed)
        await asyncio.sleep(0.1)
        assert host.ends["kill"] == 1
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        await asyncio.sleep(AGAIN_S)
        assert host.lives == 2

    cluster.run(direct())
    assert ran[0] in (10, 11)  # a timer and a step each


# -- versions


def test_a_broker_of_another_version_is_refused_and_an_operator_gives_it_the_later_one() -> None:
    ends, levels = apart(upgraded_and_taken_back)
    assert ends > 0
    assert levels == [LATER.highest] * 3


def upgraded_and_taken_back() -> tuple[int, list[int]]:
    """How often it was refused, and the level that each disk records in the end."""
    cluster = SimulatedCluster(3, Plan(levels=dict.fromkeys((1, 2, 3), LATER)))
    workload = Workload(cluster, History())

    async def direct() -> None:
        for host in cluster.hosts.values():
            host.levels = OLDER  # a cluster is founded by the older version
            host.start()
        await workload.make_topics()
        for host in cluster.hosts.values():
            host.levels = LATER
            host.kill()
            host.start()
            await asyncio.sleep(3.0)
        Operations(cluster, workload).upgrade()
        await asyncio.sleep(3.0)
        host = cluster.hosts[1]
        host.levels = OLDER
        host.kill()
        host.start()
        await asyncio.sleep(10.0)
        assert host.levels == LATER

    cluster.run(direct())
    return cluster.hosts[1].ends["UnsupportedVersion"], [host._recorded_level() for host in cluster.hosts.values()]


# -- disks


def test_a_disk_that_hangs_answers_nothing_until_it_goes_on(cluster: SimulatedCluster) -> None:
    host = cluster.hosts[1]
    done: list[float] = []

    async def direct() -> None:
        host.machine = SimulatedMachine(host, Process("b1"), random.Random(1))
        queue = host.machine.disk("data-disk", lambda error: None)
        host.hang_disk(("data-disk",))
        queue.submit(DiskCommand(lambda: None, lambda _: done.append(cluster.now_s), lambda error: None))
        await asyncio.sleep(3.0)
        assert done == []
        host.unhang_disk()
        await asyncio.sleep(0.1)

    cluster.run(direct())
    assert [round(now_s, 1) for now_s in done] == [3.0]


def test_a_read_that_fails_fails_once_and_changes_nothing(cluster: SimulatedCluster) -> None:
    disk = cluster.hosts[1].disk
    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    file.write([b"abc"], 0)
    disk.fail("pread", errno.EIO, "/d/")
    changes = disk.changes
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(3, 0)
    assert file.pread(3, 0) == b"abc"
    assert disk.changes == changes
    assert disk.read_bytes == 3


# -- network


def test_a_host_that_refuses_takes_no_connection_until_all_is_healed(cluster: SimulatedCluster) -> None:
    process, _ = cluster.client("one")

    async def knock() -> None:
        await Channel.knock(cluster.network, process, "b1", PORT)

    async def direct() -> None:
        cluster.network.listening["b1", PORT] = None
        await cluster.run_client(process, knock())
        cluster.network.refusing.add("b1")
        with pytest.raises(ConnectionRefusedError):
            await cluster.loop.spawn(process, knock())
        cluster.network.heal_all()
        await cluster.run_client(process, knock())

    cluster.run(direct())


def test_brokers_are_far_from_each_other_and_near_to_clients() -> None:
    cluster = SimulatedCluster(1, Plan(between_brokers_s=1.0))
    assert cluster.network.delay_s("b1", "b2") > 1.0
    assert cluster.network.delay_s("b1", "client") < 0.1
    cluster.loop.close()


def test_messages_of_one_moment_arrive_in_their_order(cluster: SimulatedCluster) -> None:
    pipe, items = SimulatedPipe(cluster.network, "b1", "b2"), list(range(100))

    async def direct() -> None:
        for item in items:
            pipe.send(item)
        assert [await pipe.get() for _ in items] == items

    cluster.run(direct())


# -- what may be lost


def test_power_that_is_lost_under_os_may_stop_a_partition_where_it_takes_as_many_as_an_isr_has() -> None:
    cluster = SimulatedCluster(1, Plan(least_min=2))
    history = History()
    workload = workload_of(cluster, history)
    exceptions = Exceptions(cluster, workload, history)

    async def direct() -> None:
        cluster.hosts[1].lose_power()
        cluster.hosts[2].lose_power()
        assert not exceptions.lost_all(KEY), "it was not under os then"
        await asyncio.sleep(1.0)
        workload.unsynced_since_s = cluster.now_s
        cluster.hosts[3].lose_power()
        assert not exceptions.lost_all(KEY)
        cluster.hosts[1].lose_power()
        assert exceptions.lost_all(KEY)

    cluster.run(direct())
    cluster.loop.close()


@pytest.mark.parametrize(
    ("unclean", "down", "is_wrong"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_an_unclean_election_is_an_exception_where_it_is_allowed_and_needed(
    unclean: bool, down: bool, is_wrong: bool
) -> None:
    cluster = SimulatedCluster(1, Plan(topic_configs={"unclean.leader.election.enable": "true"} if unclean else {}))
    history = History()
    exceptions = Exceptions(cluster, workload_of(cluster, history), history)

    async def direct() -> None:
        for host in cluster.hosts.values():
            host.listens()
        await asyncio.sleep(30.0)
        if down:
            cluster.hosts[1].ails("down")
        exceptions._hear({"event": UNCLEAN, "topic": "t0", "partition": 0})
        await asyncio.sleep(1.0)

    if is_wrong:
        with pytest.raises(Violation, match="an unclean election"):
            cluster.run(direct())
    else:
        cluster.run(direct())
        assert history.is_exempt(KEY)
    cluster.loop.close()


def _segments(cluster: SimulatedCluster, sizes: dict[int, int]) -> None:
    disk = cluster.hosts[1].disk
    for path in (DATA_PATH, f"{DATA_PATH}/t0-0"):
        disk.make_dir(path)
    for base, size in sizes.items():
        disk.open(f"{DATA_PATH}/t0-0/{base:020}.log", create=True).write([bytes(size)], 0)


def test_retention_by_size_may_delete_the_segments_without_which_enough_is_left(cluster: SimulatedCluster) -> None:
    retention = Retention(cluster, History(), {})
    _segments(cluster, {0: 100, 10: 100, 20: 100, 30: 50})
    assert retention.may_be_gone(AT, KEY) == 0
    retention.asked({"retention.bytes": "150"})
    assert retention.may_be_gone(AT, KEY) == 20
    retention.asked({"retention.bytes": "-1"})
    assert retention.may_be_gone(AT, KEY) == 20


def test_retention_by_age_deletes_nothing_from_the_first_young_record_on(cluster: SimulatedCluster) -> None:
    history = History()
    for offset, began_ms in enumerate((0.0, 1_000.0, 5_000.0, 6_000.0)):
        write = Write(b"%d" % offset, KEY, "p", True, -1, began_ms)
        history.began(write)
        history.ended(write.value, Outcome.OK, began_ms, offset=offset)
    retention = Retention(cluster, history, {"retention.ms": "3000"})

    async def look() -> Any:
        await asyncio.sleep(7.0)
        return retention.may_be_gone(AT, KEY)

    assert cluster.loop.run_until_complete(look()) == 2
