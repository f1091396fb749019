"""Schemas of typed topics: the first version of a new topic, and their evolution. Each function checks the whole
request before the controller writes any of it.

The controller gives ids to the fields of a new topic. A client that evolves a schema proposes the whole next version
with ids, made from the latest one that it knows. The number of the version shows which one that was. So of two clients
that evolve at once, one is refused. A version that is there already is not written again: its answer may have been
lost. A version may be pending until a write is committed, and withdrawn with the write (typed/schema/topic_schemas.py).

Every broker checks a stored schema again at its replay. So a rule for one version may become looser, never stricter.
"""

from __future__ import annotations

from dataclasses import replace

from minilog.errors import InvalidSchema, InvalidUpdateVersion
from minilog.typed.schema.evolution import check_evolution
from minilog.typed.schema.fields import Field, mapped
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.typed.schema.wire import first_version_from_wire, schema_from_wire, schema_to_wire
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.controller.topic_records import schema_state_record
from minilog_broker.levels import COLUMN_COMMENTS_LEVEL, PENDING_SCHEMAS_LEVEL, TYPED_TOPICS_LEVEL, check_reached

_LATEST, _PENDING = int(admin_pb2.SCHEMA_STEP_NONE), int(admin_pb2.SCHEMA_STEP_PENDING)
_WITHDRAWN = int(admin_pb2.SCHEMA_STEP_WITHDRAWN)


def schema_of_new(request: admin_pb2.NewTopic, image: MetadataImage) -> TopicSchema | None:
    """The first version of a new topic's schema, None where it has none. Raises LevelNotReached, InvalidSchema."""
    if not request.HasField("schema"):
        return None
    check_reached(image.level, TYPED_TOPICS_LEVEL, f"topic {request.name} cannot have a schema: typed topics came")
    schema = first_version_from_wire(request.schema)
    _check_comments(schema, request.name, image)
    return schema


def evolved_schemas(request: admin_pb2.TopicAlteration, topic: TopicImage, image: MetadataImage) -> TopicSchemas | None:
    """The schemas of the topic after the request: with one more version, or in another state. None where nothing
    changes.

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
    step: int = request.schema_step if image.level >= PENDING_SCHEMAS_LEVEL else _LATEST
    newest = schemas.versions[-1]
    proposed = _with_comments_of(schemas, schema_from_wire(request.schema))
    if proposed.version <= newest.version and schemas.version(proposed.version) == proposed:
        after = _in_step(schemas, proposed.version, step, topic.name)
    elif proposed.version != newest.version + 1 or step == _WITHDRAWN:
        raise _another_was_first(proposed.version, newest.version, topic.name)
    else:
        check_evolution(schemas.base, proposed, schemas.set_aside)
        _check_comments(proposed, topic.name, image)
        latest = schemas.latest.version if step == _PENDING else proposed.version
        after = schemas.followed_by(proposed).in_state(latest, schemas.withdrawn_by_the_next)
    return None if after == schemas else after


def _in_step(schemas: TopicSchemas, number: int, step: int, topic: str) -> TopicSchemas:
    """The schemas after a step of a version that is there. Raises InvalidUpdateVersion for a version that was withdrawn
    before another one was made."""
    newest, latest = schemas.versions[-1].version, schemas.latest.version
    if number < newest and number in schemas.withdrawn and step != _WITHDRAWN:
        raise _another_was_first(number, newest, topic)
    if number < newest or number == latest:
        return schemas
    others = schemas.withdrawn - {number}
    if step == _WITHDRAWN:
        return schemas.in_state(latest, schemas.withdrawn | {number})
    return schemas.in_state(latest if step == _PENDING else number, others)


def _another_was_first(number: int, newest: int, topic: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(
        f"version {number} of the schema of topic {topic} does not follow version {newest}: another client evolved it "
        f"meanwhile. Look at it (minilog topic schema show {topic}), and try again"
    )


def _with_comments_of(schemas: TopicSchemas, proposed: TopicSchema) -> TopicSchema:
    """A field keeps its comment where the proposal has none: an earlier client knows no comments."""
    there = {**schemas.latest.by_id, **schemas.versions[-1].by_id}

    def commented(field: Field) -> Field:
        known = there.get(field.id)
        return replace(field, comment=known.comment) if known is not None and not field.comment else field

    return replace(proposed, fields=mapped(proposed.fields, commented))


def _check_comments(schema: TopicSchema, topic: str, image: MetadataImage) -> None:
    """An earlier broker would drop them from its image. Raises LevelNotReached."""
    if any(field.comment for field in schema.by_id.values()):
        remedy = "Leave the comments out, or run `minilog cluster upgrade` when all brokers support it"
        what = f"columns of topic {topic} cannot have comments: they came"
        check_reached(image.level, COLUMN_COMMENTS_LEVEL, what, remedy)


def schema_records(
    topic_id: bytes, former: TopicSchemas | None, after: TopicSchemas
) -> list[records_pb2.MetadataRecord]:
    """The records that make `after` of `former`, which has at most one version fewer."""
    records = [schema_record(topic_id, schema) for schema in after.versions[len(former.versions) if former else 0 :]]
    if after.latest_version or after.withdrawn or (former is not None and former.latest_version):
        records.append(schema_state_record(topic_id, after))
    return records


def schema_record(topic_id: bytes, schema: TopicSchema) -> records_pb2.MetadataRecord:
    """The record of one more version."""
    return records_pb2.MetadataRecord(
        topic_schema=records_pb2.TopicSchemaRecord(topic_id=topic_id, schema=schema_to_wire(schema))
    )
