"""What a Python process of Spark's does once, when it has loaded what it needs."""

from __future__ import annotations

import functools
import gc

from minilog.malloc import keep_freed_memory


@functools.cache
def settle_in() -> None:
    """The process keeps the buffers that it frees, and what is loaded by now is never garbage.

    Spark's daemon collects all garbage of a Python worker after each use of it (pyspark/daemon.py): with pyspark, Arrow
    and gRPC loaded that takes 20 to 30 ms of CPU, for 65,000 objects that stay. Frozen ones are not looked at.
    """
    keep_freed_memory()
    gc.collect()
    gc.freeze()
