"""`minilog produce --format` writes rows of files, or of stdin, into the columns of a typed topic, in batches."""

from __future__ import annotations

import contextlib
import enum
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from minilog import Producer, TopicSchema
from minilog import compute as pc
from minilog.types import BatchMetadata
from minilog_broker.failure import CommandFailed
from minilog_broker.printable import printable
from minilog_tools.cli.answers import Answers
from minilog_tools.cli.common import admin_client, attributes
from minilog_tools.cli.json_rows import json_rows
from minilog_tools.cli.row_sources import BadRows, Counted, Part, Pipe, ReadRows
from minilog_tools.cli.table_rows import csv_rows, parquet_rows

STDIN = pathlib.Path("-")


class RowFormat(enum.StrEnum):
    """The form of the rows that the user gives."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


_READ: dict[RowFormat, ReadRows] = {RowFormat.JSON: json_rows, RowFormat.CSV: csv_rows}
_UNIT = {RowFormat.JSON: "line", RowFormat.CSV: "row", RowFormat.PARQUET: "row"}


def produce_rows(
    config: dict[str, Any],
    topic: str,
    form: RowFormat,
    files: list[pathlib.Path],
    partition: int | None,
    *,
    as_json: bool,
    time_zone: str | None = None,
) -> None:
    """Write the rows of each file in turn. A row that does not fit ends the command. Then the error says how many rows
    were written before."""
    files = files or [STDIN]
    if form is RowFormat.PARQUET and STDIN in files:
        raise typer.BadParameter("a Parquet file is read from its end, and stdin has none: name files")
    for path in files:
        if path != STDIN:
            path.open("rb").close()  # a mistyped name fails here, before anything is written
    schema = _schema(config, topic)
    with Producer(config) as producer:
        answers = Answers(_documents if as_json else None, "rows")
        bad: BadRows | None = None
        try:
            for path, part in _parts(files, form, schema, time_zone):
                place = f"{_UNIT[form]} {part.end:,} of {_name(path)}"
                answers.expect(producer.send_batch(topic, part.rows, partition), part.rows.num_rows, place)
        except BadRows as error:
            bad = error
        finally:
            # Also on Ctrl-C and SIGTERM: the rows that were read are written, and their answers are printed.
            answers.finish()
    if bad is not None:
        written = f"{answers.acknowledged:,} rows are written, up to {answers.place}, and none after it"
        raise CommandFailed(f"{bad} ({written if answers.acknowledged else 'nothing is written'})")
    if not as_json:
        print(f"{answers.acknowledged} rows acknowledged", file=sys.stderr)


def check_time_zone(time_zone: str | None, form: RowFormat | None) -> None:
    """Raises BadParameter for an unknown zone, and for a zone with another format than Parquet."""
    if time_zone is None:
        return
    if form is not RowFormat.PARQUET:
        raise typer.BadParameter(
            "it is for --format parquet: in other formats a time has its zone behind it", param_hint="--time-zone"
        )
    try:
        pc.assume_timezone(pa.scalar(0, pa.timestamp("us")), time_zone)
    except pa.ArrowInvalid:
        raise typer.BadParameter(
            f"{time_zone!r} is no zone: give UTC, or a name such as Europe/Berlin", param_hint="--time-zone"
        ) from None


def _schema(config: dict[str, Any], topic: str) -> TopicSchema:
    with admin_client(config) as admin:
        (described,) = admin.describe_topics([topic])
    if described.schema is None:
        raise CommandFailed(f"topic {topic} has no schema: leave --format out, and give each record as a line of stdin")
    return described.schema


def _documents(batches: list[BatchMetadata]) -> list[dict[str, Any]]:
    return [attributes(batch, "topic", "partition", "first_offset", "last_offset") for batch in batches]


def _name(path: pathlib.Path) -> str:
    return "stdin" if path == STDIN else str(path)


def _parts(
    files: list[pathlib.Path], form: RowFormat, schema: TopicSchema, time_zone: str | None
) -> Iterator[tuple[pathlib.Path, Part]]:
    """The batches of all files. Raises BadRows, which names the file."""
    with _progress(files) as show_bytes:
        for path in files:
            try:
                for part in _of_file(path, form, schema, show_bytes, time_zone):
                    yield path, part
            except BadRows as error:
                raise BadRows(f"{_name(path)}: {error}") from None


def _of_file(
    path: pathlib.Path, form: RowFormat, schema: TopicSchema, show_bytes: Callable[[float], None], time_zone: str | None
) -> Iterator[Part]:
    if form is RowFormat.PARQUET:
        size = path.stat().st_size
        yield from parquet_rows(path, schema, lambda share: show_bytes(share * size), time_zone)
    elif path == STDIN:
        yield from _READ[form](Pipe(sys.stdin.fileno()), schema)
    else:
        with path.open("rb") as file:
            yield from _READ[form](Counted(file, show_bytes), schema)


@contextlib.contextmanager
def _progress(files: list[pathlib.Path]) -> Iterator[Callable[[float], None]]:
    """A function that shows the bytes read of all files together, on a terminal. Elsewhere, and for stdin, it shows
    nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    if STDIN in files or not console.is_terminal:
        yield lambda _: None
        return
    with Progress(*columns, console=console) as progress:
        label = printable(_name(files[0])) if len(files) == 1 else f"{len(files)} files"
        task = progress.add_task(label.replace("[", r"\["), total=sum(path.stat().st_size for path in files))
        yield lambda size: progress.advance(task, size)
