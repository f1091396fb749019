"""The keys that a leader requires in a compacted topic: of each record, and of each row.

The cleaner keeps a record without a key for ever, because no other record replaces it. So a leader refuses such
records, as Kafka's leaders do. Records without a key that were written before the topic was compacted stay.

A row has no key if its schema has one key column and the row has null there. If there are several key columns, nulls
are values of the key like any other (`minilog/typed/rows/keys.py`).

Arrow's count of the nulls of a column decides. A column without nulls costs no look at its values.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import InvalidRecord
from minilog.typed.schema.topic_schema import TopicSchema

_REMEDY = "The topic is compacted (cleanup.policy)"


def require_record_keys(keys: pa.Array) -> None:
    """`keys` are those of the records of one batch. Raises InvalidRecord, with the first record that has none."""
    if keys.null_count:
        raise InvalidRecord(f"{_first_without(keys, 'record')} no key. {_REMEDY}: send each record with a key")


def require_row_keys(columns: Sequence[pa.Array], schema: TopicSchema) -> None:
    """`columns` begin with those of the schema. Raises InvalidRecord, with the first row that has no key."""
    if len(schema.key_columns) != 1:
        return
    (name,) = schema.key_columns
    values = columns[schema.names.index(name)]
    if values.null_count:
        raise InvalidRecord(
            f"{_first_without(values, 'row')} no value in {name!r}, the only key column. {_REMEDY}: send each row with "
            "a value there"
        )


def _first_without(values: pa.Array, what: str) -> str:
    first = pc.index(values.is_null(), True).as_py()
    others = f" and {values.null_count - 1:,} more have" if values.null_count > 1 else " has"
    return f"{what} {first} of the batch (the first one is 0){others}"
