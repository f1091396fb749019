"""The facade that Spark finds by itself: options in, readers and writers out. It imports nothing until it is used.

Spark creates it in short-lived Python processes on the driver, from a dictionary of options with lower-cased keys.
Source options are checked in `schema`, at `load()`, and again where a reader is made, since `.schema(...)` goes around
the former; sink options where a writer is made, which for a stream is the first micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.telling import told_first

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_minilog.batch_reader import BatchReader
    from pyspark_minilog.stream_reader import RefusedReader, StreamReader
    from pyspark_minilog.write_task import BatchWriter, StreamWriter


class DefaultSource(DataSource):
    """`format("minilog")`: topics of a minilog cluster as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "minilog"

    @told_first
    def schema(self) -> str:
        """The schema of docs/spec/connector.md § 2, all columns nullable. Raises InvalidOption."""
        from pyspark_minilog.options import parse_source_options
        from pyspark_minilog.schema import source_schema

        return source_schema(parse_source_options(self.options).include_headers)

    @told_first
    def reader(self, schema: StructType) -> BatchReader:
        from pyspark_minilog.batch_reader import BatchReader
        from pyspark_minilog.options import parse_batch_options
        from pyspark_minilog.schema import check_source_schema

        options = parse_batch_options(self.options)
        check_source_schema(schema, options.include_headers)
        return BatchReader(options)

    @told_first
    def streamReader(self, schema: StructType) -> StreamReader | RefusedReader:  # noqa: N802 - Spark's name
        from pyspark_minilog.options import parse_stream_options
        from pyspark_minilog.schema import check_source_schema
        from pyspark_minilog.stream_reader import RefusedReader, StreamReader

        try:
            options = parse_stream_options(self.options)
            check_source_schema(schema, options.include_headers)
        except InvalidOption as refusal:
            return RefusedReader(refusal)
        return StreamReader(options)

    @told_first
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_minilog.options import parse_sink_options
        from pyspark_minilog.sink import plan_sink, refuse_overwrite
        from pyspark_minilog.write_task import BatchWriter

        options = parse_sink_options(self.options)
        if overwrite:
            raise refuse_overwrite()
        return BatchWriter(options, plan_sink(schema, options.topic)).begin()

    @told_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from pyspark_minilog.options import parse_stream_sink_options
        from pyspark_minilog.sink import plan_sink
        from pyspark_minilog.worker import settle_in
        from pyspark_minilog.write_task import StreamWriter

        settle_in()
        options = parse_stream_sink_options(self.options)
        return StreamWriter(options, plan_sink(schema, options.topic))
