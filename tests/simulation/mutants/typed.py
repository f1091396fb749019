"""Wrong rules of typed topics: versions, field ids, what statistics leave out, and what a replica sends of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from minilog.errors import UnknownSchemaVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Attributes, BatchHeader, Buffer
from minilog.record_batch.validation import check_envelope
from minilog.typed.conditions import predicate, statistics
from minilog.typed.rows import reader
from minilog.typed.rows.conversion import as_wanted
from minilog.typed.schema import evolution
from minilog.typed.schema.fields import Field, arrow_field
from minilog.typed.schema.topic_schema import TopicSchema, give_ids
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.controller import topic_schemas
from minilog_broker.replication.leader import produce, typed_validation
from minilog_broker.replication.sessions import scanner as cutting
from minilog_broker.replication.sessions.scanner import Scanner
from tests.rules import Patches


def pending_is_the_latest() -> Patches:
    """A version that a write wants is the topic's latest one at once, whatever becomes of the write."""
    return [(topic_schemas, "_PENDING", -1)]


def withdrawn_columns_stay() -> Patches:
    """The next version follows a withdrawn one, so the columns of a write that failed stay."""
    return [(TopicSchemas, "base", property(lambda self: self.versions[-1]))]


def withdrawn_is_confirmed() -> Patches:
    """Whoever withdraws a version makes it the latest one."""
    return [(topic_schemas, "_WITHDRAWN", -1)]


def unknown_version_is_accepted() -> Patches:
    """A leader takes a batch of a version that it does not know: it will be told of it."""

    def mutant(
        topic_id: bytes, partition: int, batch: Buffer, *, max_message_bytes: int, schemas: Any, **how: Any
    ) -> BatchHeader:
        try:
            return typed_validation.validate_topic_batch(
                topic_id, partition, batch, max_message_bytes=max_message_bytes, schemas=schemas, **how
            )
        except UnknownSchemaVersion:
            return check_envelope(topic_id, partition, batch, max_message_bytes=max_message_bytes)

    return [(produce, "validate_topic_batch", mutant)]


def highest_is_cut() -> Patches:
    """A highest value that is too long is cut as a lowest one is: it is below what it is a bound of."""
    return [(statistics, "_raised", statistics._cut)]


def nulls_are_ignored() -> Patches:
    """Statistics are asked for values alone: a batch that has some has no nulls."""
    of_column = predicate._of_column

    def mutant(asked: Any, found: predicate.ColumnStatistics) -> int:
        some = found.null_count < found.row_count
        return of_column(asked, replace(found, null_count=0) if some else found)

    return [(predicate, "_of_column", mutant)]


def edges_are_outside() -> Patches:
    """A batch whose lowest, or highest, value is the very constant has no row on that side."""
    of_values = predicate._of_values

    def mutant(asked: Any, found: predicate.ColumnStatistics) -> int:
        told = of_values(asked, found)
        if not isinstance(asked, predicate.Less) or found.lowest is None or found.highest is None:
            return told
        edge = predicate.plain_value(asked.value)
        if asked.or_equal:
            return told & ~predicate.TRUE if found.lowest == edge else told
        return told & ~predicate.FALSE if found.highest == edge else told

    return [(predicate, "_of_values", mutant)]


def dropped_id_is_given_again() -> Patches:
    """The next id is behind the highest that a field has, not behind the highest that one ever had."""

    def mutant(schema: TopicSchema) -> TopicSchema:
        return give_ids(replace(schema, last_field_id=max((each for each in schema.by_id if each), default=0)))

    def unchecked(old: TopicSchema, new: TopicSchema, set_aside: object = None) -> None: ...

    return [
        (evolution, "give_ids", mutant),
        (evolution, "check_evolution", unchecked),
        (topic_schemas, "check_evolution", unchecked),
    ]


class _OneForAll(dict[Any, Any]):
    """Of what differs by the version alone the first is kept."""

    def __contains__(self, form: object) -> bool:
        return super().__contains__(form[1:])  # type: ignore[index]

    def __getitem__(self, form: Any) -> Any:
        return super().__getitem__(form[1:])

    def __setitem__(self, form: Any, cut: Any) -> None:
        super().__setitem__(form[1:], cut)


def cut_as_another_version() -> Patches:
    """What a replica sends of a batch it cuts as it cut the first one, of whatever version."""
    make = Scanner.__init__

    def mutant(self: Scanner, asked: Any, schemas: Any) -> None:
        make(self, asked, schemas)
        self._cuts = _OneForAll()

    return [(Scanner, "__init__", mutant)]


def columns_by_name() -> Patches:
    """A reader takes columns by the names that they have now."""

    def mutant(self: Any, wanted: Field) -> pa.Array:
        for place, each in enumerate(self.form.columns):
            if each.name == wanted.name:
                return as_wanted(self.decoded.column(place), each, wanted)
        return pa.nulls(self.count, arrow_field(wanted).type)

    return [(reader._Parts, "column", mutant)]


def left_out_without_offsets() -> Patches:
    """Of a batch that is left out nothing is sent, not even where it stood."""

    def mutant(*_: Any) -> Sequence[Buffer]:
        return []

    return [(cutting, "_left_out", mutant)]


def headers_forget_their_transaction() -> Patches:
    """The header of a batch that goes out alone does not say that the batch belongs to a transaction."""
    header_alone = cutting._header_alone

    def mutant(key: PartitionKey, batch: memoryview, header: BatchHeader) -> Sequence[Buffer]:
        plain = replace(header, attributes=header.attributes & ~Attributes.TRANSACTIONAL)
        return header_alone(key, batch, plain)

    return [(cutting, "_header_alone", mutant)]


def missing_column_has_values() -> Patches:
    """A column that a version does not have is told to have no nulls."""

    def mutant(self: Scanner, told: Any, schema: TopicSchema, header: BatchHeader) -> Any:
        known = statistics.read_statistics(told.statistics, schema, header.record_count)
        missing = predicate.ColumnStatistics(header.record_count, 0)
        return lambda field_id: known.get(field_id) if field_id in schema.by_id else missing

    return [(Scanner, "_statistics", mutant)]
