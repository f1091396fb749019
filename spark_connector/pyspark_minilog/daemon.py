"""Spark's Python daemon with all loaded that its workers need: they are forked off it, and begin at once.

    spark.python.daemon.module=pyspark_minilog.daemon

Spark's own daemon loads nothing: some libraries start threads when they are imported, and a fork loses those. What is
loaded here starts those of allocators and of BLAS alone, which mind forks themselves (tests/spark/test_daemon.py).
Each worker that plans, reads, writes or commits would load all of it anew, which is most of what a small query costs.
Memory is shared until it is written.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys

from pyspark.daemon import manager

import pyspark_minilog

_OF_SPARK = ("pyspark.worker", "pyspark.sql.types", "pyspark.sql.pandas.types", "pyarrow.compute")
_OF_THE_CLIENT = ("minilog", "minilog.aio", "minilog.consumer.core", "minilog.producer.sender")


def load() -> None:
    """Import what workers of any kind use; the kind of this daemon's workers is its argument."""
    kinds = [name for name in sys.argv[1:2] if name.startswith("pyspark")]
    own = [f"pyspark_minilog.{module.name}" for module in pkgutil.iter_modules(pyspark_minilog.__path__)]
    for name in (*kinds, *_OF_SPARK, *_OF_THE_CLIENT, *own):
        if name != __spec__.name:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    manager()
