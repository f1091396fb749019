"""Schemas as metadata tells them to a client, and as an admin tells them to the controller."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import minilog
from minilog import NewTopic, TopicAlteration
from minilog.admin.messages import describe_topic, new_topic, parts_of_topics, topic_alteration
from minilog.errors import InvalidArgument, InvalidSchema, UnsupportedVersion
from minilog.limits import MAX_NEW_FIELDS
from minilog.net.metadata_cache import MetadataCache
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import rename_column
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.wire import first_version_from_wire, schema_to_wire
from minilog.v1 import metadata_pb2, typed_pb2

FIRST = schema_from_ddl("carrier string NOT NULL, delay int", ["carrier"])
SECOND = rename_column(FIRST, "delay", "late")
OF_LATER = typed_pb2.TopicSchema(
    version=1, fields=[typed_pb2.SchemaField(id=1, name="n", primitive="variant")], last_field_id=1
)


def told(*schemas: typed_pb2.TopicSchema, name: str = "t", topic_id: bytes = b"t" * 16) -> metadata_pb2.TopicMetadata:
    return metadata_pb2.TopicMetadata(name=name, topic_id=topic_id, schemas=schemas)


def apply(cache: MetadataCache, *topics: metadata_pb2.TopicMetadata) -> None:
    answer = metadata_pb2.GetMetadataResponse(cluster_id="c", metadata_offset=1, controller_id=-1, topics=topics)
    assert cache.apply(answer)


def test_a_client_knows_all_versions_and_reads_them_once() -> None:
    cache = MetadataCache()
    apply(cache, told(schema_to_wire(FIRST)), told(name="plain", topic_id=b"p" * 16))
    before = cache.topics["t"].schemas
    assert before is not None
    assert (before.versions, cache.topics["plain"].schemas) == ((FIRST,), None)
    apply(cache, told(schema_to_wire(FIRST)))
    assert cache.topics["t"].schemas is before
    apply(cache, told(schema_to_wire(FIRST), schema_to_wire(SECOND)))
    after = cache.topics["t"].schemas
    assert after is not None
    assert after.latest == SECOND
    apply(cache, told(schema_to_wire(FIRST), schema_to_wire(SECOND), topic_id=b"u" * 16))
    again = cache.topics["t"].schemas
    assert again == after
    assert again is not after, "another topic of the same name"


@pytest.mark.parametrize(
    "schemas", [[OF_LATER], [schema_to_wire(SECOND)]], ids=["a type of later", "a version left out"]
)
def test_a_version_that_cannot_be_read_is_the_error_of_its_reader(schemas: list[typed_pb2.TopicSchema]) -> None:
    cache = MetadataCache()
    apply(cache, told(*schemas), told(schema_to_wire(FIRST), name="other", topic_id=b"o" * 16))
    for _ in range(2):
        with pytest.raises(UnsupportedVersion, match="topic 't' has a schema that this version of minilog cannot read"):
            cache.topics["t"].schemas  # noqa: B018
    other = cache.topics["other"].schemas
    assert other is not None
    assert other.latest == FIRST
    description = describe_topic(told(*schemas), {})
    assert description.name == "t"
    with pytest.raises(UnsupportedVersion, match="upgrade this client"):
        description.schema  # noqa: B018


def test_a_description_has_the_latest_and_all_versions() -> None:
    found = describe_topic(told(schema_to_wire(FIRST), schema_to_wire(SECOND)), {})
    assert (found.schema, found.schema_versions) == (SECOND, [FIRST, SECOND])
    plain = describe_topic(told(), {})
    assert (plain.schema, plain.schema_versions) == (None, [])


@pytest.mark.parametrize(
    ("given", "proposed"),
    [
        (FIRST, FIRST),
        (replace(SECOND, version=7), replace(SECOND, version=1)),
        (
            pa.schema([pa.field("carrier", pa.large_string()), pa.field("n", pa.uint8())]),
            schema_from_ddl("carrier string, n short"),
        ),
    ],
    ids=["a schema", "that of another topic", "Arrow's"],
)
def test_a_new_topic_proposes_a_first_version(given: TopicSchema | pa.Schema, proposed: TopicSchema) -> None:
    message = new_topic(NewTopic("t", schema=given))
    assert message.schema.version == 1
    assert first_version_from_wire(message.schema) == proposed
    assert not new_topic(NewTopic("t")).HasField("schema")


def test_values_that_are_no_schema_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidArgument, match="give a TopicSchema or an Arrow schema"):
        new_topic(NewTopic("t", schema="carrier string"))
    with pytest.raises(InvalidSchema, match="a type that no topic can have"):
        new_topic(NewTopic("t", schema=pa.schema([pa.field("n", pa.duration("s"))])))
    with pytest.raises(InvalidSchema, match="field ids are"):
        topic_alteration(TopicAlteration("t", schema=replace(FIRST, last_field_id=1)))


def test_an_alteration_tells_the_version_with_its_ids() -> None:
    assert topic_alteration(TopicAlteration("t", schema=SECOND)).schema == schema_to_wire(SECOND)
    assert not topic_alteration(TopicAlteration("t")).HasField("schema")


def test_topics_with_many_columns_go_in_several_requests() -> None:
    wide = schema_from_ddl(", ".join(f"c{number} int" for number in range(900)))
    messages = [new_topic(NewTopic(f"t{number}", schema=wide)) for number in range(25)]
    parts = list(parts_of_topics(messages))
    assert [each for part in parts for each in part] == messages
    assert max(sum(len(each.schema.fields) for each in part) for part in parts) <= MAX_NEW_FIELDS
    assert len(parts) == 3


def test_users_find_schemas_in_the_package() -> None:
    assert minilog.schema_from_ddl("n long") == minilog.schema_from_arrow(pa.schema([("n", pa.int64())]))
    assert isinstance(minilog.schema_from_json('[{"name": "n", "type": "long"}]'), minilog.TopicSchema)
