"""What is said on the wires, for whoever looks: each message when it is sent, as an object.

A watcher is told (call, message, answers): `answers` where it goes from the server to the client. A listener is told
(call, answers) when a message has come to who reads it, and (call, None) when the call's connection breaks. Neither may
change a message, and what it finds wrong it says elsewhere: nobody here hears it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Said(Protocol):
    """A call of gRPC, or a stream: its two sides, and what was sent beside its messages."""

    client: str
    host: str
    method: str
    metadata: tuple[tuple[str, bytes], ...]
    certificate: str | None


Watcher = Callable[[Said, Any, bool], None]
Listener = Callable[[Said, bool | None], None]


class Wire:
    """Every message of every call, told to who asked for that."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._listeners: list[Listener] = []

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def arrived(self, call: Said, answers: bool | None) -> None:
        for listener in self._listeners:
            listener(call, answers)

    def said(self, call: Said, message: Any, *, answers: bool) -> None:
        """A message of a stream that has a connection of its own."""
        for watcher in self._watchers:
            watcher(call, message, answers)

    def asked(self, call: Said, message: Any) -> None:
        for watcher in self._watchers:
            watcher(call, message, False)

    def answered(self, call: Said, decode: Callable[[bytes], Any], content: bytes) -> None:
        """The server's side has bytes: they are decoded for the watchers, where there is one."""
        if self._watchers:
            message = decode(content)
            for watcher in self._watchers:
                watcher(call, message, True)
