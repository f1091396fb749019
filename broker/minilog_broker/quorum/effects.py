"""Effects of the quorum: those of replication for the metadata log (key METADATA_KEY), and the vote.

    effect                                   answered by (a method of QuorumNode)
    PersistVote                              vote_persisted, once it is durable; nothing of the epoch is done before
    RecordEpochStart                         nothing: it is durable before what follows
    AppendToLog                              log_appended, then log_flushed (the metadata log is always fsync)
    TruncateLog, StartLogAt                  log_truncated
    OpenLeaderSession, CloseLeaderSession    leader_session_opened, leader_session_closed
    LeaderSessionReady, SessionReady         next_request, next_message
    SessionRefused                           close_session

An OSError of the metadata log or of the vote's file ends the process: there is no event for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minilog_broker.replication.effects import Effect

NO_VOTE = -1


@dataclass(frozen=True, slots=True)
class VoteState:
    """What a voter may never take back (V11): its epoch and whom it voted for in it; NO_VOTE: nobody."""

    epoch: int = 0
    voted_for: int = NO_VOTE


@dataclass(frozen=True, slots=True)
class PersistVote:
    """Make epoch and vote durable (file and directory entry), then say vote_persisted."""

    epoch: int
    voted_for: int


QuorumEffect: TypeAlias = PersistVote | Effect
