"""Arrow's functions on columns, `pyarrow.compute`, loaded when the first of them is called.

To load them costs as much as all the rest of Arrow, and a command that lists topics calls none. A broker loads
them before it listens: its event loop must not stand still for them (cli/broker.py).
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """The function of that name; from then on it is an attribute of this module, as after an import."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(importlib.import_module("pyarrow.compute"), name)
    globals()[name] = function
    return function
