"""Members of a group that come, go, hang and are killed, and what is judged of them from the outside: M1, M2, M3, M5.

rule  what must be
M1    no partition is held by two members at one moment: from when its program was told until it has given the
      partition back, or its session is over by its own clock, which has a rate of its own
M2    after the last fault each partition has one reader
M3    no commit succeeds that begins while another member holds the partition. A reader begins nowhere below what was
      acknowledged as committed before it was given the partition
M5    every record that was acknowledged to its writer is handed to some member
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.aio import Consumer, Producer
from minilog.errors import MinilogError
from minilog.types import Record, TopicPartition
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.loop import Process
    from tests.simulation.machines.machine import ClientMachine

TOPIC, GROUP = "m0", "shared"
MAX_POLL_INTERVAL_MS = 20_000
LOOK_S = 0.02
WRITE_PAUSE_S = 0.03
HANGS_S = (1.0, 4.0)
STALLS_S = (2.0, 5.0)  # some longer than a session time-out
CLOCK_RATES = (0.95, 1.05)  # a fifth of the session time-out are two heartbeats
STATIC_SHARE = 0.5


@dataclass(eq=False, slots=True)
class Sharer:
    """One process of a member. `floors`: what was committed of a partition when it was given this."""

    name: str
    process: Process
    instance_id: str
    consumer: Consumer | None = None
    floors: dict[int, int] = field(default_factory=dict)
    hangs_s: float = 0.0
    leaves: bool = False

    def holds(self, now_s: float) -> frozenset[int]:
        """The partitions that its program was told of and has not given back, while its session lasts."""
        group = None if self.consumer is None else self.consumer._shell.group
        clock_ms = (self.process.origin_s + self.process.rate * now_s) * 1000.0
        if group is None or self.process.dead or not group.member.may_hand_out(clock_ms):
            return frozenset()
        return frozenset(key.partition for key in group.member.held)


class Sharing:
    """See the module's text."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._chance = random.Random(f"sharing {cluster.seed}")
        self._number = 0
        self.sharers: list[Sharer] = []
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._seen: set[tuple[int, int]] = set()
        self._committed: dict[int, int] = {}  # the highest that was acknowledged

    def begin(self) -> None:
        """A writer, the members, and what befalls them."""
        process, machine = self._cluster.client("sharing-writer")
        self._cluster.run_client(process, self._write(machine))
        for _ in range(self._cluster.plan.sharing):
            self._add("")
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._befall()), loop.create_task(self._watch())]

    async def _write(self, machine: ClientMachine) -> None:
        settings = self._workload.settings(delivery_timeout_ms=5_000)
        async with Producer(settings, machine) as producer:
            number = 0
            while self._workload.writing:
                number += 1
                partition = machine.chance().randrange(self._cluster.plan.partitions)
                sent = await producer.send(TOPIC, b"%d" % number, partition=partition)
                self._cluster.loop.create_task(self._noted(sent, b"%d" % number))
                await asyncio.sleep(WRITE_PAUSE_S)

    async def _noted(self, sent: Any, value: bytes) -> None:
        try:
            written = await sent
        except MinilogError:
            return
        self._acknowledged[written.partition, written.offset] = value

    # -- members

    def _add(self, instance_id: str) -> None:
        self._number += 1
        if not instance_id and self._chance.random() < STATIC_SHARE:
            instance_id = f"i{self._number}"
        process, machine = self._cluster.client(f"member-{self._number}")
        process.rate = self._chance.uniform(*CLOCK_RATES)
        sharer = Sharer(process.name, process, instance_id)
        self.sharers.append(sharer)
        self._cluster.run_client(process, self._share(sharer, machine))

    async def _share(self, sharer: Sharer, machine: ClientMachine) -> None:
        settings = self._workload.settings(
            group_id=GROUP,
            group_protocol="consumer",
            group_instance_id=sharer.instance_id,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            auto_offset_reset="earliest",
            request_timeout_ms=3_000,
        )

        async def assigned(partitions: list[TopicPartition]) -> None:
            sharer.floors |= {each.partition: self._committed.get(each.partition, 0) for each in partitions}

        async def revoked(partitions: list[TopicPartition]) -> None:
            await self._commit(sharer, partitions)

        async with Consumer(settings, machine) as consumer:
            sharer.consumer = consumer
            await consumer.subscribe([TOPIC], on_assigned=assigned, on_revoked=revoked, on_lost=_lost)
            while not sharer.leaves:
                try:
                    for record in await consumer.poll(0.3):
                        self._saw(sharer, record)
                except MinilogError as error:
                    self._cluster.note(f"{sharer.name}: {type(error).__name__}: {error}")
                    await asyncio.sleep(0.2)
                if sharer.hangs_s:
                    hangs_s, sharer.hangs_s = sharer.hangs_s, 0.0
                    await asyncio.sleep(hangs_s)
                    await self._commit(sharer, consumer.assignment())  # before a poll says that it is another's
                elif machine.chance().random() < 0.3:
                    await self._commit(sharer, consumer.assignment())
        sharer.consumer = None

    async def _commit(self, sharer: Sharer, partitions: list[TopicPartition]) -> None:
        assert sharer.consumer is not None
        positions = {each: sharer.consumer.position(each) for each in partitions}
        offsets = {each: position for each, position in positions.items() if position}
        if not offsets:
            return
        holders = self._look()
        try:
            await sharer.consumer.commit(offsets)
        except MinilogError as error:
            self._cluster.note(f"{sharer.name} commits nothing: {type(error).__name__}")
            return
        for each, offset in offsets.items():
            if (holder := holders.get(each.partition, sharer.name)) != sharer.name:
                raise Violation(
                    "M3", f"{sharer.name} commits {offset} of partition {each.partition}, which {holder} holds"
                )
            self._committed[each.partition] = max(self._committed.get(each.partition, 0), offset)

    def _saw(self, sharer: Sharer, record: Record) -> None:
        self._seen.add((record.partition, record.offset))
        floor = sharer.floors.get(record.partition, 0)
        if record.offset < floor:
            raise Violation(
                "M3", f"{sharer.name} reads offset {record.offset} of {record.partition}, {floor} was committed before"
            )

    # -- what befalls them

    async def _befall(self) -> None:
        while self._cluster.rages:
            await asyncio.sleep(self._chance.uniform(0.3, 1.5))
            living = [each for each in self.sharers if not each.process.dead and not each.leaves]
            sharer = self._chance.choice(living)
            what = self._chance.choice(("join", "leave", "kill", "hang", "stall", "stall", "twin"))
            if what == "join" and len(living) < self._cluster.plan.sharing + 2:
                self._add("")
            elif what == "leave":
                sharer.leaves = True
                self._add(sharer.instance_id)
            elif what == "kill" and sharer.name in self._cluster.clients:
                self._cluster.kill_client(sharer.name)
                self._add(sharer.instance_id)
            elif what == "hang":
                sharer.hangs_s = self._chance.uniform(*HANGS_S)
            elif what == "twin" and len(living) < self._cluster.plan.sharing + 3:
                self._add(
                    next((each.instance_id for each in living if each.instance_id), "")
                )  # refused, while it lives
            elif what == "stall" and sharer.name in self._cluster.clients:
                sharer.hangs_s = 0.01  # when it goes on it commits first
                self._cluster.loop.stand_still(sharer.process)
                await asyncio.sleep(self._chance.uniform(*STALLS_S))
                self._cluster.loop.go_on(sharer.process)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look()
            except Violation as violation:
                self._cluster.fail(violation)
                return

    def _look(self) -> dict[int, str]:
        """The holder of each partition."""
        holders: dict[int, str] = {}
        for sharer in self.sharers:
            for partition in sharer.holds(self._cluster.now_s):
                if (other := holders.setdefault(partition, sharer.name)) != sharer.name:
                    raise Violation("M1", f"partition {partition} is held by {other} and by {sharer.name}")
        return holders

    # -- the end

    def unowned(self) -> list[int]:
        """The partitions without a reader."""
        holders = self._look()
        return [partition for partition in range(self._cluster.plan.partitions) if partition not in holders]

    def missing(self) -> str | None:
        """Whether an acknowledged record was handed to nobody."""
        missed = self._acknowledged.keys() - self._seen
        return f"{len(missed)} records are handed to nobody, such as {min(missed)}" if missed else None

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _lost(partitions: list[TopicPartition]) -> None:
    """Nothing can be committed."""
