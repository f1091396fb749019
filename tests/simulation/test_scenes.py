"""Histories step by step, on whole brokers: where a search seldom goes.

Who is put out of the ISR (the rules by themselves: tests/unit/replication/test_put_out.py), brokers that are configured
differently, a leader cut off under unclean election. Where a test has a wrong rule, the judge says what is wrong.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from minilog.types import NewTopic
from tests.rules import proves
from tests.simulation.clients.history import Outcome
from tests.simulation.mutants import copies, settings, shell
from tests.simulation.plan import Plan
from tests.simulation.scene import Patching, Scene, Story, four_brokers, play

pytestmark = proves("ISR.4", "ISR.13")


# -- who is put out of the ISR


REFUSED_S = 13.0  # more than delivery.timeout.ms: what is refused has failed by then


async def not_heard_by_its_leader(scene: Scene) -> None:
    """Of two followers one is dead, and the leader does not hear the other."""
    leader, (cut_off, dead) = await scene.roles()
    dead.wanted = False
    dead.kill()
    await scene.until(lambda state: dead.number not in state.isr)
    before = await scene.state()
    scene.cut(cut_off, leader)
    await scene.until(lambda state: state.isr == [leader.number])
    failed = scene.count(Outcome.FAILED)
    await asyncio.sleep(REFUSED_S)
    state = await scene.state()
    assert state.partition_epoch == before.partition_epoch + 1, "put out, once"
    assert state.isr == [leader.number]
    assert scene.count(Outcome.FAILED) > failed + 20, "what cannot be committed is refused before it is written"
    scene.cluster.network.heal_all()
    await scene.until(lambda state: cut_off.number in state.isr)
    acknowledged = scene.count(Outcome.OK)
    await asyncio.sleep(2.0)
    assert scene.count(Outcome.OK) > acknowledged + 20


def test_a_follower_that_its_leader_does_not_hear_stays_out() -> None:
    play(not_heard_by_its_leader, four_brokers())


async def _longest_silence_s(scene: Scene, for_s: float) -> float:
    """The longest time without an acknowledgement."""
    until_s, longest_s = scene.cluster.now_s + for_s, 0.0
    while scene.cluster.now_s < until_s:
        await asyncio.sleep(0.05)
        longest_s = max(longest_s, scene.cluster.now_s - scene.workload.acknowledged_s[scene.key])
    return longest_s


async def disk_that_errs(scene: Scene) -> None:
    _, (follower, _) = await scene.roles()
    follower.disk.fail("fdatasync", errno.EIO, "/t0-0/")
    assert await _longest_silence_s(scene, 13.0) < 1.0
    assert follower.number not in (await scene.state()).isr


async def disk_that_is_full(scene: Scene) -> None:
    _, (follower, _) = await scene.roles()
    follower.disk.fill(".log")
    assert await _longest_silence_s(scene, 13.0) < 1.0
    assert follower.number not in (await scene.state()).isr


@proves("ISR.5")
@pytest.mark.parametrize("story", [disk_that_errs, disk_that_is_full])
def test_nobody_waits_for_a_disk_that_fails(story: Story) -> None:
    play(story, four_brokers(replica_lag_time_max_ms="10000"))


async def leader_disk_that_errs(scene: Scene) -> None:
    leader, _ = await scene.roles()
    leader.disk.fail("fdatasync", errno.EIO, "/t0-0/")
    assert await _longest_silence_s(scene, 8.0) < 3.0
    assert (await scene.state()).leader != leader.number


def test_a_leader_whose_disk_fails_makes_way() -> None:
    play(leader_disk_that_errs, four_brokers())


@pytest.mark.parametrize("wrong", [shell.failed_replica_is_not_said, shell.disk_error_is_logged_only])
def test_a_leader_that_tells_nobody_of_its_disk_leaves_all_waiting(wrong: Patching) -> None:
    with pytest.raises(AssertionError, match="AssertionError"):
        play(leader_disk_that_errs, four_brokers(), wrong)


# -- a disk that does not answer


async def metadata_disk_that_hangs(scene: Scene) -> None:
    """Of a leader, for good; then the machine of a follower loses power and comes back: the leader never hears who is
    out, and who is there in another life."""
    leader, (follower, _) = await scene.roles()
    leader.hang_disk(["metadata-disk"])
    follower.lose_power()
    follower.start()
    assert await _longest_silence_s(scene, 20.0) < 7.0
    await scene.until(lambda state: state.leader != leader.number, within_s=1.0)  # the first answer may be its own
    leader.unhang_disk()


def test_a_leader_that_does_not_replay_makes_way() -> None:
    play(metadata_disk_that_hangs, four_brokers())


async def follower_that_hangs(scene: Scene) -> None:
    _, (follower, _) = await scene.roles()
    follower.hang_disk(["data-disk"])
    await scene.until(lambda state: follower.number not in state.isr, within_s=2.5)  # before its broker says so itself
    follower.unhang_disk()
    await scene.until(lambda state: follower.number in state.isr)


def test_a_follower_whose_disk_does_not_answer_is_put_out_and_comes_back() -> None:
    play(follower_that_hangs, four_brokers())


def test_a_leader_that_puts_nobody_out_keeps_it() -> None:
    with pytest.raises(AssertionError, match="TimeoutError"):
        play(follower_that_hangs, four_brokers(), copies.nobody_is_put_out)


async def controller_that_hangs(scene: Scene) -> None:
    controller = await scene.controller()
    assert controller is not None
    controller.hang_disk(["metadata-disk"])
    _, (follower, _) = await scene.roles()
    follower.kill()  # which a controller decides upon
    follower.start()
    async with asyncio.timeout(8.0):
        while await scene.controller() is controller:  # noqa: ASYNC110 - a cluster is asked again
            await asyncio.sleep(0.1)
    controller.unhang_disk()


def test_a_controller_whose_disk_does_not_answer_makes_way() -> None:
    play(controller_that_hangs, four_brokers())


def test_a_controller_that_goes_on_decides_nothing() -> None:
    with pytest.raises(AssertionError, match="TimeoutError"):
        play(controller_that_hangs, four_brokers(), shell.controller_with_a_stalled_disk_goes_on)


# -- two disks of two


async def emptied_and_erring(scene: Scene) -> None:
    """A follower comes back with an empty disk; before its absence was noticed the leader's disk errs, so that it is
    alone in the ISR. The copy behind the error is whole: a later life of its broker finds it so, and leads."""
    leader, (follower,) = await scene.roles()
    follower.wanted = False
    follower.empty_disk()
    leader.disk.fail("fdatasync", errno.EIO, "/t0-0/")
    await scene.until(lambda state: leader.number not in state.isr)
    follower.wanted = True
    follower.start()
    await scene.until(lambda state: state.leader is None)
    leader.kill()
    leader.start()
    await scene.until(lambda state: state.leader == leader.number)
    await scene.until(lambda state: len(state.isr) == 2)


@proves("MD.58")
def test_a_copy_behind_an_error_leads_again_where_the_other_is_empty() -> None:
    play(emptied_and_erring, replace(four_brokers(2, replica_lag_time_max_ms="10000"), voters=1))


# -- all start anew


async def all_killed(scene: Scene) -> None:
    """Nobody knows more of the metadata log than its snapshot until a leader is elected."""
    hosts = list(scene.cluster.hosts.values())
    for host in hosts:
        host.kill()
    for host in hosts:
        host.start()
    await scene.until(lambda state: state.leader is not None and len(state.isr) == 3)
    acknowledged = scene.count(Outcome.OK)
    await asyncio.sleep(2.0)
    assert scene.count(Outcome.OK) > acknowledged + 20


def test_acknowledged_records_are_there_when_all_have_started_anew() -> None:
    play(all_killed, four_brokers())


# -- a rolling change of min.insync.replicas, half done


async def half_rolled(scene: Scene) -> None:
    """The replicas are started again, configured with 1 where the topic was made under 2; then the leader is parted
    from its follower, and its machine loses power."""
    for host in await scene.hosts():
        host.configs["min.insync.replicas"] = "1"
        host.kill()
        host.start()
        await scene.until(lambda state: len(state.isr) == 2)
    leader, (follower,) = await scene.roles()
    scene.cut(leader, follower)
    await asyncio.sleep(4.0)
    leader.wanted = False
    leader.lose_power()
    await scene.until(lambda state: state.leader == follower.number)


def half() -> Plan:
    """The topic says nothing of its own."""
    return four_brokers(2, topic={}, min_insync_replicas="2")


def test_a_leader_configured_otherwise_does_not_commit_alone() -> None:
    play(half_rolled, half())


def test_a_brokers_own_default_loses_what_was_acknowledged() -> None:
    with pytest.raises(AssertionError, match="V14"):
        play(half_rolled, half(), settings.own_default_counts)


# -- a leader that the controller does not hear, under unclean election


async def cut_off(scene: Scene) -> None:
    """The leader is in sync alone; then it is cut off from all brokers, and not from its clients; another is elected.

    What was acknowledged until then may be lost, and nothing after."""
    leader, (follower,) = await scene.roles()
    scene.cut(leader, follower)
    await scene.until(lambda state: state.isr == [leader.number])
    scene.cut(leader, *(host for host in scene.cluster.hosts.values() if host is not leader))
    await scene.until(lambda state: state.leader == follower.number)
    scene.forgive_until_now()
    await asyncio.sleep(3.0)


def unclean() -> Plan:
    return four_brokers(2, topic={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})


def test_a_leader_stops_before_another_is_elected_uncleanly() -> None:
    play(cut_off, unclean())


def test_a_leader_that_goes_on_is_found() -> None:
    with pytest.raises(AssertionError, match="V14"):
        play(cut_off, unclean(), settings.cut_off_leader_goes_on)


async def answers_late(scene: Scene) -> None:
    """The same of a leader whose controller's words are long on their way: the last of them comes when it is fenced."""
    leader, (follower,) = await scene.roles()
    scene.cut(leader, follower)
    await scene.until(lambda state: state.isr == [leader.number])
    controller, network = await scene.controller(), scene.cluster.network
    assert controller is not None
    network.extra_s[controller.name, leader.name] = 0.4
    await asyncio.sleep(3.0)
    network.cut(leader.name, controller.name)
    await scene.until(lambda state: state.leader == follower.number)
    scene.forgive_until_now()
    await asyncio.sleep(3.0)


def test_a_session_is_counted_from_the_question() -> None:
    play(answers_late, unclean())


def test_a_lock_counted_from_the_answer_is_found() -> None:
    with pytest.raises(AssertionError, match="V14"):
        play(answers_late, unclean(), shell.session_lasts_from_its_answer)


# -- a controller whose followers read old entries from a slow disk


async def slow_reads_for_others(scene: Scene) -> None:
    """Nothing that followers of the metadata log read returns. The controller's own replay goes on, and so heartbeats
    are answered and decisions are made."""
    controller = await scene.controller()
    assert controller is not None
    assert controller.machine is not None
    for readers in controller.machine.readings:
        readers.hang(hangs=readers.name == "metadata-reader")
    await asyncio.sleep(2.0)
    async with asyncio.timeout(2.0):
        await scene.ask(lambda admin: admin.create_topics([NewTopic("meanwhile", 1, 1)]))
    for readers in controller.machine.readings:
        readers.hang(hangs=False)


@proves("DK.9")
def test_a_controller_replays_beside_what_its_followers_read() -> None:
    play(slow_reads_for_others, replace(four_brokers(), voters=1, cold_share=1.0))
