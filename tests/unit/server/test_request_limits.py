"""Every request is bounded before anything is done for it: by its bytes, its fields on the wire and its counts."""

from __future__ import annotations

from collections import defaultdict

import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError

from minilog.errors import InvalidArgument
from minilog.limits import (
    MAX_NEW_PARTITIONS,
    MAX_OFFSETS_ENTRIES,
    MAX_POSITIONS,
    MAX_PRODUCE_ENTRIES,
    MAX_SELECTION_TERMS,
)
from minilog.v1 import admin_pb2, common_pb2, coordinator_pb2, data_pb2, metadata_pb2, typed_pb2
from minilog_broker.server.ingress.rules.admission import methods
from minilog_broker.server.ingress.rules.request_limits import MAX_REQUEST_BYTES, CountLimit, RequestLimits, limits_of
from minilog_broker.server.ingress.rules.wire_fields import MessageShape, has_more_fields
from tests.rules import proves

pytestmark = proves("SE.19")

LIMITS = {each.name: limits_of(each) for each in methods()}
EMPTY: defaultdict[int | None, object] = defaultdict(int, {None: b"", FieldDescriptor.CPPTYPE_STRING: ""})
COUNTS = [(limits, count) for limits in LIMITS.values() for count in limits.counts]


def id_of(value: object) -> str:
    match value:
        case RequestLimits(name=name):
            return name
        case CountLimit(path=path):
            return ".".join(field.name for field in path)
    return str(value)


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.full_name)
def test_every_repeated_field_of_every_call_has_a_limit_with_a_reason(method: MethodDescriptor) -> None:
    for count in limits_of(method).counts:
        assert count.most >= 1
        assert count.reason


@pytest.mark.parametrize(("limits", "count"), COUNTS, ids=id_of)
def test_as_many_as_may_be_are_taken_and_one_more_is_refused_with_words(
    limits: RequestLimits, count: CountLimit
) -> None:
    request = limits.kind()
    at = request
    for field in count.path[:-1]:
        found = getattr(at, field.name)
        at = found.add() if field.is_repeated else found
    last = count.path[-1]

    def name(first: int, end: int) -> None:
        found = getattr(at, last.name)
        if last.message_type is not None and last.message_type.GetOptions().map_entry:
            found.update({str(number): "" for number in range(first, end)})
        elif last.message_type is not None:
            for _ in range(first, end):
                found.add()
        else:
            found.extend([EMPTY[last.cpp_type if last.type != last.TYPE_BYTES else None]] * (end - first))

    name(0, count.most)
    assert limits.parse(request.SerializeToString()) == request
    name(count.most, count.most + 1)
    with pytest.raises(InvalidArgument, match=rf"{count.most + 1} {last.name} .*{limits.name}.*{count.most}.*split"):
        limits.parse(request.SerializeToString())


@pytest.mark.parametrize("name", ["CreateTopics", "AlterTopics"])
def test_the_partitions_of_all_topics_of_a_request_are_bounded_and_those_of_one_alone_are_the_controllers_matter(
    name: str,
) -> None:
    limits = LIMITS[name]
    request = limits.kind()
    request.topics.add(num_partitions=MAX_NEW_PARTITIONS + 1)  # type: ignore[attr-defined]
    assert limits.parse(request.SerializeToString()) == request
    request.topics.add(num_partitions=-5)  # type: ignore[attr-defined]
    request.topics.add()  # type: ignore[attr-defined]
    assert limits.parse(request.SerializeToString()) == request
    request.topics.add(num_partitions=1)  # type: ignore[attr-defined]
    with pytest.raises(InvalidArgument, match=rf"{MAX_NEW_PARTITIONS + 2} num_partitions in all.*{name}.*split"):
        limits.parse(request.SerializeToString())


def test_bytes_are_bounded_before_they_are_parsed() -> None:
    with pytest.raises(InvalidArgument, match=rf"of {MAX_REQUEST_BYTES + 1} bytes .*ListOffsets"):
        LIMITS["ListOffsets"].parse(bytes(MAX_REQUEST_BYTES + 1))


@pytest.mark.parametrize("name", LIMITS)
def test_a_large_message_of_many_small_fields_is_refused_before_it_is_parsed(name: str) -> None:
    limits = LIMITS[name]
    unknown_field = b"\xf8\x7f\x01"
    with pytest.raises(InvalidArgument, match=r"fields came for|bytes came for"):
        limits.parse(unknown_field * max(limits.max_fields + 1, 30_000))


def test_empty_submessages_are_counted_on_every_level() -> None:
    empty_entry, partition_id_twice = b"\x22\x00", b"\x12\x00"
    shape = MessageShape.of(data_pb2.ProduceRequest.DESCRIPTOR)
    assert has_more_fields(empty_entry * 1_001, shape, 1_000)
    assert not has_more_fields(empty_entry * 1_000, shape, 1_000)
    nested = b"\x22\xfe\x07" + partition_id_twice * 511
    assert has_more_fields(nested, shape, 511)
    assert not has_more_fields(nested, shape, 512)


