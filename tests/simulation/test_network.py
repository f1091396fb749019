"""What a client of the simulated network sees of processes and machines that end: as gRPC and a kernel have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.machines.host import DATA_PATH, PORT, SimulatedHost
from tests.simulation.plan import Plan
from tests.simulation.scene import direct


async def _founded(cluster: SimulatedCluster) -> None:
    for host in cluster.hosts.values():
        host.start()
    await asyncio.sleep(3.0)


def _ask(cluster: SimulatedCluster, host: SimulatedHost, timeout_s: float = 5.0) -> asyncio.Task[grpc.StatusCode]:
    """A client asks a broker for metadata; how that ends."""
    process, machine = cluster.client(f"asker of {host.name}")

    async def ask() -> grpc.StatusCode:
        async with machine.open_channel((host.name, PORT)) as channel:
            stub = metadata_pb2_grpc.MetadataServiceStub(channel)
            try:
                await stub.GetMetadata(metadata_pb2.GetMetadataRequest(), timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    return cluster.loop.spawn(process, ask())


async def dead(cluster: SimulatedCluster) -> None:
    await _founded(cluster)
    assert await _ask(cluster, cluster.hosts[1]) == grpc.StatusCode.OK
    cluster.hosts[2].kill()
    assert await _ask(cluster, cluster.hosts[2]) == grpc.StatusCode.UNAVAILABLE
    cluster.hosts[3].lose_power()
    began_s = cluster.now_s
    assert await _ask(cluster, cluster.hosts[3], timeout_s=0.5) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert cluster.now_s - began_s == pytest.approx(0.5, abs=0.01)


async def stopped(cluster: SimulatedCluster) -> None:
    await _founded(cluster)
    cluster.hosts[2].stand_still()
    answer = _ask(cluster, cluster.hosts[2])
    await asyncio.sleep(1.0)
    assert not answer.done()
    cluster.hosts[2].go_on()
    assert await answer == grpc.StatusCode.OK


async def cut(cluster: SimulatedCluster) -> None:
    """What was sent waits, and arrives when the cut heals."""
    await _founded(cluster)
    host = cluster.hosts[2]
    cluster.network.cut(f"asker of {host.name}", host.name)
    answer = _ask(cluster, host)
    await asyncio.sleep(1.0)
    assert not answer.done()
    cluster.network.heal_all()
    assert await answer == grpc.StatusCode.OK


async def killed_meanwhile(cluster: SimulatedCluster) -> None:
    """The kernel closes a dead process's connections, and nobody waits for the deadline."""
    await _founded(cluster)
    host = cluster.hosts[2]
    host.stand_still()
    answer = _ask(cluster, host)
    await asyncio.sleep(0.5)
    host.kill()
    assert await asyncio.wait_for(answer, 0.1) == grpc.StatusCode.UNAVAILABLE


async def ended(cluster: SimulatedCluster) -> None:
    """A clean stop leaves its mark, and an unclean one does not."""
    await _founded(cluster)
    cluster.hosts[2].stop()
    cluster.hosts[3].kill()
    await asyncio.sleep(8.0)
    assert cluster.hosts[2].process is None
    assert cluster.hosts[2].disk.exists(f"{DATA_PATH}/clean-stop")
    assert not cluster.hosts[3].disk.exists(f"{DATA_PATH}/clean-stop")


@pytest.mark.parametrize("story", [dead, stopped, cut, killed_meanwhile, ended])
def test_a_client_sees_the_troubles_of_its_network(
    story: Callable[[SimulatedCluster], Coroutine[Any, Any, None]],
) -> None:
    direct(story, Plan())
