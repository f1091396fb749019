"""All errors of minilog: one table, one hierarchy.

    MinilogError
    ├── RetriableError            the same call may succeed later, and the clients retry it inside their time-outs
    ├── InvalidArgument           an argument of the caller is not valid (a ValueError, too)
    ├── UnknownOutcome            the write may or may not have happened: never reported as failed (rule V16)
    └── one class per code        raised for the answer of a broker

Each class has a stable `code` (the wire's name without its prefix) and `retriable`. A message names the problem, the
place and the remedy. `error_from_wire` turns a broker's answer into the exception, and `wire_error` turns the exception
into the answer.
"""

from __future__ import annotations

from typing import ClassVar

from minilog.v1 import common_pb2

MAX_MESSAGE_CHARACTERS = 4_000  # of an answer's error: it may quote a request, which may have megabytes
_PREFIX = "ERROR_CODE_"
LOST_RIGHT = "this user has lost the right to see it"
"""A part of the message about a topic that has disappeared. A broker does not say which of the two causes it is."""


class MinilogError(Exception):
    """The root of all errors. `code` is stable and for programs, and the text is for people."""

    code: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False


class RetriableError(MinilogError):
    """A passing state: an election, a restart, a full buffer."""

    retriable = True


class InvalidArgument(MinilogError, ValueError):
    """The request is malformed. The same request fails again."""

    code = "INVALID_REQUEST"


class UnknownServerError(MinilogError):
    """A broker had an error without a code. Its log has the details."""


class CorruptMessage(MinilogError):
    """The checksum, length, magic, attributes, payload or row count of a batch is wrong."""

    code = "CORRUPT_MESSAGE"


class UnknownTopicOrPartition(RetriableError):
    """The topic or partition does not exist, or the broker that answered does not know it yet."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"


class UnknownTopicId(RetriableError):
    """The topic with this id was deleted, or the broker that answered does not know it yet."""

    code = "UNKNOWN_TOPIC_ID"


class OffsetOutOfRange(MinilogError):
    """The offset is below the log start, or above the end of a leader that knows its end."""

    code = "OFFSET_OUT_OF_RANGE"


class NotLeaderOrFollower(RetriableError):
    """The broker does not lead this partition (any more)."""

    code = "NOT_LEADER_OR_FOLLOWER"


class FencedLeaderEpoch(RetriableError):
    """The request names an older leader epoch than the broker's."""

    code = "FENCED_LEADER_EPOCH"


class VotersNotReady(RetriableError):
    """The voters of the metadata quorum cannot change now.

    A former change is not committed, a new voter has not fetched the metadata log, or no majority is heard.
    """

    code = "VOTERS_NOT_READY"


class UnknownLeaderEpoch(RetriableError):
    """The request names a newer leader epoch than the broker knows yet."""

    code = "UNKNOWN_LEADER_EPOCH"


class LeaderNotAvailable(RetriableError):
    """The partition has no leader now."""

    code = "LEADER_NOT_AVAILABLE"


class OffsetNotAvailable(RetriableError):
    """The leader is new and does not yet know how far the log is committed (KIP-207)."""

    code = "OFFSET_NOT_AVAILABLE"


class MessageTooLarge(MinilogError):
    """A batch is larger than max.message.bytes."""

    code = "MESSAGE_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    """Fewer replicas than min.insync.replicas are in sync, and acks is all. Nothing was written."""

    code = "NOT_ENOUGH_REPLICAS"


class InvalidRequiredAcks(InvalidArgument):
    """acks is not 0, 1 or all."""

    code = "INVALID_REQUIRED_ACKS"


class InvalidConfig(InvalidArgument):
    """A setting does not exist, or its value is not valid."""

    code = "INVALID_CONFIG"


class InvalidTopic(InvalidArgument):
    """The name of a topic is not allowed."""

    code = "INVALID_TOPIC"


class InvalidSchema(InvalidArgument):
    """A schema, or a change of a schema, breaks a rule of typed topics."""

    code = "INVALID_SCHEMA"


class UnknownSchemaVersion(RetriableError):
    """The broker or client does not know this version of a topic's schema yet."""

    code = "UNKNOWN_SCHEMA_VERSION"


class NarrowSchemaVersion(MinilogError):
    """A reader reads by a version of the schema that cannot hold the values of a later version."""

    code = "NARROW_SCHEMA_VERSION"


class InvalidPartitions(InvalidArgument):
    """The number of partitions is not allowed."""

    code = "INVALID_PARTITIONS"


class InvalidReplicationFactor(InvalidArgument):
    """The replication factor is below one, or above the number of brokers."""

    code = "INVALID_REPLICATION_FACTOR"


class InvalidRecord(InvalidArgument):
    """The record batch cannot hold a record or a column, or a record for a compacted topic has no key."""

    code = "INVALID_RECORD"


class InvalidTimestamp(InvalidArgument):
    """The time stamp of a record is further from the leader's clock than its topic allows. Nothing was written."""

    code = "INVALID_TIMESTAMP"


class TopicAlreadyExists(MinilogError):
    """A topic of this name exists already."""

    code = "TOPIC_ALREADY_EXISTS"


