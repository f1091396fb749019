"""Wrong rules of what is on the disk when, and of what a start makes of it: V6, V7, V15, V19, 14, 20."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.server.disk import log_directory, metadata_log
from minilog_broker.server.disk.vote_file import open_vote
from minilog_broker.server.shells import replication_shell
from minilog_broker.storage import batch_scan, data_directory, producer_snapshots
from minilog_broker.storage.checkpoint import CheckpointFile
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.transactions import PartitionTransactions
from tests.rules import Patches


def rolled_segment_not_synced() -> Patches:
    """A new segment is begun before the one in front of it is synced: the next sync is of the new one alone."""
    roll = Log._roll

    def mutant(self: Log) -> None:
        with patch.object(Log, "sync", lambda self: None):
            roll(self)

    return [(Log, "_roll", mutant)]


def headers_only() -> Patches:
    """Recovery believes a batch whose header is whole."""
    return [(batch_scan, "check_crc", lambda *_: None)]


def checkpoint_stays_at_a_truncation() -> Patches:
    """A log is cut, and its checkpoint goes on promising what was cut."""
    return [(CheckpointFile, "promises_above", lambda self, end_offset: False)]


def checkpoint_promises_unsynced() -> Patches:
    """A checkpoint records the end of the log for its durable end."""
    write = Log.write_checkpoint

    def mutant(self: Log, log_start: int | None = None, **given: Any) -> None:
        synced, self._synced_end_offset = self._synced_end_offset, self.log_end_offset
        try:
            write(self, log_start, **given)
        finally:
            self._synced_end_offset = synced

    return [(Log, "write_checkpoint", mutant)]


def snapshot_of_what_was_cut() -> Patches:
    """A producer snapshot above the end of a log that was cut stays, and is believed when the log is as long again."""
    return [(producer_snapshots, "replace_later", lambda *_: None)]


def snapshot_is_all() -> Patches:
    """A start takes the newest producer snapshot for the state: what the log has behind it is not read."""

    def mutant(log: Any) -> ProducerState:
        stored, state = log.load_producer_snapshot(), ProducerState()
        try:
            if stored is not None:
                state.restore(stored[1])
                state.log_starts_at(log.log_start_offset)
                return state
        except CorruptFile:
            pass
        return recover_producer_state(log)

    return [(module, "recover_producer_state", mutant) for module in (log_directory, replication_shell)]


def snapshot_forgets_the_aborted() -> Patches:
    """A producer snapshot does not have which transactions were aborted: those behind it are found in the log."""
    from_snapshot = PartitionTransactions.from_snapshot

    def mutant(cls: type[PartitionTransactions], body: bytes) -> PartitionTransactions:
        found = from_snapshot(body)
        found._aborted = None
        return found

    return [(PartitionTransactions, "from_snapshot", classmethod(mutant))]


def clean_stop_outlives_its_life() -> Patches:
    """The mark of a clean stop is read at a start, and stays there."""
    return [(data_directory, "remove_durable_file", lambda *_: None)]


def vote_forgotten_at_a_restart() -> Patches:
    """A voter that starts again knows its epoch, and not whom it has voted for in it."""

    def mutant(*given: Any) -> VoteState:
        return VoteState(open_vote(*given).epoch)

    return [(metadata_log, "open_vote", mutant)]