def nested_schema(depth: int, fields: int) -> typed_pb2.TopicSchema:
    schema = typed_pb2.TopicSchema()
    at = schema.fields.add()
    for _ in range(depth):
        at = at.struct.fields.add()
    at.struct.fields.extend([typed_pb2.SchemaField(id=1)] * fields)
    return schema


def test_messages_that_contain_themselves_are_counted_at_every_depth() -> None:
    """Of a schema each level is a field, a struct and its field; each of the last ones has an id."""
    shape = MessageShape.of(typed_pb2.TopicSchema.DESCRIPTOR)
    message = nested_schema(20, 100).SerializeToString()
    fields = 1 + 20 * 2 + 1 + 100 * 2
    assert has_more_fields(message, shape, fields - 1)
    assert not has_more_fields(message, shape, fields)


def test_the_terms_of_all_conditions_of_a_request_are_counted_however_deep_they_lie() -> None:
    """Below a `not` they were not."""
    part = typed_pb2.Predicate(is_null=1)
    wide = typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=[part] * (MAX_SELECTION_TERMS // 2)))
    negated = typed_pb2.Predicate(negated=wide)
    deep = typed_pb2.Predicate(all_of=typed_pb2.Predicates(parts=[typed_pb2.Predicate(negated=negated)]))
    for where in (wide, negated, deep):
        position = data_pb2.FetchPosition(selection=typed_pb2.Selection(where=where))
        few = data_pb2.FetchRequest(positions=[position])
        assert LIMITS["Fetch"].parse(few.SerializeToString()) == few
        many = data_pb2.FetchRequest(positions=[position] * 3)
        with pytest.raises(InvalidArgument, match=r"names 3000\d parts .*Fetch.*split"):
            LIMITS["Fetch"].parse(many.SerializeToString())


def test_numbers_are_one_field_on_the_wire_however_many_there_are() -> None:
    """What a request may have of fields was a million, for columns that lie packed in one."""
    assert LIMITS["Fetch"].max_fields < 300_000


@pytest.mark.parametrize("name", ["CreateTopics", "AlterTopics"])
def test_a_schema_of_many_fields_is_refused_however_deep_they_lie(name: str) -> None:
    limits = LIMITS[name]
    request = limits.kind()
    topic = request.topics.add()  # type: ignore[attr-defined]
    topic.schema.CopyFrom(nested_schema(3, limits.max_fields // 2))
    with pytest.raises(InvalidArgument, match=rf"fields came for {name}.*split"):
        limits.parse(request.SerializeToString())


def test_a_message_is_large_by_what_it_names() -> None:
    partition_id = common_pb2.PartitionId(topic_id=bytes(16), partition=1)
    entry = data_pb2.ProduceEntry(correlation_id=1, partition_id=partition_id, leader_epoch=1)
    assert not LIMITS["Produce"].is_large(data_pb2.ProduceRequest(entries=[entry] * 20).SerializeToString())
    position = data_pb2.FetchPosition(partition_id=partition_id, position_number=1, fetch_offset=1, leader_epoch=1)
    assert not LIMITS["Fetch"].is_large(data_pb2.FetchRequest(positions=[position] * 100).SerializeToString())
    assert LIMITS["Fetch"].is_large(data_pb2.FetchRequest(positions=[position] * 200).SerializeToString())


@pytest.mark.parametrize("noise", [b"\xff" * 200_000, b"\x22\xff\xff\x7f" + bytes(100_000), b"\x0b" * 70_000])
def test_bytes_that_are_no_message_are_left_to_protobuf(noise: bytes) -> None:
    with pytest.raises((DecodeError, InvalidArgument)):
        LIMITS["Produce"].parse(noise)


def test_messages_of_our_own_clients_are_within_the_limits() -> None:
    partition = common_pb2.PartitionId(topic_id=b"\xff" * 16, partition=9_999)
    position = data_pb2.FetchPosition(
        partition_id=partition, position_number=2**62, fetch_offset=2**62, end_offset=2**62, leader_epoch=2**30
    )
    entry = metadata_pb2.ListOffsetsEntry(
        partition_id=partition, leader_epoch=2**30, from_offset=2**62, sizes_bytes=[2**62] * 64
    )
    produced = data_pb2.ProduceEntry(correlation_id=2**62, partition_id=partition, leader_epoch=2**30)
    written = coordinator_pb2.WrittenPartition(partition_id=partition, last_sequence=2**30)
    for name, request in (
        ("Fetch", data_pb2.FetchRequest(positions=[position] * MAX_POSITIONS, forgotten=[partition] * MAX_POSITIONS)),
        ("ListOffsets", metadata_pb2.ListOffsetsRequest(entries=[entry] * MAX_OFFSETS_ENTRIES)),
        ("Produce", data_pb2.ProduceRequest(entries=[produced] * MAX_PRODUCE_ENTRIES)),
        (
            "EndTransaction",
            coordinator_pb2.EndTransactionRequest(winners=[coordinator_pb2.Winner(partitions=[written] * 100)] * 1_000),
        ),
        ("CreateTopics", admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="x" * 249)] * 1_000)),
    ):
        assert LIMITS[name].parse(request.SerializeToString()) == request
