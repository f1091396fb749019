"""Effects of the quorum: those of replication for the metadata log (key METADATA_KEY), votes, and snapshots.

    effect                                   answered by (a method of QuorumNode)
    PersistVote                              vote_persisted, once it is durable; nothing of the epoch goes out before
    SendVote                                 vote_answered, or vote_unanswered (refused connection, time-out)
    AnswerVote                               nothing: it answers vote_request(ticket, ...)
    SendBeginQuorumEpoch                     begin_epoch_answered (response None: no answer)
    OpenFetcherStream, CloseFetcherStream    fetcher_stream_opened, fetcher_stream_closed; one stream at a time
    FetchSnapshot                            snapshot_fetched, once it is whole and durable; or snapshot_unfetched
    LoadSnapshot                             nothing: MetadataReplay.load carries it out
    RecordEpochStart                         nothing: it is durable before what follows
    AppendToLog                              log_appended, then log_flushed (the metadata log is always fsync)
    TruncateLog, StartLogAt                  log_truncated
    DeleteBeforeSnapshot                     nothing
    FetcherStreamReady, SessionReady         next_request, next_message
    ReadRun                                  run_read; a read that failed ends the process
    CheckCopy                                copy_checked
    MetadataSessionRefused                   close_session, when the stream has ended

An OSError of the metadata log or of the vote's file ends the process: there is no event for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.errors import MinilogError, wire_error
from minilog.v1 import peer_pb2
from minilog_broker.replication.replica_effects import (
    AppendToLog,
    CloseFetcherStream,
    Effect,
    FetcherStreamReady,
    OpenFetcherStream,
    RecordEpochStart,
    SessionReady,
    StartLogAt,
    TruncateLog,
)
from minilog_broker.storage.snapshot_id import SnapshotId

__all__ = [
    "NO_VOTE",
    "AnswerVote",
    "AppendToLog",
    "CloseFetcherStream",
    "CommittedRead",
    "DeleteBeforeSnapshot",
    "FetchSnapshot",
    "FetcherStreamReady",
    "LoadSnapshot",
    "MetadataSessionRefused",
    "OpenFetcherStream",
    "PersistVote",
    "QuorumEffect",
    "RecordEpochStart",
    "SendBeginQuorumEpoch",
    "SendVote",
    "SessionReady",
    "SnapshotId",
    "StartLogAt",
    "TruncateLog",
    "VoteState",
]

NO_VOTE = -1
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class VoteState:
    """What a voter may never take back (V11): its epoch, and the broker it voted for in that epoch (NO_VOTE: nobody).

    `voted_directory`: the directory id of that candidate. A broker id may stand twice: with the disk that a person gave
    up for lost, and with the disk in its place (KIP-853). These are two candidates. Empty: an older file does not say.
    """

    epoch: int = 0
    voted_for: int = NO_VOTE
    voted_directory: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Make epoch and vote durable (the file and its directory entry), then call vote_persisted. Keep the order of the
    effects."""

    epoch: int
    voted_for: int
    voted_directory: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class SendVote:
    """Ask a voter for its vote. `request.pre_vote` says which kind."""

    voter_id: int
    request: peer_pb2.VoteRequest


@dataclass(frozen=True, slots=True)
class AnswerVote:
    """Answer the request that came as `ticket`. What the answer promises is durable."""

    ticket: object
    response: peer_pb2.VoteResponse


@dataclass(frozen=True, slots=True)
class SendBeginQuorumEpoch:
    """Tell a voter who leads."""

    voter_id: int
    request: peer_pb2.BeginQuorumEpochRequest


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Fetch a snapshot's file from the leader. One at a time."""

    leader_id: int
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Make the image that of the snapshot. take_committed goes on behind it."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """The next committed decisions to read: a run of whole batches (storage.run_reads). `next_committed` returns it,
    and `take_committed` takes what was read."""

    offset: int
    end_offset: int
    max_bytes: int

    @property
    def readable_end(self) -> int:
        return self.end_offset


@dataclass(frozen=True, slots=True)
class DeleteBeforeSnapshot:
    """A durable snapshot has everything below `offset`. The log may drop that (Log.advance_log_start)."""

    offset: int


@dataclass(frozen=True, slots=True)
class MetadataSessionRefused:
    """Refuse a metadata session as a whole: send `response`, then close the stream."""

    session_id: int
    error: MinilogError
    quorum_epoch: int
    quorum_leader_id: int
    leader: peer_pb2.VoterAddress | None = None

    @property
    def response(self) -> peer_pb2.ReplicateResponse:
        """The last message of the stream: the error, the epoch known here and its leader (-1: not known)."""
        return peer_pb2.ReplicateResponse(
            error=wire_error(self.error),
            quorum_epoch=self.quorum_epoch,
            quorum_leader_id=self.quorum_leader_id,
            quorum_leader=self.leader,
        )


QuorumEffect: TypeAlias = (
    PersistVote
    | SendVote
    | AnswerVote
    | SendBeginQuorumEpoch
    | FetchSnapshot
    | LoadSnapshot
    | DeleteBeforeSnapshot
    | MetadataSessionRefused
    | Effect
)
