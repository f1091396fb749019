"""The limits of one request: the one table of all counts, for every repeated field of every call (limits.md).

A message is checked before any work for it: its bytes, then its fields on the wire where it is large (wire_fields),
then, parsed, its counts. Payloads beside it (minilog.stream_messages) are not part of its bytes. A message above a
limit is refused as a whole. A repeated field without a row is a fault of ours: `limits_of` raises, and a test calls it
for every call of the proto files.

A message that contains itself (a schema, a condition) is counted at every depth. Each repeated field in it has one row,
whose path leads to the first place of the field. The check walks such a message once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from minilog import limits
from minilog.errors import InvalidArgument
from minilog.record_batch.header import Buffer
from minilog.typed.schema.topic_schema import MAX_FIELDS
from minilog_broker.coordinators.transactions.enlisting import MAX_PRODUCERS, MAX_REGISTRATIONS
from minilog_broker.replication.leader.list_offsets import MAX_SIZES
from minilog_broker.replication.leader.transaction_markers import MAX_MARKERS
from minilog_broker.server.ingress.rules.wire_fields import MessageShape, has_more_fields
from minilog_broker.server.listener_texts import MOST_LISTENERS

MAX_REQUEST_BYTES = 4 << 20  # without record batches: more than any request within its counts has
LARGE_BYTES, LARGE_FIELDS = 4 << 10, 1_000  # a hundred positions or produce entries, or more
SMALL_BYTES = 64 << 10  # parsed at once: it holds the loop for a few milliseconds at most
_OTHER_FIELDS = 100  # fields of one request that are not repeated

MAX_REPLICAS_OF_BROKER = 50_000  # offline or damaged replicas: each has a log directory and files
MAX_VOTERS = 16  # 1, 3 or 5 are possible
MAX_REPLICAS = 64  # of one partition
MAX_CONFIGS = 64  # of one topic or broker: there are fewer names

_MAX: dict[str, tuple[int, str]] = {
    "CreateTopicsRequest.topics": (limits.MAX_ADMIN_TOPICS, "each is a decision of the controller"),
    "NewTopic.configs": (limits.MAX_ADMIN_TOPICS * MAX_CONFIGS, "there are fewer settings"),
    "TopicSchema.fields": (limits.MAX_NEW_FIELDS, "each is a column that all brokers replay"),
    "TopicSchema.key_field_ids": (limits.MAX_NEW_FIELDS, "a key has no more columns than the schema"),
    "StructType.fields": (limits.MAX_NEW_FIELDS, "each is a field that all brokers replay"),
    "DeleteTopicsRequest.topics": (limits.MAX_ADMIN_TOPICS, "each is a decision of the controller"),
    "AlterTopicsRequest.topics": (limits.MAX_ADMIN_TOPICS, "each is a decision of the controller"),
    "TopicAlteration.set_configs": (limits.MAX_ADMIN_TOPICS * MAX_CONFIGS, "there are fewer settings"),
    "TopicAlteration.unset_configs": (limits.MAX_ADMIN_TOPICS * MAX_CONFIGS, "there are fewer settings"),
    "ElectLeadersRequest.topics": (limits.MAX_ADMIN_PARTITIONS, "one decision of the controller elects them"),
    "TopicPartitions.partitions": (limits.MAX_ADMIN_PARTITIONS, "one decision of the controller elects them"),
    "AlterPartitionReassignmentsRequest.reassignments": (limits.MAX_ADMIN_PARTITIONS, "each changes a partition"),
    "PartitionReassignment.replicas": (limits.MAX_ADMIN_PARTITIONS * MAX_REPLICAS, "a partition has fewer replicas"),
    "AlterBrokerSettingsRequest.set_configs": (MAX_CONFIGS, "there are fewer settings"),
    "AlterBrokerSettingsRequest.unset_configs": (MAX_CONFIGS, "there are fewer settings"),
    "LeaseRequest.topic_ids": (limits.MAX_LEASE_TOPICS, "each partition of each is looked into"),
    "RenewLeasesRequest.lease_ids": (limits.MAX_SETTLEMENTS, "each is looked up"),
    "SettleRequest.settlements": (limits.MAX_SETTLEMENTS, "each changes the state of a partition, of 100 at most"),
    "RedriveRequest.letters": (limits.MAX_LETTERS, "each changes the state of a partition"),
    "AlterQueueRequest.set_configs": (MAX_CONFIGS, "there are fewer settings"),
    "AlterQueueRequest.unset_configs": (MAX_CONFIGS, "there are fewer settings"),
    "AlterUsersRequest.alterations": (limits.MAX_SECURITY_CHANGES, "each is a record that all brokers replay"),
    "DescribeUsersRequest.names": (limits.MAX_SECURITY_CHANGES, "each is looked up and described"),
    "CreateAccessRulesRequest.rules": (limits.MAX_SECURITY_CHANGES, "each is a record that all brokers replay"),
    "DeleteAccessRulesRequest.filters": (limits.MAX_ACCESS_FILTERS, "each is held against every rule"),
    "AlterQuotasRequest.alterations": (limits.MAX_SECURITY_CHANGES, "each is a record that all brokers replay"),
    "CreateDelegationTokenRequest.renewers": (limits.MAX_RENEWERS, "each is kept with the token"),
    "DescribeDelegationTokensRequest.owners": (limits.MAX_SECURITY_CHANGES, "each is looked for"),
    "ProduceRequest.entries": (limits.MAX_PRODUCE_ENTRIES, "each is judged and given its place"),
    "FetchRequest.positions": (limits.MAX_POSITIONS, "each is judged against a log"),
    "Selection.field_ids": (limits.MAX_POSITIONS * MAX_FIELDS, "a topic has no more columns"),
    "Predicates.parts": (limits.MAX_SELECTION_TERMS, "each is made a condition of"),
    "SetCondition.integers": (limits.MAX_SELECTION_VALUES, "each is a value to look for"),
    "SetCondition.numbers": (limits.MAX_SELECTION_VALUES, "each is a value to look for"),
    "SetCondition.contents": (limits.MAX_SELECTION_VALUES, "each is a value to look for"),
    "SetCondition.unscaled": (limits.MAX_SELECTION_VALUES, "each is a value to look for"),
    "FetchRequest.forgotten": (limits.MAX_POSITIONS, "as many as positions"),
    "DeleteRecordsRequest.entries": (limits.MAX_DELETION_ENTRIES, "each is judged against a log"),
    "GetMetadataRequest.topic_names": (limits.MAX_METADATA_TOPICS, "each is looked up and described"),
    "GetMetadataRequest.topic_ids": (limits.MAX_METADATA_TOPICS, "each is looked up and described"),
    "ListOffsetsRequest.entries": (limits.MAX_OFFSETS_ENTRIES, "each may search an index"),
    "ListOffsetsEntry.sizes_bytes": (limits.MAX_OFFSETS_ENTRIES * MAX_SIZES, "each searches an index"),
    "RegisterRequest.damaged_replicas": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "RegisterRequest.recovered_replicas": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "RegisterRequest.listeners": (MOST_LISTENERS, "a broker has no more listeners"),
    "RegisterRequest.voters": (MAX_VOTERS, "there are 1, 3 or 5 voters"),
    "HeartbeatRequest.offline_replicas": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "HeartbeatRequest.undecided_partitions": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "HeartbeatRequest.late_cleanings": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "HeartbeatRequest.damaged_replicas": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "HeartbeatRequest.recovered_replicas": (MAX_REPLICAS_OF_BROKER, "a broker has no more replicas"),
    "ReplicateRequest.positions": (limits.MAX_POSITIONS, "each is judged against a log"),
    "ReplicateRequest.progress": (limits.MAX_POSITIONS, "each may move a high watermark"),
    "ReplicateRequest.forgotten": (limits.MAX_POSITIONS, "as many as positions"),
    "ProposeInSyncReplicasRequest.proposals": (limits.MAX_ADMIN_PARTITIONS, "each is a decision of the controller"),
    "InSyncReplicasProposal.in_sync_replicas": (limits.MAX_ADMIN_PARTITIONS * MAX_REPLICAS, "a partition has fewer"),
    "AwaitStableOffsetsRequest.partitions": (limits.MAX_STABLE_OFFSETS, "each is compared, and waited for"),
    "VoteRequest.voter_ids": (MAX_VOTERS, "there are 1, 3 or 5 voters"),
    "RegisterPartitionsRequest.partitions": (limits.MAX_GROUP_OFFSETS, "they are one batch of the coordinator"),
    "EndTransactionRequest.winners": (MAX_PRODUCERS, "a transaction has no more producers"),
    "Winner.partitions": (MAX_REGISTRATIONS, "a transaction is in no more partitions"),
    "AbortAttemptRequest.producer_ids": (MAX_PRODUCERS, "a transaction has no more producers"),
    "WriteMarkersRequest.markers": (MAX_MARKERS, "a transaction has no more producers"),
    "CommitOffsetsRequest.offsets": (limits.MAX_GROUP_OFFSETS, "they are one batch of the coordinator"),
    "FetchOffsetsRequest.partitions": (limits.MAX_GROUP_OFFSETS, "a commit has no more"),
    "MemberRequest.owned_partitions": (limits.MAX_OWNED_PARTITIONS, "each is held against the member's assignment"),
    "MemberSubscription.topics": (limits.MAX_SUBSCRIBED_TOPICS, "each is kept with the member, and looked up"),
    "DeleteGroupRequest.partitions": (limits.MAX_GROUP_OFFSETS, "they are one batch of the coordinator"),
}
"""By message and field: the limit for all messages of that kind in one request together, and its reason."""

_MAX_SUM: dict[str, tuple[int, str]] = {
    "NewTopic.num_partitions": (limits.MAX_NEW_PARTITIONS, "each is a record that all brokers replay"),
    "TopicAlteration.num_partitions": (limits.MAX_NEW_PARTITIONS, "each is a record that all brokers replay"),
}
"""By message and field, a number: the limit of its sum over all messages of that kind in one request. The controller
checks each number by itself."""


@dataclass(frozen=True, slots=True)
class CountLimit:
    """One row: the path from the request to the field, and the limit of its count. `tree`: the length of the path to
    the message that contains itself, in which the field is counted at every depth; None: it is in no such message."""

    path: tuple[FieldDescriptor, ...]
    most: int
    reason: str
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one call. Ask `is_large`, then `parse`. `least_count`: the lowest limit of a count."""

    service_name: str
    name: str
    kind: type[Message]
    max_fields: int
    shape: MessageShape
    counts: tuple[CountLimit, ...]
    least_count: int
    sums: tuple[CountLimit, ...]

    def is_large(self, data: Buffer) -> bool:
        """Whether the work for it takes some milliseconds."""
        return len(data) > LARGE_BYTES and has_more_fields(data, self.shape, LARGE_FIELDS)

    def parse(self, data: Buffer) -> Message:
        """The request. Raises InvalidArgument with the excess, the limit and the remedy;
        google.protobuf.message.DecodeError."""
        if len(data) > MAX_REQUEST_BYTES:
            raise self._refusal(f"of {len(data)} bytes", f"{MAX_REQUEST_BYTES} bytes")
        if len(data) > SMALL_BYTES and has_more_fields(data, self.shape, self.max_fields):
            raise self._refusal(f"of more than {self.max_fields} fields", f"{self.max_fields}")
        request = self.kind.FromString(bytes(data))
        trees: dict[int, Counter[str]] = {}
        for limit in self.counts if len(data) > self.least_count else ():  # each item has a byte, or more
            if (count := _count_of(request, limit, trees)) > limit.most:
                names = f"{count} {limit.path[-1].name}"
                raise self._refusal(f"that names {names}", f"{limit.most} ({limit.reason})")
        for limit in self.sums:
            numbers = _numbers(request, limit.path)
            if len(numbers) > 1 and (total := sum(numbers)) > limit.most:
                raise self._refusal(f"of {total} {limit.path[-1].name} in all", f"{limit.most} ({limit.reason})")
        return request

    def _refusal(self, what: str, most: str) -> InvalidArgument:
        return InvalidArgument(
            f"a request {what} came for {self.name}, and one request has at most {most}: split it into several. "
            "The broker did no part of it"
        )


