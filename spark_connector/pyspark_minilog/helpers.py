"""A short form of the source: `pyspark_minilog.read(spark, "flights", columns=["delay"], where="delay > 15")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession, topic: str, columns: Sequence[str] | None = None, where: str | None = None, **options: object
) -> DataFrame:
    """A topic as a DataFrame, or several topics with commas between them.

    `options` are the options of the source, with an underscore for each dot:
    `read(spark, "flights", bootstrap_servers="127.0.0.1:9092", startingOffsets="earliest")`."""
    return spark.read.format("minilog").options(**_options(topic, columns, where, options)).load()


def read_stream(
    spark: SparkSession, topic: str, columns: Sequence[str] | None = None, where: str | None = None, **options: object
) -> DataFrame:
    """A topic as a streaming DataFrame. The arguments are those of `read`."""
    return spark.readStream.format("minilog").options(**_options(topic, columns, where, options)).load()


def _options(
    topic: str, columns: Sequence[str] | None, where: str | None, options: Mapping[str, object]
) -> dict[str, str]:
    chosen = {} if columns is None else {"columns": _in_words(columns)}
    return {"subscribe": topic, **chosen, **({} if where is None else {"where": where}), **option_texts(options)}


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark takes them, from keyword arguments with an underscore for each dot."""
    return {name.replace("_", "."): _text(value) for name, value in options.items()}


def _in_words(columns: Sequence[str]) -> str:
    from minilog.typed.schema.column_names import (
        names_in_words,  # Spark imports this package wherever it looks for sources
    )

    return columns if isinstance(columns, str) else names_in_words(columns)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
