"""Every error there is: one table, one hierarchy.

    MinilogError
    ├── RetriableError            the same call may succeed later; the clients retry it inside their time-outs
    ├── InvalidArgument           the caller's words are off (a ValueError too)
    ├── UnknownOutcome            the write may or may not have happened: never reported as failed (rule V16)
    └── one class per code        raised for what a broker answered

Each class has a stable `code` (the wire's name without its prefix) and `retriable`. A message names what, where and
what to do. `error_from_wire` turns a broker's answer into the exception, `wire_error` the exception into the answer.
"""

from __future__ import annotations

from typing import ClassVar

from minilog.v1 import common_pb2

MAX_MESSAGE_CHARACTERS = 4_000  # of an answer's error: what somebody sent may be in it, and have megabytes
_PREFIX = "ERROR_CODE_"
LOST_RIGHT = "this user has lost the right to see it"
"""A part of what is told of a topic that is not there any more: a broker does not say which of the two it is."""


class MinilogError(Exception):
    """The root. `code` is stable and meant for programs; the text is meant for people."""

    code: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False


class RetriableError(MinilogError):
    """Something passing: an election, a restart, a full buffer."""

    retriable = True


class InvalidArgument(MinilogError, ValueError):
    """The request is malformed; asking again the same way is useless."""

    code = "INVALID_REQUEST"


class UnknownServerError(MinilogError):
    """A broker met something it has no name for; its log tells more."""


class CorruptMessage(MinilogError):
    """A batch whose checksum, length, magic, attributes, payload or row count is wrong."""

    code = "CORRUPT_MESSAGE"


class UnknownTopicOrPartition(RetriableError):
    """No such topic or partition, or not yet known to the broker that was asked."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"


class UnknownTopicId(RetriableError):
    """The topic id is not known: deleted, or not yet known to the broker that was asked."""

    code = "UNKNOWN_TOPIC_ID"


class OffsetOutOfRange(MinilogError):
    """Below the log start, or above the end of a leader that knows its end."""

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
    """A batch above max.message.bytes."""

    code = "MESSAGE_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    """acks=all with fewer in-sync replicas than min.insync.replicas: nothing was written."""

    code = "NOT_ENOUGH_REPLICAS"


class InvalidRequiredAcks(InvalidArgument):
    """acks is 0, 1 or all."""

    code = "INVALID_REQUIRED_ACKS"


class InvalidConfig(InvalidArgument):
    """A configuration name or value that is not one."""

    code = "INVALID_CONFIG"


class InvalidTopic(InvalidArgument):
    """A topic name that is not allowed."""

    code = "INVALID_TOPIC"


class InvalidSchema(InvalidArgument):
    """A schema, or a change of one, that breaks a rule of typed topics."""

    code = "INVALID_SCHEMA"


class UnknownSchemaVersion(RetriableError):
    """A version of a topic's schema that is not known here yet."""

    code = "UNKNOWN_SCHEMA_VERSION"


class NarrowSchemaVersion(MinilogError):
    """The version of a schema that a reader names cannot hold what was written by a later one."""

    code = "NARROW_SCHEMA_VERSION"


class InvalidPartitions(InvalidArgument):
    """A number of partitions that is not allowed."""

    code = "INVALID_PARTITIONS"


class InvalidReplicationFactor(InvalidArgument):
    """A replication factor below one or above the number of brokers."""

    code = "INVALID_REPLICATION_FACTOR"


class InvalidRecord(InvalidArgument):
    """A record or column that the record batch cannot hold."""

    code = "INVALID_RECORD"


class InvalidTimestamp(InvalidArgument):
    """A record whose time stamp is further from the leader's clock than its topic allows: nothing was written."""

    code = "INVALID_TIMESTAMP"


class TopicAlreadyExists(MinilogError):
    """A topic of this name exists."""

    code = "TOPIC_ALREADY_EXISTS"


class UnsupportedVersion(MinilogError):
    """The other side speaks a version of the contract that this side does not know."""

    code = "UNSUPPORTED_VERSION"


class LevelNotReached(RetriableError):
    """What the cluster's level does not allow, as far as the broker knows: typed topics, users, a form of batches."""

    code = "LEVEL_NOT_REACHED"


