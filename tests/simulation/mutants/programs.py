"""Wrong rules of the clients: what is sent again under which number, what is reported, and where reading goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minilog.consumer.core import ConsumerCore
from minilog.consumer.partition import Assigned, FetchedRun
from minilog.consumer.row_selection import RowReaders
from minilog.errors import Closed, MinilogError
from minilog.net.metadata_cache import CachedTopic, LeaderAndEpoch, MetadataCache
from minilog.partition_key import PartitionKey
from minilog.producer import sender as sender_module
from minilog.producer.batch import Batch
from minilog.producer.lane import Lane, sequence_after
from minilog.producer.outcomes import unknown
from minilog.producer.sender import Sender
from minilog.typed.rows.reader import TypedReader
from tests.rules import Patches

# -- producers


def unknown_goes_out_under_another_id() -> Patches:
    """An unknown outcome is one batch's own: those behind it go out under the new producer id, written or not."""

    def mutant(self: Sender, lane: Lane, error: MinilogError) -> None:
        first = lane.batches[0]
        kept = []
        for batch in lane.put_back_unwritten():
            if batch.correlation_id is not None:
                self._out.pop(batch.correlation_id, None)
                batch.correlation_id = None
            if batch is first:
                self._fail(batch, unknown(batch, error))
            else:
                kept.append(batch)
        lane.waiting.extendleft(reversed(kept))
        self.identity.give_up(error)

    return [(Sender, "_give_up_lane", mutant)]


def last_attempt_counts() -> Patches:
    """Whether a batch may have been written is a matter of its last attempt."""
    send = Sender._send

    def mutant(self: Sender, lane: Lane, batch: Batch, *rest: Any) -> None:
        batch.maybe_written = False
        send(self, lane, batch, *rest)

    return [(Sender, "_send", mutant)]


def sent_again_is_numbered_anew() -> Patches:
    """A batch that is sent again gets the next sequence."""
    send = Sender._send

    def mutant(self: Sender, lane: Lane, batch: Batch, *rest: Any) -> None:
        if batch.attempts and self._config.enable_idempotence:
            transactional = self.identity.transaction is not None
            batch.encode("none", batch.producer, lane.next_sequence, 0, transactional=transactional)
            lane.next_sequence = sequence_after(lane.next_sequence, batch.record_count)
        send(self, lane, batch, *rest)

    return [(Sender, "_send", mutant)]


def refusals_teach_nothing() -> Patches:
    """A leader that refuses what it does not lead is asked again, and nobody looks for another."""
    return [(sender_module, "_learn", lambda *_: False)]


def closed_with_what_is_out() -> Patches:
    """What is out when a producer closes counts as not written: its answer never came."""

    def mutant(batch: Batch) -> MinilogError:
        closed = Closed(f"{batch} were not written: the producer was closed")
        return unknown(batch, closed) if batch.maybe_written else closed

    return [(sender_module, "at_close", mutant)]


# -- consumers, and what both know


def older_metadata_is_believed() -> Patches:
    """Who leads is what was told last, of whatever epoch."""

    def mutant(self: MetadataCache, key: PartitionKey, leader: LeaderAndEpoch) -> bool:
        if self._leaders.get(key) == leader:
            return False
        self._leaders[key] = leader
        return True

    return [(MetadataCache, "learn_leader", mutant)]


def damaged_run_is_skipped() -> Patches:
    """A run that cannot be decoded is passed over: reading goes on behind it."""

    def mutant(self: ConsumerCore, corrupt: Sequence[tuple[FetchedRun, MinilogError]], now_ms: float) -> None:
        for run, _ in corrupt:
            assigned = self._assigned.get(run.partition)
            if assigned is not None and assigned.key == run.key:
                assigned.place(run.end_offset, self._next_number())

    return [(ConsumerCore, "runs_are_corrupt", mutant)]


def broken_runs_are_set_back_in_turn() -> Patches:
    """One broken run is looked into before the next is set back (seed 1300006)."""
    together = ConsumerCore.runs_are_corrupt

    def mutant(self: ConsumerCore, corrupt: Sequence[tuple[FetchedRun, Any]], now_ms: float) -> None:
        for each in corrupt:
            together(self, [each], now_ms)

    return [(ConsumerCore, "runs_are_corrupt", mutant)]


def reader_is_bound_anew() -> Patches:
    """A reader whose topic has another version of its schema looks its columns up by name again."""
    reader = RowReaders.reader

    def mutant(self: RowReaders, topic: CachedTopic) -> TypedReader | None:
        found = self._readers.get(topic.topic_id)
        if found is not None and found.schemas is not topic.schemas:
            del self._readers[topic.topic_id]
        return reader(self, topic)

    return [(RowReaders, "reader", mutant)]


def dropped_runs_cost_credit() -> Patches:
    """What is dropped unread is not given back: it was not taken."""

    def mutant(self: Assigned) -> None:
        self.runs.clear()

    return [(Assigned, "drop_runs", mutant)]


def reset_goes_back() -> Patches:
    """Who is below the log start begins again at the earliest offset of whoever leads by then."""
    begin = Assigned.begin_reset

    def mutant(self: Assigned, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.not_below = 0

    return [(Assigned, "begin_reset", mutant)]
