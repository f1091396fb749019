"""One machine: its disk, its clock, and the broker that runs on it, or none.

    start ──► broker runs ──► kill | power loss | stop (it hands over, then ends) | an error of its own ──► none

What runs is minilog_broker.server.broker.Broker, as a process runs it. It is down until it listens: what is on its disk
is read before, which takes its time.
"""

from __future__ import annotations

import asyncio
import math
import pathlib
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from minilog.errors import MinilogError, UnsupportedVersion
from minilog_broker.failure import CommandFailed
from minilog_broker.levels import FIRST_LEVEL, SUPPORTED_LEVELS
from minilog_broker.server.broker import Broker
from minilog_broker.server.broker_options import BrokerOptions, VoterAddress
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.config_layers import load_config
from tests.judges.violation import Violation
from tests.simulation.machines.identities import Identities
from tests.simulation.machines.machine import SimulatedMachine
from tests.simulation.machines.network import CUT, SimulatedNetwork
from tests.simulation.plan import LATER, Plan
from tests.world.disk import SEGMENT_SUFFIX, Death, MemoryDisk, PowerLoss
from tests.world.loop import Process, VirtualLoop

PORT, PEER_PORT = 9092, 9093  # one for all; the other is of brokers alone, where users are known
DATA_PATH = "/data"
METADATA_QUEUE, METADATA_HANGS = "metadata-disk", "hanging metadata disk"
READS_OF = {  # whose reads hang where it hangs
    "data-reader": "data-disk",
    "cleaner": "data-disk",
    "metadata-reader": METADATA_QUEUE,
    "metadata-replay-reader": METADATA_QUEUE,
}
SLOWEST_READ = 10.0  # times as slow as else: one read is asked after the other, and a disk that is back reads much
METADATA_PATH, METADATA_ERROR = f"{DATA_PATH}/__cluster_metadata", "metadata disk error"
_IN_A_LOG = re.compile(rf"{DATA_PATH}/(?!__cluster_metadata)[^/]+-\d+/")  # the other replicas go on
_EPOCHS = re.compile(rf"{_IN_A_LOG.pattern}leader-epoch")
# What the defaults leave to machines with much else to do: virtual time has none of that, and runs are short.
IMPATIENCE = {"session.keepalive.ms": "100", "quorum.fetch.timeout.ms": "1000"}
START_S = 0.3  # a Python process needs so long to come up
OPERATOR_S = (1.0, 6.0)  # until an operator sees what a broker has ended with
AGAIN_S = 0.5  # a supervisor starts what ended by itself


def _nobody(path: str) -> None:
    """Nobody wants to hear it."""


