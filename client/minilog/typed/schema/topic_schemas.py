"""All versions of one topic's schema, as metadata tells them. Pure and immutable.

The newest version may be *pending*: a write wants it, and is not committed. Batches may name it, but nobody else writes
or reads by it. It becomes the latest, or is *withdrawn*: with its write, or when another version is made, since nobody
knows whether its driver is alive. A driver that is alive then brings its columns in by one more version, under their
ids (`rejoined`). A withdrawn version keeps its number and its ids, because batches may name it.

A reader or a leader may meet a batch of any of them. A version that is not here was made a moment ago, and metadata
will tell of it; or it never was: who asks tries again for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from minilog.errors import CorruptMessage, InvalidSchema, UnknownSchemaVersion, UnsupportedVersion
from minilog.typed.schema.fields import Field
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.wire import schema_from_wire, schema_to_wire
from minilog.v1 import metadata_pb2, typed_pb2

MAX_VERSIONS = 1_000
MAX_FIELDS_OF_VERSIONS = 100_000  # all versions travel with each answer of metadata: some five mebibytes
MAX_COMMENT_BYTES_OF_VERSIONS = 1 << 20  # for the same reason


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Version n stands at place n - 1; at least one is there, but for what the first one is added to.
    `latest_version`: 0 where that is the newest."""

    versions: tuple[TopicSchema, ...]
    latest_version: int = 0
    withdrawn: frozenset[int] = frozenset()

    @property
    def latest(self) -> TopicSchema:
        """What rows are written by, and read by where nobody asks for another."""
        return self.versions[self.latest_version - 1]

    @property
    def confirmed(self) -> tuple[TopicSchema, ...]:
        """The versions up to the latest one. Withdrawn ones may be among them."""
        return self.versions[: self.latest_version or None]

    @property
    def pending(self) -> TopicSchema | None:
        """The version that a write wants, or wanted: the newest, where that is not the latest."""
        return self.versions[-1] if self.latest_version else None

    @property
    def base(self) -> TopicSchema:
        """What the next version follows: the latest, with the number and the ids of the newest. So it has nothing of a
        pending or withdrawn version."""
        newest = self.versions[-1]
        return replace(self.latest, version=newest.version, last_field_id=newest.last_field_id)

    @property
    def set_aside(self) -> Mapping[int, Field]:
        """The fields that only versions have which were never the latest, by their ids. A later version may have one
        again, under its id."""
        pending = self.pending
        aside = self.withdrawn | ({pending.version} if pending is not None else set())
        known = {field_id for version in self.versions if version.version not in aside for field_id in version.by_id}
        return {
            field_id: field
            for version in self.versions
            if version.version in aside
            for field_id, field in version.by_id.items()
            if field_id not in known
        }

    @property
    def withdrawn_by_the_next(self) -> frozenset[int]:
        """The withdrawn versions once another version is made: a pending one is among them."""
        return self.withdrawn if self.pending is None else self.withdrawn | {self.pending.version}

    def in_state(self, latest_version: int, withdrawn: Iterable[int]) -> TopicSchemas:
        """The same versions with another latest one. Raises InvalidSchema where it is none of them."""
        if not 1 <= latest_version <= len(self.versions):
            raise InvalidSchema(f"version {latest_version} of {len(self.versions)} cannot be the latest of a schema")
        is_newest = latest_version == len(self.versions)
        return replace(self, latest_version=0 if is_newest else latest_version, withdrawn=frozenset(withdrawn))

    def version(self, number: int) -> TopicSchema:
        """Raises UnknownSchemaVersion."""
        if not 1 <= number <= len(self.versions):
            raise UnknownSchemaVersion(
                f"schema version {number} of the topic is not known yet: the latest is {len(self.versions)}"
            )
        return self.versions[number - 1]

    def followed_by(self, schema: TopicSchema) -> TopicSchemas:
        """With one more. Raises InvalidSchema where it is not the next one."""
        if schema.version != len(self.versions) + 1 or schema.version > MAX_VERSIONS:
            raise InvalidSchema(
                f"version {schema.version} of a schema cannot follow version {len(self.versions)}; a topic has at most "
                f"{MAX_VERSIONS} of them"
            )
        if sum(len(version.by_id) for version in (*self.versions, schema)) > MAX_FIELDS_OF_VERSIONS:
            raise InvalidSchema(
                f"the versions of the schema have more than {MAX_FIELDS_OF_VERSIONS} fields together: go on with a new "
                "topic"
            )
        if _comment_bytes((*self.versions, schema)) > MAX_COMMENT_BYTES_OF_VERSIONS:
            raise InvalidSchema(
                f"the comments of all versions of the schema take more than {MAX_COMMENT_BYTES_OF_VERSIONS} bytes: "
                "shorten those of the new columns, or go on with a new topic"
            )
        return TopicSchemas((*self.versions, schema), withdrawn=self.withdrawn)


def _comment_bytes(versions: Iterable[TopicSchema]) -> int:
    return sum(len(field.comment.encode()) for version in versions for field in version.by_id.values())


def schemas_to_wire(schemas: TopicSchemas | None) -> list[typed_pb2.TopicSchema]:
    """Of a topic without a schema: none."""
    return [] if schemas is None else [schema_to_wire(version) for version in schemas.versions]


def schemas_from_wire(messages: Iterable[typed_pb2.TopicSchema]) -> TopicSchemas | None:
    """None where none is told. Raises CorruptMessage where they are not versions 1 to n."""
    try:
        versions = tuple(schema_from_wire(message) for message in messages)
    except InvalidSchema as error:
        raise CorruptMessage(f"metadata has a schema that cannot be: {error}") from error
    if [version.version for version in versions] != list(range(1, len(versions) + 1)):
        raise CorruptMessage(f"metadata has versions {[version.version for version in versions]} of a schema")
    return TopicSchemas(versions) if versions else None


def told_schemas(message: metadata_pb2.TopicMetadata) -> TopicSchemas | UnsupportedVersion | None:
    """The schemas in the metadata of a topic. If this version cannot read them, it returns the error, and a caller that
    needs them raises it. Other topics, and calls without a schema, go on."""
    try:
        schemas = schemas_from_wire((*message.schemas, *message.pending_schemas))
        return None if schemas is None else schemas.in_state(len(message.schemas), message.withdrawn_schemas)
    except (CorruptMessage, InvalidSchema) as error:
        return UnsupportedVersion(
            f"topic {message.name!r} has a schema that this version of minilog cannot read: upgrade this client "
            f"({error})"
        )
