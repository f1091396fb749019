"""Versions of schemas. V13: whoever tells clients of them tells those that are committed, and in that order.

A version follows the one before it and is made once; the id of a field is given once, and never again to another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minilog.typed.topic_schema import TopicSchema
from minilog.typed.wire import schema_from_wire
from minilog.v1 import records_pb2, typed_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.machines.wire import Said

_METADATA = "/minilog.v1.MetadataService/GetMetadata"


class Schemas:
    """Of all topics, as they are committed and as they are told."""

    def __init__(self) -> None:
        self._committed: dict[bytes, list[typed_pb2.TopicSchema]] = {}
        self._told: dict[tuple[bytes, int], typed_pb2.TopicSchema] = {}  # what may be committed, and not be known to be
        self._given: dict[bytes, int] = {}  # the highest id

    def version(self, topic_id: bytes, number: int) -> TopicSchema:
        """What anybody was told to be that version, or what is committed. A program may have written by it."""
        return schema_from_wire(self._told[topic_id, number])

    def committed(self, batch: CommittedBatch) -> None:
        for record in batch.records:
            if record.HasField("topic_schema"):
                self._follow(record.topic_schema)

    def _follow(self, record: records_pb2.TopicSchemaRecord) -> None:
        schema, before = record.schema, self._committed.setdefault(record.topic_id, [])
        if schema.version != len(before) + 1:
            raise Violation("typed", f"version {schema.version} of a schema is committed behind version {len(before)}")
        known = set() if not before else {each.id for each in before[-1].fields}
        given = self._given.get(record.topic_id, 0)
        again = sorted({each.id for each in schema.fields if each.id <= given} - known)
        if again or schema.last_field_id < given:
            text = f"version {schema.version} of a schema gives the ids {again} again, and ids from "
            text += f"{schema.last_field_id + 1} on; up to {given} they were given"
            raise Violation("typed", text)
        self._given[record.topic_id] = max(schema.last_field_id, *(each.id for each in schema.fields))
        before.append(schema)
        self._compare(record.topic_id, schema.version, schema, "the committed log")

    def _compare(self, topic_id: bytes, number: int, schema: typed_pb2.TopicSchema, who: str) -> None:
        told = self._told.setdefault((topic_id, number), schema)
        if told != schema:
            text = f"{who} has as version {number} of a schema {schema}, and {told} was told".replace("\n", " ")
            raise Violation("V13", text)

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """What a broker tells of topics."""
        if not answers or call.method != _METADATA:
            return
        for topic in message.topics:
            for number, schema in enumerate(topic.schemas, 1):
                if schema.version != number:
                    raise Violation("V13", f"{call.host} tells version {schema.version} of a schema as the {number}th")
                self._compare(topic.topic_id, number, schema, call.host)
