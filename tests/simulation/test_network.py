"""What a client of the simulated network sees of processes and machines that end: as gRPC and a kernel have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.simulation.whole.host import DATA_PATH, PORT, Host
from tests.simulation.whole.plan import Plan
from tests.simulation.whole.scene import direct
from tests.simulation.whole.world import World


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")


async def _founded(world: World) -> None:
    for host in world.hosts.values():
        host.start()
    await asyncio.sleep(3.0)


def _ask(world: World, host: Host, timeout_s: float = 5.0) -> asyncio.Task[grpc.StatusCode]:
    """A client asks a broker for metadata; how that ends."""
    process, machine = world.client(f"asker of {host.name}")

    async def ask() -> grpc.StatusCode:
        async with machine.open_channel((host.name, PORT)) as channel:
            stub = metadata_pb2_grpc.MetadataServiceStub(channel)
            try:
                await stub.GetMetadata(metadata_pb2.GetMetadataRequest(), timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    return world.loop.spawn(process, ask())


async def dead(world: World) -> None:
    await _founded(world)
    assert await _ask(world, world.hosts[1]) == grpc.StatusCode.OK
    world.hosts[2].kill()
    assert await _ask(world, world.hosts[2]) == grpc.StatusCode.UNAVAILABLE
    world.hosts[3].lose_power()
    began_s = world.now_s
    assert await _ask(world, world.hosts[3], timeout_s=0.5) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert world.now_s - began_s == pytest.approx(0.5, abs=0.01)


async def stopped(world: World) -> None:
    await _founded(world)
    world.hosts[2].stand_still()
    answer = _ask(world, world.hosts[2])
    await asyncio.sleep(1.0)
    assert not answer.done()
    world.hosts[2].go_on()
    assert await answer == grpc.StatusCode.OK


async def cut(world: World) -> None:
    """What was sent waits, and arrives when the cut heals."""
    await _founded(world)
    host = world.hosts[2]
    world.network.cut(f"asker of {host.name}", host.name)
    answer = _ask(world, host)
    await asyncio.sleep(1.0)
    assert not answer.done()
    world.network.heal_all()
    assert await answer == grpc.StatusCode.OK


async def killed_meanwhile(world: World) -> None:
    """The kernel closes a dead process's connections, and nobody waits for the deadline."""
    await _founded(world)
    host = world.hosts[2]
    host.stand_still()
    answer = _ask(world, host)
    await asyncio.sleep(0.5)
    host.kill()
    assert await asyncio.wait_for(answer, 0.1) == grpc.StatusCode.UNAVAILABLE


async def ended(world: World) -> None:
    """A clean stop leaves its mark, and an unclean one does not."""
    await _founded(world)
    world.hosts[2].stop()
    world.hosts[3].kill()
    await asyncio.sleep(8.0)
    assert world.hosts[2].process is None
    assert world.hosts[2].disk.exists(f"{DATA_PATH}/clean-stop")
    assert not world.hosts[3].disk.exists(f"{DATA_PATH}/clean-stop")


@pytest.mark.parametrize("story", [dead, stopped, cut, killed_meanwhile, ended])
def test_what_a_client_sees(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    direct(story, Plan())
