"""What one message is refused for: judged name by name, told to the audit log together.

    a topic that is named              the client is told        the audit log
    by an id that no topic has         that there is none        nothing: nobody was refused
    by the id of one that the caller   that there is none, in    the topic's name, and why
    may not describe                   the same words
    otherwise                          what is not allowed       the same

All names of a message are judged, and one event has them all: a name that matters cannot hide behind others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from minilog.errors import AuthorizationFailed, MinilogError, UnknownTopicId
from minilog_broker.printable import shortened
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.principal import Principal

TOPIC_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class ById:
    """A topic that a request names by its id. `name`: None where no topic has it."""

    topic_id: bytes
    name: str | None


class Judged(Protocol):
    """Who is refused (caller.Caller)."""

    @property
    def principal(self) -> Principal: ...

    @property
    def is_everybody(self) -> bool: ...

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def tell_denied(
        self, operation: Operation, kind: ResourceKind, names: Sequence[str], reason: str, about: Sequence[str]
    ) -> None:
        """To the audit log."""


class Refusals:
    """Of one message; used as a context, which tells the audit log at its end. `about`: what the message is about,
    beside the names that are judged."""

    __slots__ = ("_about", "_caller", "_found")

    def __init__(self, caller: Judged, about: Sequence[str] = ()) -> None:
        self._caller = caller
        self._about = about
        self._found: dict[tuple[Operation, ResourceKind], tuple[str, dict[str, None]]] = {}

    @property
    def are_of_everybody(self) -> bool:
        """Nobody is asked who he is, and nothing is refused."""
        return self._caller.is_everybody

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (operation, resource), (reason, names) in self._found.items():
            self._caller.tell_denied(operation, resource, tuple(names), reason, self._about)
        self._found.clear()

    def of(self, operation: Operation, kind: ResourceKind, resource: str | ById) -> MinilogError | None:
        """Why this is refused; None where it is allowed."""
        if isinstance(resource, ById):
            return self._of_id(operation, kind, resource)
        if self._caller.may(operation, kind, resource):
            return None
        kind_name = kind.name.lower().replace("_", " ")
        error = AuthorizationFailed(
            f"{self._caller.principal} is not allowed to {operation.name.lower()} {kind_name} {shortened(resource)!r}: "
            "an administrator may allow it (minilog acl add)"
        )
        self._note(operation, kind, resource, str(error))
        return error

    def _of_id(self, operation: Operation, kind: ResourceKind, resource: ById) -> MinilogError | None:
        if resource.name is None:
            return unknown_topic(resource.topic_id)
        if self._caller.may(Operation.DESCRIBE, kind, resource.name):
            return self.of(operation, kind, resource.name)
        self.hide(operation, kind, resource.name)
        return unknown_topic(resource.topic_id)

    def hide(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """The caller may not even describe it, and is told that there is none."""
        self._note(
            operation,
            kind,
            name,
            f"{self._caller.principal} is not allowed to describe {kind.value} {shortened(name)!r}, and is told that "
            "there is none",
        )

    def _note(self, operation: Operation, kind: ResourceKind, name: str, reason: str) -> None:
        self._found.setdefault((operation, kind), (reason, {}))[1][name] = None


def unknown_topic(topic_id: bytes) -> UnknownTopicId:
    """Of one that is not there, or that the caller may not know to be there."""
    told = topic_id.hex() if len(topic_id) <= TOPIC_ID_BYTES else f"{topic_id[:TOPIC_ID_BYTES].hex()}..."
    return UnknownTopicId(f"no topic has the id {told}: it was deleted, or is not known here yet")
