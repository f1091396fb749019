"""The source with less to write: `pyspark_minilog.read(spark, "flights", columns=["delay"], where="delay > 15")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession, topic: str, columns: Sequence[str] | None = None, where: str | None = None, **options: object
) -> DataFrame:
    """A topic, or several with commas between them, as a DataFrame. Options are the source's, an underscore for each
    dot: `read(spark, "flights", bootstrap_servers="127.0.0.1:9092", startingOffsets="earliest")`."""
    return spark.read.format("minilog").options(**_options(topic, columns, where, options)).load()


def read_stream(
    spark: SparkSession, topic: str, columns: Sequence[str] | None = None, where: str | None = None, **options: object
) -> DataFrame:
    """The same as a stream."""
    return spark.readStream.format("minilog").options(**_options(topic, columns, where, options)).load()


def _options(
    topic: str, columns: Sequence[str] | None, where: str | None, options: Mapping[str, object]
) -> dict[str, str]:
    said = {name.replace("_", "."): _text(value) for name, value in options.items()}
    chosen = {} if columns is None else {"columns": _in_words(columns)}
    return {"subscribe": topic, **chosen, **({} if where is None else {"where": where}), **said}


def _in_words(columns: Sequence[str]) -> str:
    from minilog.typed.column_names import names_in_words  # Spark imports this package wherever it looks for sources

    return columns if isinstance(columns, str) else names_in_words(columns)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