class OutOfOrderSequenceNumber(RetriableError):
    """A batch came before the one that precedes it by sequence."""

    code = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(MinilogError):
    """A batch older than the last five of its producer: it was written before, where is not known any more."""

    code = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(MinilogError):
    """A newer epoch of the same producer id has written: this producer is fenced."""

    code = "INVALID_PRODUCER_EPOCH"


class UnknownProducerId(MinilogError):
    """The broker holds no state of this producer."""

    code = "UNKNOWN_PRODUCER_ID"


class StorageError(RetriableError):
    """The disk failed under a replica: it is offline until its broker is repaired."""

    code = "STORAGE_ERROR"


class NoSpace(RetriableError):
    """The disk under a replica is full: writing is refused, reading goes on."""

    code = "NO_SPACE"


class NotController(RetriableError):
    """Another broker is the active controller."""

    code = "NOT_CONTROLLER"


class StaleBrokerEpoch(MinilogError):
    """The request comes from an earlier life of a broker."""

    code = "STALE_BROKER_EPOCH"


class DuplicateBrokerRegistration(MinilogError):
    """Another live process, on another data directory, holds this broker id."""

    code = "DUPLICATE_BROKER_REGISTRATION"


class InconsistentClusterId(MinilogError):
    """The data directory, or the broker that answers, belongs to another cluster."""

    code = "INCONSISTENT_CLUSTER_ID"


class InconsistentVoters(MinilogError):
    """A broker was started with other voters than those that found a cluster with it, or in another broker's place."""

    code = "INCONSISTENT_VOTERS"


class BrokerIdNotRegistered(MinilogError):
    """The broker id is not registered: register first."""

    code = "BROKER_ID_NOT_REGISTERED"


class InvalidUpdateVersion(MinilogError):
    """An ISR proposal, or the next version of a schema, that was not made from the committed state."""

    code = "INVALID_UPDATE_VERSION"


class IneligibleReplica(MinilogError):
    """An ISR proposal that names a broker which may not join."""

    code = "INELIGIBLE_REPLICA"


class ResourceNotFound(MinilogError):
    """A user, or a credential of one, that is not there."""

    code = "RESOURCE_NOT_FOUND"


class DuplicateResource(MinilogError):
    """A user of this name exists; or one request changes the same thing twice."""

    code = "DUPLICATE_RESOURCE"


class UnacceptableCredential(InvalidArgument):
    """A user's name, or the salt, the iterations or a key of a credential, that is not allowed."""

    code = "UNACCEPTABLE_CREDENTIAL"


class InvalidPrincipal(InvalidArgument):
    """Not User:NAME, or a name that is not allowed."""

    code = "INVALID_PRINCIPAL"


class DelegationTokenNotFound(ResourceNotFound):
    """No token has this id, for this user: it was expired, removed some time after its end, or is another's."""

    code = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(MinilogError):
    """The token is another's, and this user is none of its renewers. In the audit log: a client is told
    DelegationTokenNotFound."""

    code = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(MinilogError):
    """Whoever is not known by a password or an issuer's token, such as by a delegation token, has no tokens."""

    code = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenExpired(MinilogError):
    """The token is over, and cannot be renewed: create another one."""

    code = "DELEGATION_TOKEN_EXPIRED"


class PreferredLeaderNotAvailable(MinilogError):
    """The preferred replica is not in the ISR, or its broker is fenced or stopping: it cannot lead now."""

    code = "PREFERRED_LEADER_NOT_AVAILABLE"


class InvalidReplicaAssignment(InvalidArgument):
    """Replicas that a partition cannot have."""

    code = "INVALID_REPLICA_ASSIGNMENT"


class NoReassignmentInProgress(MinilogError):
    """There is nothing to cancel: the partition's replicas are not being reassigned."""

    code = "NO_REASSIGNMENT_IN_PROGRESS"


