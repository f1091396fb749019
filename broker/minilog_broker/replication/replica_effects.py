"""Effects: the work that the replication cores ask of the shell. It carries them out in order and answers with events.

    effect                          answered by (a method of ReplicaManager)
    AppendToLog                     log_appended, then log_flushed when durable; or log_failed
    RecoverLog                      log_opened; or log_failed
    CheckCopy                       copy_checked, always
    ConfigureLog                    log_configured; or log_failed
    RecordEpochStart                -: the disk thread does it, durably, before later commands
    ForgetTornTail                  -; or log_failed
    TruncateLog, StartLogAt         log_truncated; or log_failed
    AbortUnmarked                   transactions_aborted; or log_failed
    BeginCompaction                 -; or log_failed. The cleaner finds the log by its checkpoint
    ProposeInSyncReplicas           proposal_answered, or proposal_lost
    RegisterPartition               registered, once
    FindEnds                        ends_found; or log_failed, log_damaged
    FindBatch                       batch_found; or log_damaged
    ReadRun                         run_read, or read_failed: once, in any order
    BeganToLead, HighWatermarkMoved, StoppedLeading
                                    -; for a partition of an internal topic: a coordinator lives beside each
    StableOffsetMoved               -; the shell wakes the calls that wait for it
    AnswerProduce, AnswerMarkers, SessionReady, FetcherStreamReady, OpenFetcherStream, CloseFetcherStream
                                    the docstring of the effect names the event

"Appended" and "flushed" are two events. The first makes records readable for followers. Only the second counts for the
high watermark and for progress. The shell carries out all commands for one log in the order of the effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minilog.errors import MinilogError, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.transactions import OffsetRange


@dataclass(frozen=True, slots=True)
class PlacedBatches:
    """Contiguous batches with their offsets and leader epochs, for Log.append. The `buffers`, one after another, are
    the bytes of the batches whose headers are `headers`."""

    headers: tuple[BatchHeader, ...]
    buffers: tuple[Buffer, ...]

    @property
    def first_offset(self) -> int:
        return self.headers[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.headers[-1].next_offset


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Create the log of a new replica. log_opened is the answer. The broker opens existing logs before it registers."""

    key: PartitionKey
    topic_name: str
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class RecoverLog:
    """Read all of a log, and cut it at the damage. A read in this life has met damage, and the controller knows it.

    `differs_from` is an offset: cut the log there in any case, because most copies have other records from there on."""

    key: PartitionKey
    config: TopicConfig
    differs_from: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetTornTail:
    """Remove the mark that recovery has cut the tail of the log. The replica is in an ISR under a leader now."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class ConfigureLog:
    """Give the log the topic's new configuration (Log.configure). log_configured is the answer."""

    key: PartitionKey
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Close the log of a deleted topic, set its directory aside, and delete that after delete.delay.ms."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class CheckCopy:
    """Check the checksums of about `max_bytes` of batches from `offset` on (storage.copy_check). copy_checked is the
    answer, also if the log failed or was closed."""

    key: PartitionKey
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class RecordEpochStart:
    """Record durably, before the first append of a leader's epoch, that the epoch starts at `start_offset`."""

    key: PartitionKey
    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append, and then fdatasync (grouped with others) if the topic's flush policy is fsync."""

    key: PartitionKey
    batches: PlacedBatches


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log to `end_offset` (a batch boundary), durably.

    `committed_lost`: the number of offsets below our high watermark that the cut drops. It is above 0 only if the
    leader lacks committed records: after an unclean election, or if its disk came back older than it was. The shell
    logs that as an error.
    """

    key: PartitionKey
    end_offset: int
    committed_lost: int = 0


@dataclass(frozen=True, slots=True)
class StartLogAt:
    """Drop all records, and start an empty log at `offset`. The leader's log begins above our end, or has no epoch in
    common with ours. `committed_lost` has the meaning of TruncateLog."""

    key: PartitionKey
    offset: int
    committed_lost: int = 0


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Delete the records below `offset` (Log.advance_log_start). log_start_moved is the answer, when that is durable.

    Before the deletion the disk stores the producer state as of `snapshot_offset`, because the rest of the log does not
    show all of it (KAFKA-7190). If there is no space for the state, it deletes all the same, because that makes space.
    """

    key: PartitionKey
    offset: int
    snapshot_offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class BeginCompaction:
    """Store the producer state as of `snapshot_offset`, and then record that compaction to `point` begins
    (Log.begin_compaction). The cleaner then rewrites the segments (server/background/cleaner.py)."""

    key: PartitionKey
    point: CompactionPoint
    snapshot_offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class WriteProducerSnapshot:
    """Store the producer state as of `offset`, so that a restart need not read the whole log."""

    key: PartitionKey
    offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class AbortUnmarked:
    """Store the producer state as of `offset`, in which the open transactions that began below `below` are aborted. The
    answer is transactions_aborted."""

    key: PartitionKey
    below: int
    offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class AnswerProduce:
    """Answer one produce entry. If `error` is None, the batch is acknowledged at `base_offset`. After an UnknownOutcome
    the batch may be written all the same."""

    ticket: object
    error: MinilogError | None
    base_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndMarker:
    """One producer's end. `last_sequence` is the last one of a committed producer, -1 if it wrote nothing in this
    partition."""

    producer_id: int
    committed: bool
    last_sequence: int


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Search the log for the markers of these producers (storage.find_ends). ends_found with `number` is the answer."""

    number: int
    key: PartitionKey
    producer_ids: frozenset[int]
    within: OffsetRange


@dataclass(frozen=True, slots=True)
class FindBatch:
    """Look up the base offset of the batch around `offset` (Log.batch_base). batch_found is the answer, with
    `leader_epoch`."""

    key: PartitionKey
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class AnswerMarkers:
    """Answer one call of write_markers. If `error` is None, all of its markers are below the high watermark."""

    ticket: object
    error: MinilogError | None


@dataclass(frozen=True, slots=True)
class AnswerDeleteRecords:
    """Answer one call of delete_records. If `error` is None, no record below `low_watermark` comes back under any later
    leader."""

    ticket: object
    error: MinilogError | None
    low_watermark: int


@dataclass(frozen=True, slots=True)
class RegisterPartition:
    """Ask the coordinator of the transactional id whether the producer may write here (RegisterPartitions).

    `number` goes back with `registered`. The shell asks again after pauses while `is_registering(key, number)`."""

    number: int
    key: PartitionKey
    transactional_id: str
    producer_id: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadRun:
    """Read whole batches for a session. run_read or read_failed is the answer. storage.run_reads chooses the batches.

    The shell reads a run from `next_read` at once, or answers run_not_in_memory if it would have to wait for the disk.
    A run that comes as an effect may wait. Meanwhile the session may drop the position, or the log may be cut (`cuts`
    is the number of cuts until the question). Then the session ignores the run."""

    session_id: int
    key: PartitionKey
    position_number: int
    cuts: int
    offset: int
    max_bytes: int
    end_offset: int
    readable_end: int


@dataclass(frozen=True, slots=True)
class SessionReady:
    """A consumer's or follower's session has a message to send. The shell takes it by next_message(session_id)."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """Refuse a session as a whole: send the error, and then close the stream."""

    session_id: int
    error: MinilogError


@dataclass(frozen=True, slots=True)
class OpenFetcherStream:
    """Open a Replicate stream to `leader_id` at its BrokerIncarnation. fetcher_stream_opened is the answer. For a
    broken or refused stream it is fetcher_stream_closed, and the core asks again after a pause."""

    leader_id: int
    broker_epoch: int  # the leader's life


@dataclass(frozen=True, slots=True)
class CloseFetcherStream:
    """Close the stream to a leader, because no partition here follows it any more."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class FetcherStreamReady:
    """There is a request for a leader. The shell takes it by next_request(leader_id)."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class ProposeInSyncReplicas:
    """Ask the controller for this ISR. `members` are (broker id, broker epoch), all from one snapshot, with the leader
    among them."""

    key: PartitionKey
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartitionOffline:
    """Report to the controller with the next heartbeat that the copy is offline, because of an I/O error or damage. The
    disk writes nothing more to the log."""

    key: PartitionKey
    reason: str
    damaged: bool = False  # a batch differs from the one that was written: the shell records that for the next start


@dataclass(frozen=True, slots=True)
class LaterVersionMet:
    """End the broker, and leave all files as they are, because a later version wrote a batch in a log or on its way
    there."""

    key: PartitionKey
    error: UnsupportedVersion


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """The controller's answer to a proposal, with an error if the controller refused it. The decision comes as
    metadata, together with the configuration that belongs to it. An answer may be old, or come from a deposed
    controller."""

    error: MinilogError | None


@dataclass(frozen=True, slots=True)
class BeganToLead:
    """A leader epoch began here, or appends of it were dropped. The coordinator forgets all its state, and loads the
    log up to `log_end`.

    From `log_end` on the log has only the batches of `append_own`."""

    key: PartitionKey
    topic_name: str
    leader_epoch: int
    log_end: int


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """All records below `offset` are committed, by the leader of `leader_epoch`. The effect also follows each
    BeganToLead. The coordinator answers the calls that waited for it."""

    key: PartitionKey
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class StoppedLeading:
    """The epoch is over here. The log takes no appends, and the broker learns of no more commits. The coordinator
    forgets all its state."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class StableOffsetMoved:
    """Ask again for the stable offset of a watched partition (ReplicaManager.stable_offset). Its high watermark or its
    log start moved, or this broker begins to know its end as the leader, or leads it no more."""

    key: PartitionKey


LeadershipEffect: TypeAlias = BeganToLead | HighWatermarkMoved | StoppedLeading

Effect: TypeAlias = (
    OpenLog
    | RecoverLog
    | CheckCopy
    | ForgetTornTail
    | ConfigureLog
    | DeleteLog
    | RecordEpochStart
    | AppendToLog
    | TruncateLog
    | StartLogAt
    | AdvanceLogStart
    | BeginCompaction
    | WriteProducerSnapshot
    | AbortUnmarked
    | AnswerProduce
    | FindEnds
    | FindBatch
    | AnswerMarkers
    | AnswerDeleteRecords
    | RegisterPartition
    | ReadRun
    | SessionReady
    | SessionRefused
    | OpenFetcherStream
    | CloseFetcherStream
    | FetcherStreamReady
    | ProposeInSyncReplicas
    | PartitionOffline
    | LaterVersionMet
    | StableOffsetMoved
    | LeadershipEffect
)
