"""How a program of ours imports what is large. A library leaves that to the program, and so do these modules."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """For the length of an import: the garbage collector waits. What is there afterwards it does not look at again.

    Next to nothing of what modules make is garbage, then or later. To look for it takes a sixth of the CPU time of a
    broker's start, and each full collection would take it again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class Without:
    """A finder of modules: these count as not installed. `sys.meta_path.insert(0, Without(...))`."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in self._names:
            raise ModuleNotFoundError(f"this process of minilog does without {fullname}", name=fullname)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """For the length of an import: what would use these if they were installed goes on without them."""
    finder = Without(*names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
