"""The rows that `minilog consume` prints of a typed topic: as JSON, as CSV, or as tables for people."""

from __future__ import annotations

import enum
import json
import sys
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import typer

from minilog import Consumer, TopicPartition
from minilog.typed.rows.as_json import rows_as_json
from minilog.typed.schema.column_names import parse_names
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.as_csv import rows_as_csv
from minilog_tools.cli.common import print_table
from minilog_tools.cli.printed_progress import PrintedProgress
from minilog_tools.cli.record_text import line

_POLL_S = 0.5
_TABLE_ROWS = 1_000  # the most rows of one table. Further rows stand in another one
_PARTITION, _OFFSET, _TOPIC = "_partition", "_offset", "_topic"
_METADATA = (_TOPIC, _PARTITION, _OFFSET, "_timestamp", "_key")


class ShownAs(enum.StrEnum):
    """The form in which rows are printed."""

    JSON = "json"
    TABLE = "table"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class RowsShown:
    """Which rows and columns the command prints, in which form, and how many. `deletes`: also the rows that delete
    their key. JSON shows only the `key_columns` of such a row."""

    form: ShownAs
    columns: list[str] | None = None
    where: str | None = None
    metadata: bool = False
    count: int | None = None
    exit_at_end: bool = False
    deletes: bool = False
    key_columns: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether the command ends by itself."""
        return self.exit_at_end or self.count is not None


@dataclass(frozen=True, slots=True)
class PrintingOptions:
    """The options that are for the rows of a typed topic."""

    form: Annotated[
        ShownAs | None, typer.Option("--format", help="The form of the rows of a typed topic. Default: json.")
    ] = None
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="COLUMN,...", help="Only these columns of a typed topic.")
    ] = None
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only rows of a typed topic for which this is true.")
    ] = None
    metadata: Annotated[
        bool, typer.Option("--metadata", help="In a typed topic: also _topic, _partition, _offset, _timestamp, _key.")
    ] = False
    deletes: Annotated[
        bool,
        typer.Option(
            "--deletes",
            help="In a typed topic: also rows that delete their key. Default for JSON without --columns and --where.",
        ),
    ] = False

    def given(self) -> list[str]:
        """The options that the user gave."""
        names = ("--format", "--columns", "--where", "--metadata", "--deletes")
        values = (self.form, self.columns, self.where, self.metadata, self.deletes)
        return [name for name, value in zip(names, values, strict=True) if value]

    def shown(self, count: int | None, *, ends: bool) -> RowsShown:
        """What the command prints. Raises InvalidArgument for names of columns that cannot be read."""
        columns = None if self.columns is None else list(parse_names(self.columns))
        form = self.form or ShownAs.JSON
        return RowsShown(form, columns, self.where, self.metadata, count, ends, self.deletes)


def print_rows(consumer: Consumer, shown: RowsShown, progress: PrintedProgress) -> None:
    """Print rows until `shown.count` or the present end, if one of them is given, else for ever."""
    printer = printer_of(shown)
    try:
        _print_polled(consumer, shown, printer, progress)
    finally:
        printer.end()  # also on Ctrl-C
        sys.stdout.flush()


def printer_of(shown: RowsShown) -> Printer:
    """The printer of this form."""
    return _PRINTERS[shown.form](shown)


def _print_polled(consumer: Consumer, shown: RowsShown, printer: Printer, progress: PrintedProgress) -> None:
    left = shown.count
    # A count may end inside a batch. Then the progress needs the offset of the last printed row.
    places = shown.metadata or left is not None
    while not (shown.exit_at_end and consumer.finished()):
        for polled in consumer.poll_arrow(
            _POLL_S, columns=shown.columns, where=shown.where, metadata=places, deletes=shown.deletes
        ):
            rows = polled if left is None else polled.slice(0, left)
            printer.rows(rows if shown.metadata or not places else _without_metadata(rows))
            if left is not None:
                _note_printed(rows, progress)
                left -= rows.num_rows
                if left == 0:
                    return
        printer.polled()
        sys.stdout.flush()
        if not printer.is_holding:
            progress.printed_all()


def _without_metadata(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name not in _METADATA])


def _note_printed(rows: pa.RecordBatch, progress: PrintedProgress) -> None:
    """Note the offset behind the last of these rows. They are of one partition, in the order of their offsets."""
    if rows.num_rows:
        last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        progress.printed_to(TopicPartition(last[_TOPIC], last[_PARTITION]), last[_OFFSET] + 1)


class Printer:
    """Rows as JSON, one document a row."""

    is_holding = False  # whether rows wait to be printed

    def __init__(self, shown: RowsShown) -> None:
        self.shown = shown

    def rows(self, rows: pa.RecordBatch) -> None:
        """Print more rows."""
        deletes = self.shown.deletes
        documents = _with_deletions(rows, self.shown.key_columns) if deletes else rows_as_json(rows)
        sys.stdout.buffer.writelines(map(line, documents))

    def polled(self) -> None:
        """Note that a poll is over. More rows may come later."""

    def end(self) -> None:
        """Note that no more rows come."""


def _with_deletions(rows: pa.RecordBatch, key_columns: tuple[str, ...]) -> list[bytes]:
    """Rows as `produce --format json` reads them: a deletion has `_deleted`, and of its columns those of the key."""
    names, deletions = rows.schema.names, rows.column(DELETED_COLUMN)
    plain = [name for name in names if name != DELETED_COLUMN]
    of_deletion = [name for name in names if name in key_columns or name in (*_METADATA, DELETED_COLUMN)]
    documents = rows_as_json(rows.select(plain))
    deleted = iter(rows_as_json(rows.filter(deletions).select(of_deletion)))
    return [
        next(deleted) if is_deletion else document
        for document, is_deletion in zip(documents, deletions.to_pylist(), strict=True)
    ]


class _CsvPrinter(Printer):
    """Rows as CSV behind the names of the columns. Bytes are base64, and an empty field is null."""

    _schema: pa.Schema | None = None

    def rows(self, rows: pa.RecordBatch) -> None:
        for field in rows.schema:
            if pa.types.is_nested(field.type):
                raise CommandFailed(
                    f"column {field.name!r} is {field.type}, for which CSV has no place: leave it out with --columns, "
                    "or take --format json"
                )
        if self._schema is None:
            self._write(rows.slice(0, 0), header=True)
        elif self._schema.names != rows.schema.names:
            raise CommandFailed("the columns of the topic have changed meanwhile: start again")
        self._schema = rows.schema
        self._write(rows, header=False)

    def _write(self, rows: pa.RecordBatch, *, header: bool) -> None:
        content = rows_as_csv(rows, header=header)
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(content)
            return
        sys.stdout.buffer.writelines(map(line, content.splitlines()))


class _TablePrinter(Printer):
    """Rows as tables for people. A command that ends by itself prints long tables, others print one for each poll."""

    def __init__(self, shown: RowsShown) -> None:
        super().__init__(shown)
        self._names: list[str] = []
        self._held: list[list[object]] = []

    @property
    def is_holding(self) -> bool:  # type: ignore[override]
        return bool(self._held)

    def rows(self, rows: pa.RecordBatch) -> None:
        if rows.schema.names != self._names:
            self.end()
            self._names = rows.schema.names
        for document in rows_as_json(rows):
            self._held.append(list(map(_cell, json.loads(document).values())))
            if len(self._held) == _TABLE_ROWS:
                self.end()

    def polled(self) -> None:
        if not self.shown.is_bounded:
            self.end()

    def end(self) -> None:
        if self._held:
            sys.stdout.flush()
            print_table(self._names, self._held)
            self._held = []


def _cell(value: object) -> object:
    """Text as it is, and every other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_PRINTERS = {ShownAs.JSON: Printer, ShownAs.TABLE: _TablePrinter, ShownAs.CSV: _CsvPrinter}
