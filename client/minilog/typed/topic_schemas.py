"""All versions of one topic's schema, as metadata tells them. Pure and immutable.

A reader or a leader may meet a batch of any of them. A version that is not here was made a moment ago, and metadata
will tell of it; or it never was: who asks tries again for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minilog.errors import CorruptMessage, InvalidSchema, UnknownSchemaVersion
from minilog.typed.topic_schema import TopicSchema
from minilog.typed.wire import schema_from_wire, schema_to_wire
from minilog.v1 import typed_pb2

MAX_VERSIONS = 1_000


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Version n stands at place n - 1; at least one is there."""

    versions: tuple[TopicSchema, ...]

    @property
    def latest(self) -> TopicSchema:
        """What rows are written by, and read by where nobody asks for another."""
        return self.versions[-1]

    def version(self, number: int) -> TopicSchema:
        """Raises UnknownSchemaVersion."""
        if not 1 <= number <= len(self.versions):
            raise UnknownSchemaVersion(
                f"schema version {number} of the topic is not known here: the latest is {len(self.versions)}"
            )
        return self.versions[number - 1]

    def followed_by(self, schema: TopicSchema) -> TopicSchemas:
        """With one more. Raises InvalidSchema where it is not the next one."""
        if schema.version != len(self.versions) + 1 or schema.version > MAX_VERSIONS:
            raise InvalidSchema(
                f"version {schema.version} of a schema cannot follow version {len(self.versions)}; a topic has at most "
                f"{MAX_VERSIONS} of them"
            )
        return TopicSchemas((*self.versions, schema))


def schemas_to_wire(schemas: TopicSchemas | None) -> list[typed_pb2.TopicSchema]:
    """Of a topic without a schema: none."""
    return [] if schemas is None else [schema_to_wire(each) for each in schemas.versions]


def schemas_from_wire(told: Iterable[typed_pb2.TopicSchema]) -> TopicSchemas | None:
    """None where none is told. Raises CorruptMessage where they are not versions 1 to n."""
    try:
        versions = tuple(schema_from_wire(each) for each in told)
    except InvalidSchema as error:
        raise CorruptMessage(f"metadata has a schema that cannot be: {error}") from error
    if [each.version for each in versions] != list(range(1, len(versions) + 1)):
        raise CorruptMessage(f"metadata has versions {[each.version for each in versions]} of a schema")
    return TopicSchemas(versions) if versions else None
