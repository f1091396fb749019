"""Members of a group, and what is judged of them from the outside (tests/judges/groups.py).

    sharing.py             who holds what, and who committed what
    sharing_program.py     what the user of a member wrote: it reads, commits, and is called back
    sharing_troubles.py    what befalls members

M2: 5 s after the last trouble each partition has one reader, and keeps one. After a death a session time-out later. The
5 s begin when the coordinator's partition commits something, and 10 s after the last trouble at the latest: V19 judges
brokers, which may have to start, to elect, and to wait for copies before that.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from minilog.aio import Consumer, Producer
from minilog.errors import MinilogError
from minilog.types import Record, TopicPartition
from tests.judges.groups import check_committer, check_next, check_owned, check_read, holders_of
from tests.judges.violation import Violation
from tests.simulation.clients.sharing_program import Crash, Program
from tests.simulation.clients.sharing_troubles import Troubles

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine
    from tests.world.loop import Process

TOPIC, GROUP, PARTITIONS = "m0", "shared", 8
SESSION_TIMEOUT_S, HEARTBEAT_INTERVAL_S = 3.0, 0.3
OWNED_WITHIN_S = 5.0
SERVED_WITHIN_S = 10.0  # V19's bound
GOODBYE_S = 2.9  # a client waits 3 s for the answer to its goodbye
MAX_POLL_INTERVAL_MS = 20_000
LOOK_S = 0.02
WRITE_PAUSE_S = 0.03
CLOCK_RATES = (0.95, 1.05)  # a fifth of the session time-out are two heartbeats
STATIC_SHARE = 0.5
COMMIT_SHARES = (0.0, 0.3)  # of the polls; a member that commits learns soon that another broker is its coordinator


@dataclass(eq=False, slots=True)
class Sharer:
    """One process of a member. `floors`: what was committed of a partition when it was given this. `last`: the offset
    that it has read last of a partition since it was given this. `crash`: what
    befalls it when it next gives partitions back. `leaving_s`: when it began to say goodbye."""

    name: str
    process: Process
    instance_id: str
    commit_share: float
    consumer: Consumer | None = None
    floors: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    hangs_s: float = 0.0
    crash: Crash | None = None
    leaves: bool = False
    leaving_s: float = math.inf
    is_gone: bool = False

    def holds(self, now_s: float) -> frozenset[int]:
        """The partitions that its program has, while its session lasts."""
        group = None if self.consumer is None else self.consumer._shell.group
        clock_ms = (self.process.origin_s + self.process.rate * now_s) * 1000.0
        is_reader = group is not None and not self.process.dead and group.member.may_hand_out(clock_ms)
        return self.program_has() if is_reader else frozenset()

    def program_has(self) -> frozenset[int]:
        """The partitions that its program knows of, and has not given back or lost as far as it knows. After the end of
        the session by the member's own clock the coordinator may still take commits of them."""
        group = None if self.consumer is None else self.consumer._shell.group
        return frozenset() if group is None else frozenset(key.partition for key in group.member.held)


class CoordinatorState(NamedTuple):
    """Of the coordinator's partition, as it was committed: who leads it, since which epoch, and its end."""

    leader: int
    leader_epoch: int
    end: int


