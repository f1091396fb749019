"""One seed: the cluster is founded, faults rage, then they end, and everything must come right again.

    python -m tests.simulation.whole.run --first 1 --seeds 20
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field

from tests.simulation.history import History
from tests.simulation.invariants.violation import Violation
from tests.simulation.whole.faults import Faults
from tests.simulation.whole.judge import check_over, copies_agree
from tests.simulation.whole.plan import Plan
from tests.simulation.whole.workload import Workload
from tests.simulation.whole.world import World

LOOK_S = 0.5


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
    trace: list[str] = field(default_factory=list)


async def direct(world: World, history: History, workload: Workload) -> None:
    """The run, from the outside."""
    plan, faults = world.plan, Faults(world, workload)
    for host in world.hosts.values():
        host.start()
    await workload.make_topics()
    for _ in range(plan.producers):
        workload.add_producer()
    for _ in range(plan.consumers):
        workload.add_consumer()
    await asyncio.sleep(plan.quiet_s)
    await faults.rage(plan.safety_s)
    faults.heal()
    await check_over(world, history, workload, faults)
    for host in world.hosts.values():
        host.stop()
    deadline_s = world.now_s + plan.liveness_s
    while any(host.process is not None for host in world.hosts.values()):
        if world.now_s > deadline_s:
            raise Violation("V19", "a broker that was asked to stop does not end")
        await asyncio.sleep(LOOK_S)
    copies_agree(world, workload)
    if world.unhandled:
        raise world.unhandled[0]


def run_seed(seed: int, plan: Plan | None = None) -> Result:
    """Run a seed to its end, or to the first violation."""
    began_s = time.process_time()
    world, history = World(seed, plan), History()
    workload = Workload(world, history)
    failure = None
    try:
        world.run(direct(world, history, workload))
    except Violation as violation:
        failure = str(violation)
    except Exception as error:
        failure = f"error: {type(error).__name__}: {error}"
        world.trace.extend(traceback.format_exc().splitlines())
    return Result(
        seed=seed,
        failure=failure,
        virtual_s=world.now_s,
        cpu_s=time.process_time() - began_s,
        events=world.loop.events,
        messages=world.network.messages,
        writes={outcome.value: count for outcome, count in history.counts().items()},
        reads=history.read_count,
        faults=dict(world.counts),
        trace=list(world.trace) if failure else [],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    chosen = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names: the same seed is the same run
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        return subprocess.call([sys.executable, "-m", "tests.simulation.whole.run", *sys.argv[1:]], env=environment)
    failures = 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        result = run_seed(seed)
        failures += result.failure is not None
        print(
            f"seed {seed}: {result.failure or 'ok'}; {result.virtual_s:.1f} s in {result.cpu_s:.1f} CPU s, "
            f"{result.events} events, {result.messages} messages, {result.writes}, {result.reads} reads, {result.faults}",
            flush=True,
        )
        if result.failure and chosen.trace:
            print("\n".join(result.trace))
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # what dead processes awaited is never collected


if __name__ == "__main__":
    sys.exit(main())
