"""The last batch that a worker has read a part of, for each partition: the next lease often has the records behind.

A broker reads and sends whole batches. A lease of 100 records in a batch of some thousands would cost the whole batch
each time. So the worker keeps the last batch of each read that ends within it, and takes the next ranges from there.

A kept batch is as good as one that is read now: both are below the last stable offset, where records do not change. An
unclean election may change them. Therefore a range is taken from a kept batch only if its lease and the lease of the
batch name the same leader epoch. Retention or compaction may have taken a kept record meanwhile. A worker may get such
a record also if it reads just before. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from minilog import compute as pc
from minilog.consumer.decode import BROKEN, decode
from minilog.consumer.partition import FetchedRun
from minilog.errors import ResourceExhausted
from minilog.partition_key import PartitionKey
from minilog.queues.leases import HeldRange
from minilog.record_batch.header import iterate_headers

KEPT_BYTES = 16 * 1024 * 1024  # of all partitions together
_WHOLE = 1 << 62


@dataclass(slots=True)
class _Kept:
    """The offsets from `first` up to `end`, in one batch. `rows`: decoded, when a range was first taken from it."""

    run: FetchedRun
    leader_epoch: int
    first: int
    end: int
    rows: list[pa.RecordBatch] | None = None

    @property
    def size_bytes(self) -> int:
        decoded_bytes: int = sum(rows.nbytes for rows in self.rows or ())
        return len(self.run.batches) + decoded_bytes


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The begin of a range, up to `end`: `rows`, which are rows of `run`."""

    run: FetchedRun
    rows: list[pa.RecordBatch]
    end: int


class KeptBatches:
    """By partition, the one that was kept last at the end."""

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._of: dict[PartitionKey, _Kept] = {}

    def keep(self, run: FetchedRun, leader_epoch: int) -> None:
        """Keep the last batch of a run, if the run ends within it. `leader_epoch`: that of the lease."""
        headers = list(iterate_headers(run.batches))
        if not headers:
            return  # only the rest of rows that are decoded
        (position, header), kept = headers[-1], self._of.get(run.key)
        is_kept = kept is not None and (kept.leader_epoch, kept.end) == (leader_epoch, header.next_offset)
        if run.end_offset >= header.next_offset or is_kept:
            return
        batch = bytes(run.batches[position : position + header.length])  # a part would keep its whole message
        whole = replace(
            run,
            start_offset=header.base_offset,
            end_offset=header.next_offset,
            batches=batch,
            epoch_before=None,
            begun=None,
        )
        self._put(_Kept(whole, leader_epoch, header.base_offset, header.next_offset))

    def rows(self, held: HeldRange) -> KeptRows | None:
        """What is kept of the rest of a range, from its begin on."""
        kept = self._of.get(held.key)
        if kept is None or kept.leader_epoch != held.leader_epoch or not kept.first <= held.read_to < kept.end:
            return None
        if kept.rows is None:
            try:
                kept.rows = decode(kept.run, _WHOLE).rows
            except (*BROKEN, ResourceExhausted):
                del self._of[held.key]  # the broker is asked, and the reader judges its answer
                return None
            self._put(kept)
        end = min(held.last_offset + 1, kept.end)
        return KeptRows(kept.run, list(_between(kept.rows, held.read_to, end)), end)

    def _put(self, kept: _Kept) -> None:
        """Keep it as the newest, and no more of the others than there is room for."""
        self._of.pop(kept.run.key, None)
        self._of[kept.run.key] = kept
        while sum(each.size_bytes for each in self._of.values()) > self._max_bytes:
            del self._of[next(iter(self._of))]


def _between(every: Iterable[pa.RecordBatch], first: int, end: int) -> Iterable[pa.RecordBatch]:
    """The rows with offsets from `first` up to `end`. The offsets are the last column."""
    for rows in every:
        offsets = rows.column(rows.num_columns - 1)
        begin = pc.sum(pc.less(offsets, first)).as_py() or 0
        behind = pc.sum(pc.less(offsets, end)).as_py() or 0
        if begin < behind:
            yield rows.slice(begin, behind - begin)
