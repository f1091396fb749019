"""Rows of a typed topic from CSV and Parquet. Arrow reads them in batches."""

from __future__ import annotations

import csv
import io
import pathlib
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.csv as pcsv

from minilog import compute as pc
from minilog.errors import InvalidRecord
from minilog.typed.rows.as_json import value_shown
from minilog.typed.schema.fields import FieldType, Primitive, arrow_type, children
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema
from minilog_tools.cli.row_sources import (
    BINARY,
    BLOCK_BYTES,
    FLOAT,
    UNFIT,
    BadRows,
    Part,
    RowSource,
    as_topic_has_it,
    first_failing,
    hint,
    is_mark,
    no_utf8,
    topic_rows,
)

INSTANT = Primitive("timestamp")
_PARQUET_ROWS = 64 << 10
_HEADER_BYTES = 1 << 20
_AS_READ: dict[FieldType, pa.DataType] = {
    BINARY: pa.string(),
    FLOAT: pa.float64(),
    **{Primitive(name): pa.string() for name in ("date", "timestamp", "timestamp_ntz")},
}
_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to [^:]*: )?(.*)", re.DOTALL)
_PARSE = re.compile(r"CSV parse error: (?:Row #(\d+): )?(.*)", re.DOTALL)


def csv_rows(source: RowSource, schema: TopicSchema) -> Iterator[Part]:
    """The rows of a CSV file, batch by batch. Row 1 names the columns. An empty field is null, and `""` is an empty
    text. If there is one column, an empty line is a null. Raises BadRows."""
    begun = _Begun(source)
    _refuse_nested(begun.names, schema)
    end = 1
    try:
        with _open(begun, schema) as reader:
            topic_rows(_as_if_cast(reader.schema, schema).empty_table(), schema)
            for read in reader:
                rows = _csv_batch(read, schema, end + 1)
                end += read.num_rows
                if read.num_rows:
                    yield Part(rows, end)
    except pa.ArrowException as error:
        raise BadRows(_csv_reason(str(error), begun.names, schema)) from None
    except InvalidRecord as error:
        raise BadRows(str(error)) from None


def _as_if_cast(read: pa.Schema, schema: TopicSchema) -> pa.Schema:
    """The schema of the rows after the casts. With it the command checks the names before it reads any row."""
    kinds = {field.name: arrow_type(field.type) for field in schema.fields}
    return pa.schema([(field.name, kinds.get(field.name, field.type)) for field in read])


def _refuse_nested(names: list[str], schema: TopicSchema) -> None:
    """Raises BadRows for columns that CSV has no place for."""
    for field in schema.fields:
        if children(field.type) and field.name in names:
            raise BadRows(
                f"column {field.name!r} is {field.type}, for which CSV has no place: use --format json or parquet"
            )