class Sharing:
    """The group of the simulation and its judge. `calm_s`: the time at which the last trouble ended. `died_s`: the time
    of the last death of a member, or of its leaving without an answer. `coordinator`: the state that the judge
    knows."""

    def __init__(
        self, cluster: SimulatedCluster, workload: Workload, coordinator: Callable[[], CoordinatorState]
    ) -> None:
        self.cluster = cluster
        self.sharers: list[Sharer] = []
        self.calm_s, self.died_s = 0.0, -math.inf
        self._workload = workload
        self._coordinator, self._before = coordinator, CoordinatorState(0, 0, 0)
        self._served_s = math.inf  # since when the coordinator of now has committed something
        self._chance = random.Random(f"sharing {cluster.seed}")
        self._number = 0
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._seen: set[tuple[int, int]] = set()
        self._committed: dict[int, int] = {}  # the highest that was acknowledged
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """A writer, the members, and what befalls them."""
        self.calm_s = self.cluster.now_s
        process, machine = self.cluster.client("sharing-writer")
        self.cluster.run_client(process, self._write(machine))
        for _ in range(self.cluster.plan.sharing):
            self.add("")
        loop, troubles = asyncio.get_running_loop(), Troubles(self)
        self._tasks = [loop.create_task(troubles.befall()), loop.create_task(self._watch())]

    def end(self) -> None:
        """Nothing is judged any more."""
        for task in self._tasks:
            task.cancel()

    async def _write(self, machine: ClientMachine) -> None:
        settings = self._workload.settings(delivery_timeout_ms=5_000)
        async with Producer(settings, machine) as producer:
            number = 0
            while self._workload.writing:
                number += 1
                partition = machine.chance().randrange(PARTITIONS)
                sent = await producer.send(TOPIC, b"%d" % number, partition=partition)
                self.cluster.loop.create_task(self._noted(sent, b"%d" % number))
                await asyncio.sleep(WRITE_PAUSE_S)

    async def _noted(self, sent: Any, value: bytes) -> None:
        try:
            written = await sent
        except MinilogError:
            return
        self._acknowledged[written.partition, written.offset] = value

    # -- members come and go

    def add(self, instance_id: str) -> None:
        """One more process. Without an instance id it may be given one of its own. Other members first give back the
        partitions that it is to read, and these have no reader meanwhile."""
        self._number += 1
        self.calm_s = self.cluster.now_s
        if not instance_id and self._chance.random() < STATIC_SHARE:
            instance_id = f"i{self._number}"
        process, machine = self.cluster.client(f"member-{self._number}")
        process.rate = self._chance.uniform(*CLOCK_RATES)
        sharer = Sharer(process.name, process, instance_id, self._chance.choice(COMMIT_SHARES))
        self.sharers.append(sharer)
        self.cluster.run_client(process, self._share(sharer, machine))

    async def _share(self, sharer: Sharer, machine: ClientMachine) -> None:
        settings = self._workload.settings(
            group_id=GROUP,
            group_protocol="consumer",
            group_instance_id=sharer.instance_id,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            auto_offset_reset="earliest",
            request_timeout_ms=3_000,
        )
        program = Program(self, sharer, machine.chance())
        async with Consumer(settings, machine) as consumer:
            sharer.consumer = consumer
            await consumer.subscribe(
                [TOPIC], on_assigned=program.assigned, on_revoked=program.revoked, on_lost=program.lost
            )
            while not sharer.leaves:
                await program.turn(consumer)
            sharer.leaving_s = self.cluster.now_s
        sharer.consumer, sharer.is_gone = None, True
        self.calm_s = self.cluster.now_s
        if self.cluster.now_s - sharer.leaving_s >= GOODBYE_S:
            self.died_s = self.cluster.now_s  # nobody has heard its goodbye

    def living(self) -> list[Sharer]:
        """Those that neither ended nor are about to."""
        return [sharer for sharer in self.sharers if not (sharer.process.dead or sharer.is_gone or sharer.leaves)]

    def leaving(self) -> list[Sharer]:
        """Those that say goodbye."""
        return [sharer for sharer in self.sharers if sharer.leaves and not (sharer.process.dead or sharer.is_gone)]

    def leave(self, sharer: Sharer) -> None:
        """It gives all back and says goodbye. Where it is static, its partitions wait for it a session time-out."""
        sharer.leaves = True
        self.calm_s = self.cluster.now_s
        if sharer.instance_id:
            self.died_s = self.cluster.now_s

    def die(self, sharer: Sharer) -> None:
        """SIGKILL. Another process comes in its place."""
        if sharer.name in self.cluster.clients:
            self.cluster.kill_client(sharer.name)
            self.died_s = self.calm_s = self.cluster.now_s
            self.add(sharer.instance_id)

    def stall(self, sharer: Sharer, for_s: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if sharer.name in self.cluster.clients:
            self.cluster.loop.stand_still(sharer.process)
            self.cluster.loop.after(for_s, self.cluster.loop.go_on, sharer.process)

    # -- what they read and commit

    def floor(self, partition: int) -> int:
        """The highest offset that was acknowledged as committed."""
        return self._committed.get(partition, 0)

    def saw(self, sharer: Sharer, record: Record) -> None:
        """A record was handed out. Raises Violation where it was committed before its reader came, and where the reader
        goes back or leaves one out."""
        self._seen.add((record.partition, record.offset))
        partition, offset = record.partition, record.offset
        check_read(sharer.name, partition, offset, sharer.floors.get(partition, 0))
        if (last := sharer.last.get(partition)) is not None:
            between = [each for each in range(last + 1, offset) if (partition, each) in self._acknowledged]
            check_next(sharer.name, partition, last, offset, between)
        sharer.last[partition] = offset

    async def commit(self, sharer: Sharer, offsets: dict[TopicPartition, int]) -> None:
        """Raises Violation where that succeeds, and another held a partition when it began."""
        if not offsets or sharer.consumer is None:
            return
        holders = self.holders()
        try:
            await sharer.consumer.commit(offsets)
        except MinilogError as error:
            self.cluster.note(f"{sharer.name} commits nothing: {type(error).__name__}")
            return
        for at, offset in offsets.items():
            check_committer(sharer.name, at.partition, offset, holders)
            self._committed[at.partition] = max(self.floor(at.partition), offset)

    def missing(self) -> set[tuple[int, int]]:
        """The places of acknowledged records that were handed to nobody."""
        return self._acknowledged.keys() - self._seen

    # -- who holds what

    def holders(self) -> dict[int, str]:
        """The holder of each partition. Raises Violation where there are two."""
        return holders_of((sharer.name, sharer.holds(self.cluster.now_s)) for sharer in self.sharers)

    @property
    def owned_from_s(self) -> float:
        """From when on each partition has a reader. A coordinator that is new gives the dead a whole session time-out,
        too. So that is counted from the last trouble, and not from the death."""
        served_s = max(self.calm_s, min(self._served_s, self.calm_s + SERVED_WITHIN_S))
        return served_s + OWNED_WITHIN_S + (SESSION_TIMEOUT_S if self.died_s > -math.inf else 0.0)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
            except Violation as violation:
                self.cluster.fail(violation)
                return

    def _look(self) -> None:
        holders, now_s = self.holders(), self.cluster.now_s
        state = self._coordinator()
        if self.cluster.rages:
            self.calm_s, self._served_s, self._before = now_s, math.inf, state
        elif state.leader_epoch != self._before.leader_epoch and now_s < self.calm_s + SERVED_WITHIN_S:
            self._served_s, self._before = math.inf, state
        elif state.end > self._before.end:
            self._served_s = min(self._served_s, now_s)
        if now_s > self.owned_from_s:
            check_owned(range(PARTITIONS), holders, f"{now_s - self.calm_s:.1f} s")
