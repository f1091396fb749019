"""A listening socket of a port of streams, by the running event loop.

It accepts connections itself, not by asyncio's server. So each connection gets the current certificates, and the
listener pauses while there is no descriptor left, without a line for each try. Unfinished TLS handshakes make room for
new ones, the oldest first, so that strangers block no client.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterable

from minilog.addresses import Address
from minilog.net.runtime import give_up_when_dead
from minilog.net.stream_connection import StreamConnection
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.storage.open_files import OUT_OF_FILES

_BACKLOG = 128  # connections that the kernel holds until they are accepted
_HANDSHAKE_S = 5.0  # the limit of a TLS handshake
_PAUSE_S = 0.1  # the pause without a descriptor
_HANDSHAKES = 256  # at the same time: an honest one takes some milliseconds
_PASSING = (*OUT_OF_FILES, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO, errno.EPERM)  # man 2 accept


class StreamListener:
    """The listener of a port of streams. `protocol` makes the object that serves a connection. `files` None: in the
    clear. `most_connections`: the limit of the port, and of handshakes under way. Raises OSError where the port is
    taken."""

    def __init__(
        self,
        address: Address,
        protocol: Callable[[], StreamConnection],
        files: ServerFiles | None,
        most_connections: int,
    ) -> None:
        host, port = address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._protocol = protocol
        self._files = files
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._most_handshakes = min(_HANDSHAKES, most_connections)

    def start(self) -> None:
        """Accept connections."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        self._accepting.add_done_callback(_ended)

    async def close(self) -> None:
        """Accept no more connections, and end unfinished handshakes."""
        if self._accepting is not None:
            self._accepting.cancel()
        tasks = [*self._handshakes, *filter(None, (self._accepting,))]
        self._end_handshakes(self._handshakes)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()

    def _end_handshakes(self, handshakes: Iterable[asyncio.Task[None]]) -> None:
        """End handshakes of TLS. A connection in the clear has none: the listener hands it over in the next turn of
        the loop. If that task were cancelled, uvloop would close the transport and never call `connection_lost`."""
        if self._files is not None:
            for task in handshakes:
                task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._handshakes) >= self._most_handshakes:
                self._end_handshakes([next(iter(self._handshakes))])
            task = loop.create_task(self._hand_over(accepted))
            self._handshakes[task] = None
            task.add_done_callback(self._handed_over)

    async def _hand_over(self, accepted: socket.socket) -> None:
        """Secure a connection, and hand it over. One that cannot be secured is closed without a word, since event loops
        send no alert of TLS then."""
        loop = asyncio.get_running_loop()
        try:
            give_up_when_dead(accepted)  # before a transport has it, which may be closed at any moment
            if self._files is None:
                await loop.connect_accepted_socket(self._protocol, accepted)
            else:
                await loop.connect_accepted_socket(
                    self._protocol,
                    accepted,
                    ssl=self._files.context(),
                    ssl_handshake_timeout=_HANDSHAKE_S,
                    ssl_shutdown_timeout=_HANDSHAKE_S,
                )
        except (OSError, EOFError):  # also errors of TLS
            with contextlib.suppress(OSError):
                accepted.close()

    def _handed_over(self, task: asyncio.Task[None]) -> None:
        self._handshakes.pop(task)
        _ended(task)


def _ended(task: asyncio.Task[None]) -> None:
    """Raise a task's error, which is a fault of ours: the event loop gets it, and the broker ends."""
    if not task.cancelled():
        task.result()