class _Begun:
    """A source whose first line was read ahead, because it names the columns."""

    closed = False

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self._ahead = b""
        while b"\n" not in self._ahead and len(self._ahead) < _HEADER_BYTES and (chunk := source.read(BLOCK_BYTES)):
            self._ahead += chunk
        first = self._ahead[:_HEADER_BYTES]
        line = first.split(b"\n", 1)[0]
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise BadRows(f"row 1, which names the columns: {no_utf8(line, error.start)}") from None
        # The names of the columns in the file, in order.
        self.names = next(csv.reader(io.StringIO(first.decode("utf-8-sig", errors="replace"))), [])

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, at first of those that were read ahead. Empty at the end."""
        if not self._ahead:
            return self._source.read(size)
        size = len(self._ahead) if size < 0 else size
        content, self._ahead = self._ahead[:size], self._ahead[size:]
        return content


def _open(source: _Begun, schema: TopicSchema) -> pcsv.CSVStreamingReader:
    kinds = {field.name: _AS_READ.get(field.type, arrow_type(field.type)) for field in schema.fields}
    if schema.marks_deletions:
        kinds[DELETED_COLUMN] = pa.bool_()
    return pcsv.open_csv(
        source,
        read_options=pcsv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # else Arrow's errors name no rows
        parse_options=pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(source.names) != 1),
        convert_options=pcsv.ConvertOptions(
            column_types=kinds,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true", "TRUE", "True"],
            false_values=["false", "FALSE", "False"],
        ),
    )


def _csv_batch(read: pa.RecordBatch, schema: TopicSchema, first_row: int) -> pa.RecordBatch | pa.Table:
    def rows(batch: pa.RecordBatch, first: int) -> pa.RecordBatch | pa.Table:
        columns = [
            column if is_mark(name, schema) else as_topic_has_it(pa.chunked_array([column]), schema.column(name))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return topic_rows(pa.table(columns, names=batch.schema.names), schema, first_row=first)

    try:
        return rows(read, first_row)
    except InvalidRecord:
        raise
    except UNFIT as error:
        bad = first_failing(read.num_rows, lambda count: rows(read.slice(0, count), 0))
        name = next(name for name in read.schema.names if _fails(rows, read.slice(bad, 1).select([name])))
        kind = schema.column(name).type
        value = value_shown(read.slice(bad, 1).column(name)[0])
        why = f" ({error})" if isinstance(error, BadRows) else ""
        raise BadRows(
            f"row {first_row + bad}: column {name!r} is {kind}, and {value} does not fit{why}{hint(kind)}"
        ) from None


def _fails(rows: Callable[[pa.RecordBatch, int], object], one: pa.RecordBatch) -> bool:
    try:
        rows(one, 0)
    except InvalidRecord:
        return False  # about a column that is left out here
    except UNFIT:
        return True
    return False


def _csv_reason(message: str, names: list[str], schema: TopicSchema) -> str:
    """Arrow's message, with the name and the type of the column."""
    if match := _COLUMN.fullmatch(message):
        place, row, reason = int(match[1]), match[2], match[3].split(". ")[0]
        where = f"row {row}: " if row else ""
        if place < len(names) and names[place] in schema.names:
            field = schema.column(names[place])
            advice = ": save the file as UTF-8" if "UTF8" in reason else hint(field.type)
            return f"{where}column {field.name!r} is {field.type}: {reason}{advice}"
        return f"{where}column {place + 1}: {reason}"
    if match := _PARSE.fullmatch(message):
        return f"row {match[1]}: {match[2][:1].lower()}{match[2][1:]}" if match[1] else match[2]
    return message


def parquet_rows(
    path: pathlib.Path, schema: TopicSchema, report: Callable[[float], None], time_zone: str | None = None
) -> Iterator[Part]:
    """The rows of a Parquet file, batch by batch. `report` gets each batch's share of all rows, from 0 to 1.
    `time_zone` is the zone of times without one, for columns of instants. Raises BadRows."""
    import pyarrow.parquet as pq  # a tenth of a second that no other format needs

    end = 0
    try:
        with pq.ParquetFile(path) as file:
            _parquet_batch(file.schema_arrow.empty_table(), schema, time_zone, 1)
            for read in file.iter_batches(_PARQUET_ROWS):
                rows = _parquet_batch(read, schema, time_zone, end + 1)
                end += read.num_rows
                yield Part(rows, end)
                report(read.num_rows / file.metadata.num_rows)
    except (pa.ArrowException, InvalidRecord) as error:
        raise BadRows(str(error)) from None


def _parquet_batch(
    read: pa.RecordBatch | pa.Table, schema: TopicSchema, time_zone: str | None, first_row: int
) -> pa.RecordBatch | pa.Table:
    naive = [
        field.name
        for field in schema.fields
        if field.type == INSTANT and field.name in read.schema.names and _is_naive(read.schema.field(field.name).type)
    ]
    if naive and time_zone is None:
        raise BadRows(
            f"column {naive[0]!r} is timestamp, and the times in the file have no zone: give their zone, such as "
            "--time-zone UTC"
        )
    for name in naive:
        place = read.schema.get_field_index(name)
        zoned = _in_zone(read.column(name), name, str(time_zone), first_row)
        read = read.set_column(place, name, zoned)
    return topic_rows(read, schema, first_row=first_row)


def _is_naive(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _in_zone(
    times: pa.Array | pa.ChunkedArray, name: str, time_zone: str, first_row: int
) -> pa.Array | pa.ChunkedArray:
    try:
        return pc.assume_timezone(times, time_zone)
    except pa.ArrowInvalid:
        bad = first_failing(len(times), lambda count: pc.assume_timezone(times.slice(0, count), time_zone))
        raise BadRows(
            f"column {name!r}: {value_shown(times[bad])} in row {first_row + bad} exists twice or not at all in "
            f"{time_zone}, because clocks change: give the file times with a zone"
        ) from None
