"""Where a client lives: in one process, and on one event loop.

gRPC, on which every client stands, does not survive a fork in use: calls in the child hang, abort or die by a signal.

    at the fork, in the parent                in the child
    every client is closed, or none was made  new clients work
    a client is open                          no client works, neither an old nor a new one

What does not work is refused at once, with words. docs/processes.md is the guide.
"""

from __future__ import annotations

import asyncio
import os
import weakref

from minilog.errors import Closed

_ADVICE = (
    "close all clients before the fork, or start processes by the method 'spawn' or 'forkserver' (docs/processes.md)"
)


class _Process:
    """What is known of this process, as far as clients go. A fork makes another one of it."""

    def __init__(self) -> None:
        self.forks = 0  # from the first process to this one
        self.is_spoilt = False  # a client was open at one of them
        self.with_connections: weakref.WeakSet[Home] = weakref.WeakSet()

    def forked(self) -> None:
        """In the child."""
        self.forks += 1
        self.is_spoilt |= len(self.with_connections) > 0
        self.with_connections = weakref.WeakSet()


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)


class Home:
    """One for each client. Raises Closed where no client can be made."""

    def __init__(self) -> None:
        if _process.is_spoilt:
            raise Closed(f"no client works in this process, since its parent forked with a client open: {_ADVICE}")
        self._forks = _process.forks
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_of_parent(self) -> bool:
        """Was the client made before a fork?"""
        return self._forks != _process.forks

    def check_process(self) -> None:
        """Raises Closed for a client of the parent."""
        if self.is_of_parent:
            raise closed_by_fork()

    def check(self) -> None:
        """In each call, on the event loop: the first one says on which loop the client lives. Raises Closed for a
        client of the parent, RuntimeError on another loop."""
        self.check_process()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "this client was used on another event loop before, on which its connections live: make a client on "
                "each event loop, and close it there"
            )

    def has_connections(self, there_are: bool) -> None:
        """Of the client, from now on."""
        if there_are:
            _process.with_connections.add(self)
        else:
            _process.with_connections.discard(self)


def closed_by_fork() -> Closed:
    """The error of whatever belongs to the parent."""
    return Closed(f"this client was made before the process forked, and belongs to the parent: {_ADVICE}")
