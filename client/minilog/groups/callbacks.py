"""The callbacks of a program that joins a group.

Callbacks run within a poll, in the program's own thread or task. They may commit and seek, and may not poll. If one
raises an error, the client logs it, and the member goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from minilog.groups.member import GroupChange, Lost, NewlyAssigned, Revoked
from minilog.types import TopicPartition

Callback: TypeAlias = Callable[[list[TopicPartition]], Any]
"""The callback of a minilog.aio consumer may be a coroutine function."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The functions of one subscription. Without `on_lost`, a loss calls `on_revoked`."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


@dataclass(frozen=True, slots=True)
class GroupStep:
    """One change of the partitions that a member reads, on its way to the program."""

    change: GroupChange
    partitions: list[TopicPartition]

    def call(self, callbacks: Callbacks) -> Any:
        """Call the callback of this change, and return its result. The caller awaits an awaitable result."""
        match self.change:
            case NewlyAssigned():
                callback = callbacks.on_assigned
            case Revoked():
                callback = callbacks.on_revoked
            case Lost():
                callback = callbacks.on_lost or callbacks.on_revoked
        try:
            return None if callback is None else callback(list(self.partitions))
        except Exception as error:
            self.failed(error)
            return None

    def failed(self, error: Exception) -> None:
        """Log the error that the program's callback raised."""
        name = type(self.change).__name__.lower()
        _log.error("the callback on_%s raised, and the member goes on", name, exc_info=error)
