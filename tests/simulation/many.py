"""Many seeds at once, each in one of a few processes: runs of the true code, and hunts for mutants."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple

from tests.simulation import mutants, pins
from tests.simulation.run import Result, run_seed

CHUNK = 4  # seeds a process is given at once
HUNT_EVENTS = 25_000  # where a mutant lives longer, the next seed is worth more than the rest of this one


class Hunt(NamedTuple):
    """How a hunt for a mutant ended: after `seeds` runs, with the failing one or none."""

    name: str
    seeds: int
    result: Result | None


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _run_chunk(seeds: list[int], theme: str | None) -> list[Result]:
    """What a process does: a failure is run again with a trace."""
    found = []
    for seed in seeds:
        result = run_seed(seed, theme=theme)
        found.append(run_seed(seed, theme=theme, trace=True) if result.failure is not None else result)
    return found


def run_many(
    first: int, count: int | None, minutes: float | None, processes: int, theme: str | None = None
) -> Iterator[Result]:
    """Results in the order in which they come. `count` None: until `minutes` are over; no seed is begun after that."""
    seeds = itertools.count(first) if count is None else iter(range(first, first + count))
    until_s = time.monotonic() + 60.0 * minutes if minutes else float("inf")
    running: set[Future[list[Result]]] = set()
    with _pool(processes) as pool:
        while True:
            while len(running) <= processes and time.monotonic() < until_s:
                if not (chunk := list(itertools.islice(seeds, CHUNK))):
                    break
                running.add(pool.submit(_run_chunk, chunk, theme))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()


def _hunt(name: str, first: int, seeds: int, until_s: float, theme: str | None) -> Hunt:
    """First only the beginnings of runs are looked at; then, for what shows itself at the end only, some whole ones."""
    short = ((seed, HUNT_EVENTS) for seed in range(first, first + seeds))
    whole = ((seed, None) for seed in range(first, first + seeds // 2))
    with mutants.mutated(name):
        for count, (seed, max_events) in enumerate(itertools.chain(short, whole), start=1):
            result = run_seed(seed, max_events=max_events, theme=theme)
            # What the code raises is found by no judge: see pins.kills.
            judged = result.failure is not None and result.failure.rule != "error"
            if judged and _is_true_code_clean(seed, result.events, theme):
                return Hunt(name, count, result)
            if time.time() > until_s:
                return Hunt(name, count, None)
    return Hunt(name, seeds + seeds // 2, None)


def check_pins(names: list[str], processes: int) -> Iterator[tuple[str, bool]]:
    """Of each mutant, whether its pinned seed still kills it."""
    with _pool(processes) as pool:
        yield from zip(names, pool.map(_pin_kills, names), strict=True)


def _pin_kills(name: str) -> bool:
    return pins.kills(name, pins.load().get(name))


def _is_true_code_clean(seed: int, events: int, theme: str | None) -> bool:
    """A kill counts only where the true rules live on beyond it in the same run."""
    with mutants.unmutated():
        return run_seed(seed, max_events=2 * events, theme=theme).failure is None


def hunt_many(
    names: list[str], first: int, seeds: int, minutes: float | None, processes: int, theme: str | None = None
) -> Iterator[Hunt]:
    """Hunts in the order of `names`, each over the same seeds until one finds the mutant."""
    until_s = time.time() + 60.0 * minutes if minutes else float("inf")
    with _pool(processes) as pool:
        asked = [pool.submit(_hunt, name, first, seeds, until_s, theme) for name in names]
        for future in asked:
            yield future.result()
