"""One seed, run and judged: what `python -m tests.simulation` and the test suite are made of."""

from __future__ import annotations

import time
import traceback
from collections import deque
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.history import History, Outcome
from tests.simulation.invariants.judge import Judge
from tests.simulation.invariants.violation import Violation
from tests.simulation.plan import Plan
from tests.simulation.workload import Workload

TRACE_LINES = 4_000  # of a run, the newest; a failure shows those that matter


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: the rule's number (or "error": the code raised), the message, and the trace of what matters."""

    rule: str
    message: str
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed came to."""

    seed: int
    events: int
    virtual_ms: float
    wall_s: float
    states: dict[str, int]
    faults: dict[str, int]
    outcomes: dict[str, int]
    reads: int
    theme: str | None = None  # that was asked for
    failure: Failure | None = None
    lines: tuple[str, ...] = ()  # of the trace, where one was kept


def run_seed(seed: int, *, trace: bool = False, theme: str | None = None, max_events: int | None = None) -> Result:
    """Run a seed to its end, or to the first violation. The same seed is the same run, traced or not."""
    started_s = time.perf_counter()
    cluster = Cluster(seed, Plan.draw(seed, theme))
    history = History()
    judge = Judge(cluster, history)
    cluster.observers.append(judge)
    lines: deque[str] = deque(maxlen=TRACE_LINES)
    if trace:
        cluster.trace = lines.append
    workload = Workload(cluster, history, judge)
    failure = None
    try:
        while not workload.finished and cluster.step():
            if max_events is not None and cluster.events >= max_events:
                break
        else:
            workload.check_over()
    except Violation as violation:
        failure = Failure(violation.rule, str(violation), _reduced(lines, violation))
    except Exception as error:  # whatever the code raises is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno})"
        failure = Failure("error", message, (*list(lines)[-60:], *traceback.format_exc().splitlines()))
    return Result(
        seed=seed,
        events=cluster.events,
        virtual_ms=cluster.now_ms,
        wall_s=time.perf_counter() - started_s,
        states=dict(judge.states),
        faults=dict(cluster.fault_counts),
        outcomes={
            outcome.value: count for outcome, count in history.counts().items() if outcome is not Outcome.PENDING
        },
        reads=history.read_count,
        theme=theme,
        failure=failure,
        lines=tuple(lines),
    )


def _reduced(lines: deque[str], violation: Violation) -> tuple[str, ...]:
    """The lines that speak of the partition or of the nodes concerned, or of faults; the last ones."""
    names = [f"node {node_id}" for node_id in violation.nodes]
    key = violation.key
    if key is not None:
        names.append(f"partition {key.partition} ")
        names.append(key.topic_id.hex()[:8])
    found = [line for line in lines if "fault" in line or not names or any(name in line for name in names)]
    return tuple(found[-150:])
