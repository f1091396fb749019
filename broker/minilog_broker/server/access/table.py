"""Every call that a broker answers, with the right that it needs: the one table of authorization.

    OfPeers      only brokers, on their own listener; the certificate has to be of the broker that the message names as
                 its sender
    Asked        the operation on each of the names in the request; on the cluster where it names none
    LeftOut      topics that the answer leaves out where the caller may not describe them
    AllOf        several of those
    InService    the service checks each entry of a message (Caller.refusal)
    OpenToAll    calls before a login

A call without a row is refused, and a test fails for it. The operations are those of Kafka's calls. A refused request
is refused as a whole: no part of it is done.

Rules have names. A topic that a request names by its id is judged by its name (ById), in every call. Three ids have no
check. A Fetch forgets only its own positions. The partitions of an EndTransaction were judged when they were written. A
user that may delete a group may delete a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME
from minilog.partition_key import PartitionKey
from minilog.security.access_rules import CLUSTER_NAME
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.queues.settings import DEAD_LETTER_TOPIC
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access import about
from minilog_broker.server.access.about import About, nothing
from minilog_broker.server.access.refusals import ById

_PACKAGE = "minilog.v1"
Names = Callable[[Any, MetadataImage], Iterable[str | ById]]
Sender = Callable[[Any, MetadataImage], int | None]


@dataclass(frozen=True, slots=True)
class OfPeers:
    """A call of brokers. `sender`: the broker that the message names as its own, None where it names none.
    `first_only`: the first message of a stream names it, and later ones may leave it out."""

    sender: Sender
    first_only: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation on resources of one kind. `about`: further subjects for the audit log (about.py)."""

    operation: Operation
    kind: ResourceKind
    names: Names
    about: About = nothing


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Topics that the answer leaves out (redaction.py). The call is not refused. The audit log has the topics."""

    names: Names


@dataclass(frozen=True, slots=True)
class AllOf:
    """Several checks, all of which count."""

    parts: tuple[Asked | LeftOut, ...]


@dataclass(frozen=True, slots=True)
class InService:
    """The service checks each name."""


@dataclass(frozen=True, slots=True)
class OpenToAll:
    """A call for clients without a login."""


Row = OfPeers | Asked | AllOf | InService | OpenToAll


def _names(*fields: str) -> Names:
    """The text field of each path, or those of a repeated message: `topics.name`."""

    def of(request: Any, image: MetadataImage) -> Iterable[str]:
        for path in fields:
            field, _, inner = path.partition(".")
            value = getattr(request, field)
            if inner:
                yield from (getattr(entry, inner) for entry in value)
            else:
                yield value

    return of


def _the_cluster(request: Any, image: MetadataImage) -> Iterable[str]:
    return (CLUSTER_NAME,)


def by_id(image: MetadataImage, topic_id: bytes) -> ById:
    """A topic in the form that refusals judge."""
    topic = image.topics.get(topic_id)
    return ById(topic_id, None if topic is None else topic.name)


def _topics_of(field: str) -> Names:
    """The topics of the partition ids in the entries of `field`, or of the partition ids themselves."""

    def of(request: Any, image: MetadataImage) -> Iterable[ById]:
        ids = dict.fromkeys(getattr(entry, "partition_id", entry).topic_id for entry in getattr(request, field))
        return (by_id(image, topic_id) for topic_id in ids)

    return of


def _letters(request: Any, image: MetadataImage) -> Iterable[ById]:
    """The dead-letter topic of a redrive."""
    return (by_id(image, request.letters_partition_id.topic_id),)


def _rewritten_letters(request: Any, image: MetadataImage) -> Iterable[ById]:
    """The same of a settlement that has letters."""
    return _letters(request.rewritten, image) if request.HasField("rewritten") else ()


def _topic_ids(request: Any, image: MetadataImage) -> Iterable[ById]:
    """The topics of a lease."""
    return (by_id(image, topic_id) for topic_id in request.topic_ids)


def _topics_to_delete(request: Any, image: MetadataImage) -> Iterable[str | ById]:
    """The topics by name, else by id. Where both are there they are of one topic, or the controller deletes nothing."""
    return (topic.name or by_id(image, topic.topic_id) for topic in request.topics)


def _field(name: str) -> Sender:
    return lambda request, image: int(getattr(request, name))


def _nobody(request: Any, image: MetadataImage) -> int | None:
    return None


def _coordinator(request: Any, image: MetadataImage) -> int | None:
    """The leader of the partition of `__transactions`, which sends markers. Where this image has no leader of that
    epoch, marker_checks compares the epochs."""
    topic_id = image.topic_ids.get(TRANSACTIONS_TOPIC_NAME)
    state = None if topic_id is None else image.partitions.get(PartitionKey(topic_id, request.coordinator_partition))
    return None if state is None or state.leader_epoch != request.coordinator_epoch else state.leader_id


def _transaction_of_commit(request: Any, image: MetadataImage) -> Iterable[str]:
    return (request.transaction.transactional_id,) if request.HasField("transaction") else ()


def _dead_letter_topic(request: Any, image: MetadataImage) -> Iterable[str]:
    topic = request.set_configs.get(DEAD_LETTER_TOPIC, "")
    return (topic,) if topic else ()


def _subscribed_topics(request: Any, image: MetadataImage) -> Iterable[str]:
    return tuple(request.subscription.topics)


def _peers(field: str) -> OfPeers:
    return OfPeers(_field(field))


def _asked(operation: Operation, kind: ResourceKind, names: Names = _the_cluster) -> Asked:
    return Asked(operation, kind, names)


def _alters_cluster(about: About, operation: Operation = Operation.ALTER) -> Asked:
    return Asked(operation, ResourceKind.CLUSTER, _the_cluster, about)


def _asked_by_id(operation: Operation, field: str) -> Asked:
    return Asked(operation, ResourceKind.TOPIC, _topics_of(field))


_O, _K = Operation, ResourceKind
_OF_CLUSTER = _K.CLUSTER
_WRITES_TRANSACTION = _asked(_O.WRITE, _K.TRANSACTIONAL_ID, _names("transactional_id"))
_READS_CLUSTER = _asked(_O.DESCRIBE, _OF_CLUSTER)

_SERVICES: Mapping[str, Mapping[str, Row]] = {
    "AuthenticationService": {"Authenticate": OpenToAll()},
    "DataService": {
        "Produce": InService(),
        "Fetch": InService(),
        "DeleteRecords": _asked_by_id(_O.DELETE, "entries"),
    },
    "MetadataService": {
        "GetMetadata": InService(),
        "ListOffsets": _asked_by_id(_O.DESCRIBE, "entries"),
        "InitProducerId": InService(),
        "GetBrokerConfig": _asked(_O.DESCRIBE_CONFIGS, _OF_CLUSTER),
    },
    "TransactionService": {
        "Enlist": _WRITES_TRANSACTION,
        "RegisterPartitions": OfPeers(_nobody),
        "KeepAlive": _WRITES_TRANSACTION,
        "EndTransaction": _WRITES_TRANSACTION,
        "AbortAttempt": _WRITES_TRANSACTION,
        "ListTransactions": _READS_CLUSTER,
        "DescribeTransaction": _asked(_O.DESCRIBE, _K.TRANSACTIONAL_ID, _names("transactional_id")),
        "AbortTransaction": _WRITES_TRANSACTION,
        "ForgetTransaction": _asked(_O.DELETE, _K.TRANSACTIONAL_ID, _names("transactional_id")),
    },
    "MarkerService": {"WriteMarkers": OfPeers(_coordinator)},
    "GroupService": {
        "CommitOffsets": AllOf(
            (
                _asked(_O.READ, _K.GROUP, _names("group_id")),
                _asked_by_id(_O.READ, "offsets"),
                _asked(_O.WRITE, _K.TRANSACTIONAL_ID, _transaction_of_commit),
            )
        ),
        "FetchOffsets": AllOf(
            (_asked(_O.DESCRIBE, _K.GROUP, _names("group_id")), LeftOut(_topics_of("partitions"))),
        ),
        "ListGroups": _READS_CLUSTER,
        "DescribeGroup": _asked(_O.DESCRIBE, _K.GROUP, _names("group_id")),
        "DeleteGroup": _asked(_O.DELETE, _K.GROUP, _names("group_id")),
        "RemoveMember": _asked(_O.DELETE, _K.GROUP, _names("group_id")),
        "Member": AllOf(
            (
                _asked(_O.READ, _K.GROUP, _names("group_id")),
                _asked(_O.DESCRIBE, _K.TOPIC, _subscribed_topics),
            )
        ),
    },
    "QueueService": {
        "Lease": AllOf((_asked(_O.READ, _K.GROUP, _names("queue")), _asked(_O.READ, _K.TOPIC, _topic_ids))),
        "RenewLeases": _asked(_O.READ, _K.GROUP, _names("queue")),
        "Settle": AllOf(
            (
                _asked(_O.READ, _K.GROUP, _names("queue")),
                _asked_by_id(_O.READ, "settlements"),
                _asked(_O.READ, _K.TOPIC, _rewritten_letters),
                _asked(_O.WRITE, _K.TRANSACTIONAL_ID, _transaction_of_commit),
            )
        ),
        # A user that may settle a record for good may undo that. Kafka asks for the same right to reset a share group.
        "Redrive": AllOf(
            (
                _asked(_O.READ, _K.GROUP, _names("queue")),
                _asked_by_id(_O.READ, "letters"),
                _asked(_O.READ, _K.TOPIC, _letters),
            )
        ),
        "ListQueues": _READS_CLUSTER,
        "DescribeQueue": _asked(_O.DESCRIBE, _K.GROUP, _names("queue")),
        # A queue's letters go where its setting says: who may not write there must not send them there.
        "AlterQueue": AllOf(
            (
                _asked(_O.ALTER, _K.GROUP, _names("queue")),
                _asked(_O.WRITE, _K.TOPIC, _dead_letter_topic),
            )
        ),
        "DeleteQueue": _asked(_O.DELETE, _K.GROUP, _names("queue")),
    },
    "AdminService": {
        "CreateTopics": _asked(_O.CREATE, _K.TOPIC, _names("topics.name")),
        "DeleteTopics": _asked(_O.DELETE, _K.TOPIC, _topics_to_delete),
        "AlterTopics": _asked(_O.ALTER, _K.TOPIC, _names("topics.name")),
        "ElectLeaders": _alters_cluster(about.topics("topics")),
        "AlterPartitionReassignments": _alters_cluster(about.topics("reassignments")),
        "ReplaceVoter": _alters_cluster(about.broker),
        "AlterVoter": _alters_cluster(about.broker),
        "AlterBroker": _alters_cluster(about.broker),
        "UpgradeLevel": _alters_cluster(nothing),
        "AlterBrokerSettings": _alters_cluster(about.broker_settings, _O.ALTER_CONFIGS),
        "DescribeBrokerSettings": _asked(_O.DESCRIBE_CONFIGS, _OF_CLUSTER),
    },
    "SecurityService": {
        "AlterUsers": _alters_cluster(about.users),
        "DescribeUsers": _READS_CLUSTER,
        "CreateAccessRules": _alters_cluster(about.rules),
        "DeleteAccessRules": _alters_cluster(about.filters),
        "DescribeAccessRules": _READS_CLUSTER,
        "AlterQuotas": _alters_cluster(about.quotas, _O.ALTER_CONFIGS),
        "DescribeQuotas": _asked(_O.DESCRIBE_CONFIGS, _OF_CLUSTER),
        "CreateDelegationToken": InService(),
        "RenewDelegationToken": InService(),
        "ExpireDelegationToken": InService(),
        "DescribeDelegationTokens": InService(),
    },
    "PeerService": {
        "Register": _peers("broker_id"),
        "Heartbeat": _peers("broker_id"),
        "Replicate": OfPeers(_field("broker_id"), first_only=True),
        "ProposeInSyncReplicas": _peers("broker_id"),
        "AllocateProducerIds": _peers("broker_id"),
        "CreateInternalTopic": _peers("broker_id"),
        "Vote": _peers("candidate_id"),
        "BeginQuorumEpoch": _peers("leader_id"),
        "FetchSnapshot": _peers("broker_id"),
        "DigestRecords": _peers("broker_id"),
        "SetCopyAside": _peers("broker_id"),
        "AwaitStableOffsets": _peers("broker_id"),
    },
}

ROWS: Mapping[str, Row] = {
    **{f"/{_PACKAGE}.{service}/{method}": row for service, rows in _SERVICES.items() for method, row in rows.items()},
    **{f"/grpc.health.v1.Health/{method}": OpenToAll() for method in ("Check", "List", "Watch")},
}
ALSO_OF_BROKERS = frozenset((f"/{_PACKAGE}.MetadataService/ListOffsets",))
"""Calls of clients that brokers make, too: the coordinator of a group asks leaders for the ends of their logs."""
