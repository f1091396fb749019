"""The source that a session sends from, and its answers to a position. The roles of a replica are the sources."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2
from minilog_broker.replication.replica_log import LogOffsets, ReplicaLog
from minilog_broker.replication.rules.divergence import Diverged


class Audience(enum.Enum):
    """The kinds of readers.

    A follower reads from the leader, up to the log's end. A consumer reads from any replica, up to the high watermark.
    A consumer of read_committed reads up to the last stable offset, and learns which producers were aborted."""

    FOLLOWER = enum.auto()
    CONSUMER = enum.auto()
    COMMITTED_CONSUMER = enum.auto()


def readable_end(log: ReplicaLog, audience: Audience) -> int:
    """The end of the records that a reader of this kind may get, exclusive."""
    match audience:
        case Audience.FOLLOWER:
            return log.appended_end
        case Audience.CONSUMER:
            return log.high_watermark
        case Audience.COMMITTED_CONSUMER:
            return log.last_stable_offset


@dataclass(frozen=True, slots=True)
class SendRuns:
    """The position passed the checks. `producers_below`: a producer snapshot for a follower whose records do not show
    all producers. It goes with the first run."""

    producers_below: bytes = b""


@dataclass(frozen=True, slots=True)
class Wait:
    """The source cannot check the position yet. The reader gets `error`, if any, meanwhile."""

    error: MinilogError | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The reader gets an error, and nothing more before a new position."""

    error: MinilogError


PositionAnswer: TypeAlias = SendRuns | Wait | Refuse | Diverged


class Asker(Protocol):
    """The session whose position is checked, as far as a source looks at it."""

    @property
    def audience(self) -> Audience: ...

    @property
    def broker_id(self) -> int:
        """The follower. -1 for consumers."""

    @property
    def broker_epoch(self) -> int: ...

    def asked_ms(self, key: PartitionKey) -> float:
        """When the position of a partition came."""


class SessionSource(Protocol):
    """The source that a session sends from, in one leader epoch: a leader of data or of the metadata log. For consumers
    also a follower (follower/reads.py)."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def schemas(self) -> TopicSchemas | None:
        """The topic's schemas that this broker knows. None for a topic without a schema."""

    def check_position(self, position: data_pb2.FetchPosition, session: Asker, now_ms: float) -> PositionAnswer:
        """Check a position. The source notes whether a follower's position is accepted or diverges."""

    def readable_end(self, audience: Audience) -> int:
        """The end of the records that a reader of this kind may get, exclusive."""

    def ends(self) -> LogOffsets: ...

    @property
    def cuts(self) -> int:
        """The number of cuts of the log. Records that were read before the last cut may not be in the log any more."""

    def epoch_before(self, offset: int) -> int | None: ...

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        """The producers whose batches in [from_offset, to_offset), below the last stable offset, were aborted."""

    def read_failed(self, error: Exception) -> None:
        """Take the error of a read of this copy: the disk failed, or the bytes are not a run of whole batches."""