class NotCoordinator(RetriableError):
    """The broker does not lead the partition that this id's coordinator is: ask for metadata."""

    code = "NOT_COORDINATOR"


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is new, and reads what the one before it decided."""

    code = "COORDINATOR_LOAD_IN_PROGRESS"


class ProducerFenced(MinilogError):
    """The producer has ended, or a newer attempt or run of the transaction has taken over: nothing can be written."""

    code = "PRODUCER_FENCED"


class StaleGeneration(MinilogError):
    """The generation is not above the last one committed under this transactional id."""

    code = "STALE_GENERATION"


class InvalidTxnState(MinilogError):
    """What is asked does not fit the state of the transaction, such as a winner that is not enlisted."""

    code = "INVALID_TXN_STATE"


class InvalidTransactionTimeout(InvalidArgument):
    """A transaction time-out that is not allowed."""

    code = "INVALID_TRANSACTION_TIMEOUT"


class TransactionalIdNotFound(MinilogError):
    """No transaction is known under this id."""

    code = "TRANSACTIONAL_ID_NOT_FOUND"


class UnstableOffsetCommit(RetriableError):
    """An offset was committed in a transaction that has not ended yet."""

    code = "UNSTABLE_OFFSET_COMMIT"


class GroupIdNotFound(MinilogError):
    """No group of this id has committed anything."""

    code = "GROUP_ID_NOT_FOUND"


class OffsetMetadataTooLarge(InvalidArgument):
    """The text that goes with a committed offset is too long."""

    code = "OFFSET_METADATA_TOO_LARGE"


class TimedOut(RetriableError):
    """No answer in time, for a call that changes nothing."""

    code = "TIMED_OUT"


class BufferExhausted(RetriableError):
    """The producer's buffer stayed full: the brokers are slower than the program."""

    code = "BUFFER_EXHAUSTED"


class ResourceExhausted(RetriableError):
    """This process lacks memory, threads or files for what it was to do: the data are not to blame."""

    code = "RESOURCE_EXHAUSTED"


class BrokerNotAvailable(RetriableError):
    """No broker could be reached."""

    code = "BROKER_NOT_AVAILABLE"


class ListenerNotFound(BrokerNotAvailable):
    """A broker that leads has no listener of the name that this client came by: it cannot be reached."""

    code = "LISTENER_NOT_FOUND"


class AuthenticationFailed(MinilogError):
    """The broker does not believe who this client says it is, or this client the broker: a password, a certificate."""

    code = "AUTHENTICATION_FAILED"


class AuthorizationFailed(MinilogError):
    """Whoever this client is, it may not do that: no access rule allows it, or one denies it."""

    code = "AUTHORIZATION_FAILED"


class Closed(MinilogError):
    """The client was closed."""

    code = "CLOSED"


class UnknownOutcome(MinilogError):
    """The write may or may not have happened: look before you write again (rule V16)."""

    code = "UNKNOWN_OUTCOME"


class RequestTimedOut(UnknownOutcome):
    """The in-sync replicas did not confirm in time; the leader has the batch, its fate is open."""

    code = "REQUEST_TIMED_OUT"


class NotEnoughReplicasAfterAppend(UnknownOutcome):
    """The ISR fell below min.insync.replicas after the append; the batch's fate is open."""

    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def _subclasses(root: type[MinilogError]) -> list[type[MinilogError]]:
    return [root, *(found for child in root.__subclasses__() for found in _subclasses(child))]


_BY_CODE: dict[str, type[MinilogError]] = {}
_classes: list[type[MinilogError]] = [UnknownServerError, InvalidArgument, *_subclasses(MinilogError)]
for _class in _classes:
    _BY_CODE.setdefault(_class.code, _class)


def error_class(code: int) -> type[MinilogError]:
    """The class for a code of the wire; a code of a later version is an UnknownServerError."""
    try:
        name = common_pb2.ErrorCode.Name(code)  # type: ignore[arg-type]
    except ValueError:
        return UnknownServerError
    return _BY_CODE.get(name.removeprefix(_PREFIX), UnknownServerError)


def error_from_wire(error: common_pb2.Error) -> MinilogError | None:
    """What a broker answered, as an exception; None where it answered that all is well."""
    if error.code == common_pb2.ERROR_CODE_NONE:
        return None
    return error_class(error.code)(error.message)


def wire_error(error: MinilogError) -> common_pb2.Error:
    """The exception as a broker's answer, of a bounded length."""
    message = str(error)
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[:MAX_MESSAGE_CHARACTERS] + "..."
    return common_pb2.Error(code=common_pb2.ErrorCode.Value(_PREFIX + error.code), message=message)
