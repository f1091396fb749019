"""What a coordinator asks of its shell, beside the records it appends.

effect              what the shell does                                                     and then calls
LoadLog             read the partition from its log start to `end_offset`, in order         replayed, until all is given
DeleteRecordsBelow  delete what is below `offset`, on all replicas, some day                  -
CoordinatorAnswer   give `message` to whoever waits with `ticket`                           -
MemberAnswer        send `message` on the stream of a member; it ends behind an error       member_stream_ended
WriteMarkers        have the leader of `target` write them below its high watermark         markers_written, or
                                                                                            markers_failed
MarkersRefused      log it, count it: what was to be committed is not what the leader has   -
RegisterProducer    RegisterPartitions for this partition, to the coordinator of the        registered
                    transactional id
AskStableOffset     ask the leader of the question's partition, until it has news           stable_offset, once
RecordsExpired      log it, count it: retention took records that no worker has settled     -
RecordsDied         log it, and audit it: no worker is to get these records of a queue again -
BytesWritten        charge whoever called with `ticket`                                     -

An effect of a term that is over is carried out all the same: markers are those of decisions that stand for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from google.protobuf.message import Message

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.v1.coordinator_pb2 import MemberResponse
from minilog_broker.replication.stable_offsets import Question


class Moment(NamedTuple):
    """`ms` is this process's monotonic clock; `wall_us`, microseconds since 1970, goes into records only."""

    ms: float
    wall_us: int


@dataclass(frozen=True, slots=True)
class LoadLog:
    """The state is the replay of all below `end_offset`, which is committed."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsBelow:
    """Whoever loads the log does not need what is below `offset`; all of it is committed."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """Exactly one for each call that took a ticket; also when the coordinator is deposed (NOT_COORDINATOR)."""

    ticket: object
    message: Message


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """`stream`: what its first message came with. Any number of them, and none behind an error or a farewell."""

    stream: object
    message: MemberResponse


@dataclass(frozen=True, slots=True)
class MarkerToWrite:
    """One producer's end. `last_sequence`: of a committed one, -1 where it wrote nothing in this partition."""

    producer_id: int
    committed: bool
    last_sequence: int


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """All markers of one transaction that `target` still lacks: one control batch.

    `coordinator_epoch`: the leader epoch in which the asking one leads its partition of `__transactions`."""

    target: PartitionKey
    transactional_id: str
    markers: tuple[MarkerToWrite, ...]
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class MarkersRefused:
    """The leader of the partition says that it does not have what was committed. It is asked again, and again."""

    target: PartitionKey
    transactional_id: str
    error: MinilogError


@dataclass(frozen=True, slots=True)
class RegisterProducer:
    """`number` goes back with `registered`: an answer that comes late is not taken for that of a later question."""

    number: int
    transactional_id: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class AskStableOffset:
    """`number` goes back with `stable_offset`, as that of RegisterProducer does."""

    number: int
    queue: str
    question: Question


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    """Retention has taken `count` offsets of a queue's partition before they were settled."""

    queue: str
    partition: PartitionKey
    count: int


@dataclass(frozen=True, slots=True)
class RecordsDied:
    """The records from `first` to `last` of a queue's partition have died, after so many deliveries."""

    queue: str
    partition: PartitionKey
    first: int
    last: int
    delivery_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class BytesWritten:
    """The decision about a call has so many bytes of keys and values in the log. It comes before the call's answer."""

    ticket: object
    count: int


CoordinatorEffect: TypeAlias = (
    LoadLog
    | DeleteRecordsBelow
    | CoordinatorAnswer
    | MemberAnswer
    | WriteMarkers
    | MarkersRefused
    | RegisterProducer
    | AskStableOffset
    | RecordsExpired
    | RecordsDied
    | BytesWritten
)
