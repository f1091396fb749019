"""The facade that Spark finds by itself: options in, readers and writers out. It imports nothing until Spark uses it.

Spark creates it in short-lived Python processes on the driver, from a dictionary of options with keys in lower case.
`schema` checks the options of a source at `load()`. The methods that make a reader check them again, because
`.schema(...)` skips the first check. The methods that make a writer check the options of a sink: for a stream, that is
at the first micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_minilog.error_display import hides_traceback
from pyspark_minilog.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_minilog.options.table import SourceOptions
    from pyspark_minilog.queues.reader import QueueReader
    from pyspark_minilog.reading.batch_reader import BatchReader
    from pyspark_minilog.reading.stream_reader import RefusedReader, StreamReader
    from pyspark_minilog.reading.typed_rows import TypedTopics
    from pyspark_minilog.writing.block_writer import BlockWriter
    from pyspark_minilog.writing.write_task import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """`format("minilog")`: topics of a minilog cluster as DataFrames."""

    _has_looked = False
    _typed_topics: TypedTopics | None = None

    @classmethod
    def name(cls) -> str:
        return "minilog"

    @hides_traceback
    def schema(self) -> StructType:
        """The columns of the topics' schema. Topics without a schema have the columns of docs/spec/connector.md § 2.

        This method asks the cluster for the schema once, and keeps it: Spark hands this object on to the planner of the
        query. Raises InvalidOption, MinilogError."""
        from pyspark_minilog.options.catalog_tables import created, with_options
        from pyspark_minilog.options.table import parse_source_options
        from pyspark_minilog.reading.schema import source_schema

        of_table = created(self.options)
        options = parse_source_options(self.options if of_table is None else of_table)
        self._has_looked, self._typed_topics = True, _find_rows(options)
        if self._typed_topics is None or options.rows.is_kafka_view:
            schema = source_schema(options.include_headers)
        else:
            schema = self._typed_topics.schema()
        return schema if of_table is None else with_options(schema, of_table)

    @hides_traceback
    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_minilog.options.catalog_tables import read_options
        from pyspark_minilog.options.table import parse_batch_options
        from pyspark_minilog.reading.batch_reader import BatchReader
        from pyspark_minilog.reading.schema import frame_schema

        options = parse_batch_options(read_options(self.options, schema))
        rows = self._rows(options, schema)
        return BatchReader(options, frame_schema(schema, rows, options), rows)

    @hides_traceback
    def streamReader(self, schema: StructType) -> StreamReader | QueueReader | RefusedReader:  # noqa: N802 - Spark's name
        _check_streams()
        from minilog.errors import MinilogError
        from pyspark_minilog.options.catalog_tables import read_options
        from pyspark_minilog.options.table import parse_stream_options
        from pyspark_minilog.reading.schema import frame_schema
        from pyspark_minilog.reading.stream_reader import RefusedReader, StreamReader

        try:
            options = parse_stream_options(read_options(self.options, schema))
            rows = self._rows(options, schema)
        except (InvalidOption, MinilogError) as refusal:
            return RefusedReader(refusal)
        if options.queue is not None:
            from pyspark_minilog.queues.reader import QueueReader

            return QueueReader(options, frame_schema(schema, rows, options), rows)
        return StreamReader(options, frame_schema(schema, rows, options), rows)

    def _rows(self, options: SourceOptions, schema: StructType) -> TypedTopics | None:
        """The typed topics of the query, or None if it reads keys and values. Raises InvalidOption."""
        from pyspark_minilog.options.catalog_tables import outdated, stored_options
        from pyspark_minilog.reading.schema import check_source_schema

        rows = self._typed_topics if self._has_looked else _find_rows(options)
        try:
            if rows is not None and not options.rows.is_kafka_view:
                return rows.projected(schema)
            check_source_schema(schema, options.include_headers)
        except InvalidOption as refusal:
            raise outdated(refusal) if stored_options(schema) else refusal from None
        return rows

    @hides_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter | BlockWriter:
        from pyspark_minilog.options.table import parse_sink_options
        from pyspark_minilog.writing.sink import refuse_overwrite
        from pyspark_minilog.writing.typed_sink import plan_write
        from pyspark_minilog.writing.write_task import BatchWriter

        options = parse_sink_options(self.options)
        if overwrite:
            raise refuse_overwrite()
        if options.transaction is not None:
            from pyspark_minilog.writing.block_writer import begin_write

            return begin_write(options, schema, options.transaction)
        return BatchWriter.begin(options, plan_write(schema, options))

    @hides_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from pyspark_minilog.login.task_login import task_login
        from pyspark_minilog.login.worker import settle_in
        from pyspark_minilog.options.table import parse_stream_sink_options
        from pyspark_minilog.writing.open_attempt import mark_of
        from pyspark_minilog.writing.typed_sink import plan_write
        from pyspark_minilog.writing.write_task import StreamWriter

        settle_in()
        options = parse_stream_sink_options(self.options)
        planned, login = plan_write(schema, options), task_login(options)
        plan = planned.carry_out(is_pending=options.exactly_once)
        if options.settle_queue is None:
            return StreamWriter(options, plan, login, mark_of(self.options))
        from pyspark_minilog.queues.settlement import settling

        return StreamWriter(options, plan, login, mark_of(self.options), settling)


def _check_streams() -> None:
    """Raises InvalidOption if this PySpark tells a Python source neither its start nor its limit."""
    import pyspark
    import pyspark.sql.datasource as datasource

    if not hasattr(datasource, "ReadLimit"):
        raise InvalidOption(
            f"a stream needs PySpark 4.2 or later, and this is {pyspark.__version__}, whose Python sources have no "
            "admission control: take a later PySpark"
        )


def _find_rows(options: SourceOptions) -> TypedTopics | None:
    from pyspark_minilog.reading.cluster import describe_schemas
    from pyspark_minilog.reading.typed_rows import typed_topics

    return typed_topics(describe_schemas(options), options.rows)
