"""Tables of Spark's catalog over topics, and where their options are kept.

Spark 4.3 passes the options of a table to a Python data source once, when CREATE TABLE asks for the columns. When a
query reads the table, Spark passes none. But Spark keeps the columns with their metadata, and passes them at each read.
So the columns of a table carry its options. A sink must not look there: rows that come from a table still have the
metadata of that table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.client_options import CLIENT_PREFIXES, refuse_stored_secrets
from pyspark_minilog.options.table import SUBSCRIPTIONS

OPTIONS = "minilog.options"  # the key in the metadata of each column: columns can be dropped
# Spark adds this key when it creates a table, and puts this prefix before each name of the table's OPTIONS.
_PROVIDER, _GIVEN = "provider", "option."
_FOLDER = "path"


def created(given: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that Spark creates, or None for the options of a DataFrame. A folder (LOCATION) is among
    them, so that the source refuses it. Raises InvalidOption for a secret, which the catalog would keep."""
    if _PROVIDER not in given:
        return None
    refuse_stored_secrets(key.removeprefix(_GIVEN) for key in given if key.startswith((_GIVEN, *CLIENT_PREFIXES)))
    folder = {_FOLDER: given[_FOLDER]} if _FOLDER in given else {}
    return {key.removeprefix(_GIVEN): value for key, value in given.items() if key.startswith(_GIVEN)} | folder


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table with these options."""
    text = json.dumps(options, sort_keys=True, ensure_ascii=False)
    return StructType(
        [
            StructField(column.name, column.dataType, column.nullable, {**(column.metadata or {}), OPTIONS: text})
            for column in schema.fields
        ]
    )


def stored_options(schema: StructType) -> dict[str, str]:
    """The options of the table with these columns. Empty if the columns are not of a table."""
    for column in schema.fields:
        if column.metadata and OPTIONS in column.metadata:
            options: dict[str, str] = json.loads(column.metadata[OPTIONS])
            return options
    return {}


def read_options(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options to read a DataFrame of this schema: the options of its table, and over them the options of this read.
    If the read itself names topics, the schema may come from a table by `.schema(...)`, and its options do not
    count."""
    subscriptions = {option.lower() for option in SUBSCRIPTIONS}
    return given if any(key.lower() in subscriptions for key in given) else {**stored_options(schema), **given}


def outdated(refusal: InvalidOption) -> InvalidOption:
    """The refusal of a table whose columns the topic does not have any more."""
    return InvalidOption(
        "the topic does not have the columns any more that this table was created with: drop the table, and create it "
        f"again ({refusal})"
    )
