"""Programs of other versions of the protocol, on the ports of streams of whole brokers. Bytes are cut anywhere,
connections are reset, and a producer of this version goes on writing beside them.

A program says which versions it speaks, from the lowest to the highest. With one version in common the broker welcomes
it. Without one it ends the connection with a sentence, before anything else is read, and no other stream notices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from minilog.errors import MinilogError, UnsupportedVersion, error_from_wire
from minilog.net.stream_connection import ConnectionEnded, StreamConnection
from minilog.net.stream_frames import FrameKind, SharedMemory
from minilog.stream_messages import FETCH, HEARTBEAT, PRODUCE, REPLICATE
from minilog.v1 import common_pb2, stream_pb2
from minilog.versions import PROTOCOL
from tests.rules import proves
from tests.simulation.clients.history import Outcome
from tests.simulation.machines.byte_connections import SimulatedStreamPort
from tests.simulation.machines.machine import ClientMachine
from tests.simulation.plan import Plan
from tests.simulation.scene import Scene, play

pytestmark = proves("DK.3")

METHODS = (PRODUCE, FETCH, REPLICATE, HEARTBEAT)
OTHERS = ((PROTOCOL.lowest - 1, PROTOCOL.lowest - 1), (PROTOCOL.highest + 1, PROTOCOL.highest + 7))
SHARING = ((PROTOCOL.lowest - 1, PROTOCOL.lowest), (PROTOCOL.highest, PROTOCOL.highest + 1))
TIMES = 40


@dataclass(frozen=True)
class Answer:
    """How a broker answered a hello: by a welcome, or by the error that it ended with. Neither: the network did."""

    kind: FrameKind | None
    error: MinilogError | None = None


async def answer(machine: ClientMachine, place: tuple[str, int], versions: tuple[int, int], method: str) -> Answer:
    """Of the port of streams at `place`, to a program that speaks these versions."""
    shared = SharedMemory()

    def connection() -> StreamConnection:
        return StreamConnection(shared, most_frame_bytes=1 << 20, window_bytes=1 << 20)

    spoken = common_pb2.VersionRange(lowest=versions[0], highest=versions[1])
    hello = stream_pb2.StreamHello(protocol=spoken, client_version="other", method=method)
    try:
        stream = await machine.connect(place, connection)
        stream.send(FrameKind.HELLO, [hello.SerializeToString()])
        frame = await stream.frame()
        stream.close()
    except (OSError, ConnectionEnded, TimeoutError):
        return Answer(None)
    if frame.kind is FrameKind.END:
        return Answer(frame.kind, error_from_wire(common_pb2.Error.FromString(bytes(frame.body))))
    return Answer(frame.kind)


async def other_versions(scene: Scene) -> None:
    network = scene.cluster.network
    places = [place for place, port in network.listening.items() if isinstance(port, SimulatedStreamPort)]
    assert len(places) == len(scene.cluster.hosts)
    process, machine = scene.cluster.client("other versions")
    seen: Counter[str] = Counter()

    async def ask() -> None:
        for number in range(TIMES):
            method, place = METHODS[number % len(METHODS)], places[number % len(places)]
            for versions in OTHERS:
                said = await answer(machine, place, versions, method.path)
                assert said.kind in (None, FrameKind.END), f"{versions} was welcomed"
                if said.kind is not None:
                    assert isinstance(said.error, UnsupportedVersion), said.error
                    assert str(versions[1]) in str(said.error), said.error
                    seen["refused"] += 1
            for versions in SHARING:
                said = await answer(machine, place, versions, method.path)
                assert said.kind in (None, FrameKind.WELCOME), said.error
                seen["welcomed"] += said.kind is FrameKind.WELCOME
            if number % 7 == 3:
                network.reset_all(scene.cluster.hosts[1 + number % len(scene.cluster.hosts)].name)
            await asyncio.sleep(0.05)

    acknowledged = scene.count(Outcome.OK)
    await scene.cluster.loop.spawn(process, ask())
    assert seen["refused"] > TIMES
    assert seen["welcomed"] > TIMES
    assert scene.count(Outcome.OK) > acknowledged + 20


def test_programs_of_other_versions_are_refused_in_words_and_nobody_else_notices() -> None:
    play(other_versions, Plan(brokers=4, replication_factor=3, producers=1))
