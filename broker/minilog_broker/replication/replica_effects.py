"""Effects: what the replication cores ask of the shell. The shell carries them out in order and answers with events.

    effect                          answered by (a method of ReplicaManager)
    AppendToLog                     log_appended, then log_flushed when durable; or log_failed
    RecoverLog                      log_opened; or log_failed
    CheckCopy                       copy_checked, always
    ConfigureLog                    log_configured; or log_failed
    RecordEpochStart                log_flushed is not awaited: the disk thread does it, durably, before what follows
    ForgetTornTail                  -; or log_failed
    TruncateLog, StartLogAt         log_truncated; or log_failed
    ProposeInSyncReplicas           proposal_answered, or proposal_lost
    RegisterPartition               registered, once
    FindEnds                        ends_found; or log_failed, log_damaged
    FindBatch                       batch_found; or log_damaged
    ReadRun                         run_read, or read_failed: once, in whatever order
    BeganToLead, HighWatermarkMoved, StoppedLeading
                                    -; told of an internal topic's partition: a coordinator lives beside each
    AnswerProduce, AnswerMarkers, SessionReady, FetcherStreamReady, OpenFetcherStream, CloseFetcherStream: see each

"Appended" and "flushed" are two events: the first makes records readable for followers, only the second counts for
the high watermark and for progress. All commands for one log are carried out in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minilog.errors import MinilogError, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.storage.transactions import OffsetRange


@dataclass(frozen=True, slots=True)
class PlacedBatches:
    """Batches with their offsets and leader epochs set, contiguous: `buffers` written one after another are the bytes
    of `headers`, one batch per header. What Log.append takes."""

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
    """Create the log of a new replica (an existing one was opened before registration): answered by log_opened."""

    key: PartitionKey
    topic_name: str
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class RecoverLog:
    """Read all of a log, and cut it at the damage. A read of this life has found damage, and the controller knows it.

    `differs_from`: cut it here in any case, for most copies have other records from here on."""

    key: PartitionKey
    config: TopicConfig
    differs_from: int | None = None


@dataclass(frozen=True, slots=True)
class ForgetTornTail:
    """The replica is in an ISR under a leader: that the tail of its log was cut at the start matters no more."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class ConfigureLog:
    """The topic has another configuration than the log was given before (Log.configure): answered by log_configured."""

    key: PartitionKey
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """The topic is gone: close the log, rename its directory aside, delete it after delete.delay.ms."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class CheckCopy:
    """Sum up the batches from `offset` on, about `max_bytes` of them (storage.copy_check): answered by copy_checked,
    also where the log failed or was let go."""

    key: PartitionKey
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class RecordEpochStart:
    """A leader's epoch starts at `start_offset`: durable before the first append of the epoch."""

    key: PartitionKey
    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Append; then, where the topic's flush policy says so, fdatasync (grouped with others)."""

    key: PartitionKey
    batches: PlacedBatches


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log to `end_offset` (a batch boundary), durably.

    `committed_lost`: how many offsets go that were below our high watermark. Not 0 only where the leader lacks what was
    committed: after an unclean election, or one whose disk came back older than it was. To be told loudly.
    """

    key: PartitionKey
    end_offset: int
    committed_lost: int = 0


@dataclass(frozen=True, slots=True)
class StartLogAt:
    """Drop everything and start anew, empty, at `offset`: the leader's log begins above our end, or has nothing in
    common with ours. `committed_lost` as in TruncateLog."""

    key: PartitionKey
    offset: int
    committed_lost: int = 0


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Records below `offset` are to go (Log.advance_log_start): answered by log_start_moved, when that is durable.

    Before, store the producer state as of `snapshot_offset`: the log will not tell all of it any more (KAFKA-7190). A
    disk without space for that must not keep anybody from making some."""

    key: PartitionKey
    offset: int
    snapshot_offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class WriteProducerSnapshot:
    """Store the producer state as of `offset`, so that a restart need not read the whole log."""

    key: PartitionKey
    offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class AnswerProduce:
    """Answer one produce entry. `error` None: acknowledged at `base_offset`. An UnknownOutcome is never a failure."""

    ticket: object
    error: MinilogError | None
    base_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndMarker:
    """One producer's end. `last_sequence`: of a committed one, -1 where it wrote nothing in this partition."""

    producer_id: int
    committed: bool
    last_sequence: int


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Look for the markers of these producers in the log (storage.find_ends), and say ends_found with `number`."""

    number: int
    key: PartitionKey
    producer_ids: frozenset[int]
    within: OffsetRange


@dataclass(frozen=True, slots=True)
class FindBatch:
    """Look where the batch around `offset` begins (Log.batch_base), and say batch_found with `leader_epoch`."""

    key: PartitionKey
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class AnswerMarkers:
    """Answer one call of write_markers. `error` None: all of its markers are below the high watermark."""

    ticket: object
    error: MinilogError | None


@dataclass(frozen=True, slots=True)
class AnswerDeleteRecords:
    """Answer one call of delete_records. `error` None: nothing below `low_watermark` comes back, whoever leads."""

    ticket: object
    error: MinilogError | None
    low_watermark: int


@dataclass(frozen=True, slots=True)
class RegisterPartition:
    """Ask the coordinator of the transactional id whether the producer may write here (RegisterPartitions).

    `number` goes back with `registered`. To be asked again, with pauses, as long as `is_registering(key, number)`."""

    number: int
    key: PartitionKey
    transactional_id: str
    producer_id: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadRun:
    """Read whole batches for a session, and say run_read with them, or read_failed (storage.run_reads says which ones).

    Taken by `next_read` it is to be read at once: where it would have to be waited for, run_not_in_memory says so. As
    an effect it may wait: meanwhile the position may be given up, and the log be cut (`cuts`: how often it was till
    then). What is read is then of no use, and is not looked at."""

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
    """A consumer's or follower's session on this leader has something to say: take it by next_message(session_id)."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The session as a whole is refused: send the error, then close the stream."""

    session_id: int
    error: MinilogError