def limits_of(method: MethodDescriptor) -> RequestLimits:
    """The limits of a call. Raises KeyError where a repeated field has no limit."""
    counts = tuple(_limits_in(method.input_type, (), None, set()))
    per_item = {limit.path: _fields_of(limit.path[-1]) for limit in counts}
    return RequestLimits(
        service_name=method.containing_service.full_name,
        name=method.name,
        kind=GetMessageClass(method.input_type),
        max_fields=_OTHER_FIELDS + sum(limit.most * per_item[limit.path] for limit in counts),
        shape=MessageShape.of(method.input_type),
        counts=counts,
        least_count=min((limit.most for limit in counts), default=0),
        sums=tuple(_sums_in(method.input_type, ())),
    )


def _limits_in(
    message: Descriptor, way: tuple[FieldDescriptor, ...], tree: int | None, seen: set[str]
) -> Iterator[CountLimit]:
    """The rows of a message's fields. `tree`: that of CountLimit. `seen`: the fields of the tree that have their
    row."""
    for field in message.fields:
        name = f"{message.name}.{field.name}"
        if field.is_repeated and name not in seen:
            seen |= {name} if tree is not None else set()
            yield CountLimit((*way, field), *_MAX[name], tree)
        if (inner := _inner(field, way)) is not None:
            if tree is None and _contains_itself(inner):
                yield from _limits_in(inner, (*way, field), len(way) + 1, set())
            else:
                yield from _limits_in(inner, (*way, field), tree, seen)