class UnsupportedVersion(MinilogError):
    """The other side uses a version of the contract that this side does not know."""

    code = "UNSUPPORTED_VERSION"


class LevelNotReached(RetriableError):
    """The cluster's level does not allow it, as far as the broker knows: typed topics, users, a form of batches."""

    code = "LEVEL_NOT_REACHED"


class OutOfOrderSequenceNumber(RetriableError):
    """A batch came before the batch that precedes it by sequence."""

    code = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(MinilogError):
    """A batch is older than the last five of its producer. It was written before, and its place is not known any
    more."""

    code = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(MinilogError):
    """A newer epoch of the same producer id has written, so this producer is fenced."""

    code = "INVALID_PRODUCER_EPOCH"


class UnknownProducerId(MinilogError):
    """The broker holds no state of this producer."""

    code = "UNKNOWN_PRODUCER_ID"


class StorageError(RetriableError):
    """The disk of a replica failed. The replica is offline until its broker is repaired."""

    code = "STORAGE_ERROR"


class NoSpace(RetriableError):
    """The disk of a replica is full. The broker refuses writes, and reads go on."""

    code = "NO_SPACE"


class NotController(RetriableError):
    """Another broker is the active controller."""

    code = "NOT_CONTROLLER"


class StaleBrokerEpoch(MinilogError):
    """The request comes from an earlier life of a broker."""

    code = "STALE_BROKER_EPOCH"


class DuplicateBrokerRegistration(MinilogError):
    """Another running process, with another data directory, has this broker id."""

    code = "DUPLICATE_BROKER_REGISTRATION"


class InconsistentClusterId(MinilogError):
    """The data directory, or the broker that answers, belongs to another cluster."""

    code = "INCONSISTENT_CLUSTER_ID"


class InconsistentVoters(MinilogError):
    """A broker was started with other voters than those that found a cluster with it, or in another broker's place."""

    code = "INCONSISTENT_VOTERS"


class BrokerIdNotRegistered(MinilogError):
    """No broker is registered with this id."""

    code = "BROKER_ID_NOT_REGISTERED"


class InvalidUpdateVersion(MinilogError):
    """An ISR proposal, or the next version of a schema, was not made from the committed state."""

    code = "INVALID_UPDATE_VERSION"


class IneligibleReplica(MinilogError):
    """An ISR proposal names a broker that may not join."""

    code = "INELIGIBLE_REPLICA"


class ResourceNotFound(MinilogError):
    """A user or a credential does not exist."""

    code = "RESOURCE_NOT_FOUND"


class DuplicateResource(MinilogError):
    """A user of this name exists already, or one request changes the same thing twice."""

    code = "DUPLICATE_RESOURCE"


class UnacceptableCredential(InvalidArgument):
    """The name of a user, or the salt, the iterations or a key of a credential, is not allowed."""

    code = "UNACCEPTABLE_CREDENTIAL"


class InvalidPrincipal(InvalidArgument):
    """The principal is not User:NAME, or its name is not allowed."""

    code = "INVALID_PRINCIPAL"


class DelegationTokenNotFound(ResourceNotFound):
    """This user has no token with this id. It was expired, or removed some time after its end, or is another user's."""

    code = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(MinilogError):
    """The token is another user's, and this user may not renew it. Only the audit log has this error, and a client gets
    DelegationTokenNotFound."""

    code = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(MinilogError):
    """Only a client that logged in by a password or an issuer's token has delegation tokens."""

    code = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenExpired(MinilogError):
    """The token has expired, and cannot be renewed."""

    code = "DELEGATION_TOKEN_EXPIRED"


class PreferredLeaderNotAvailable(MinilogError):
    """The preferred replica cannot lead now: it is not in the ISR, or its broker is fenced or stopping."""

    code = "PREFERRED_LEADER_NOT_AVAILABLE"


class InvalidReplicaAssignment(InvalidArgument):
    """A partition cannot have these replicas."""

    code = "INVALID_REPLICA_ASSIGNMENT"


class NoReassignmentInProgress(MinilogError):
    """The partition has no reassignment that could be cancelled."""

    code = "NO_REASSIGNMENT_IN_PROGRESS"


