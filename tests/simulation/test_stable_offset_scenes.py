"""A broker asks the leader of a partition for its stable offset, through elections, on whole brokers."""

from __future__ import annotations

import asyncio

from minilog.errors import MinilogError
from minilog_broker.replication.stable_offsets import KnownPartition, Question, StableOffset
from tests.simulation.clients.history import Outcome
from tests.simulation.machines.host import SimulatedHost
from tests.simulation.scene import Scene, four_brokers, play

PAUSE_S = 0.05  # after an error


class Asker:
    """A coordinator that knows more with each answer, on a broker without a replica."""

    def __init__(self, scene: Scene, host: SimulatedHost) -> None:
        self._scene = scene
        self.known = KnownPartition()
        self.longest_silence_s = 0.0
        self.errors: list[MinilogError] = []
        assert host.process is not None
        assert host.broker is not None
        self._offsets = host.broker._parts.stable_offsets
        self._task = scene.cluster.loop.spawn(host.process, self._follow())

    async def _follow(self) -> None:
        heard_s = self._scene.cluster.now_s
        while True:
            news = await self._ask()
            now_s = self._scene.cluster.now_s
            if isinstance(news, MinilogError):
                self.errors.append(news)
                await asyncio.sleep(PAUSE_S)
                continue
            self.longest_silence_s, heard_s = max(self.longest_silence_s, now_s - heard_s), now_s
            assert news.last_stable_offset >= self.known.last_stable_offset, "no election was unclean"
            assert news.end_of_epoch >= self.known.last_stable_offset
            self.known = KnownPartition(news.leader_epoch, news.last_stable_offset, news.log_start_offset)

    async def _ask(self) -> StableOffset | MinilogError:
        answered: asyncio.Future[StableOffset | MinilogError] = asyncio.get_running_loop().create_future()
        withdraw = self._offsets.ask(Question(self._scene.key, self.known), answered.set_result)
        try:
            return await answered
        finally:
            withdraw()

    async def hears_all(self) -> None:
        """Wait until it knows all that was acknowledged until now."""
        acknowledged = self._scene.count(Outcome.OK)
        async with asyncio.timeout(10.0):
            while self.known.last_stable_offset < acknowledged:  # noqa: ASYNC110 - the cluster goes on meanwhile
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        if self._task.done():
            self._task.result()
        self._task.cancel()


async def it_is_heard_through_elections(scene: Scene) -> None:
    leader, _ = await scene.roles()
    (idle,) = [host for host in scene.cluster.hosts.values() if host not in await scene.hosts()]
    asker = Asker(scene, idle)
    await asyncio.sleep(1.0)
    await asker.hears_all()
    assert asker.errors == []
    assert asker.longest_silence_s < 0.5, "news comes when there is some, not when a call is over"
    leader.kill()
    await scene.until(lambda state: state.leader not in (None, leader.number))
    await asyncio.sleep(1.0)
    await asker.hears_all()
    leader.start()
    await scene.until(lambda state: leader.number in state.isr)
    leader, _ = await scene.roles()
    asker.longest_silence_s = 0.0
    leader.stand_still()
    await scene.until(lambda state: state.leader not in (None, leader.number))
    await asyncio.sleep(2.0)
    await asker.hears_all()
    assert asker.known.leader_epoch == (await scene.state()).leader_epoch
    assert asker.longest_silence_s < 3.5, "a session, and half a second until the asker looks at its image"
    leader.go_on()
    asker.stop()


def test_a_stable_offset_is_heard_through_a_crash_and_a_hanging_leader() -> None:
    play(it_is_heard_through_elections, four_brokers())