def _contains_itself(message: Descriptor) -> bool:
    waiting, seen = [message], set[str]()
    while waiting:
        for kind in (field.message_type for field in waiting.pop().fields):
            if kind is message:
                return True
            if kind is not None and kind.full_name not in seen:
                seen.add(kind.full_name)
                waiting.append(kind)
    return False


def _inner(field: FieldDescriptor, way: tuple[FieldDescriptor, ...]) -> Descriptor | None:
    """The message type of a field, unless it is one of those on the way to it."""
    kind = field.message_type
    if kind is None or kind.GetOptions().map_entry or kind in [step.containing_type for step in (*way, field)]:
        return None
    return kind


def _sums_in(message: Descriptor, way: tuple[FieldDescriptor, ...]) -> Iterator[CountLimit]:
    for field in message.fields:
        if (limit := _MAX_SUM.get(f"{message.name}.{field.name}")) is not None:
            yield CountLimit((*way, field), *limit)
        if (inner := _inner(field, way)) is not None:
            yield from _sums_in(inner, (*way, field))


def _fields_of(field: FieldDescriptor, way: tuple[FieldDescriptor, ...] = ()) -> int:
    """The number of fields on the wire for one item, itself included, without repeated fields inside.

    A oneof has one field. A message that contains itself counts once. Numbers lie packed in one field, which belongs to
    the message that has it.
    """
    if field.message_type is None:
        return 0 if _is_packed(field) else 1
    most_of: dict[str, int] = {}
    for inner in field.message_type.fields:
        if not inner.is_repeated or _is_packed(inner):
            is_tree = inner.message_type is not None and _inner(inner, (*way, field)) is None
            count = 1 if is_tree else _fields_of(inner, (*way, field))
            one = inner.full_name if inner.containing_oneof is None else inner.containing_oneof.full_name
            most_of[one] = max(count, most_of.get(one, 0))
    return 1 + sum(most_of.values())


