"""What a session sends from, and what that says of a position. Sessions are in session.py, sources are the roles."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from minilog.errors import MinilogError
from minilog.typed.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2
from minilog_broker.replication.replica_log import LogOffsets, ReplicaLog
from minilog_broker.replication.rules.divergence import Diverged

if TYPE_CHECKING:
    from minilog_broker.replication.sessions.session import ServedSession


class Audience(enum.Enum):
    """Who reads: a follower, of the leader, up to the log's end; a consumer, of any replica, up to the high watermark
    or, read_committed, up to the last stable offset, and is told what of it was aborted."""

    FOLLOWER = enum.auto()
    CONSUMER = enum.auto()
    COMMITTED_CONSUMER = enum.auto()


def readable_end(log: ReplicaLog, audience: Audience) -> int:
    """Nothing at or above it is sent."""
    match audience:
        case Audience.FOLLOWER:
            return log.appended_end
        case Audience.CONSUMER:
            return log.high_watermark
        case Audience.COMMITTED_CONSUMER:
            return log.last_stable_offset


@dataclass(frozen=True, slots=True)
class SendRuns:
    """The position passed the checks. `producers_below`: what a follower's empty log does not tell it (a producer
    snapshot), said with the first run."""

    producers_below: bytes = b""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be judged yet; `error`, if any, is said meanwhile."""

    error: MinilogError | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error that ends with a new position only."""

    error: MinilogError


PositionAnswer: TypeAlias = SendRuns | Wait | Refuse | Diverged


class Source(Protocol):
    """What a session sends from, in one leader epoch: a leader of data or of the metadata log; or, for consumers, a
    follower (follower/reads.py)."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def schemas(self) -> TopicSchemas | None:
        """Of the topic, as they are known here; None where it has none."""

    def check_position(self, position: data_pb2.FetchPosition, session: ServedSession, now_ms: float) -> PositionAnswer:
        """The checks of a position; a follower's acceptance or divergence is noted by the source."""

    def readable_end(self, audience: Audience) -> int:
        """Nothing at or above it is sent."""

    def ends(self) -> LogOffsets: ...

    @property
    def cuts(self) -> int:
        """How often the log was cut: what was read before the last time may not be in it any more."""

    def epoch_before(self, offset: int) -> int | None: ...

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        """The producers whose batches in [from_offset, to_offset) were aborted; asked below the last stable offset."""

    def read_failed(self, error: Exception) -> None:
        """Our copy could not be read, or what was read is no run of whole batches."""
