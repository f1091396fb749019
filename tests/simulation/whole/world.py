"""A cluster of brokers that ship, with its clients, on virtual time, from one seed.

world = World(seed, plan)
world.run(director())        until the director is done
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter, deque
from collections.abc import Coroutine, MutableMapping
from typing import Any

import structlog

from minilog_broker.server.config import VoterAddress
from tests.simulation.whole.calls import Channel
from tests.simulation.whole.host import PORT, Host
from tests.simulation.whole.loop import NOBODY, PROCESS, Process, VirtualLoop
from tests.simulation.whole.machine import ClientMachine
from tests.simulation.whole.network import Network
from tests.simulation.whole.plan import Plan
from tests.simulation.whole.wire import Wire

TRACE_LINES = 400


class World:
    """See the module's text. `trace`: the last things that happened, with what brokers log."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed = seed
        self.plan = plan = Plan.draw(seed) if plan is None else plan
        self.loop = VirtualLoop()
        self.random = random.Random(f"world {seed}")
        self.wire = Wire()
        self.network = Network(self.loop, random.Random(f"network {seed}"), plan.latency_s, self.wire)
        self.counts: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        voters = tuple(VoterAddress(n, f"b{n}", PORT) for n in range(1, min(plan.brokers, 5) + 1))
        self.hosts = {
            number: Host(
                number,
                self.network,
                voters,
                plan.configs.get(number, {}),
                random.Random(f"host {seed} {number}"),
                plan.sync_ms,
                self.note,
            )
            for number in range(1, plan.brokers + 1)
        }
        for number, rate in plan.clock_rates.items():
            self.hosts[number].clock_rate = rate
        self.clients: dict[str, Process] = {}
        self._failed: asyncio.Future[None] = self.loop.create_future()
        self.loop.connect = self._knock
        self.loop.set_exception_handler(self._unhandled)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host.name}:{PORT}" for host in self.hosts.values())

    def host(self, name: str) -> Host:
        return self.hosts[int(name.removeprefix("b"))]

    @property
    def now_s(self) -> float:
        return self.loop.now_s

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.now_s:10.4f} {text}")

    def count(self, what: str) -> None:
        self.counts[what] += 1

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
        if not self._failed.done():
            self._failed.set_exception(error)

    # -- clients

    def client(self, name: str) -> tuple[Process, ClientMachine]:
        """A new client's process and what it runs on."""
        chance = random.Random(f"client {self.seed} {name}")
        process = self.clients[name] = Process(name, chance.uniform(1e3, 1e7))
        return process, ClientMachine(self.network, process, chance)

    def run_client(self, process: Process, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """What a client's program does. An error that it does not take ends the run."""

        def ended(task: asyncio.Task[None]) -> None:
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
        collects = gc.isenabled()
        gc.disable()  # what a dead process awaits is not collected: see loop.py
        try:
            self.loop.run_until_complete(self._directed(director))
        finally:
            structlog.reset_defaults()
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
        raise structlog.DropEvent


class _Silent:
    """A logger that nobody reads."""

    def __init__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None
