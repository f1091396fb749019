"""Columns of one version of a schema as those of another: by field id, widened, null where there was nothing. Pure.

A reader asks for one version and may meet every other, older or newer than it. What the evolution of a schema allows
(evolution.py) is what is brought over here. A reader that knows an older version than a batch gets what that version
can say. A value that does not fit in the narrower type, or a null where it has NOT NULL, raises NarrowSchemaVersion.
"""

from __future__ import annotations

import pyarrow as pa

from minilog.errors import InvalidRecord, NarrowSchemaVersion
from minilog.typed.rows.nested import entries_of, offsets_of
from minilog.typed.rows.rows import check_column_nulls, exactly
from minilog.typed.schema.fields import Array, Field, Map, Struct, arrow_type


def as_wanted(values: pa.Array, written: Field, wanted: Field) -> pa.Array:
    """The values of a field as it is in the version wanted; both have the same id.

    Raises NarrowSchemaVersion where the field has become wider than what is wanted, and a value does not fit."""
    if written.type == wanted.type:  # with the same ids in it
        return values
    kind = arrow_type(wanted.type)
    match written.type, wanted.type:
        case Struct(had), Struct(fields):
            return _struct(values, had, fields)
        case Array(had_element), Array(element):
            inner = as_wanted(values.flatten(), had_element, element)
            return pa.ListArray.from_arrays(offsets_of(values), inner, kind, mask=values.is_null())
        case Map(had_key, had_value), Map(key, value):
            entries = entries_of(values)
            flat = entries.flatten()
            keys, items = as_wanted(flat.field(0), had_key, key), as_wanted(flat.field(1), had_value, value)
            return pa.MapArray.from_arrays(offsets_of(entries), keys, items, kind, mask=values.is_null())
    converted = exactly(values, kind)
    if converted is None:
        raise NarrowSchemaVersion(
            f"column {wanted.name!r} is {written.type} now, but this reader knows it as {wanted.type}, in which not "
            "all of its values fit: read by the topic's newest schema"
        )
    return converted


def as_promised(values: pa.Array, wanted: Field, deletions: pa.BooleanArray | None = None) -> pa.Array:
    """The same values, of a column as another version has it. Raises NarrowSchemaVersion for a null where what is
    wanted has NOT NULL: the column may be null by now, or is gone. `deletions`: rows in which it may be null anyway."""
    try:
        check_column_nulls(values, wanted, deletions)
    except InvalidRecord as error:
        raise NarrowSchemaVersion(
            f"{error}: the newest schema differs from the schema of this reader: read by the topic's newest schema"
        ) from error
    return values


def _struct(values: pa.Array, had: tuple[Field, ...], fields: tuple[Field, ...]) -> pa.Array:
    places = {field.id: place for place, field in enumerate(had)}
    parts = [
        as_wanted(values.field(places[field.id]), had[places[field.id]], field)
        if field.id in places
        else pa.nulls(len(values), arrow_type(field.type))
        for field in fields
    ]
    wanted = [pa.field(field.name, arrow_type(field.type), field.nullable) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=wanted, mask=values.is_null())