class NotCoordinator(RetriableError):
    """The broker is not the coordinator of this id, since it does not lead the id's partition."""

    code = "NOT_COORDINATOR"


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is new, and still reads the decisions of the coordinator before it."""

    code = "COORDINATOR_LOAD_IN_PROGRESS"


class ProducerFenced(MinilogError):
    """The producer has ended, or a newer attempt or run has taken over the transaction. It can write nothing more."""

    code = "PRODUCER_FENCED"


class StaleGeneration(MinilogError):
    """The generation is not above the last one committed under this transactional id."""

    code = "STALE_GENERATION"


class InvalidTxnState(MinilogError):
    """The request does not fit the state of the transaction. For example, it names a winner that is not enlisted."""

    code = "INVALID_TXN_STATE"


class InvalidTransactionTimeout(InvalidArgument):
    """The time-out of a transaction is not allowed."""

    code = "INVALID_TRANSACTION_TIMEOUT"


class TransactionalIdNotFound(MinilogError):
    """No transaction is known under this id."""

    code = "TRANSACTIONAL_ID_NOT_FOUND"


class UnstableOffsetCommit(RetriableError):
    """An offset was committed, or letters of a queue are redriven, in a transaction that has not ended yet."""

    code = "UNSTABLE_OFFSET_COMMIT"


class GroupIdNotFound(MinilogError):
    """No group of this id has committed anything."""

    code = "GROUP_ID_NOT_FOUND"


class OffsetMetadataTooLarge(InvalidArgument):
    """The text that goes with a committed offset is too long."""

    code = "OFFSET_METADATA_TOO_LARGE"


class UnknownMemberId(MinilogError):
    """The group has no such member, or only its members may commit."""

    code = "UNKNOWN_MEMBER_ID"


class StaleMemberEpoch(MinilogError):
    """A partition is not, or no longer, this member's: what it would commit is another member's now."""

    code = "STALE_MEMBER_EPOCH"


class FencedMemberEpoch(MinilogError):
    """The coordinator does not know the partitions that the member reports. The member gives all up and joins again."""

    code = "FENCED_MEMBER_EPOCH"


class GroupMaxSizeReached(MinilogError):
    """The group has as many members as group.consumer.max.size allows."""

    code = "GROUP_MAX_SIZE_REACHED"


class UnreleasedInstanceId(MinilogError):
    """Another member has this group.instance.id, and has not left."""

    code = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(InvalidArgument):
    """The brokers have no assignor of this name."""

    code = "UNSUPPORTED_ASSIGNOR"


class NonEmptyGroup(MinilogError):
    """The group has members."""

    code = "NON_EMPTY_GROUP"


class NonEmptyQueue(MinilogError):
    """Workers have leases of the queue, or its letters are redriven."""

    code = "NON_EMPTY_QUEUE"


class InvalidRecordState(MinilogError):
    """A lease of a queue does not hold these records: they are settled, or the lock ended and others may have them. Or
    the letters of a queue are not redriven to the place that a redrive names."""

    code = "INVALID_RECORD_STATE"


class TimedOut(RetriableError):
    """A call that changes nothing got no answer in time."""

    code = "TIMED_OUT"


class BufferExhausted(RetriableError):
    """The producer's buffer stayed full, because the brokers are slower than the program."""

    code = "BUFFER_EXHAUSTED"


class ResourceExhausted(RetriableError):
    """This process has too little memory, or too few threads or files. The data are not the cause."""

    code = "RESOURCE_EXHAUSTED"


class BrokerNotAvailable(RetriableError):
    """The client could not reach any broker."""

    code = "BROKER_NOT_AVAILABLE"


class ListenerNotFound(BrokerNotAvailable):
    """The leader has no listener with the name of this client's listener, so the client cannot reach it."""

    code = "LISTENER_NOT_FOUND"


class AuthenticationFailed(MinilogError):
    """The broker does not accept this client's login or certificate, or this client does not accept the broker's."""

    code = "AUTHENTICATION_FAILED"


class AuthorizationFailed(MinilogError):
    """The user of this client may not do that: no access rule allows it, or a rule denies it."""

    code = "AUTHORIZATION_FAILED"


class Closed(MinilogError):
    """The client was closed."""

    code = "CLOSED"


class UnknownOutcome(MinilogError):
    """The write may or may not have happened. Look before you write again (rule V16)."""

    code = "UNKNOWN_OUTCOME"


class RequestTimedOut(UnknownOutcome):
    """The in-sync replicas did not confirm in time. The leader has the batch, and its fate is open."""

    code = "REQUEST_TIMED_OUT"


class NotEnoughReplicasAfterAppend(UnknownOutcome):
    """The ISR fell below min.insync.replicas after the append. The fate of the batch is open."""

    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def _subclasses(root: type[MinilogError]) -> list[type[MinilogError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _subclasses(child))]


_BY_CODE: dict[str, type[MinilogError]] = {}
_classes: list[type[MinilogError]] = [UnknownServerError, InvalidArgument, *_subclasses(MinilogError)]
for _class in _classes:
    _BY_CODE.setdefault(_class.code, _class)


def error_class(code: int) -> type[MinilogError]:
    """The class for a code of the wire. A code of a later version is an UnknownServerError."""
    try:
        name = common_pb2.ErrorCode.Name(code)  # type: ignore[arg-type]
    except ValueError:
        return UnknownServerError
    return _BY_CODE.get(name.removeprefix(_PREFIX), UnknownServerError)


def error_from_wire(error: common_pb2.Error) -> MinilogError | None:
    """A broker's answer as an exception, or None if the answer is no error."""
    if error.code == common_pb2.ERROR_CODE_NONE:
        return None
    return error_class(error.code)(error.message)


def wire_error(error: MinilogError) -> common_pb2.Error:
    """The exception as a broker's answer, of a bounded length."""
    message = str(error)
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[:MAX_MESSAGE_CHARACTERS] + "..."
    return common_pb2.Error(code=common_pb2.ErrorCode.Value(_PREFIX + error.code), message=message)
