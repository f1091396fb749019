"""What the consumer's core wants done; the shell does it and reports back as each says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import data_pb2


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a fetch stream to this broker; answer with session_opened or session_lost."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Nothing is wanted from this broker any more."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Put a message on the open stream to this broker."""

    broker_id: int
    request: data_pb2.FetchRequest


@dataclass(frozen=True, slots=True)
class ResolveOffset:
    """Ask for "earliest" or "latest"; answer with offset_resolved or offset_failed, with the same number."""

    partition: TopicPartition
    where: str
    position_number: int


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Ask what the group has committed of these, each with its key and position number; answer with committed_told or
    offset_failed for each, with the same number."""

    wanted: Mapping[TopicPartition, tuple[PartitionKey, int]]


@dataclass(frozen=True, slots=True)
class RefreshTopics:
    """Ask for metadata of `topics()`; answer with metadata_changed."""


Effect: TypeAlias = OpenSession | CloseSession | SendFetch | ResolveOffset | FetchCommitted | RefreshTopics
