"""One seed: the cluster is founded, faults rage, then they end, and everything must come right again."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import hashlib
import multiprocessing
import os
import random
import secrets
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from typing import Any, TypeVar

from tests.judges.violation import Violation
from tests.rules import mutated
from tests.rules.table import SIMULATION
from tests.simulation.clients.counting import Counting
from tests.simulation.clients.history import History
from tests.simulation.clients.proposing import Proposing, check_proposing
from tests.simulation.clients.queries import Queries
from tests.simulation.clients.queuing import Queuing
from tests.simulation.clients.sharing import Sharing
from tests.simulation.clients.transacting import Transacting
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.faults import Faults
from tests.simulation.judge import (
    Judge,
    check_filtered,
    check_forged,
    check_over,
    check_queries,
    check_queuing,
    check_sharing,
    check_transactions,
    coordinator_state,
    copies_agree,
    lives_of,
    recovery_s,
    watch,
)
from tests.simulation.judge.exceptions import Exceptions
from tests.simulation.judge.scrubbing import Scrubbing
from tests.simulation.plan import Plan

LOOK_S = 0.5
ENDS_WITHIN_S = 3_600.0  # of virtual time: all waits together are far below it
_T = TypeVar("_T")
SEEDS_PER_PROCESS = 3  # what dead processes awaited is never collected


@dataclass(slots=True)
class Result:
    seed: int
    failure: str | None
    virtual_s: float
    cpu_s: float
    events: int
    messages: int
    writes: dict[str, int]
    reads: int
    faults: dict[str, int]
    digest: str
    """Of what clients were told: equal for equal runs."""
    trace: list[str] = field(default_factory=list)


async def direct(cluster: SimulatedCluster, history: History, workload: Workload, transacting: Transacting) -> None:
    """The run, from the outside."""
    plan, faults, judge = cluster.plan, Faults(cluster, workload, transacting), Judge(cluster)
    history.may_miss, transacting.may_miss = judge.compaction.may_miss, judge.compaction.may_miss_value
    judge.compaction.trimmed = workload.trimmed
    looking = asyncio.get_running_loop().create_task(judge.watch())
    for host in cluster.hosts.values():
        host.start()
    await workload.make_topics()
    for _ in range(plan.producers):
        workload.add_producer()
    for _ in range(plan.consumers):
        workload.add_consumer()
    for _ in range(plan.filtered):
        workload.filtered_readers().add_reader()
    for number in range(plan.writers):
        transacting.add_writer(f"w{number}")
    if plan.writers:
        transacting.add_reader()
    sharing = Sharing(cluster, workload, lambda: coordinator_state(judge))
    if plan.sharing:
        sharing.begin()
    queuing = Queuing(cluster, workload, history, transacting)
    if plan.redriving:
        queuing.deliveries.lives = lives_of(queuing, judge)
    if plan.queuing:
        await queuing.begin()
    proposing = Proposing(cluster, workload)
    if plan.proposing:
        proposing.begin()
    if plan.counting:
        Counting(cluster, workload).begin()
    if workload.guest is not None:
        workload.guest.begin()
    if workload.forger is not None:
        workload.forger.begin()
    if workload.subjects is not None:
        workload.subjects.begin()
    if workload.glutton is not None:
        workload.glutton.begin()
    queries = Queries(cluster, workload, judge.is_marked)
    if plan.queries:
        queries.add_reader()
    await asyncio.sleep(plan.quiet_s)
    exceptions = Exceptions(cluster, workload, history)
    Scrubbing(cluster)
    watching = asyncio.get_running_loop().create_task(watch(cluster, workload, exceptions, judge))
    await _unless(watching, faults.rage(plan.safety_s))
    faults.heal()
    watching.cancel()
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            await _come_right(
                cluster,
                history,
                workload,
                transacting,
                _Checked(faults, judge, exceptions, queries, sharing, queuing, proposing),
            )
    except TimeoutError as error:
        raise Violation("V19", f"{ENDS_WITHIN_S:.0f} s after the last fault the run has not come to its end") from error
    looking.cancel()
    copies_agree(cluster, workload, faults, judge.compaction.clean_to)


@dataclass(frozen=True, slots=True)
class _Checked:
    """What the end of a run is judged by."""

    faults: Faults
    judge: Judge
    exceptions: Exceptions
    queries: Queries
    sharing: Sharing
    queuing: Queuing
    proposing: Proposing


async def _come_right(
    cluster: SimulatedCluster, history: History, workload: Workload, transacting: Transacting, checked: _Checked
) -> None:
    """Behind the last fault: all is well again, and stops when it is asked to."""
    plan, faults, judge, exceptions = cluster.plan, checked.faults, checked.judge, checked.exceptions
    if "decommission" in plan.faults:
        await workload.uncordon(judge.retirement)
        await judge.retirement.check_empty()
    if plan.moves:
        await workload.look_at_replicas()
    if "forge" in plan.faults:
        await check_forged(cluster, faults)
    await check_over(cluster, history, workload, faults, exceptions, judge.lag.kept_out_s)
    if plan.typed and not plan.compacted:  # what a reader of some rows misses may be compacted
        await check_filtered(cluster, history, workload, faults, exceptions)
    if plan.silent_partitions:
        judge.check_all_led()
    if "settings" in plan.faults and not plan.outage:
        await judge.settings.check(cluster, workload)
    if workload.guest is not None and not plan.outage:
        await workload.guest.check()
    if workload.subjects is not None and judge.rights is not None and not plan.outage:
        await workload.subjects.check(judge.rights)
    if plan.writers:
        await check_transactions(cluster, transacting, faults)
    if plan.queries:
        await check_queries(cluster, checked.queries, faults)
    if plan.proposing:
        await check_proposing(cluster, checked.proposing, faults)
    if plan.sharing:
        await check_sharing(cluster, checked.sharing, faults)
    if judge.queues is not None:
        await check_queuing(cluster, checked.queuing, judge, faults)
    if plan.compacted:
        await workload.enable_cleaners(judge.settings)
        await judge.compaction.check_over(faults)
    judge.answers.check_over()
    for host in cluster.hosts.values():
        host.stop()
    deadline_s = cluster.now_s + plan.liveness_s + recovery_s(cluster)
    while any(host.process is not None for host in cluster.hosts.values()):
        if cluster.now_s > deadline_s:
            raise Violation("V19", "a broker that was asked to stop does not end")
        await asyncio.sleep(LOOK_S)


async def _unless(watching: asyncio.Task[None], raging: Coroutine[Any, Any, None]) -> None:
    """The faults, or what the watch raises meanwhile."""
    task = asyncio.ensure_future(raging)
    await asyncio.wait((watching, task), return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        task.cancel()
        watching.result()
    task.result()


@contextlib.contextmanager
def _drawn_secrets(seed: int) -> Iterator[None]:
    """Nonces, sessions, salts and the ids of tokens are those of the seed, too: what is kept by them stands in their
    order."""
    chance, former = random.Random(f"secrets {seed}"), (secrets.token_bytes, os.urandom)

    def drawn(nbytes: int | None = None) -> bytes:
        return chance.randbytes(32 if nbytes is None else nbytes)

    secrets.token_bytes = os.urandom = drawn
    try:
        yield
    finally:
        secrets.token_bytes, os.urandom = former


def run_seed(seed: int, plan: Plan | None = None) -> Result:
    """Run a seed to its end, or to the first violation."""
    began_s = time.process_time()
    cluster, history = SimulatedCluster(seed, plan), History()
    workload = Workload(cluster, history)
    transacting = Transacting(cluster, workload)
    failure = None
    try:
        with _drawn_secrets(seed):
            cluster.run(direct(cluster, history, workload, transacting))
    except Violation as violation:
        failure = str(violation)
    except Exception as error:
        failure = f"error: {type(error).__name__}: {error}"
        cluster.trace.extend(traceback.format_exc().splitlines())
    return Result(
        seed=seed,
        failure=failure,
        virtual_s=cluster.now_s,
        cpu_s=time.process_time() - began_s,
        events=cluster.loop.events,
        messages=cluster.network.messages,
        writes={outcome.value: count for outcome, count in history.counts().items()},
        reads=history.read_count,
        faults=dict(cluster.counts) | (transacting.counts() if cluster.plan.writers else {}),
        digest=_digest(history),
        trace=list(cluster.trace) if failure else [],
    )


def _digest(history: History) -> str:
    told = [(value, write.outcome.value, write.offset, write.ended_ms) for value, write in history.writes.items()]
    return hashlib.sha256(repr((told, history.read_count)).encode()).hexdigest()[:16]


def run_many(
    seeds: Sequence[int],
    processes: int,
    mutant: str | None = None,
    theme: str | None = None,
    plan: Plan | None = None,
) -> Iterator[Result]:
    """Results in the order of the seeds; all of `theme`, or by the same `plan`, where one is given."""
    yield from run_each([(seed, mutant) for seed in seeds], processes, theme, plan)


def run_each(
    runs: Sequence[tuple[int, str | None]], processes: int, theme: str | None = None, plan: Plan | None = None
) -> Iterator[Result]:
    """The same of many seeds, each with a wrong rule or with none."""
    with _processes().Pool(processes, _leave_at_once, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap(functools.partial(_run, theme=theme, plan=plan), runs)


def apart(work: Callable[[], _T]) -> _T:
    """What the work returns, done in a process of its own; it and what it returns can be pickled."""
    with _processes().Pool(1, _leave_at_once) as pool:
        return pool.apply(work)


def _processes() -> ForkServerContext:
    """Processes that begin with all modules imported: importing them costs a third of a seed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _leave_at_once() -> None:
    """What dead processes awaited is not collected between runs, nor at the end."""
    gc.disable()
    atexit.register(os._exit, 0)


def _run(run: tuple[int, str | None], *, theme: str | None, plan: Plan | None) -> Result:
    seed, mutant = run
    with mutated(SIMULATION[mutant] if mutant else None):
        return run_seed(seed, Plan.draw(seed, theme) if plan is None else plan)
