"""Changes as Postgres's `test_decoding` prints them, as records of Debezium: a key and an envelope. Pure.

The settings are the connector's defaults, but for `schemas.enable=false`: decimals are base64 of the unscaled number,
times are numbers (milliseconds for TIMESTAMP(3), else microseconds), TIMESTAMPTZ is a text, and a tombstone follows
each deletion. A changed key is a deletion of the old key and a creation of the new one.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_CHANGE = re.compile(r"table (\w+)\.(\w+): (INSERT|UPDATE|DELETE): (.*)", re.DOTALL)
_COLUMN = re.compile(r" ?(\w+)\[((?:[^\[\]]|\[\])+)\]:('(?:[^']|'')*'|[^ ]+)", re.DOTALL)
_COMMIT = re.compile(r"COMMIT \d+ \(at (.*)\)")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

Texts = Mapping[str, str | None]  # a row as Postgres prints it, by column


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns with their types as Postgres's `format_type` names them, and its primary key."""

    database: str
    schema: str
    name: str
    types: Mapping[str, str]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a change stands in the log of Postgres, and when it was committed."""

    lsn: int
    transaction: int
    at_ms: int


def lsn_number(text: str) -> int:
    """`0/16B3748` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def commit_ms(data: str) -> int | None:
    """The time of a COMMIT in milliseconds since 1970, None for another line."""
    found = _COMMIT.match(data)
    return found and (_instant(found[1]) - _EPOCH) // datetime.timedelta(milliseconds=1)


def snapshot_record(table: Table, row: Texts, place: Place) -> dict[str, Any]:
    """What the connector writes for a row that it reads before it follows the log."""
    return _record(table, "r", None, row, place)


def records_of(table: Table, data: str, place: Place) -> Iterator[dict[str, Any]]:
    """The records of one line of `test_decoding`; none of BEGIN, COMMIT and other tables."""
    found = _CHANGE.match(data)
    if found is None or (found[1], found[2]) != (table.schema, table.name):
        return
    operation, columns = found[3], found[4]
    row, end = _texts(columns.removeprefix("old-key:"))
    if operation == "INSERT":
        yield _record(table, "c", None, row, place)
    elif operation == "DELETE":
        yield from _deletion(table, row, place)
    elif columns.startswith("old-key:"):  # Postgres prints it where the key has changed
        yield from _deletion(table, row, place)
        new_row, _ = _texts(columns.removeprefix("old-key:")[end:].removeprefix(" new-tuple:"))
        yield _record(table, "c", None, new_row, place)
    else:
        yield _record(table, "u", None, row, place)


def _deletion(table: Table, row: Texts, place: Place) -> Iterator[dict[str, Any]]:
    deletion = _record(table, "d", {name: row[name] for name in table.key}, None, place)
    yield deletion
    yield {"key": deletion["key"], "value": None}


def _texts(columns: str) -> tuple[dict[str, str | None], int]:
    """The columns from the beginning of a text on, and where they end."""
    row: dict[str, str | None] = {}
    end = 0
    while (found := _COLUMN.match(columns, end)) is not None:
        row[found[1]] = None if found[3] == "null" else _unquoted(found[3])
        end = found.end()
    return row, end


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _record(table: Table, op: str, before: Texts | None, after: Texts | None, place: Place) -> dict[str, Any]:
    row = after if before is None else before
    assert row is not None
    source = {
        "connector": "postgresql",
        "name": table.database,
        "ts_ms": place.at_ms,
        "snapshot": "true" if op == "r" else "false",
        "db": table.database,
        "schema": table.schema,
        "table": table.name,
        "txId": place.transaction,
        "lsn": place.lsn,
    }
    envelope = {
        "before": before and _encoded(table, before),
        "after": after and _encoded(table, after),
        "source": source,
        "op": op,
        "ts_ms": place.at_ms,
    }
    return {"key": _encoded(table, {name: row[name] for name in table.key}), "value": envelope}


def _encoded(table: Table, row: Texts) -> dict[str, Any]:
    return {name: None if text is None else encoded(text, table.types[name]) for name, text in row.items()}


def encoded(text: str, kind: str) -> Any:
    """A value that Postgres prints as `text`, as Debezium writes it. Raises ValueError for a type not known here."""
    plain, _, parameters = kind.partition("(")
    if kind in ("smallint", "integer", "bigint"):
        return int(text)
    if kind in ("real", "double precision"):
        return float(text)
    if kind == "boolean":
        return text in ("true", "t")
    if plain == "numeric":
        return _unscaled(text, int(parameters.rstrip(")").split(",")[1]))
    if kind == "bytea":
        return base64.b64encode(bytes.fromhex(text.removeprefix(r"\x"))).decode()
    if kind == "date":
        return (datetime.date.fromisoformat(text) - _EPOCH.date()).days
    if kind.endswith("without time zone"):
        micros = (datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC) - _EPOCH) // _MICROSECOND
        return micros // 1000 if kind.startswith("timestamp(3)") else micros
    if kind == "timestamp with time zone":
        return _instant(text).isoformat().replace("+00:00", "Z")
    if kind == "integer[]":
        return json.loads(text.replace("{", "[").replace("}", "]").replace("NULL", "null"))
    if kind == "text":
        return text
    raise ValueError(f"type {kind} is not known here")


def _instant(text: str) -> datetime.datetime:
    """The zone of the server is UTC. Its `+00` is no ISO 8601 to Python 3.10 and older."""
    return datetime.datetime.fromisoformat(text.removesuffix("+00")).replace(tzinfo=datetime.UTC)


def _unscaled(text: str, scale: int) -> str:
    number = int(Decimal(text).scaleb(scale))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()
