"""Wrong rules of leaders, followers and transactions in a partition: V3, V5, V9, V15, V16, V19, 17 and KIP-107."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minilog.errors import NotEnoughReplicas
from minilog_broker.replication import replica
from minilog_broker.replication.follower import partition
from minilog_broker.replication.follower.fetcher import ReplicaFetcher
from minilog_broker.replication.leader import isr_state, produce
from minilog_broker.replication.leader.delete_records import PendingDeleteRecords
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.leader.transaction_markers import TransactionMarkers
from minilog_broker.replication.replica_effects import RecordEpochStart
from minilog_broker.replication.rules import check_position
from minilog_broker.replication.rules.divergence import (
    NO_COMMON_EPOCH,
    Accepted,
    StartAnewAt,
    TruncateTo,
    compare_position,
    truncation,
)
from minilog_broker.replication.rules.in_sync import known_log_start
from minilog_broker.storage import transactions
from tests.rules import Patches


def high_watermark_at_min_members() -> Patches:
    """The high watermark is where min members of the ISR are, not where all of them are."""

    def mutant(
        current: int,
        *,
        own_durable_end: int,
        member_ends: Iterable[int | None],
        joiner_ends: Iterable[int],
        in_sync_count: int,
        min_in_sync: int,
    ) -> int:
        if in_sync_count < min_in_sync:
            return current
        ends = sorted([own_durable_end, *(end or 0 for end in member_ends)], reverse=True)
        return max(current, min(own_durable_end, ends[min_in_sync - 1]))

    return [(isr_state, "next_high_watermark", mutant)]


def known_epoch_is_no_divergence() -> Patches:
    """A position behind a record of an epoch that the leader has is accepted, however far it is."""

    def mutant(epochs: Any, *, log_start: int, log_end: int, fetch_offset: int, last_fetched_epoch: int | None) -> Any:
        is_known = last_fetched_epoch is not None and fetch_offset >= log_start
        if is_known and epochs.end_offset_for(last_fetched_epoch, log_end)[0] == last_fetched_epoch:
            return Accepted()
        return compare_position(
            epochs,
            log_start=log_start,
            log_end=log_end,
            fetch_offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
        )

    return [(check_position, "compare_position", mutant)]


def later_epochs_begin_anew() -> Patches:
    """A follower without an epoch of the leader's begins anew at the leader's log start, although it has all that was
    committed."""

    def mutant(
        epochs: Any, *, log_start: int, log_end: int, diverged: Any, leader_log_start: int
    ) -> TruncateTo | StartAnewAt:
        if epochs.end_offset_for(diverged.epoch, log_end)[0] == NO_COMMON_EPOCH != diverged.epoch:
            return StartAnewAt(leader_log_start)
        return truncation(
            epochs, log_start=log_start, log_end=log_end, diverged=diverged, leader_log_start=leader_log_start
        )

    return [(partition, "truncation", mutant)]


def epoch_begins_at_the_high_watermark() -> Patches:
    """A leader records that its epoch begins at the high watermark: what is above was never committed."""

    def mutant(self: LeaderPartition, now_ms: float) -> None:
        if self.leading or not self.log.settled:
            return
        self.epoch_start = self.log.high_watermark
        self._context.emit(RecordEpochStart(self.key, self.leader_epoch, self.epoch_start))
        self.in_sync = IsrState(self._context, self._state, self.epoch_start, self.log.end, now_ms)
        self.in_sync.log_start = self.log.log_start
        self.leading = True
        self.in_sync.watch_lag(now_ms)
        self._advance(now_ms)
        self.check_subscribers(now_ms)

    return [(LeaderPartition, "lead_when_settled", mutant)]


def nobody_is_put_out() -> Patches:
    """A member that is late stays in the ISR for as long as its broker is not fenced."""
    return [(IsrState, "check_lag", lambda self, log_end, now_ms: None)]


def below_min_is_a_refusal() -> Patches:
    """What was appended, and waits when the ISR falls below min, is refused as if nothing had been written."""
    return [(produce, "NotEnoughReplicasAfterAppend", NotEnoughReplicas)]


def writes_while_its_marker_is_on_its_way() -> Patches:
    """A producer may write until its marker is in the log."""
    return [(TransactionMarkers, "is_ending", lambda self, producer_id: False)]


def aborted_by_markers_in_the_run() -> Patches:
    """A run names the producers whose abort markers it has: those whose markers come behind it are not named."""

    def within(self: Any, from_offset: int, to_offset: int) -> list[int]:
        return [
            producer_id
            for producer_id, marker_offset in zip(self.producer_ids, self.marker_offsets, strict=True)
            if from_offset <= marker_offset < to_offset
        ]

    return [(transactions._Aborted, "within", within)]


def followers_keep_what_was_deleted() -> Patches:
    """A follower's log starts where it always did, whatever its leader has deleted."""
    return [(replica, "advance_log_start", lambda *_: None)]


def eligible_leaders_are_not_asked() -> Patches:
    """Records are deleted when the ISR has deleted them: an eligible leader may have them still."""

    def mutant(self: PendingDeleteRecords, in_sync: IsrState) -> int:
        lives, views = self._context.incarnations, in_sync.views
        members = in_sync.maximal - {self._context.broker_id}
        starts = [known_log_start(views[each], lives.get(each)) if each in views else -1 for each in members]
        return min([self._log.log_start, *starts])

    return [(PendingDeleteRecords, "_low_watermark", mutant)]


def written_bytes_are_given_back_twice() -> Patches:
    """Credit comes back when a run is received, and again when it is written."""
    give_back = ReplicaFetcher.give_back

    def mutant(self: ReplicaFetcher, number: int, size_bytes: int) -> None:
        give_back(self, number, size_bytes)
        give_back(self, number, size_bytes)

    return [(ReplicaFetcher, "give_back", mutant)]
