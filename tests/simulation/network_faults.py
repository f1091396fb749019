"""Faults of the network, by the names they have in plan.FaultRates, and how a fault is placed and undone.

A method returns whether the fault could be placed now.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.known import newest_image
from tests.simulation.life import Life

if TYPE_CHECKING:
    from minilog_broker.controller.image import MetadataImage
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import Node

CLIENT_CUT_MS = 8_000.0


class NetworkFaults:
    """See the module's text. `over`: nothing is undone at its time any more, for all is healed at once."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.over = False
        self._cluster = cluster
        self._random = rng

    # -- choosing

    def _nodes(self, accept: Callable[[Node], bool]) -> list[Node]:
        return [node for node in self._cluster.nodes.values() if accept(node)]

    def _one(self, accept: Callable[[Node], bool]) -> Node | None:
        found = self._nodes(accept)
        return self._random.choice(found) if found else None

    def _living(self) -> Life | None:
        node = self._one(lambda each: each.life is not None)
        return None if node is None else node.life

    def _later(self, low_ms: float, high_ms: float, action: Callable[[], None]) -> None:
        """Undo it after a while, unless all is healed before."""

        def undo(_: object) -> None:
            if not self.over:
                action()

        # Most are short; some are long enough for every time-out.
        delay_ms = low_ms + (high_ms - low_ms) * self._random.random() ** 2
        self._cluster.scheduler.after(delay_ms, undo)

    def _note(self, text: str) -> None:
        self._cluster.note(f"fault: {text}")

    def _image(self) -> MetadataImage | None:
        return newest_image(self._cluster)

    # -- the network

    def _endpoints(self) -> list[int]:
        return [*self._cluster.nodes, *self._cluster.clients]

    def _pair(self) -> tuple[int, int]:
        """Two endpoints, one of them at least a node."""
        nodes = list(self._cluster.nodes)
        first = self._random.choice(nodes)
        others = nodes if self._cluster.plan.links_of_nodes else self._endpoints()
        return first, self._random.choice([each for each in others if each != first])

    def _cut(self, pairs: list[tuple[int, int]], longest_ms: float | None = None) -> None:
        network = self._cluster.network
        for source_id, target_id in pairs:
            network.condition(source_id, target_id).cut = True

        def join() -> None:
            for source_id, target_id in pairs:
                network.condition(source_id, target_id).cut = False

        self._later(20.0, longest_ms or self._cluster.plan.longest_cut_ms, join)

    def cut_one_way(self) -> bool:
        first, second = self._pair()
        if self._random.random() < 0.5:
            first, second = second, first
        self._note(f"from node {first} to node {second} is cut")
        self._cut([(first, second)])
        return True

    def cut_two_ways(self) -> bool:
        first, second = self._pair()
        self._note(f"between node {first} and node {second} is cut")
        self._cut([(first, second), (second, first)])
        return True

    def cut_nodes(self) -> bool:
        """Two nodes hear each other no more, and everybody else: a leader moves on between them all the same."""
        first, second = self._random.sample(list(self._cluster.nodes), 2)
        self._note(f"between node {first} and node {second} is cut for a while")
        self._cut([(first, second), (second, first)], 3_000.0)
        return True

    def isolate(self) -> bool:
        """One node from all other nodes; half the time from clients too."""
        node_id = self._random.choice(list(self._cluster.nodes))
        others = self._endpoints() if self._random.random() < 0.5 else list(self._cluster.nodes)
        self._note(f"node {node_id} is isolated")
        pairs = [(node_id, other) for other in others if other != node_id]
        self._cut(pairs + [(other, node_id) for _, other in pairs])
        return True

    def split(self) -> bool:
        """Some nodes from the rest; half the time each client is on one side, else it hears both."""
        nodes, clients = list(self._cluster.nodes), list(self._cluster.clients)
        side = set(self._random.sample(nodes, self._random.randint(1, len(nodes) - 1)))
        self._note(f"nodes {sorted(side)} are split from the others")
        if self._random.random() < 0.5:
            side |= {client_id for client_id in clients if self._random.random() < 0.5}
            nodes += clients
        across = [(one, other) for one in nodes for other in nodes if (one in side) != (other in side)]
        self._cut(across, 6_000.0)
        return True

    def isolate_leader(self) -> bool:
        """A node that leads from all other nodes; its clients still reach it, and write what nobody will commit."""
        image = self._image()
        leaders = {state.leader_id for state in image.partitions.values()} if image is not None else set()
        node = self._one(lambda each: each.node_id in leaders)
        if node is None:
            return False
        self._note(f"node {node.node_id}, a leader, is isolated from nodes")
        others = [node_id for node_id in self._cluster.nodes if node_id != node.node_id]
        self._cut([(node.node_id, other) for other in others] + [(other, node.node_id) for other in others])
        return True

    def isolate_client(self) -> bool:
        """One client from all nodes: what it has sent last may have arrived."""
        client_id, nodes = self._random.choice(list(self._cluster.clients)), self._cluster.nodes
        self._note(f"client {client_id} is isolated")
        pairs = [(client_id, node_id) for node_id in nodes]
        self._cut(pairs + [(node_id, client_id) for node_id in nodes], CLIENT_CUT_MS)
        return True

    def slow_link(self) -> bool:
        first, second = self._pair()
        condition = self._cluster.network.condition(first, second)
        condition.delay_ms = self._random.choice((5.0, 50.0, 300.0))

        def end() -> None:
            condition.delay_ms = 0.0

        self._later(100.0, 5_000.0, end)
        return True

    def lossy_link(self) -> bool:
        """Unary calls are lost, or doubled, or both."""
        first, second = self._pair()
        for pair in ((first, second), (second, first)):
            condition = self._cluster.network.condition(*pair)
            condition.loss = self._random.choice((0.0, 0.1, 0.5))
            condition.doubling = self._random.choice((0.0, 0.1, 0.5))
        return True

    def reset(self) -> bool:
        streams = [stream for stream in self._cluster.network.streams if stream.open]
        if not streams:
            return False
        stream = self._random.choice(streams)
        self._note(f"node {stream.client.endpoint_id} stream {stream.method} to node {stream.target_id} breaks")
        quick, late = self._random.uniform(0.0, 5.0), self._random.choice((1.0, 200.0, 3_000.0))
        if self._random.random() < 0.5:
            quick, late = late, quick
        stream.reset(quick, late)
        return True

    def reset_all(self) -> bool:
        node_id = self._random.choice(list(self._cluster.nodes))
        self._note(f"node {node_id} all its streams break")
        for stream in list(self._cluster.network.streams):
            if node_id in (stream.client.endpoint_id, stream.target_id):
                stream.reset(self._random.uniform(0.0, 5.0), self._random.uniform(0.0, 5.0))
        return True
