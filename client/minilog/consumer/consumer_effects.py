"""The effects of the consumer's core. The shell carries each out, and reports back as its docstring says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import data_pb2


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Open a fetch stream to this broker. Answer with session_opened or session_lost."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close the fetch stream to this broker: the consumer reads nothing from it any more."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Put a message on the open stream to this broker."""

    broker_id: int
    request: data_pb2.FetchRequest


@dataclass(frozen=True, slots=True)
class ResolveOffset:
    """Ask for the "earliest" or "latest" offset. Answer with offset_resolved or offset_failed, with the same number."""

    partition: TopicPartition
    where: str
    position_number: int


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Ask for the committed offsets of these partitions. Each has its key and its position number. Answer for each with
    committed_offset_came or offset_failed, with the same number."""

    wanted: Mapping[TopicPartition, tuple[PartitionKey, int]]


@dataclass(frozen=True, slots=True)
class RefreshTopics:
    """Ask for the metadata of `topics()`. Answer with metadata_changed."""


Effect: TypeAlias = OpenSession | CloseSession | SendFetch | ResolveOffset | FetchCommitted | RefreshTopics
