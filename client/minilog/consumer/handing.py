"""What polls have taken, and what of it the program has got: docs/spec/replication.md § Reading.

    step                                              where it happens
    a poll begins, and has a number                   the caller
    its runs are taken, positions move behind them    the loop
    it returns, and notes its number as the last      the caller
    thing that it does
    the next call comes: what the poll took whose     the loop
    number is noted counts as handed out; what any
    other took is given back, and comes again

So an exception in a poll moves no position, wherever it rises: in a wait, in decoding, in the making of records or of
Arrow, by a signal or by an error. What a call cannot know is what becomes of its result: an exception that a signal
raises between the return of the call and the assignment of its result, a step or two of the interpreter, finds the
records handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minilog.consumer.partition import Assigned, FetchedRun
from minilog.types import TopicPartition


@dataclass(slots=True)
class Polls:
    """The numbers of one consumer's polls. The caller alone writes them."""

    begun: int = 0
    returned: int = 0

    def begin(self) -> int:
        """The number of the poll that begins."""
        self.begun += 1
        return self.begun

    def are_settled(self) -> bool:
        """Has each poll that began returned?"""
        return self.begun == self.returned


def give_back(
    every: Mapping[TopicPartition, Assigned], runs: Sequence[FetchedRun], next_number: Callable[[], int]
) -> list[Assigned]:
    """The positions are before the runs again, the last that were taken, and the runs are the next to be taken. Returns
    the partitions that have gone elsewhere by themselves meanwhile, such as to the log's start: they are asked for
    anew."""
    astray = []
    for run in reversed(runs):
        assigned = every.get(run.partition)
        if assigned is None or assigned.key != run.key or assigned.position == run.start_offset:
            continue
        first = assigned.runs[0] if assigned.runs else None
        if first is not None and first.end_offset == run.end_offset and first.start_offset == assigned.position:
            assigned.take_run()  # the rest of this one, which was put back already
        if assigned.position == run.end_offset:
            assigned.put_back(run)
        else:
            assigned.place(run.start_offset, next_number())
            assigned.last_epoch = assigned.position_epoch = run.epoch_before
            astray.append(assigned)
    return astray
