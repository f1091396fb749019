"""The runs that polls have taken, and those that the program has got: docs/spec/replication.md § Reading.

    step                                                          done by
    a poll begins, and gets a number                              the caller
    it takes runs, and the positions move behind them             the loop
    it returns. Its last act is to note its number                the caller
    the next call comes. The runs of the poll with the noted      the loop
    number count as handed out. Those of any other poll are
    given back, and come again

So an exception in a poll moves no position. It may come from a signal or an error, in a wait, in decoding, or while the
client makes records or Arrow batches. There is one gap. A call cannot know what becomes of its result. If a signal
raises between the return of the call and the assignment of its result, a step or two of the interpreter, the records
count as handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minilog.consumer.partition import Assigned, FetchedRun
from minilog.types import TopicPartition


@dataclass(slots=True)
class Polls:
    """The numbers of one consumer's polls. Only the caller writes them."""

    begun: int = 0
    returned: int = 0

    def begin(self) -> int:
        """The number of the poll that begins."""
        self.begun += 1
        return self.begun

    def are_settled(self) -> bool:
        """Whether each poll that began has returned."""
        return self.begun == self.returned


def give_back(
    by_partition: Mapping[TopicPartition, Assigned], runs: Sequence[FetchedRun], next_number: Callable[[], int]
) -> list[Assigned]:
    """Put the positions before these runs again. They were taken last, and come next. Returns the partitions that have
    gone elsewhere by themselves meanwhile, such as to the log's start. The consumer asks for these again."""
    astray = []
    for run in reversed(runs):
        assigned = by_partition.get(run.partition)
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
