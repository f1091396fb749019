"""A cluster of brokers that ship, with its clients, on virtual time, from one seed.

cluster = SimulatedCluster(seed, plan)
cluster.run(director())        until the director is done
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from typing import Any

import structlog

from tests.simulation.machines.calls import Channel
from tests.simulation.machines.host import PORT, SimulatedHost
from tests.simulation.machines.identities import Identities
from tests.simulation.machines.machine import ClientMachine
from tests.simulation.machines.network import SimulatedNetwork
from tests.simulation.machines.wire import Wire
from tests.simulation.plan import Plan
from tests.world.loop import NOBODY, PROCESS, Process, VirtualLoop

TRACE_LINES = 400
_CLIENTS = logging.getLogger("minilog")


class SimulatedCluster:
    """See the module's text. `trace`: the last things that happened, with what brokers log."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan = Plan.draw(seed) if plan is None else plan
        self.loop = VirtualLoop()
        self.random = random.Random(f"cluster {seed}")
        self.wire = Wire()
        self.network = SimulatedNetwork(
            self.loop, random.Random(f"network {seed}"), plan.latency_s, self.wire, plan.window_bytes
        )
        self.counts: Counter[str] = Counter()
        self.rages = True  # whether faults may still come
        self.stray_epoch = -1  # the highest that a fault wrote on a voter's disk
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._failed: asyncio.Future[None] = self.loop.create_future()
        servers = self.bootstrap_servers
        self.identities = Identities(plan.brokers, servers) if plan.users else None
        self.hosts = {
            number: SimulatedHost(
                number,
                self.network,
                plan,
                random.Random(f"host {seed} {number}"),
                self.note,
                self.fail,
                self.identities,
            )
            for number in range(1, plan.brokers + 1)
        }
        for pair in itertools.permutations(self.hosts.values(), 2):
            self.network.far_s[pair[0].name, pair[1].name] = plan.between_brokers_s
        # Of which each needs a majority: the committed one, and those that may be. The judge of the log replaces it.
        self.voter_sets: Callable[[], list[list[int]]] = lambda: [list(plan.voter_ids)]
        self.listeners: list[Callable[[Mapping[str, Any]], None]] = []  # to what brokers log
        self._names = {host.name for host in self.hosts.values()}
        self.clients: dict[str, Process] = {}
        self._ailing_clients: Counter[tuple[str, str]] = Counter()
        self._clients_well_since_s = 0.0
        self.loop.connect = self._knock
        self.loop.set_exception_handler(self._unhandled)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"b{number}:{PORT}" for number in range(1, self.plan.brokers + 1))

    @property
    def voter_ids(self) -> list[int]:
        """The voters that are known to be committed."""
        return self.voter_sets()[0]

    @property
    def voters(self) -> list[SimulatedHost]:
        return [self.hosts[number] for number in self.voter_ids]

    def host(self, name: str) -> SimulatedHost:
        return self.hosts[int(name.removeprefix("b"))]

    @property
    def now_s(self) -> float:
        return self.loop.now_s

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.now_s:10.4f} {text}")

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def strayed(self, name: str, epoch: int) -> None:
        """A voter has an epoch on its disk that is far above all others."""
        self.note(f"{name} has epoch {epoch} on its disk")
        self.stray_epoch = max(self.stray_epoch, epoch)

    async def _knock(self, host: str, port: int) -> None:
        process = PROCESS.get()
        assert process is not None
        await Channel.knock(self.network, process, host, port)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that no task took: the run is over."""
        error = context.get("exception")
        self.fail(error if error is not None else RuntimeError(context.get("message")))

    def fail(self, error: BaseException) -> None:
        """The run is over: this was not to be."""
        self.note(f"the run fails: {error!r}")
        if isinstance(error, StopIteration):  # a future takes none
            error = RuntimeError(f"{error!r} was raised")
        if not self._failed.done():
            self._failed.set_exception(error)

    # -- who is well

    def ails(self, name: str, what: str) -> None:
        """Of a broker or a client: something keeps it from doing what it should."""
        if name in self.clients:
            self._ailing_clients[name, what] += 1
        elif name in self._names:
            self.host(name).ails(what)

    def mends(self, name: str, what: str) -> None:
        """That is over."""
        if name in self._names:
            self.host(name).mends(what)
        elif self._ailing_clients[name, what] > 0:
            self._ailing_clients[name, what] -= 1
            self._clients_well_since_s = self.now_s

    def mends_all(self, name: str, what: str, *, still: bool) -> None:
        """However often it was said; unless there is `still` some of it."""
        if name in self._names:
            self.host(name).mends_all(what, still=still)
        elif not still and self._ailing_clients.pop((name, what), 0):
            self._clients_well_since_s = self.now_s

    def clients_recover(self) -> None:
        """All of them."""
        self._ailing_clients.clear()
        self._clients_well_since_s = self.now_s

    @property
    def clients_well_since_s(self) -> float:
        """Since when every client that lives could do what it should; infinity while one cannot."""
        ailing = any(count and name in self.clients for (name, _), count in self._ailing_clients.items())
        return math.inf if ailing else self._clients_well_since_s

    # -- clients

    def client(self, name: str) -> tuple[Process, ClientMachine]:
        """A new client's process and what it runs on."""
        chance = random.Random(f"client {self.seed} {name}")
        process = self.clients[name] = Process(name, chance.uniform(1e3, 1e7))
        return process, ClientMachine(self.network, process, chance)

    def run_client(self, process: Process, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """What a client's program does, until its end. An error that it does not take ends the run."""

        def ended(task: asyncio.Task[None]) -> None:
            self.clients.pop(process.name, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)

        task = self.loop.spawn(process, work)
        task.add_done_callback(ended, context=NOBODY)
        return task

    def kill_client(self, name: str) -> None:
        """SIGKILL."""
        process = self.clients.pop(name)
        process.dead = True
        self.network.process_ended(process, silently=False)

    # -- running

    def run(self, director: Coroutine[Any, Any, None]) -> None:
        """Until the director has ended; what it raises is raised here."""
        structlog.configure(
            processors=[self._log],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=_Silent,
            cache_logger_on_first_use=False,
        )
        notes = _Notes(self.note)
        _CLIENTS.addHandler(notes)
        _CLIENTS.propagate = False
        collects = gc.isenabled()
        gc.disable()  # what a dead process awaits is not collected: see loop.py
        try:
            self.loop.run_until_complete(self._directed(director))
        finally:
            structlog.reset_defaults()
            if self.identities is not None:
                self.identities.close()
            _CLIENTS.removeHandler(notes)
            _CLIENTS.propagate = True
            if collects:
                gc.enable()

    async def _directed(self, director: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(director)
        await asyncio.wait((task, self._failed), return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            task.cancel()
            self._failed.result()
        task.result()

    def _log(self, logger: object, method: str, event: MutableMapping[str, Any]) -> Any:
        process = PROCESS.get()
        words = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
        self.note(f"{process.name if process else '-'} {method}: {event.get('event')} {words}"[:400])
        for hear in self.listeners:
            hear(event)
        raise structlog.DropEvent


class _Notes(logging.Handler):
    """What clients log is in the trace."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        self._note(f"{process.name if process else '-'} {record.getMessage()}"[:400])


class _Silent:
    """A logger that nobody reads."""

    def __init__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
