"""A whole cluster on virtual time, in one thread, from one seed. docs/spec/simulation.md.

    cluster = Cluster(seed)                 # plan drawn from the seed; or Cluster(seed, plan)
    cluster.observers.append(check)         # called after every event that touched a node, with what it touched
    client = cluster.add_client()           # a process that talks to nodes over the network
    while cluster.step(): ...               # until `cluster.finished`

Phases: SAFETY with all faults of the plan, then LIVENESS: faults stop, within a core that has a majority of voters and,
for each partition, an electable replica and min members; `cluster.core` names its nodes.
"""

from __future__ import annotations

import enum
import logging
import random
from collections import Counter
from collections.abc import Callable

import structlog

from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.chaos import Chaos
from tests.simulation.clients import ClientProcess
from tests.simulation.events import Scheduler
from tests.simulation.network import FIRST_CLIENT_ID, Network
from tests.simulation.node import Node
from tests.simulation.operations import Operator
from tests.simulation.plan import Plan
from tests.simulation.touched import Observer, Touched


class Phase(enum.Enum):
    """What may happen now; see the module's text."""

    SAFETY = enum.auto()
    LIVENESS = enum.auto()
    OVER = enum.auto()


class Cluster:
    """See the module's text."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        if not structlog.is_configured():  # what brokers log is not what a run reports
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self.seed = seed
        self.plan = Plan.draw(seed) if plan is None else plan
        self.random = random.Random(f"cluster {seed}")
        self.scheduler = Scheduler()
        plan = self.plan
        self.network = Network(self.scheduler, random.Random(f"network {seed}"), plan.latency_ms, plan.between_nodes_ms)
        self.phase = Phase.SAFETY
        self.core: tuple[int, ...] = tuple(self.plan.node_ids)
        # After all lost power: of each partition the copies that have all that is committed. If one is there, it leads.
        self.owed: dict[PartitionKey, frozenset[int]] = {}
        self.observers: list[Observer] = []
        self.touched = Touched()
        self.nodes: dict[int, Node] = {node_id: Node(self, node_id) for node_id in self.plan.node_ids}
        self.clients: dict[int, ClientProcess] = {}
        self.network.on_reset = self._reset
        self.fault_counts: Counter[str] = Counter()  # what befell it and what it met, by name
        self.failures: list[tuple[float, int, BaseException]] = []  # processes that an error of their own ended
        self.trace: Callable[[str], None] | None = None
        for node in self.nodes.values():
            self.scheduler.after(self.random.uniform(0.0, 200.0), node.start)
        self.scheduler.after(self.plan.safety_ms, lambda _: self.heal())
        self.operator = Operator(self)
        self.chaos = Chaos(self)

    # -- time

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self.scheduler.now_ms

    @property
    def events(self) -> int:
        """How many events have run."""
        return self.scheduler.run

    @property
    def is_safety_phase(self) -> bool:
        return self.phase is Phase.SAFETY

    @property
    def finished(self) -> bool:
        return self.phase is Phase.OVER

    def step(self) -> bool:
        """Run one event, then the observers where it touched a node. False when the run is over."""
        if self.phase is Phase.OVER or not self.scheduler.step():
            return False
        touched = self.touched
        if touched.nodes or touched.broken:
            self.look(touched)
            touched.clear()
        return True

    def look(self, touched: Touched) -> None:
        """Let the observers see it: after an event, or after one of the steps that it does at once."""
        for observer in self.observers:
            observer(touched)

    def run_for(self, ms: float) -> None:
        """Step for so long of virtual time (tests)."""
        end_ms = self.now_ms + ms
        while self.scheduler.next_ms <= end_ms and self.step():
            pass

    def note(self, text: str) -> None:
        """A line of the trace, where one is kept."""
        if self.trace is not None:
            self.trace(f"{self.now_ms:12.3f} {text}")

    def _reset(self, client_id: int, server_id: int) -> None:
        """A connection is lost; its ends will hear of it."""
        self.touched.broken[(client_id, server_id)] = None

    def count(self, what: str) -> None:
        """Something happened that a report counts."""
        self.fault_counts[what] += 1

    def process_failed(self, node_id: int, error: BaseException) -> None:
        """An error ended a process, as it would end a real one."""
        self.fault_counts[f"process ended by {type(error).__name__}"] += 1
        self.failures.append((self.now_ms, node_id, error))
        self.note(f"node {node_id} ended by {type(error).__name__}: {error}")

    def heal(self) -> None:
        """The liveness phase begins: see chaos.py. Called at `plan.safety_ms`."""
        if self.phase is Phase.SAFETY:
            self.phase = Phase.LIVENESS
            self.chaos.heal()
            self.operator.heal()
            self.scheduler.after(self.plan.liveness_ms, self._end)

    def _end(self, _: object) -> None:
        self.phase = Phase.OVER

    # -- clients

    def add_client(self) -> ClientProcess:
        """A new client process, with its own clock; endpoint ids from 1000 on, for faults on its links."""
        endpoint_id = FIRST_CLIENT_ID + len(self.clients)
        origin_ms = self.random.uniform(1e3, 1e7)
        client = self.clients[endpoint_id] = ClientProcess(self.scheduler, self.network, endpoint_id, origin_ms)
        return client
