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
    """What a voter may never take back (V11): its epoch and whom it voted for in it; NO_VOTE: nobody.

    `voted_directory`: that candidate's directory id. A broker id may stand twice, with the disk that a person gave up
    for lost and with the one in its place (KIP-853): those are two. Empty: not known, of an older file.
    """

    epoch: int = 0
    voted_for: int = NO_VOTE
    voted_directory: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Make epoch and vote durable (file and directory entry), then say vote_persisted. In the order given."""

    epoch: int
    voted_for: int
    voted_directory: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class SendVote:
    """Ask a voter for its vote; `request.pre_vote` tells which kind."""

    voter_id: int
    request: peer_pb2.VoteRequest


@dataclass(frozen=True, slots=True)
class AnswerVote:
    """Answer the request that came as `ticket`: what the answer promises is durable."""

    ticket: object
    response: peer_pb2.VoteResponse


@dataclass(frozen=True, slots=True)
class SendBeginQuorumEpoch:
    """Tell a voter who leads."""

    voter_id: int
    request: peer_pb2.BeginQuorumEpochRequest


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """Fetch a snapshot's file from the leader; one at a time."""

    leader_id: int
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The image is that of the snapshot from now on; take_committed goes on behind it."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """The next committed decisions are to be read: a run of whole batches (storage.run_reads). Asked for by
    `next_committed`, answered by take_committed."""

    offset: int
    end_offset: int
    max_bytes: int

    @property
    def readable_end(self) -> int:
        return self.end_offset


@dataclass(frozen=True, slots=True)
class DeleteBeforeSnapshot:
    """What is below `offset` is in a durable snapshot: the log may drop it (Log.advance_log_start)."""

    offset: int


@dataclass(frozen=True, slots=True)
class MetadataSessionRefused:
    """A metadata session is refused as a whole: send `response`, then close the stream."""

    session_id: int
    error: MinilogError
    quorum_epoch: int
    quorum_leader_id: int
    leader: peer_pb2.VoterAddress | None = None

    @property
    def response(self) -> peer_pb2.ReplicateResponse:
        """The last message of the stream: the error, the epoch known here and who leads it (-1 unknown)."""
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
