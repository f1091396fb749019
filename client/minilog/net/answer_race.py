"""One question that several brokers are asked, until the first one answers.

The client does not ask a slow broker a second time before the first call has ended. Otherwise brokers that have too
little time would be asked more and more, for answers that come too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from minilog.addresses import Address

_Answer = TypeVar("_Answer")


class AnswerRace(Generic[_Answer]):
    """The calls under way, at most one to each broker. A call without an answer (None) has failed."""

    def __init__(self) -> None:
        self._calls: dict[Address, asyncio.Task[_Answer | None]] = {}

    def has(self, address: Address) -> bool:
        """Whether a call to this broker is under way."""
        return address in self._calls

    def add(self, address: Address, call: Coroutine[Any, Any, _Answer | None]) -> None:
        """Begin a call."""
        self._calls[address] = task = asyncio.ensure_future(call)
        task.add_done_callback(_look_at_error)

    async def first(self, within_s: float) -> _Answer | None:
        """The first answer. None if a call failed, or if no answer came in time. Raises the error of a call."""
        if not self._calls:
            await asyncio.sleep(within_s)
            return None
        done, _ = await asyncio.wait(self._calls.values(), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [(address, task) for address, task in self._calls.items() if task in done]
        for address, _ in ended:
            del self._calls[address]
        return next((answer for _, task in ended if (answer := task.result()) is not None), None)

    def end(self) -> None:
        """Cancel the calls under way."""
        for task in self._calls.values():
            task.cancel()


def _look_at_error(task: asyncio.Task[_Answer | None]) -> None:
    """Read the error of a call, because asyncio warns of an error that no code reads.

    The client reports the error of one of the calls. The errors of the others add nothing to it."""
    if not task.cancelled():
        task.exception()
