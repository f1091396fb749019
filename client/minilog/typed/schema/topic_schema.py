"""The schema of a typed topic: one version of it, and the rules of every version. Pure.

Versions count from 1. A field id is given once over all versions of a topic. `last_field_id` is the highest id so far,
so the id of a dropped field is never used again (Iceberg's rule).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from minilog.errors import InvalidSchema
from minilog.typed.schema.fields import (
    MAX_PRECISION,
    PRIMITIVE_NAMES,
    Decimal,
    Field,
    Map,
    Primitive,
    Struct,
    arrow_field,
    children,
    field_from_arrow,
    mapped,
    walk,
)
from minilog.typed.schema.layouts import places_of_pandas
from minilog.typed.schema.payload_forms import PayloadForms
from minilog.typed.schema.row_form import DELETED_COLUMN, RowForm

MAX_FIELDS = 1_000  # nested ones counted
MAX_DEPTH = 16
MAX_NAME_BYTES = 255
MAX_COMMENT_BYTES = 1 << 10
# Readers may ask for these beside the columns, so no column may have such a name.
METADATA_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key")
# Later names of the same kind. Older topics may have such a column, which stays readable. New ones are refused.
_NEWER_METADATA_COLUMNS = ("_headers", DELETED_COLUMN)
# The types of key columns: each value of them has one form to hash.
KEY_TYPES = PRIMITIVE_NAMES - {"float", "double"}


@dataclass(frozen=True)
class TopicSchema:
    """One version of a topic's schema. `key_columns` and `timestamp_column` name top-level columns, by the names of
    this version."""

    fields: tuple[Field, ...]
    key_columns: tuple[str, ...] = ()
    timestamp_column: str | None = None
    version: int = 1
    last_field_id: int = 0

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns in order, without ids or metadata."""
        return pa.schema([arrow_field(field) for field in self.fields])

    @cached_property
    def by_id(self) -> dict[int, Field]:
        """Every field by its id, with the nested fields."""
        return {field.id: field for _, field in walk(self.fields)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def key_field_ids(self) -> frozenset[int]:
        """The ids of the key columns."""
        return frozenset(self.column(name).id for name in self.key_columns)

    @cached_property
    def marks_deletions(self) -> bool:
        """Whether a column `_deleted` beside its own may mark rows that delete their key. An older topic may have a
        column of this name."""
        return DELETED_COLUMN not in map(str.lower, self.names)

    @cached_property
    def payload_forms(self) -> PayloadForms:
        """The forms of the payloads of its batches."""
        return PayloadForms(self.fields, self.version)

    @cached_property
    def row_form(self) -> RowForm:
        """The checks of rows that a program passes as dictionaries."""
        return RowForm(self.fields, self.key_columns, self.timestamp_column)

    def column(self, name: str) -> Field:
        """The top-level column of this name. Raises InvalidSchema if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise InvalidSchema(f"there is no column {name!r}: there are {', '.join(self.names)}")

    def column_as_spark(self, name: str) -> Field:
        """The top-level column of this name in upper or lower case, which Spark ignores. No two columns differ by case
        alone. Raises InvalidSchema if there is none."""
        field = self._by_folded_name.get(name.lower())
        return self.column(name) if field is None else field

    @cached_property
    def _by_folded_name(self) -> dict[str, Field]:
        return {field.name.lower(): field for field in self.fields}

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


def first_version(
    fields: Iterable[Field], key_columns: Sequence[str] = (), timestamp_column: str | None = None
) -> TopicSchema:
    """The schema of a new topic. The fields get their ids in order, outer fields first. Raises InvalidSchema."""
    schema = TopicSchema(tuple(fields), tuple(key_columns), timestamp_column)
    check_schema(schema, with_ids=False)
    check_new_names(schema.names)
    return give_ids(replace(schema, fields=mapped(schema.fields, lambda field: replace(field, id=0))))


def schema_from_arrow(
    arrow: pa.Schema, key_columns: Sequence[str] = (), timestamp_column: str | None = None
) -> TopicSchema:
    """The schema of a new topic that takes tables of this Arrow schema. Raises InvalidSchema."""
    left_out = places_of_pandas(arrow)
    fields = (field_from_arrow(arrow_child) for arrow_child in arrow if arrow_child.name not in left_out)
    return first_version(fields, key_columns, timestamp_column)


def give_ids(schema: TopicSchema) -> TopicSchema:
    """The schema with the next ids for fields without one. A field gets its id before its inner fields."""
    ids = itertools.count(schema.last_field_id + 1)
    fields = mapped(schema.fields, lambda field: field if field.id else replace(field, id=next(ids)))
    return replace(schema, fields=fields, last_field_id=next(ids) - 1)


def check_schema(schema: TopicSchema, *, with_ids: bool = True) -> None:
    """Checks every rule of a single version. Raises InvalidSchema with the first column that breaks a rule."""
    if not schema.fields:
        raise InvalidSchema("a schema has at least one column")
    _check_size(schema.fields)
    _check_names(schema.fields, "")
    for name in schema.names:
        if name.lower() in METADATA_COLUMNS:
            raise _metadata_name(name)
    for path, field in walk(schema.fields):
        _check_type(path, field)
        _check_comment(path, field)
    _check_roles(schema)
    if with_ids:
        _check_ids(schema)


def check_new_names(names: Iterable[str]) -> None:
    """Checks the names of columns that no earlier version had. Raises InvalidSchema."""
    for name in names:
        if name.lower() in _NEWER_METADATA_COLUMNS:
            raise _metadata_name(name)


def _metadata_name(name: str) -> InvalidSchema:
    return InvalidSchema(
        f"column {name!r} has the name of a column that readers get beside the topic's columns: rename it"
    )


def _check_size(fields: tuple[Field, ...]) -> None:
    """Checks the depth before any recursion, because a schema may come from the network."""
    level, depth, count = list(fields), 0, 0
    while level:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"columns are nested deeper than {MAX_DEPTH} levels: flatten them")
        if count > MAX_FIELDS:
            raise InvalidSchema(
                f"there are more than {MAX_FIELDS} fields, nested ones counted: use more than one topic"
            )
        level = [part for field in level for part in children(field.type)]


def _check_names(fields: tuple[Field, ...], path: str) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        here = f"{path}.{field.name}" if path else field.name
        if not field.name or not field.name.isprintable() or len(field.name.encode()) > MAX_NAME_BYTES:
            raise InvalidSchema(
                f"the name {here[:80]!r} is not a column's: 1 to {MAX_NAME_BYTES} bytes of printable characters"
            )
        if "." in field.name:
            raise InvalidSchema(f"the name {here!r} has a dot, and a dot leads into a struct: use another character")
        if field.name.lower() in seen:
            raise InvalidSchema(
                f"two fields are called {here!r} ({seen[field.name.lower()]!r} is the other; Spark does not "
                "distinguish upper from lower case): rename one of them"
            )
        seen[field.name.lower()] = field.name
        _check_names(children(field.type), here)


def _check_type(path: str, field: Field) -> None:
    match field.type:
        case Primitive(name) if name not in PRIMITIVE_NAMES:
            raise InvalidSchema(
                f"column {path!r} has the unknown type {name!r}: use {', '.join(sorted(PRIMITIVE_NAMES))}"
            )
        case Decimal(precision, scale) if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise InvalidSchema(
                f"column {path!r} is {field.type}: use a precision of 1 to 38, and a scale of at most that"
            )
        case Struct(fields) if not fields:
            raise InvalidSchema(f"column {path!r} is a struct without fields: give it one, or leave it out")
        case Map(key, _) if key.nullable:
            raise InvalidSchema(f"the keys of map {path!r} may be null: declare them not null")


def _check_comment(path: str, field: Field) -> None:
    if len(field.comment.encode()) > MAX_COMMENT_BYTES:
        raise InvalidSchema(f"the comment of column {path!r} is longer than {MAX_COMMENT_BYTES} bytes: shorten it")
    if not all(character.isprintable() or character in "\n\r\t" for character in field.comment):
        raise InvalidSchema(f"the comment of column {path!r} has characters that cannot be printed: leave them out")


def _check_roles(schema: TopicSchema) -> None:
    if len(set(schema.key_columns)) != len(schema.key_columns):
        raise InvalidSchema(f"key_columns names a column twice: {', '.join(schema.key_columns)}")
    for name in schema.key_columns:
        kind = schema.column(name).type
        if not isinstance(kind, Decimal) and not (isinstance(kind, Primitive) and kind.name in KEY_TYPES):
            raise InvalidSchema(
                f"key column {name!r} is {kind}, a type without one form to hash: choose another column"
            )
    if schema.timestamp_column is not None:
        kind = schema.column(schema.timestamp_column).type
        if kind != Primitive("timestamp"):
            raise InvalidSchema(f"timestamp_column {schema.timestamp_column!r} is {kind}: it has to be a timestamp")


def _check_ids(schema: TopicSchema) -> None:
    ids = [field.id for _, field in walk(schema.fields)]
    if min(ids) < 1 or max(ids) > schema.last_field_id or len(set(ids)) != len(ids):
        raise InvalidSchema(f"field ids are 1 to {schema.last_field_id}, each once: let the brokers give them")
