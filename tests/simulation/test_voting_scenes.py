"""Voters that move, on whole brokers, step by step: they come back without a command, also from a later epoch."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from minilog.aio import Admin
from minilog_broker.controller.image import MetadataImage
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.server.disk.vote_file import FILE_NAME
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from tests.rules import Patches
from tests.simulation.clients.history import Outcome
from tests.simulation.machines.host import DATA_PATH, PORT, SimulatedHost
from tests.simulation.scene import Patching, Scene, four_brokers, play

VOTE_FILE = f"{DATA_PATH}/{FILE_NAME}"


def _vote(host: SimulatedHost) -> VoteState:
    content = read_durable_file(host.disk, VOTE_FILE)
    assert content is not None
    return msgspec.json.decode(content, type=VoteState)


async def _other_controller(scene: Scene, than: SimulatedHost) -> SimulatedHost:
    async with asyncio.timeout(10.0):
        while (found := await scene.controller()) in (None, than):  # noqa: ASYNC110 - a cluster is asked again
            await asyncio.sleep(0.02)
    assert found is not None
    return found


async def moved_while_it_led(scene: Scene) -> None:
    """The active controller is killed when it has stood for election alone, and comes back at another address. The
    others have the old one: they find it where its broker registers. Then another voter dies: its vote is needed."""
    moved = await scene.controller()
    assert moved is not None
    await scene.ask(lambda admin: admin.move_voter(moved.number))  # the first change records the addresses of all
    moved.wanted = False
    moved.kill()
    await _other_controller(scene, moved)
    newest = max(_vote(host).epoch for host in scene.cluster.voters)
    write_durable_file(moved.disk, VOTE_FILE, msgspec.json.encode(VoteState(newest + 1, moved.number)))
    moved.port = PORT + 100
    moved.start()
    await asyncio.sleep(8.0)
    controller = await _other_controller(scene, moved)
    voter = next(host for host in scene.cluster.voters if host not in (moved, controller))
    voter.wanted = False
    voter.kill()
    await asyncio.sleep(3.0)

    async def decide(admin: Admin) -> None:
        await admin.alter_topic("t0", set_configs={"retention.ms": "86400000"})

    async with asyncio.timeout(10.0):
        await scene.ask(decide)
    acknowledged = scene.count(Outcome.OK)
    await asyncio.sleep(3.0)
    assert scene.count(Outcome.OK) > acknowledged + 20
    voter.wanted = True
    voter.start()


@pytest.mark.dear("it runs whole clusters")
def test_a_voter_that_moved_while_it_led_votes_again_without_a_command() -> None:
    play(moved_while_it_led, four_brokers())


def _nobody_listens() -> Patches:
    return [(Transitions, "listen", lambda self, epoch, leader_id, now_ms: False)]


def _recorded_addresses_alone() -> Patches:
    return [(MetadataImage, "address_of_voter", lambda self, voter: None)]


@pytest.mark.parametrize("wrong", [_nobody_listens, _recorded_addresses_alone])
def test_a_moved_voter_that_waits_to_be_found_is_locked_out(wrong: Patching) -> None:
    with pytest.raises(AssertionError, match="TimeoutError"):
        play(moved_while_it_led, four_brokers(), wrong)
