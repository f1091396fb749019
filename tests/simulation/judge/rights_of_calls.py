"""What it takes to be answered, of each call that rules govern: written down by the meaning of the calls, and not by
the product's table. The operations are Kafka's.

A call that is refused as a whole ends with a status, and that is no message: whoever got a message was let in. What
services refuse by entries is looked for in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minilog.security.access_rules import Operation, ResourceKind
from tests.simulation.judge.rules import Right

NamesOfTopics = Mapping[bytes, str]
"""By their ids: all that ever were."""
Needs = Callable[[Any, Any, NamesOfTopics], Iterable[Right]]
"""Of a request, the answer to it, None where it is not known yet, and the names of topics."""

_TOPIC, _GROUP, _TRANSACTION = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID


def _cluster(operation: Operation) -> Needs:
    return lambda request, answer, topics: (Right(operation, ResourceKind.CLUSTER),)


def _named(operation: Operation, kind: ResourceKind, field: str) -> Needs:
    return lambda request, answer, topics: (Right(operation, kind, getattr(request, field)),)


def _topics_named(operation: Operation) -> Needs:
    """By their names, or by ids that are known."""

    def needs(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
        for each in request.topics:
            name = each.name or topics.get(getattr(each, "topic_id", b""))
            if name is not None:
                yield Right(operation, _TOPIC, name)

    return needs


def of_ids(operation: Operation, entries: Iterable[Any], topics: NamesOfTopics) -> Iterator[Right]:
    """Of entries with a partition's id."""
    for each in entries:
        if (name := topics.get(getattr(each, "partition_id", each).topic_id)) is not None:
            yield Right(operation, _TOPIC, name)


def _entries(operation: Operation) -> Needs:
    return lambda request, answer, topics: of_ids(operation, request.entries, topics)


def _commit(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.READ, _GROUP, request.group_id)
    yield from of_ids(Operation.READ, request.offsets, topics)
    if request.HasField("transaction"):
        yield Right(Operation.WRITE, _TRANSACTION, request.transaction.transactional_id)


def _join(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.READ, _GROUP, request.group_id)
    yield from (Right(Operation.DESCRIBE, _TOPIC, name) for name in request.subscription.topics)


def _look_at_group(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.DESCRIBE, _GROUP, request.group_id)
    if answer is not None:
        yield from of_ids(Operation.DESCRIBE, answer.offsets, topics)


def _lease(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.READ, _GROUP, request.queue)
    yield from (Right(Operation.READ, _TOPIC, topics[each]) for each in request.topic_ids if each in topics)


def _settle(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.READ, _GROUP, request.queue)
    yield from of_ids(Operation.READ, request.settlements, topics)
    if request.HasField("rewritten"):
        yield from _of_letters(request.rewritten, topics)
    if request.HasField("transaction"):
        yield Right(Operation.WRITE, _TRANSACTION, request.transaction.transactional_id)


def _of_letters(request: Any, topics: NamesOfTopics) -> Iterator[Right]:
    return of_ids(Operation.READ, [request.letters_partition_id], topics)


def _redrive(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.READ, _GROUP, request.queue)
    yield from _of_letters(request, topics)
    yield from of_ids(Operation.READ, request.letters, topics)


