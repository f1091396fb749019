"""Schemas of typed topics: the first version of a new topic, and their evolution. Each function checks the whole
request before the controller writes any of it.

The controller gives ids to the fields of a new topic. A client that evolves a schema proposes the whole next version
with ids, made from the latest one that it knows. The number of the version shows which one that was. So of two clients
that evolve at once, one is refused. A version that is there already is not written again: its answer may have been
lost.

Every broker checks a stored schema again at its replay. So a rule for one version may become looser, never stricter.
"""

from __future__ import annotations

from dataclasses import replace

from minilog.errors import InvalidSchema, InvalidUpdateVersion
from minilog.typed.evolution import check_evolution
from minilog.typed.fields import Field, mapped
from minilog.typed.topic_schema import TopicSchema
from minilog.typed.wire import first_version_from_wire, schema_from_wire, schema_to_wire
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.levels import COLUMN_COMMENTS_LEVEL, TYPED_TOPICS_LEVEL, check_reached


def schema_of_new(request: admin_pb2.NewTopic, image: MetadataImage) -> TopicSchema | None:
    """The first version of a new topic's schema, None where it has none. Raises LevelNotReached, InvalidSchema."""
    if not request.HasField("schema"):
        return None
    check_reached(image.level, TYPED_TOPICS_LEVEL, f"topic {request.name} cannot have a schema: typed topics came")
    schema = first_version_from_wire(request.schema)
    _check_comments(schema, request.name, image)
    return schema


def evolved_schema(request: admin_pb2.TopicAlteration, topic: TopicImage, image: MetadataImage) -> TopicSchema | None:
    """The version of the schema to write. None where it is there already, or the request has none.

    Raises InvalidSchema, and InvalidUpdateVersion where another client evolved the schema first.
    """
    if not request.HasField("schema"):
        return None
    schemas = image.schemas.get(topic.topic_id)
    if schemas is None:
        raise InvalidSchema(
            f"topic {topic.name} has no schema, and cannot get one: its records are keys and values. Create a new "
            "topic with a schema"
        )
    latest = schemas.latest
    proposed = _with_comments_of(latest, schema_from_wire(request.schema))
    if proposed.version <= latest.version and schemas.version(proposed.version) == proposed:
        return None
    if proposed.version != latest.version + 1:
        raise InvalidUpdateVersion(
            f"version {proposed.version} of the schema of topic {topic.name} does not follow version {latest.version}: "
            f"another client evolved it meanwhile. Look at it (minilog topic schema show {topic.name}), and try again"
        )
    check_evolution(latest, proposed)
    _check_comments(proposed, topic.name, image)
    return schemas.followed_by(proposed).latest


def _with_comments_of(latest: TopicSchema, proposed: TopicSchema) -> TopicSchema:
    """A field keeps its comment where the proposal has none: an earlier client knows no comments."""

    def commented(field: Field) -> Field:
        known = latest.by_id.get(field.id)
        return replace(field, comment=known.comment) if known is not None and not field.comment else field

    return replace(proposed, fields=mapped(proposed.fields, commented))


def _check_comments(schema: TopicSchema, topic: str, image: MetadataImage) -> None:
    """An earlier broker would drop them from its image. Raises LevelNotReached."""
    if any(field.comment for field in schema.by_id.values()):
        remedy = "Leave the comments out, or run `minilog cluster upgrade` when all brokers support it"
        what = f"columns of topic {topic} cannot have comments: they came"
        check_reached(image.level, COLUMN_COMMENTS_LEVEL, what, remedy)


def schema_record(topic_id: bytes, schema: TopicSchema) -> records_pb2.MetadataRecord:
    """The record of one more version."""
    return records_pb2.MetadataRecord(
        topic_schema=records_pb2.TopicSchemaRecord(topic_id=topic_id, schema=schema_to_wire(schema))
    )
