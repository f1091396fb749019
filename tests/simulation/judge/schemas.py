"""Versions of schemas. V13: whoever tells clients of them tells those that are committed, and in that order.

A version follows the one before it and is made once; the id of a field is given once, and never again to another one.
A version is the latest one only if somebody asked for that. A version is withdrawn only if somebody asked for that, or
made another one. A later version may have a field that it brought, as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.wire import schema_from_wire
from minilog.v1 import admin_pb2, records_pb2, typed_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.machines.wire import Said

_ALTER = "/minilog.v1.AdminService/AlterTopics"
_METADATA = "/minilog.v1.MetadataService/GetMetadata"
_LATEST = admin_pb2.SCHEMA_STEP_NONE
_WITHDRAWN = admin_pb2.SCHEMA_STEP_WITHDRAWN


class Schemas:
    """Of all topics, as they are committed and as they are told."""

    def __init__(self) -> None:
        self._committed: dict[bytes, list[typed_pb2.TopicSchema]] = {}
        self._told: dict[tuple[bytes, int], typed_pb2.TopicSchema] = {}  # what may be committed, and not be known to be
        self._given: dict[bytes, int] = {}  # the highest id
        self._names: dict[bytes, str] = {}
        self._latest: dict[bytes, int] = {}
        self._were_latest: dict[bytes, set[int]] = {}
        self._withdrawn: dict[bytes, frozenset[int]] = {}
        self._asked: set[tuple[str, int, int]] = set()  # a topic, a version, and what shall become of it

    def version(self, topic_id: bytes, number: int) -> TopicSchema:
        """What anybody was told to be that version, or what is committed. A program may have written by it."""
        return schema_from_wire(self._told[topic_id, number])

    def committed(self, batch: CommittedBatch) -> None:
        changed: dict[bytes, None] = {}
        for record in batch.records:
            if record.HasField("topic"):
                self._names[record.topic.topic_id] = record.topic.name
            elif record.HasField("topic_schema"):
                self._follow(record.topic_schema)
                changed[record.topic_schema.topic_id] = None
                self._latest[record.topic_schema.topic_id] = record.topic_schema.schema.version
            elif record.HasField("topic_schema_state"):
                state = record.topic_schema_state
                changed[state.topic_id] = None
                self._latest[state.topic_id] = state.latest_version
                self._withdrawn[state.topic_id] = frozenset(state.withdrawn)
        for topic_id in changed:
            self._were_latest.setdefault(topic_id, set()).add(self._latest[topic_id])
            self._check_latest(topic_id, self._latest[topic_id], "the committed log")
            self._check_withdrawn(topic_id)

    def _check_latest(self, topic_id: bytes, number: int, who: str) -> None:
        topic = self._names.get(topic_id)
        if topic is not None and number > 1 and (topic, number, _LATEST) not in self._asked:
            raise Violation("typed", f"{who} has {number} as the latest version of {topic}, which nobody asked for")

    def _check_withdrawn(self, topic_id: bytes) -> None:
        topic, wrong = self._names.get(topic_id), self._withdrawn.get(topic_id, frozenset[int]())
        for number in wrong if topic is not None else ():
            if (topic, number, _WITHDRAWN) not in self._asked and number == len(self._committed[topic_id]):
                raise Violation("typed", f"version {number} of {topic} is withdrawn, and nobody asked for that")
            if number in self._were_latest[topic_id]:
                raise Violation("typed", f"version {number} of {topic} is withdrawn, and it was the latest one")

    def _follow(self, record: records_pb2.TopicSchemaRecord) -> None:
        schema, before = record.schema, self._committed.setdefault(record.topic_id, [])
        if schema.version != len(before) + 1:
            raise Violation("typed", f"version {schema.version} of a schema is committed behind version {len(before)}")
        known = self._set_aside(record.topic_id, schema)
        if before:
            known |= _ids(before[self._latest[record.topic_id] - 1])
        given = self._given.get(record.topic_id, 0)
        again = sorted({each.id for each in schema.fields if each.id <= given} - known)
        if again or schema.last_field_id < given:
            text = f"version {schema.version} of a schema gives the ids {again} again, and ids from "
            text += f"{schema.last_field_id + 1} on; up to {given} they were given"
            raise Violation("typed", text)
        self._given[record.topic_id] = max(schema.last_field_id, *(each.id for each in schema.fields))
        before.append(schema)
        self._compare(record.topic_id, schema.version, schema, "the committed log")

    def _set_aside(self, topic_id: bytes, schema: typed_pb2.TopicSchema) -> set[int]:
        """The ids of fields that are as versions had them which were never the latest."""
        versions, latest = self._committed[topic_id], self._were_latest.get(topic_id, set[int]())
        gone = _ids(*(each for each in versions if each.version in latest))
        brought = {each.id: each for version in versions for each in version.fields if each.id not in gone}
        return {each.id for each in schema.fields if brought.get(each.id) == each}

    def _compare(self, topic_id: bytes, number: int, schema: typed_pb2.TopicSchema, who: str) -> None:
        told = self._told.setdefault((topic_id, number), schema)
        if told != schema:
            text = f"{who} has as version {number} of a schema {schema}, and {told} was told".replace("\n", " ")
            raise Violation("V13", text)

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """What somebody asks for, and what a broker tells of topics."""
        if call.method == _ALTER and not answers:
            self._asked |= {(each.name, each.schema.version, each.schema_step) for each in message.topics}
        if not answers or call.method != _METADATA:
            return
        for topic in message.topics:
            self._check_latest(topic.topic_id, len(topic.schemas), call.host)
            for number, schema in enumerate((*topic.schemas, *topic.pending_schemas), 1):
                if schema.version != number:
                    raise Violation("V13", f"{call.host} tells version {schema.version} of a schema as the {number}th")
                self._compare(topic.topic_id, number, schema, call.host)


def _ids(*schemas: typed_pb2.TopicSchema) -> set[int]:
    return {each.id for schema in schemas for each in schema.fields}
