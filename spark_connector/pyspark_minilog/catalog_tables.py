"""Tables of Spark's catalog over topics: where their options are kept. Pure.

Spark 4.3 shows a Python data source the options of a table once, when CREATE TABLE asks for the columns, and none when
the table is read. It keeps the columns with their metadata and has them back for each read: so the columns of a table
carry its options. A sink must not look there: what is written has the metadata of the table that it was read from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyspark_minilog.client_options import CLIENT_PREFIXES, refuse_stored_secrets
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options import SUBSCRIPTIONS

OPTIONS = "minilog.options"  # the key in the metadata of each column: columns can be dropped
# What Spark adds where a table is made, beside the table's properties, and before each name of its OPTIONS.
_PROVIDER, _GIVEN = "provider", "option."
_FOLDER = "path"


def created(given: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that is made; None: none is, these are options of a DataFrame. A folder (LOCATION) is
    among them, to be refused. Raises InvalidOption for a secret, which the catalog would keep."""
    if _PROVIDER not in given:
        return None
    refuse_stored_secrets(key.removeprefix(_GIVEN) for key in given if key.startswith((_GIVEN, *CLIENT_PREFIXES)))
    folder = {_FOLDER: given[_FOLDER]} if _FOLDER in given else {}
    return {key.removeprefix(_GIVEN): value for key, value in given.items() if key.startswith(_GIVEN)} | folder


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table that is made with these options."""
    text = json.dumps(options, sort_keys=True, ensure_ascii=False)
    return StructType(
        [
            StructField(column.name, column.dataType, column.nullable, {**(column.metadata or {}), OPTIONS: text})
            for column in schema.fields
        ]
    )


def stored_options(schema: StructType) -> dict[str, str]:
    """Those of the table that has these columns; none where it is no table."""
    for column in schema.fields:
        if column.metadata and OPTIONS in column.metadata:
            options: dict[str, str] = json.loads(column.metadata[OPTIONS])
            return options
    return {}


def read_options(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """By which a DataFrame of this schema is read: those of its table, and what this one read says beside or instead.
    Options that say which topics are read are no table's, whose schema may have been given."""
    subscriptions = {option.lower() for option in SUBSCRIPTIONS}
    return given if any(key.lower() in subscriptions for key in given) else {**stored_options(schema), **given}


def outdated(refusal: InvalidOption) -> InvalidOption:
    """Of a table whose columns the topic does not have."""
    return InvalidOption(
        "the topic does not have the columns any more that this table was created with: drop the table, and create it "
        f"again ({refusal})"
    )
