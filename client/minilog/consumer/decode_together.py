"""Decodes several runs at the same time by threads, with the outcome of `decode_all`. The threads are
those of the caller's executor.

Arrow decompresses, validates and filters without Python's lock. Runs of one partition stay in their order. If a run is
broken, or is not decoded to its end, the later runs of its partition do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from minilog.consumer.decode import BROKEN, Broken, Decoded, DecodeOutcome, decode
from minilog.consumer.partition import FetchedRun
from minilog.types import TopicPartition


def decode_together(runs: Sequence[FetchedRun], max_bytes: int, executor: Executor) -> DecodeOutcome:
    """Decode about `max_bytes` of rows of each run at most. Raises ResourceExhausted."""
    outcome, closed = DecodeOutcome([], [], []), set[TopicPartition]()
    broken = set[TopicPartition]()
    results = map(_attempt(max_bytes), runs) if len(runs) == 1 else executor.map(_attempt(max_bytes), runs)
    for run, result in zip(runs, results, strict=True):
        if run.partition in broken:
            continue
        if run.partition in closed:
            outcome.rest.append(run)
        elif isinstance(result, Decoded):
            outcome.good.append((run, result.rows))
            if result.rest is not None:
                closed.add(run.partition)
                outcome.rest.append(result.rest)
        else:
            broken.add(run.partition)
            outcome.corrupt.append((run, result))
    return outcome


def _attempt(max_bytes: int) -> Callable[[FetchedRun], Decoded | Broken]:
    def attempt(run: FetchedRun) -> Decoded | Broken:
        try:
            return decode(run, max_bytes)
        except BROKEN as error:
            return error

    return attempt
