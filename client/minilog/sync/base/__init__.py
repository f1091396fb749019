"""The hand-written half of the blocking clients: what threads need. tools/generate_sync.py writes the other half.

A class here has the private methods of the class for asyncio, for the thread of the program, and the beginning and end
of a block. The generated class has the public methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar, cast

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def own(given: _Given) -> _Given:
    """A copy of what the program gives, made on its thread. Its iterator may wait, or call minilog, and would stop the
    loop."""
    if isinstance(given, Mapping):
        return cast("_Given", dict(given))
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return cast("_Given", list(given))
    return given


async def called(call: Callable[[], _Result]) -> _Result:
    """The result of a call that belongs on the loop."""
    return call()


class Blocking(ABC):
    """A client whose `with` block closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections. A second call does nothing."""