class HostDisk(MemoryDisk):
    """Its machine hears of a death, or an error, in the middle of a change before anything else happens. `replaced`
    hears of each file that takes another name."""

    def __init__(
        self,
        chance: random.Random,
        died: Callable[[type[Death]], None],
        erred: Callable[[str], None],
        waited_for: Callable[[str], None],
        *,
        out_of_order: bool,
    ) -> None:
        super().__init__(chance, out_of_order=out_of_order)
        self._died = died
        self._erred = erred
        self._waited_for = waited_for
        self.replaced: Callable[[str], None] = _nobody

    def waited_for(self, path: str) -> None:
        self._waited_for(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.replaced(target)

    def interrupt(self, path: str) -> None:
        if self.interrupted_by_error:
            self._erred(path)
        else:
            self._died(self._death)
        super().interrupt(path)


class SimulatedHost:
    """See the module's text. `wanted`: a supervisor keeps the broker running."""

    def __init__(
        self,
        number: int,
        network: SimulatedNetwork,
        plan: Plan,
        chance: random.Random,
        note: Callable[[str], None],
        fail: Callable[[BaseException], None],
        identities: Identities | None,
    ) -> None:
        self.number = number
        self._identities = identities
        self.name = f"b{number}"
        self.network = network
        self.loop: VirtualLoop = network.loop
        self.disk = HostDisk(
            random.Random(chance.getrandbits(64)),
            self._died,
            self._met_an_error,
            self._waited,
            out_of_order=plan.out_of_order,
        )
        self._dedupe_buffer_bytes = plan.dedupe_buffer_bytes
        self.sync_ms = plan.sync_ms
        self.read_ms = plan.read_ms
        self.read_seed = f"{plan.read_seed} {self.name}"
        self.disk.get_cold(plan.cold_share, self.read_seed)
        self.wall_offset_us = 0
        self.clock_rate = plan.clock_rates.get(number, 1.0)
        self.boots = 0
        self.cut_in_half = False
        self.lives = 0
        self.started_s = 0.0
        self._listens_s = 0.0
        self.lost_power_in = -1  # the life that ended so, or during which nothing ran
        self.wanted = False
        self.ends: Counter[str] = Counter()
        self.configs = {**IMPATIENCE, **plan.configs.get(number, {})}
        self.rack = plan.racks.get(number)
        self.host_label = plan.host_labels.get(number)
        self.levels = plan.levels.get(number, SUPPORTED_LEVELS)
        # By a version that cannot read it: what is on its disk, and how many bits are rotten.
        self._found: tuple[dict[str, bytes], int] | None = None
        self.voters = tuple(plan.voter_ids)
        self.port = PORT  # of its listener: another one after a move
        self.lost_power_s: list[float] = []
        self._read_bytes_per_s = plan.read_bytes_per_s
        self._random = chance
        self._note = note
        self._fail = fail
        self.process: Process | None = None
        self.machine: SimulatedMachine | None = None
        self.broker: Broker | None = None  # for a debugger only: the judge asks it nothing
        self.errors: list[BaseException] = []  # that ended it: of its disk, its directory or its cluster
        self._mended_s: dict[str, float] = {}
        self._ailments: Counter[str] = Counter({"down": 1})

    # -- how it is

    def ails(self, what: str) -> None:
        """Something keeps it from doing what it should."""
        self._ailments[what] += 1

    def mends(self, what: str) -> None:
        """That is over."""
        if self._ailments[what] > 0:
            self._ailments[what] -= 1
            self._mended_s[what] = self.loop.now_s

    def mends_all(self, what: str, *, still: bool) -> None:
        """However often it was said; unless there is `still` some of it."""
        if not still and self._ailments[what]:
            self._ailments[what] = 0
            self._mended_s[what] = self.loop.now_s

    def recovers(self) -> None:
        """All of it is over, but that it may be down."""
        down = self._ailments["down"]
        self._ailments = Counter({"down": down})
        self._mended_s = {"all": self.loop.now_s}

    @property
    def is_well(self) -> bool:
        return not self.ailments

    @property
    def well_since_s(self) -> float:
        """When the last of what it had was over."""
        return max(self._mended_s.values(), default=0.0)

    def ailed_from(self, names: Collection[str], since_s: float) -> bool:
        """Whether it had one of these at any time since."""
        return any(self._ailments[what] or self._mended_s.get(what, -math.inf) >= since_s for what in names)

    @property
    def sound_since_s(self) -> float:
        """Since when it does all that it should, whomever it does not hear; infinity where it does not."""
        if self.ailments - {CUT}:
            return math.inf
        return max((time_s for what, time_s in self._mended_s.items() if what != CUT), default=0.0)

    @property
    def ailments(self) -> set[str]:
        """What keeps it from doing what it should."""
        return {what for what, count in self._ailments.items() if count}

    # -- life

    def start(self, voters: Sequence[int] | None = None) -> None:
        """Where nothing runs, a broker comes up; `voters`: it is told others than it should be."""
        self.wanted = True
        if self.process is not None:
            return
        told = self.voters if voters is None else tuple(voters)
        self._found = (self._logs(), len(self.disk.flips)) if self._recorded_level() not in self.levels else None
        self.network.powered(self.name)
        self.lives += 1
        self.started_s = self.loop.now_s
        origin_s = self._random.uniform(1e3, 1e7)
        process = self.process = Process(self.name, origin_s, self.clock_rate)
        process.busy_s = lambda: self.disk.read_bytes / self._read_bytes_per_s
        process.die = self.kill
        self.loop.after(START_S * self._random.uniform(0.7, 1.5), self._begin, process, told)

    def _begin(self, process: Process, voters: Sequence[int]) -> None:
        if process.dead:
            return
        machine = self.machine = SimulatedMachine(self, process, random.Random(self._random.getrandbits(64)))
        known = self._identities
        secured = {} if known is None else known.of_broker(self.number, f"{self.name}:{PEER_PORT}")
        peer_port = PORT if known is None else PEER_PORT
        options = BrokerOptions(
            broker_id=self.number,
            listen=(self.name, self.port),
            data_dir=pathlib.Path(DATA_PATH),
            voters=tuple(VoterAddress(number, f"b{number}", peer_port) for number in voters),
            rack=self.rack,
            host_label=self.host_label,
            config=self._config({**self.configs, **secured}),
            levels=self.levels,
        )

        async def run() -> int:
            self.broker = Broker(options, machine)
            return await self.broker.run()

        task = self.loop.spawn(process, run())
        task.add_done_callback(lambda task: self._ended(process, task))

    def _config(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """As its file has it. Logs are too small to fill the smallest buffer of a cleaner that a file may ask for."""
        config = load_config(overrides=overrides)
        dedupe_bytes = self._dedupe_buffer_bytes
        return replace(config, log_cleaner_dedupe_buffer_size=dedupe_bytes) if dedupe_bytes else config

    def _ended(self, process: Process, task: asyncio.Task[int]) -> None:
        """It ended by itself."""
        if self.process is not process or process.dead:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(error)
            if isinstance(error, UnsupportedVersion):
                self._refused()
            if not isinstance(error, MinilogError | CommandFailed | OSError):
                self._fail(error)
            if isinstance(error, OSError) and _IN_A_LOG.match(error.filename or ""):
                self._fail(Violation("V19", f"{self.name} ended for an error of one log: {error}"))
        self._gone("stop" if error is None else f"{type(error).__name__}: {error}")
        self.disk.end_process()
        self.network.process_ended(process, silently=False)
        if self.wanted:
            self.loop.after(AGAIN_S, self._again)

    # -- of another version

    def _recorded_level(self) -> int:
        path = f"{DATA_PATH}/broker.json"
        if not self.disk.exists(path):
            return FIRST_LEVEL
        found = re.search(rb'"level":(\d+)', self.disk.content(path))
        return FIRST_LEVEL if found is None else int(found[1])

    def _logs(self) -> dict[str, bytes]:
        """All logs and snapshots that lie on the disk."""
        return {name: self.disk.content(name) for name in self.disk.names if name.endswith((".log", ".snapshot"))}

    def _refused(self) -> None:
        """It ended for its version: it has left what it found; and an operator gives it the later one after a while."""
        rots = len(self.disk.flips)  # what rotted meanwhile was not its doing
        if self._found is not None and rots == self._found[1] and self._logs() != self._found[0]:
            self._fail(Violation("level", f"{self.name} could not read its disk, and changed it"))
        if not self._ailments["too old"]:
            self.ails("too old")
            self.loop.after(self._random.uniform(*OPERATOR_S), self._given_the_later)

    def _given_the_later(self) -> None:
        self.levels = LATER
        self.mends_all("too old", still=False)

    def listens(self) -> None:
        """It takes connections: what it had to read is read, but for the end of the metadata log."""
        self.mends("down")
        self._listens_s = self.loop.now_s

    def _again(self) -> None:
        if self.wanted:
            self.start()

    def _gone(self, how: str) -> None:
        assert self.process is not None
        self._note(f"{self.name} life {self.lives} ends: {how}")
        self.ends[how.partition(":")[0]] += 1
        self.process.dead = True
        self.process = self.machine = None
        self._ailments["down"] = 1

    def kill(self) -> None:
        """SIGKILL."""
        if (process := self.process) is not None:
            self._gone("kill")
            self.disk.end_process()
            self.network.process_ended(process, silently=False)

    def lose_power(self) -> None:
        """The machine goes off, whatever ran on it."""
        self.network.dark.add(self.name)
        self.boots += 1
        if (process := self.process) is not None:
            self._gone("power")
            self.network.process_ended(process, silently=True)
        self.disk.lose_power()
        self.lost_power_in = self.lives
        self.lost_power_s.append(self.loop.now_s)

    def empty_disk(self) -> None:
        """The machine goes off, and has another disk from then on."""
        self.lose_power()
        self.disk.wipe()

    def _met_an_error(self, path: str) -> None:
        """A replica whose epochs could not be stored was cut in half, and is offline in this life: full disks, too. A
        broker whose metadata log meets an error hands over, and ends."""
        if METADATA_PATH in path:
            self.ails(METADATA_ERROR)
        if _EPOCHS.match(path):
            self.ails("disk error")
            self.cut_in_half = True

    def _waited(self, path: str) -> None:
        """Who waits for a segment is a thread of its own: the loop has others to serve, once it does."""
        process = self.process
        if process is None or process.threads or not path.endswith(SEGMENT_SUFFIX):
            return
        if self._ailments["down"] or self.loop.now_s <= self._listens_s:  # it serves nobody yet
            return
        self._fail(Violation("loop", f"the event loop of {self.name} waits for {path}"))

    def _died(self, death: type[Death]) -> None:
        if self.process is None:
            return
        if death is PowerLoss:
            self.lose_power()
        else:
            self.kill()
        if self.wanted:
            self.loop.after(AGAIN_S, self._again)

    def stop(self) -> None:
        """SIGTERM; of a process that has not come to listening to it, it is the end."""
        self.wanted = False
        if self.machine is not None:
            self.machine.stop()
        elif self.process is not None:
            self.kill()

    # -- while it runs

    def stand_still(self) -> None:
        if self.process is not None:
            self.loop.stand_still(self.process)

    def go_on(self) -> None:
        if self.process is not None:
            self.loop.go_on(self.process)

    def die_after(self, callbacks: int, death: type[Death]) -> None:
        """In the middle of what it does, so many callbacks from now."""
        if self.process is not None:
            self.process.die = lambda: self._died(death)
            self.process.callbacks_left = callbacks

    def hang_disk(self, names: Sequence[str]) -> None:
        """Of the life that runs now: its queues of these names do nothing."""
        for queue in self.machine.disks if self.machine is not None else ():
            queue.hangs = queue.name in names
        for readers in self.machine.readings if self.machine is not None else ():
            readers.hang(hangs=READS_OF[readers.name] in names)

    def hang_reads(self) -> None:
        """Of the life that runs now: what is not in memory is not read."""
        for readers in self.machine.readings if self.machine is not None else ():
            readers.hang(hangs=True)

    def unhang_disk(self) -> None:
        """What hung goes on."""
        for queue in self.machine.disks if self.machine is not None else ():
            queue.go_on()
        for readers in self.machine.readings if self.machine is not None else ():
            readers.hang(hangs=False)

    def get_well(self) -> None:
        """Its disk, and what runs on it now."""
        self.disk.calm()
        self.slow_disk(1.0)
        self.unhang_disk()
        if self.process is not None:
            self.process.callbacks_left = None
        self.go_on()

    def slow_disk(self, factor: float) -> None:
        """Of the life that runs now; 1: as it was."""
        if self.machine is not None:
            for queue in self.machine.disks:
                queue.slow(factor)
            for readers in self.machine.readings:
                readers.slow(min(factor, SLOWEST_READ))
