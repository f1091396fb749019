"""`minilog consume --view latest` prints the newest row or record of each key, and ends."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import typer

from minilog import Scan, scan
from minilog.types import Record
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import admin_client
from minilog_tools.cli.consume_rows import RowsShown, printer_of
from minilog_tools.cli.record_text import RecordText

_RECORD = ["key", "value", "_topic", "_partition", "_offset", "_timestamp", "_headers"]
_TIMESTAMP = _RECORD.index("_timestamp")


class View(enum.StrEnum):
    """What the command prints of a topic in the place of all its records."""

    LATEST = "latest"


def check_view(topics: list[str], placed: Mapping[str, bool]) -> None:
    """Raises BadParameter for what a table of the newest rows does not have. `placed` has the options that do not fit,
    and whether they are given."""
    if len(topics) > 1:
        raise typer.BadParameter("--view latest prints the table of one topic: name that topic alone")
    for option in (name for name, is_given in placed.items() if is_given):
        raise typer.BadParameter(
            f"--view latest prints the newest rows up to the present end, and commits nothing: leave {option} out"
        )


@dataclass(frozen=True, slots=True)
class LatestTable:
    """What the command prints. `of_rows` has the given options that are for rows, and `printed` is the user's form of a
    record."""

    topic: str
    partition: int | None
    shown: RowsShown
    of_rows: list[str]
    printed: RecordText | None

    def scan(self, columns: list[str] | None, config: Mapping[str, Any]) -> Scan:
        """The read of it."""
        partitions = None if self.partition is None else [self.partition]
        shown = self.shown
        return scan(
            self.topic,
            columns,
            shown.where,
            partitions=partitions,
            metadata=shown.metadata,
            view="latest",
            config=config,
        )


def print_latest(table: LatestTable, config: Mapping[str, Any], default: RecordText) -> None:
    """Print a table, of a topic without a schema by `default` unless the user gives a form. Raises CommandFailed,
    MinilogError."""
    with admin_client(config) as admin:
        [described] = admin.describe_topics([table.topic])
    if described.schemas is None:
        if table.of_rows:
            raise CommandFailed(f"topic {table.topic} has no schema, and {table.of_rows[0]} is for rows: leave it out")
        found = table.scan(_RECORD, config).to_arrow_batch_reader()
        _print_records(_cut(found, table.shown.count), table.printed or default)
        return
    if table.printed is not None:
        raise CommandFailed(
            f"topic {table.topic} has a schema, and --view latest prints its rows: leave --json and -f out"
        )
    printer = printer_of(table.shown)
    try:
        for rows in _cut(table.scan(table.shown.columns, config).to_arrow_batch_reader(), table.shown.count):
            printer.rows(rows)
    finally:
        printer.end()
        sys.stdout.flush()


def _cut(reader: pa.RecordBatchReader, count: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows, or all."""
    left = count
    for rows in reader:
        part = rows if left is None else rows.slice(0, left)
        yield part
        if left is not None:
            left -= part.num_rows
            if left == 0:
                return


def _print_records(batches: Iterator[pa.RecordBatch], printed: RecordText) -> None:
    for rows in batches:
        columns = [rows.column(name) for name in _RECORD]
        columns[_TIMESTAMP] = columns[_TIMESTAMP].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        for key, value, topic, partition, offset, timestamp, entries in zip(
            *(column.to_pylist() for column in columns), strict=True
        ):
            headers = [(entry["key"], entry["value"]) for entry in entries or ()]
            sys.stdout.buffer.write(printed(Record(topic, partition, offset, timestamp, key, value, headers)))
    sys.stdout.flush()