@dataclass(frozen=True, slots=True)
class OpenFetcherStream:
    """Open a Replicate stream to `leader_id` (as BrokerIncarnation.host/port tell): answered by fetcher_stream_opened;
    a broken or refused stream is answered by fetcher_stream_closed, and asked for again by the core when due."""

    leader_id: int
    broker_epoch: int  # the leader's life


@dataclass(frozen=True, slots=True)
class CloseFetcherStream:
    """No partition follows this leader any more."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class FetcherStreamReady:
    """There is something to tell a leader: take it by next_request(leader_id)."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class ProposeInSyncReplicas:
    """Ask the controller. `members` are (broker id, broker epoch), all from one snapshot; the leader is among them."""

    key: PartitionKey
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PartitionOffline:
    """An I/O error or a damaged copy: tell the controller with the next heartbeat; nothing is written to the log."""

    key: PartitionKey
    reason: str
    damaged: bool = False  # a batch in the log is not what was written: to be recorded, so that a restart knows


@dataclass(frozen=True, slots=True)
class LaterVersionMet:
    """A batch, in this broker's log or on its way into it, was written by a later version: the broker ends, and leaves
    all as it is."""

    key: PartitionKey
    error: UnsupportedVersion


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """The controller's answer to a proposal: an error where it was refused. What became of it comes as metadata, with
    the configuration it was decided under: an answer may be old, or of a controller that is deposed."""

    error: MinilogError | None


@dataclass(frozen=True, slots=True)
class BeganToLead:
    """A leader epoch began here, or appends of it were dropped: the coordinator forgets all, and loads up to `log_end`.

    From `log_end` on the log has what is appended by `append_own`, and nothing else."""

    key: PartitionKey
    topic_name: str
    leader_epoch: int
    log_end: int


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """All below `offset` is committed, says the leader of `leader_epoch`; also behind each BeganToLead. The coordinator
    answers what waited for it."""

    key: PartitionKey
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class StoppedLeading:
    """The epoch is over here: nothing is appended any more, and nothing more is known to be committed. The coordinator
    forgets all."""

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
    | WriteProducerSnapshot
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
    | LeadershipEffect
)
