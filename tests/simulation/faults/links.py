"""The network: cuts of one or both ways, brokers and clients that hear nobody, slow links, connections that break or
are refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minilog.aio import Admin
from tests.simulation.clients.guest import TOPIC as GUESTS_TOPIC
from tests.simulation.clients.guest import grace_s
from tests.simulation.machines.identities import GUEST

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost

LONGEST_CUT_S = 8.0
DEPOSED_S = (6.0, 12.0)
LOSSY_PAUSE_S = (0.02, 0.4)


class Links:
    """What befalls links between brokers, and to clients."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._network = ground.network
        self._random = ground.random
        self._deposed_until_s = 0.0

    # -- cuts

    def _cut(self, pairs: Iterable[tuple[str, str]], least_s: float = 0.1, most_s: float = LONGEST_CUT_S) -> None:
        cut = list(pairs)
        for pair in cut:
            self._ground.cut_both(*pair)

        def mend() -> None:
            for pair in cut:
                self._ground.join(*pair)

        self._ground.later(least_s, most_s, mend)

    def cut(self) -> None:
        """Two brokers hear each other no more."""
        self._cut([self._ground.two()])

    def cut_one_way(self) -> None:
        one, other = self._ground.two()
        self._ground.cut(one, other)
        self._ground.later(0.1, LONGEST_CUT_S, lambda: self._ground.join(one, other))

    def isolate(self) -> None:
        """One broker from all others; half the time from clients, too."""
        name = self._ground.host().name
        others = self._brokers()
        if self._random.random() < 0.5:
            others += list(self._ground.cluster.clients)
        self._cut(((name, other) for other in others if other != name), 0.5)

    def isolate_leader(self) -> None:
        """A broker that leads, from all others; its clients still reach it, and write what nobody commits. An operator
        asks who leads."""
        at = self._random.choice(list(self._ground.workload.keys))
        self._ground.ask_who_leads(at, lambda leader: self._from_brokers(leader, 0.5, LONGEST_CUT_S))

    def depose(self) -> bool:
        """The coordinator of the group with members, or of the queue, from all other brokers, for longer than a
        broker's and a member's session. Its members still reach it, and the one that comes after it. One at a time, for
        a second one would leave nobody to elect."""
        if self._ground.cluster.now_s < self._deposed_until_s:
            return False
        self._deposed_until_s = self._ground.cluster.now_s + DEPOSED_S[1]
        self._ground.ask_who_coordinates(lambda leader: self._from_brokers(leader, *DEPOSED_S))
        return True

    def _from_brokers(self, host: SimulatedHost, least_s: float, most_s: float) -> None:
        self._ground.cluster.note(f"{host.name} leads, and is isolated")
        self._cut(((host.name, other) for other in self._brokers() if other != host.name), least_s, most_s)

    def cut_from_rules(self) -> bool:
        """The broker that leads what the guest may read hears no voter, so it hears of no rule; the guest reaches it,
        and it alone. Then the rule is taken away. Longer than the judge lets anybody go by a rule that is gone."""
        ground, guest = self._ground, self._ground.workload.guest
        if guest is None or not guest.has_something_to_lose:
            return False

        longest_s = grace_s(ground.cluster.plan)

        async def ask(admin: Admin) -> None:
            (topic,) = await admin.describe_topics([GUESTS_TOPIC])
            leader = topic.partitions[0].leader
            if leader is None or not ground.cluster.rages:
                return
            ground.cluster.note(f"b{leader} hears of no rule, and the guest reaches it alone")
            voters = [f"b{each}" for each in ground.cluster.voter_ids if each != leader]
            others = [name for name in self._brokers() if name != f"b{leader}"]
            pairs = [(f"b{leader}", each) for each in voters] + [(GUEST, each) for each in others]
            self._cut(pairs, longest_s + 1.0, 2 * longest_s)
            guest.change()
            guest.insist(2 * longest_s)

        ground.workload.command(ask)
        return True

    def isolate_client(self) -> bool:
        """What it has sent last may have arrived."""
        clients = list(self._ground.cluster.clients)
        if not clients:
            return False
        name = self._random.choice(clients)
        self._cut(((name, broker) for broker in self._brokers()), 0.5)
        return True

    def split(self) -> None:
        """Some brokers from the rest; half the time each client is on one side, else it hears both."""
        brokers, clients = self._brokers(), list(self._ground.cluster.clients)
        side = set(self._random.sample(brokers, self._random.randint(1, len(brokers) - 1)))
        if self._random.random() < 0.5:
            side |= {name for name in clients if self._random.random() < 0.5}
            brokers += clients
        self._cut((pair for pair in itertools.combinations(brokers, 2) if (pair[0] in side) != (pair[1] in side)), 0.5)

    def cut_to_the_end(self) -> bool:
        ground = self._ground
        if ground.lost or ground.cut_for_good:
            return False
        ground.cut_for_good = ground.two()
        ground.cut_both(*ground.cut_for_good)
        return True

    def _brokers(self) -> list[str]:
        return [host.name for host in self._ground.cluster.hosts.values()]

    # -- slow, lossy, broken, refused

    def slow_link(self) -> None:
        one, other = self._ground.two()
        extra_s = self._random.choice((0.01, 0.05, 0.3))
        for pair in ((one, other), (other, one)):
            self._network.extra_s[pair] = extra_s
            self._ground.cluster.ails(pair[0], "slow link")

        def mend() -> None:
            for pair in ((one, other), (other, one)):
                self._network.extra_s.pop(pair, None)
                self._ground.cluster.mends(pair[0], "slow link")

        self._ground.later(0.5, LONGEST_CUT_S, mend)

    def lossy_link(self) -> None:
        """Connections between two break again and again: calls are lost before they are heard, or their answers."""
        pair = self._ground.pair()
        until_s = self._ground.cluster.now_s + self._random.uniform(0.5, LONGEST_CUT_S)
        for name in pair:
            self._ground.cluster.ails(name, "lossy link")

        async def be_lossy() -> None:
            while self._ground.cluster.now_s < until_s and self._ground.cluster.rages:
                self._network.reset(*pair)
                await asyncio.sleep(self._random.uniform(*LOSSY_PAUSE_S))
            if self._ground.cluster.rages:
                for name in pair:
                    self._ground.cluster.mends(name, "lossy link")

        self._ground.cluster.loop.create_task(be_lossy())

    def reset(self) -> None:
        self._network.reset(*self._ground.pair())

    def reset_all(self) -> None:
        self._network.reset_all(self._ground.host().name)

    def refuse(self) -> None:
        """A broker takes no connections for a while; what is connected stays so."""
        host = self._ground.host()
        self._network.refusing.add(host.name)
        self._ground.ails_for(host, "refuses", 0.2, 5.0, lambda: self._network.refusing.discard(host.name))