def _look_at_queue(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    yield Right(Operation.DESCRIBE, _GROUP, request.queue)
    if answer is not None:
        yield from of_ids(Operation.DESCRIBE, answer.partitions, topics)


def _metadata(request: Any, answer: Any, topics: NamesOfTopics) -> Iterator[Right]:
    for each in () if answer is None else answer.topics:
        if not each.error.code and not each.internal:
            yield Right(Operation.DESCRIBE, _TOPIC, each.name)
    told = answer is not None and [
        *(each for each in answer.brokers if each.broker_epoch != -1),
        *(each for each in answer.voters if each.directory_id),
    ]
    if told:
        yield Right(Operation.DESCRIBE, ResourceKind.CLUSTER)


def _in_service(request: Any, answer: Any, topics: NamesOfTopics) -> Iterable[Right]:
    """Looked at in rights.py: it takes more than rights of names."""
    return ()


_O = Operation
_WRITES_TRANSACTION = _named(_O.WRITE, _TRANSACTION, "transactional_id")
NEEDS: Mapping[str, Needs] = {
    f"/minilog.v1.{path}": needs
    for path, needs in {
        "DataService/Produce": _in_service,
        "DataService/Fetch": _in_service,
        "DataService/DeleteRecords": _entries(_O.DELETE),
        "MetadataService/GetMetadata": _metadata,
        "MetadataService/ListOffsets": _entries(_O.DESCRIBE),
        "MetadataService/InitProducerId": _in_service,
        "MetadataService/GetBrokerConfig": _cluster(_O.DESCRIBE_CONFIGS),
        "TransactionService/Enlist": _WRITES_TRANSACTION,
        "TransactionService/KeepAlive": _WRITES_TRANSACTION,
        "TransactionService/EndTransaction": _WRITES_TRANSACTION,
        "TransactionService/AbortAttempt": _WRITES_TRANSACTION,
        "TransactionService/ListTransactions": _cluster(_O.DESCRIBE),
        "TransactionService/DescribeTransaction": _named(_O.DESCRIBE, _TRANSACTION, "transactional_id"),
        "TransactionService/AbortTransaction": _WRITES_TRANSACTION,
        "TransactionService/ForgetTransaction": _named(_O.DELETE, _TRANSACTION, "transactional_id"),
        "GroupService/CommitOffsets": _commit,
        "GroupService/FetchOffsets": _look_at_group,
        "GroupService/ListGroups": _cluster(_O.DESCRIBE),
        "GroupService/DescribeGroup": _look_at_group,
        "GroupService/DeleteGroup": _named(_O.DELETE, _GROUP, "group_id"),
        "GroupService/Member": _join,
        "GroupService/RemoveMember": _named(_O.DELETE, _GROUP, "group_id"),
        "QueueService/Lease": _lease,
        "QueueService/RenewLeases": _named(_O.READ, _GROUP, "queue"),
        "QueueService/Settle": _settle,
        "QueueService/Redrive": _redrive,
        "QueueService/ListQueues": _cluster(_O.DESCRIBE),
        "QueueService/DescribeQueue": _look_at_queue,
        "QueueService/AlterQueue": _named(_O.ALTER, _GROUP, "queue"),
        "QueueService/DeleteQueue": _named(_O.DELETE, _GROUP, "queue"),
        "AdminService/CreateTopics": _topics_named(_O.CREATE),
        "AdminService/DeleteTopics": _topics_named(_O.DELETE),
        "AdminService/AlterTopics": _topics_named(_O.ALTER),
        "AdminService/ElectLeaders": _cluster(_O.ALTER),
        "AdminService/AlterPartitionReassignments": _cluster(_O.ALTER),
        "AdminService/ReplaceVoter": _cluster(_O.ALTER),
        "AdminService/AlterVoter": _cluster(_O.ALTER),
        "AdminService/AlterBrokerSettings": _cluster(_O.ALTER_CONFIGS),
        "AdminService/DescribeBrokerSettings": _cluster(_O.DESCRIBE_CONFIGS),
        "AdminService/AlterBroker": _cluster(_O.ALTER),
        "AdminService/UpgradeLevel": _cluster(_O.ALTER),
        "SecurityService/AlterUsers": _cluster(_O.ALTER),
        "SecurityService/DescribeUsers": _cluster(_O.DESCRIBE),
        "SecurityService/CreateAccessRules": _cluster(_O.ALTER),
        "SecurityService/DeleteAccessRules": _cluster(_O.ALTER),
        "SecurityService/DescribeAccessRules": _cluster(_O.DESCRIBE),
        "SecurityService/AlterQuotas": _cluster(_O.ALTER_CONFIGS),
        "SecurityService/DescribeQuotas": _cluster(_O.DESCRIBE_CONFIGS),
        "SecurityService/CreateDelegationToken": _in_service,
        "SecurityService/RenewDelegationToken": _in_service,
        "SecurityService/ExpireDelegationToken": _in_service,
        "SecurityService/DescribeDelegationTokens": _in_service,
    }.items()
}
