"""The home of a client: one process, and one event loop.

Every client uses gRPC. After a client has used it, gRPC does not survive a fork: calls in the child hang, abort or die
by a signal. A program that closes all clients before the fork does not avoid this: gRPC's threads live on for a while,
and one child of ten got no answer.

    at the fork, in the parent               in the child
    no client was made yet                   new clients work
    a client was made (and perhaps closed)   no client works, neither an old nor a new one

A client that cannot work raises an error at once. processes.md is the guide. The child also releases no gRPC object of
the parent, neither by the garbage collector nor at its end. The release of a channel would wait for the parent's
threads, and a child without any call hung there.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import weakref

from minilog.errors import Closed

_ADVICE = (
    "start processes by the method 'spawn' or 'forkserver', or fork before the first client is made (processes.md)"
)


class _Process:
    """The state of this process for its clients. A fork changes it."""

    def __init__(self) -> None:
        self.forks = 0  # from the first process to this one
        self.has_clients = False  # open or closed
        self.is_spoilt = False  # an ancestor had made clients before it forked
        self.channels: weakref.WeakSet[object] = weakref.WeakSet()

    def forked(self) -> None:
        """Change the state after a fork. The child calls this."""
        self.forks += 1
        if self.has_clients:
            gc.freeze()
            for channel in self.channels:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))  # so Python never releases the channel
        self.is_spoilt |= self.has_clients
        self.has_clients = False
        self.channels = weakref.WeakSet()


_process = _Process()
os.register_at_fork(after_in_child=_process.forked)


def keep_in_children(channel: object) -> None:
    """Register a channel of gRPC, which a forked child must not release."""
    _process.channels.add(channel)


class Home:
    """The home of one client. Its constructor raises Closed if no client can work in this process."""

    def __init__(self) -> None:
        if _process.is_spoilt:
            raise Closed(f"no client works in this process, since its parent had made one before it forked: {_ADVICE}")
        _process.has_clients = True
        self._forks = _process.forks
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_of_parent(self) -> bool:
        """Whether the client was made before a fork."""
        return self._forks != _process.forks

    def check_process(self) -> None:
        """Raises Closed for a client of the parent."""
        if self.is_of_parent:
            raise closed_by_fork()

    def check(self) -> None:
        """Check process and event loop. Each call of the client begins with this, on the event loop.

        The client lives on the loop of its first call. Raises Closed for a client of the parent, RuntimeError on
        another loop."""
        self.check_process()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "this client was used on another event loop before, on which its connections live: make a client on "
                "each event loop, and close it there"
            )


def closed_by_fork() -> Closed:
    """The error of an object that belongs to the parent process."""
    return Closed(f"this client was made before the process forked, and belongs to the parent: {_ADVICE}")
