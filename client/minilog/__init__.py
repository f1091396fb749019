"""minilog for Python programs: Producer, Consumer, QueueConsumer and Admin. They block here. Those of `minilog.aio` are
for asyncio.

Importing this package is light: nothing that needs gRPC or Arrow is loaded before a name is used. Every error is a
MinilogError with a stable `code`; see minilog.errors. Type checkers know each name by the imports below, and no other.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minilog import aio as aio
    from minilog import errors as errors
    from minilog import types as types
    from minilog.errors import AuthenticationFailed as AuthenticationFailed
    from minilog.errors import AuthorizationFailed as AuthorizationFailed
    from minilog.errors import BrokerIdNotRegistered as BrokerIdNotRegistered
    from minilog.errors import BrokerNotAvailable as BrokerNotAvailable
    from minilog.errors import BufferExhausted as BufferExhausted
    from minilog.errors import Closed as Closed
    from minilog.errors import CoordinatorLoadInProgress as CoordinatorLoadInProgress
    from minilog.errors import CorruptMessage as CorruptMessage
    from minilog.errors import DelegationTokenExpired as DelegationTokenExpired
    from minilog.errors import DelegationTokenNotFound as DelegationTokenNotFound
    from minilog.errors import DelegationTokenOwnerMismatch as DelegationTokenOwnerMismatch
    from minilog.errors import DelegationTokenRequestNotAllowed as DelegationTokenRequestNotAllowed
    from minilog.errors import DuplicateBrokerRegistration as DuplicateBrokerRegistration
    from minilog.errors import DuplicateResource as DuplicateResource
    from minilog.errors import DuplicateSequenceNumber as DuplicateSequenceNumber
    from minilog.errors import FencedLeaderEpoch as FencedLeaderEpoch
    from minilog.errors import FencedMemberEpoch as FencedMemberEpoch
    from minilog.errors import GroupIdNotFound as GroupIdNotFound
    from minilog.errors import GroupMaxSizeReached as GroupMaxSizeReached
    from minilog.errors import InconsistentClusterId as InconsistentClusterId
    from minilog.errors import InconsistentVoters as InconsistentVoters
    from minilog.errors import IneligibleReplica as IneligibleReplica
    from minilog.errors import InvalidArgument as InvalidArgument
    from minilog.errors import InvalidConfig as InvalidConfig
    from minilog.errors import InvalidPartitions as InvalidPartitions
    from minilog.errors import InvalidPrincipal as InvalidPrincipal
    from minilog.errors import InvalidProducerEpoch as InvalidProducerEpoch
    from minilog.errors import InvalidRecord as InvalidRecord
    from minilog.errors import InvalidRecordState as InvalidRecordState
    from minilog.errors import InvalidReplicaAssignment as InvalidReplicaAssignment
    from minilog.errors import InvalidReplicationFactor as InvalidReplicationFactor
    from minilog.errors import InvalidRequiredAcks as InvalidRequiredAcks
    from minilog.errors import InvalidSchema as InvalidSchema
    from minilog.errors import InvalidTimestamp as InvalidTimestamp
    from minilog.errors import InvalidTopic as InvalidTopic
    from minilog.errors import InvalidTransactionTimeout as InvalidTransactionTimeout
    from minilog.errors import InvalidTxnState as InvalidTxnState
    from minilog.errors import InvalidUpdateVersion as InvalidUpdateVersion
    from minilog.errors import LeaderNotAvailable as LeaderNotAvailable
    from minilog.errors import LevelNotReached as LevelNotReached
    from minilog.errors import ListenerNotFound as ListenerNotFound
    from minilog.errors import MessageTooLarge as MessageTooLarge
    from minilog.errors import MinilogError as MinilogError
    from minilog.errors import NarrowSchemaVersion as NarrowSchemaVersion
    from minilog.errors import NonEmptyGroup as NonEmptyGroup
    from minilog.errors import NonEmptyQueue as NonEmptyQueue
    from minilog.errors import NoReassignmentInProgress as NoReassignmentInProgress
    from minilog.errors import NoSpace as NoSpace
    from minilog.errors import NotController as NotController
    from minilog.errors import NotCoordinator as NotCoordinator
    from minilog.errors import NotEnoughReplicas as NotEnoughReplicas
    from minilog.errors import NotEnoughReplicasAfterAppend as NotEnoughReplicasAfterAppend
    from minilog.errors import NotLeaderOrFollower as NotLeaderOrFollower
    from minilog.errors import OffsetMetadataTooLarge as OffsetMetadataTooLarge
    from minilog.errors import OffsetNotAvailable as OffsetNotAvailable
    from minilog.errors import OffsetOutOfRange as OffsetOutOfRange
    from minilog.errors import OutOfOrderSequenceNumber as OutOfOrderSequenceNumber
    from minilog.errors import PreferredLeaderNotAvailable as PreferredLeaderNotAvailable
    from minilog.errors import ProducerFenced as ProducerFenced
    from minilog.errors import RequestTimedOut as RequestTimedOut
    from minilog.errors import ResourceExhausted as ResourceExhausted
    from minilog.errors import ResourceNotFound as ResourceNotFound
    from minilog.errors import RetriableError as RetriableError
    from minilog.errors import StaleBrokerEpoch as StaleBrokerEpoch
    from minilog.errors import StaleGeneration as StaleGeneration
    from minilog.errors import StaleMemberEpoch as StaleMemberEpoch
    from minilog.errors import StorageError as StorageError
    from minilog.errors import TimedOut as TimedOut
    from minilog.errors import TopicAlreadyExists as TopicAlreadyExists
    from minilog.errors import TransactionalIdNotFound as TransactionalIdNotFound
    from minilog.errors import UnacceptableCredential as UnacceptableCredential
    from minilog.errors import UnknownLeaderEpoch as UnknownLeaderEpoch
    from minilog.errors import UnknownMemberId as UnknownMemberId
    from minilog.errors import UnknownOutcome as UnknownOutcome
    from minilog.errors import UnknownProducerId as UnknownProducerId
    from minilog.errors import UnknownSchemaVersion as UnknownSchemaVersion
    from minilog.errors import UnknownServerError as UnknownServerError
    from minilog.errors import UnknownTopicId as UnknownTopicId
    from minilog.errors import UnknownTopicOrPartition as UnknownTopicOrPartition
    from minilog.errors import UnreleasedInstanceId as UnreleasedInstanceId
    from minilog.errors import UnstableOffsetCommit as UnstableOffsetCommit
    from minilog.errors import UnsupportedAssignor as UnsupportedAssignor
    from minilog.errors import UnsupportedVersion as UnsupportedVersion
    from minilog.errors import VotersNotReady as VotersNotReady
    from minilog.properties import properties_file as properties_file
    from minilog.queues.message import Message as Message
    from minilog.scanning.scan import Scan as Scan
    from minilog.scanning.scan import scan as scan
    from minilog.sync.admin import Admin as Admin
    from minilog.sync.consumer import Consumer as Consumer
    from minilog.sync.producer import Producer as Producer
    from minilog.sync.queue_consumer import QueueConsumer as QueueConsumer
    from minilog.testing import RunningCluster as RunningCluster
    from minilog.typed.conditions.expressions import col as col
    from minilog.typed.schema.ddl import schema_from_ddl as schema_from_ddl
    from minilog.typed.schema.schema_json import schema_from_json as schema_from_json
    from minilog.typed.schema.topic_schema import TopicSchema as TopicSchema
    from minilog.typed.schema.topic_schema import schema_from_arrow as schema_from_arrow
    from minilog.types import BatchMetadata as BatchMetadata
    from minilog.types import GroupMetadata as GroupMetadata
    from minilog.types import NewTopic as NewTopic
    from minilog.types import Record as Record
    from minilog.types import RecordMetadata as RecordMetadata
    from minilog.types import TopicAlteration as TopicAlteration
    from minilog.types import TopicPartition as TopicPartition

# gRPC's own handlers of forks work half where its threads run: one child in five died of them, though it made no call.
# gRPC reads this when it is imported. What works in a child, and what does not: net/home.py.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Without it gRPC writes a line to stderr for each handshake of TLS that fails. The errors of minilog have the reason.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__all__ = [
    "Admin",
    "BatchMetadata",
    "BufferExhausted",
    "Consumer",
    "GroupMetadata",
    "Message",
    "MinilogError",
    "NewTopic",
    "Producer",
    "QueueConsumer",
    "Record",
    "RecordMetadata",
    "RetriableError",
    "RunningCluster",
    "Scan",
    "TopicAlteration",
    "TopicPartition",
    "TopicSchema",
    "UnknownOutcome",
    "aio",
    "col",
    "properties_file",
    "scan",
    "schema_from_arrow",
    "schema_from_ddl",
    "schema_from_json",
]

_HOME = {
    "Admin": "minilog.sync.admin",
    "Consumer": "minilog.sync.consumer",
    "Producer": "minilog.sync.producer",
    "QueueConsumer": "minilog.sync.queue_consumer",
    "Scan": "minilog.scanning.scan",
    "scan": "minilog.scanning.scan",
    "BatchMetadata": "minilog.types",
    "GroupMetadata": "minilog.types",
    "Message": "minilog.queues.message",
    "NewTopic": "minilog.types",
    "Record": "minilog.types",
    "RecordMetadata": "minilog.types",
    "RunningCluster": "minilog.testing",
    "TopicAlteration": "minilog.types",
    "TopicPartition": "minilog.types",
    "TopicSchema": "minilog.typed.schema.topic_schema",
    "col": "minilog.typed.conditions.expressions",
    "properties_file": "minilog.properties",
    "schema_from_arrow": "minilog.typed.schema.topic_schema",
    "schema_from_ddl": "minilog.typed.schema.ddl",
    "schema_from_json": "minilog.typed.schema.schema_json",
}
_MODULES = ("aio", "errors", "types")


if not TYPE_CHECKING:  # else a type checker would take every wrong name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"minilog.{name}")
        if name in _HOME:
            return getattr(importlib.import_module(_HOME[name]), name)
        if name.startswith("_"):
            raise AttributeError(f"module 'minilog' has no attribute {name!r}")
        errors = importlib.import_module("minilog.errors")
        error_class = getattr(errors, name, None)
        if isinstance(error_class, type) and issubclass(error_class, errors.MinilogError):
            return error_class
        raise AttributeError(f"module 'minilog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