def _is_packed(field: FieldDescriptor) -> bool:
    return field.is_repeated and field.message_type is None and field.cpp_type != FieldDescriptor.CPPTYPE_STRING


def _count_of(request: Any, limit: CountLimit, trees: dict[int, Counter[str]]) -> int:
    """The count of a field. `trees`: the counts in messages that contain themselves, by the last step of the path to
    them."""
    if limit.tree is None:
        return _count(request, limit.path)
    way = limit.path[: limit.tree]
    if (counted := trees.get(id(way[-1]))) is None:
        counted = trees[id(way[-1])] = _counted_in(_messages_at(request, way))
    return counted[limit.path[-1].full_name]


def _messages_at(message: Any, way: tuple[FieldDescriptor, ...]) -> Iterator[Any]:
    """All messages at the end of the path."""
    first, *rest = way
    if first.is_repeated or message.HasField(first.name):
        value = getattr(message, first.name)
        for message_there in value if first.is_repeated else (value,):
            yield from _messages_at(message_there, tuple(rest)) if rest else (message_there,)


def _counted_in(messages: Iterable[Any]) -> Counter[str]:
    """The counts of all repeated fields in these messages, at every depth, by their full names."""
    counted, waiting = Counter[str](), list(messages)
    while waiting:
        for field, value in waiting.pop().ListFields():
            if field.is_repeated:
                counted[field.full_name] += len(value)
            if field.message_type is not None:
                waiting += value if field.is_repeated else (value,)
    return counted


def _count(message: Any, path: tuple[FieldDescriptor, ...]) -> int:
    """The count of the field at the end of the path, summed over repeated messages on the path."""
    first, *rest = path
    value = getattr(message, first.name)
    if not rest:
        return len(value)
    return sum(_count(inner, tuple(rest)) for inner in (value if first.is_repeated else (value,)))


def _numbers(message: Any, path: tuple[FieldDescriptor, ...]) -> list[int]:
    """The numbers of the field at the end of the path that are above 0."""
    first, *rest = path
    value = getattr(message, first.name)
    if not rest:
        return [value] if value > 0 else []
    every = value if first.is_repeated else (value,)
    return [number for inner in every for number in _numbers(inner, tuple(rest))]


def all_limits(methods: Iterable[MethodDescriptor]) -> Mapping[str, RequestLimits]:
    """The limits of all calls, by path."""
    return {f"/{method.containing_service.full_name}/{method.name}": limits_of(method) for method in methods}
