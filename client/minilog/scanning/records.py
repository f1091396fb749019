"""The condition of a scan on the records of a topic without a schema. Pure.

    key, value, _key    binary          _topic      string     _partition    int
    _offset             long            _timestamp  timestamp

It has the algebra of every `where` (conditions/where.py). Replicas do not look into records, so the program that scans
compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from minilog.typed.conditions.predicate import Predicate
    from minilog.typed.schema.topic_schema import TopicSchema

_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "_topic": "string",
    "_partition": "int",
    "_offset": "long",
    "_timestamp": "timestamp",
    "_key": "binary",
}


@dataclass(frozen=True, slots=True)
class RecordCondition:
    """A parsed `where`. `compared`: the names of the columns in it."""

    predicate: Predicate
    compared: tuple[str, ...]

    def matches(self, column: Callable[[str], pa.Array], row_count: int) -> pa.BooleanArray:
        """True, false or null for each record. `column` gives the values of a column by its name."""
        from minilog.typed.conditions.predicate import evaluate

        schema = _record_schema()
        return evaluate(self.predicate, lambda field_id: column(schema.by_id[field_id].name), row_count)


def record_condition(where: str) -> RecordCondition:
    """Raises InvalidArgument for a text that is no condition on the columns of a record."""
    from minilog.typed.conditions.predicate import field_ids
    from minilog.typed.conditions.where import parse_where  # its parser takes 0.1 s to load

    schema = _record_schema()
    predicate = parse_where(where, schema)
    names = tuple(schema.by_id[field_id].name for field_id in sorted(field_ids(predicate)))
    return RecordCondition(predicate, names)


@cache
def _record_schema() -> TopicSchema:
    """No topic has these columns as its schema: a topic's own columns may not have the names of metadata."""
    from minilog.typed.schema.fields import Field, Primitive
    from minilog.typed.schema.topic_schema import TopicSchema

    fields = (Field(name, Primitive(kind), id=number) for number, (name, kind) in enumerate(_COLUMNS.items(), 1))
    return TopicSchema(tuple(fields), last_field_id=len(_COLUMNS))
