"""Ways for our programs to import large modules. Libraries leave that choice to the program."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Stop the garbage collector for the length of an import. It never looks at the imported objects again.

    Modules make next to no garbage, then or later. A search for it takes a sixth of the CPU time of a broker's start,
    and each full collection would take it again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class Without:
    """A finder of modules for which these modules are not installed. `sys.meta_path.insert(0, Without(...))`."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in self._names:
            raise ModuleNotFoundError(f"this process of minilog does not use {fullname}", name=fullname)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Hide modules for the length of an import. Code that uses them where they are installed goes on without them."""
    finder = Without(*names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
