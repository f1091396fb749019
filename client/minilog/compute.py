"""Arrow's functions on columns, `pyarrow.compute`, loaded when the first of them is called.

To load them costs as much as all the rest of Arrow, and a command that lists topics calls none. A broker loads
them before it listens: its event loop must not stand still for them (cli/broker.py).
"""

from __future__ import annotations

import importlib
from typing import Any


def arange(start: int, stop: int, step: int = 1) -> Any:
    """The numbers from `start` to `stop`, exclusive, as `pyarrow.arange` gives them, which is younger than the oldest
    Arrow that we take."""
    import pyarrow as pa

    if hasattr(pa, "arange"):
        return pa.arange(start, stop, step)
    # No built-in functions here: those of Arrow, such as max, become globals of this module.
    count = -(-(stop - start) // step) if stop > start else 0
    steps = pa.repeat(pa.scalar(step, pa.int64()), count)
    return importlib.import_module("pyarrow.compute").cumulative_sum(steps, start=start - step)


def concat_batches(batches: list[Any]) -> Any:
    """At least one batch, as one. `pyarrow.concat_batches` is younger, too."""
    import pyarrow as pa

    if hasattr(pa, "concat_batches"):
        return pa.concat_batches(batches)
    whole = pa.Table.from_batches(batches).combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in whole.columns], schema=whole.schema)


def __getattr__(name: str) -> Any:
    """The function of that name; from then on it is an attribute of this module, as after an import."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(importlib.import_module("pyarrow.compute"), name)
    globals()[name] = function
    return function
