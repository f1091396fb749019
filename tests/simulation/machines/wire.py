"""What is said on the wires, for whoever looks: each message when it is sent, as an object.

A watcher is told (call, message, answers): `answers` where it goes from the server to the client. A listener is told
(call, answers) when a message has come to who reads it, and (call, None) when the call's connection breaks. Neither may
change a message, and what it finds wrong it says elsewhere: nobody here hears it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.machines.calls import SimulatedCall

Watcher = Callable[["SimulatedCall", Any, bool], None]
Listener = Callable[["SimulatedCall", bool | None], None]


class Wire:
    """Every message of every call, told to who asked for that."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._listeners: list[Listener] = []

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def arrived(self, call: SimulatedCall, answers: bool | None) -> None:
        for listener in self._listeners:
            listener(call, answers)

    def asked(self, call: SimulatedCall, message: Any) -> None:
        for watcher in self._watchers:
            watcher(call, message, False)

    def answered(self, call: SimulatedCall, content: bytes) -> None:
        """The server's side has bytes: they are decoded for the watchers, where there is one."""
        if self._watchers:
            message = call.decode(content)
            for watcher in self._watchers:
                watcher(call, message, True)
