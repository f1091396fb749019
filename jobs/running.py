"""What the jobs of this folder share: a session, options from the command line, a query that ends when it is told to.

`spark-submit jobs/mirror.py` and `python jobs/mirror.py` both put this folder on the path.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import threading
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

OptionsOfJob = TypeVar("OptionsOfJob")
UNTIL_EMPTY = "available-now"


def parse_arguments(options: type[OptionsOfJob], description: str | None, arguments: list[str]) -> OptionsOfJob:
    """A dataclass of strings, each a flag; argparse ends the program where one without a default is missing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", required=required, default=default)
    return options(**vars(parser.parse_args(arguments)))


def create_session(name: str) -> SparkSession:
    """spark-submit's own settings (master, memory) win."""
    builder = SparkSession.builder.appName(name)
    for setting, value in {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def run_query(writer: DataStreamWriter, trigger: str) -> None:
    """Until SIGTERM or SIGINT, or until all is done where `trigger` is `available-now`. Raises what the query raises.

    `trigger`: `available-now`, or an interval as Spark spells it: `5 seconds`.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    how: dict[str, Any] = {"availableNow": True} if trigger == UNTIL_EMPTY else {"processingTime": trigger}
    query = writer.trigger(**how).start()
    while not stop.is_set() and not query.awaitTermination(1):
        pass
    query.stop()
