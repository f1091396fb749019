"""The scrub on whole brokers: records that no client reads rot, or differ on one replica under right checksums.

The topic has small segments; the bytes that change lie in sealed ones. Nobody reads: the scene has no consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from minilog.record_batch.header import iterate_headers
from tests.rules import proves
from tests.simulation.faults.forgery import forged, put
from tests.simulation.machines.host import DATA_PATH, SimulatedHost
from tests.simulation.mutants import scrubbing
from tests.simulation.plan import Plan
from tests.simulation.scene import AT, Patching, Scene, Story, play

pytestmark = proves("DK.4")

LOG = f"{DATA_PATH}/t0-0"
LOST_AND_FOUND_S = 20.0
SLOW_BYTES_PER_S = 1 << 19


def plan(replicas: int = 3, interval_ms: int = 1_000) -> Plan:
    configs = {"log.scrub.interval.ms": str(interval_ms), "auto.leader.rebalance.enable": "false"}
    return Plan(
        brokers=4,
        replication_factor=replicas,
        configs=dict.fromkeys(range(1, 5), configs),
        topic_configs={"min.insync.replicas": "2", "segment.bytes": "4096"},
        producers=1,
        consumers=0,
    )


def slower_than_the_writer(plan: Plan) -> Plan:
    """A round takes somewhat longer than the writing of what it reads."""
    rate = {"log.scrub.max.bytes.per.second": str(SLOW_BYTES_PER_S)}
    return replace(plan, configs={number: {**config, **rate} for number, config in plan.configs.items()})


def sealed_segments(host: SimulatedHost) -> list[str]:
    """By their paths; the last of them is sealed on no replica for less than a segment."""
    names = host.disk.names
    return sorted(path for path in names if path.startswith(f"{LOG}/") and path.endswith(".log"))[:-2]


def second_batch(host: SimulatedHost) -> tuple[str, int, bytes]:
    """The second batch of the first segment: path, position, bytes."""
    path = sealed_segments(host)[0]
    content = bytes(host.disk.content(path))
    position, header = list(iterate_headers(content))[1]
    return path, position, content[position : position + header.length]


def content_of(host: SimulatedHost, size_bytes: int) -> bytes:
    """The first bytes of the log, whatever its segments are."""
    names = sorted(path for path in host.disk.names if path.startswith(f"{LOG}/") and path.endswith(".log"))
    return b"".join(bytes(host.disk.content(path)) for path in names)[:size_bytes]


def rot(scene: Scene, host: SimulatedHost) -> None:
    path, position, batch = second_batch(host)
    host.disk.flip_bit(path, position + len(batch) - 1, 3)


def forge(scene: Scene, host: SimulatedHost) -> None:
    """Another batch, with right checksums: what no disk does by itself, and a fault of our own might."""
    path, position, before = second_batch(host)
    put(host, path, position, before, forged(scene.key, before))


async def all_the_same(scene: Scene, size_bytes: int, sound: bytes) -> None:
    """Wait until each replica has the bytes that were written, and all are in sync."""
    hosts = await scene.hosts()
    async with asyncio.timeout(LOST_AND_FOUND_S):
        while any(content_of(host, size_bytes) != sound for host in hosts):  # noqa: ASYNC110 - disks are looked at again
            await asyncio.sleep(0.1)
    await scene.until(lambda state: sorted(state.isr) == sorted(state.replicas))


Harm = Callable[[Scene, SimulatedHost], None]


async def harm(scene: Scene, host: SimulatedHost, do: Harm) -> None:
    """Some seconds of writing, one copy is harmed, and all is as it was written."""
    await asyncio.sleep(4.0)
    size_bytes = 3000
    sound = content_of(host, size_bytes)
    do(scene, host)
    assert content_of(host, size_bytes) != sound
    await all_the_same(scene, size_bytes, sound)


async def rotten_follower(scene: Scene) -> None:
    _, (follower, _) = await scene.roles()
    await harm(scene, follower, rot)


async def rotten_leader(scene: Scene) -> None:
    leader, _ = await scene.roles()
    await harm(scene, leader, rot)
    assert (await scene.state()).leader != leader.number


async def other_follower(scene: Scene) -> None:
    leader, (follower, _) = await scene.roles()
    await harm(scene, follower, forge)
    assert (await scene.state()).leader == leader.number


async def other_leader(scene: Scene) -> None:
    leader, _ = await scene.roles()
    await harm(scene, leader, forge)
    assert (await scene.state()).leader != leader.number


async def two_of_two(scene: Scene) -> None:
    """Nothing is destroyed; what the log line names to an operator mends it."""
    leader, (follower,) = await scene.roles()
    await asyncio.sleep(4.0)
    before = await scene.state()
    forge(scene, follower)
    copies = [content_of(host, 3000) for host in (leader, follower)]
    await asyncio.sleep(10.0)
    assert [content_of(host, 3000) for host in (leader, follower)] == copies
    after = await scene.state()
    assert (after.leader_epoch, sorted(after.isr)) == (before.leader_epoch, sorted(before.isr))
    assert await problems(scene) == ["COPIES_DIFFER"]
    await scene.ask(lambda admin: admin.alter_topic(AT.topic, set_configs={"min.insync.replicas": "1"}))
    await reassign(scene, [leader.number])
    await reassign(scene, [leader.number, follower.number])
    await all_the_same(scene, 3000, copies[0])
    async with asyncio.timeout(LOST_AND_FOUND_S):  # the round under way ends, and the next one finds no difference
        while codes := await problems(scene):
            assert codes == ["COPIES_DIFFER"]
            await asyncio.sleep(0.1)


async def problems(scene: Scene) -> list[str]:
    """What `minilog cluster health` would name."""
    health = await scene.ask(lambda admin: admin.cluster_health())
    return [problem.code for problem in health.problems]


async def reassign(scene: Scene, chosen: list[int]) -> None:
    errors = await scene.ask(lambda admin: admin.alter_partition_reassignments({AT: chosen}))
    assert errors == {AT: None}
    await scene.until(lambda state: sorted(state.isr) == sorted(state.replicas) == sorted(chosen))


async def one_away(scene: Scene) -> None:
    """Two of three differ while the third is down: nobody decides before it is back, and then the majority does."""
    _, (follower, third) = await scene.roles()
    await asyncio.sleep(4.0)
    sound = content_of(follower, 3000)
    third.wanted = False
    third.kill()
    await scene.until(lambda state: third.number not in state.isr)
    forge(scene, follower)
    other = content_of(follower, 3000)
    await asyncio.sleep(6.0)
    assert content_of(follower, 3000) == other
    third.wanted = True
    third.start()
    await all_the_same(scene, 3000, sound)


async def switched(scene: Scene) -> None:
    """An operator has switched scrubs off, and switches them on while brokers run: the round begins at once."""
    _, (follower, _) = await scene.roles()
    await asyncio.sleep(4.0)
    sound = content_of(follower, 3000)
    rot(scene, follower)
    await asyncio.sleep(6.0)
    assert content_of(follower, 3000) != sound
    await scene.ask(lambda admin: admin.alter_broker_settings(None, set_configs={"log.scrub.interval.ms": "1000"}))
    await all_the_same(scene, 3000, sound)


def test_scrubs_begin_when_the_interval_changes() -> None:
    play(switched, plan(interval_ms=0))


@pytest.mark.parametrize("story", [rotten_follower, rotten_leader, other_follower, other_leader, one_away])
def test_a_copy_that_nobody_reads_is_mended(story: Story) -> None:
    play(story, plan())


def test_a_copy_is_mended_below_records_that_come_as_fast_as_the_scrub_reads() -> None:
    """The scrub is past the record before it is forged, and behind the writer all the time."""
    play(other_follower, slower_than_the_writer(plan()))


def test_two_of_two_ask_the_operator() -> None:
    play(two_of_two, plan(2))


@pytest.mark.dear("it runs whole clusters")
@pytest.mark.parametrize(
    ("story", "replicas", "wrong"),
    [
        (rotten_follower, 3, scrubbing.checksums_are_not_looked_at),
        (other_follower, 3, scrubbing.copies_are_not_compared),
        (other_leader, 3, scrubbing.the_leader_is_right),
        (two_of_two, 2, scrubbing.the_leader_is_right),
        (one_away, 3, scrubbing.the_leader_is_right),
        (other_follower, 3, scrubbing.what_differs_is_not_cut),
    ],
)
def test_a_wrong_rule_is_seen(story: Story, replicas: int, wrong: Patching) -> None:
    with pytest.raises(AssertionError, match=r"AssertionError|TimeoutError"):
        play(story, plan(replicas), wrong)


@pytest.mark.dear("it runs whole clusters")
def test_a_round_that_follows_the_writer_is_seen() -> None:
    with pytest.raises(AssertionError, match=r"AssertionError|TimeoutError"):
        play(other_follower, slower_than_the_writer(plan()), scrubbing.the_end_moves_on)
