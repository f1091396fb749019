"""The refusals of one message. Each name is judged by itself, and one event of the audit log has all refusals.

    a topic that is named              answer to the client         audit log
    by an id that no topic has         there is no such topic       nothing: there was no refusal
    by the id of one that the caller   there is no such topic, in   the topic's name, and the reason
    may not describe                   the same words
    otherwise                          the refusal                  the same

All names of a message are judged, and one event has them all. So a name that matters cannot hide behind others.
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
    """The caller that is judged (caller.Caller)."""

    @property
    def principal(self) -> Principal: ...

    @property
    def is_everybody(self) -> bool: ...

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def tell_denied(
        self, operation: Operation, kind: ResourceKind, names: Sequence[str], reason: str, about: Sequence[str]
    ) -> None:
        """Note the refused names of one message in the audit log."""


class Refusals:
    """The refusals of one message. As a context it writes them to the audit log at its end. `about`: the further
    subjects of the message, beside the judged names."""

    __slots__ = ("_about", "_caller", "_noted")

    def __init__(self, caller: Judged, about: Sequence[str] = ()) -> None:
        self._caller = caller
        self._about = about
        self._noted: dict[tuple[Operation, ResourceKind], tuple[str, dict[str, None]]] = {}

    @property
    def are_of_everybody(self) -> bool:
        """Whether the caller came by a listener without logins, where nothing is refused."""
        return self._caller.is_everybody

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (operation, resource), (reason, names) in self._noted.items():
            self._caller.tell_denied(operation, resource, tuple(names), reason, self._about)
        self._noted.clear()

    def of(self, operation: Operation, kind: ResourceKind, resource: str | ById) -> MinilogError | None:
        """The refusal of an operation, None where it is allowed."""
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
        """Note that the caller may not even describe the resource. Its answer is that there is none."""
        self._note(
            operation,
            kind,
            name,
            f"{self._caller.principal} is not allowed to describe {kind.value} {shortened(name)!r}, and gets the "
            "answer that there is none",
        )

    def _note(self, operation: Operation, kind: ResourceKind, name: str, reason: str) -> None:
        self._noted.setdefault((operation, kind), (reason, {}))[1][name] = None


def unknown_topic(topic_id: bytes) -> UnknownTopicId:
    """The error for a topic that does not exist, or that the caller may not know."""
    shown_id = topic_id.hex() if len(topic_id) <= TOPIC_ID_BYTES else f"{topic_id[:TOPIC_ID_BYTES].hex()}..."
    return UnknownTopicId(f"no topic has the id {shown_id}: it was deleted, or this broker does not know it yet")
