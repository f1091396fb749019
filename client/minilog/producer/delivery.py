"""`on_delivery` of a producer: what becomes of a record, told to a function. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from minilog.types import RecordMetadata

OnDelivery: TypeAlias = Callable[[BaseException | None, RecordMetadata | None], object]
"""Called once with the error, or None and the place of the record."""


class _Done(Protocol):
    def exception(self) -> BaseException | None: ...

    def result(self) -> RecordMetadata: ...


def delivery_reporter(on_delivery: OnDelivery) -> Callable[[_Done], None]:
    """The callback of a future, of threads or of asyncio."""

    def report(done: _Done) -> None:
        error = done.exception()
        on_delivery(error, None if error is not None else done.result())

    return report
