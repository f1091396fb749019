"""The HTTP listener of one broker, on its own event loop: uvicorn's protocol, bounded from outside.

    connections                as many as places.py says: who asks for nothing makes room, places are kept for probes
    a connection               one request, and `life_s` from first to last byte: a slow peer is cut
    a request's line, headers  at most MAX_HEAD_BYTES, else 400, in however many pieces; bodies are not read

uvicorn's Server is not used: it takes the signals of the process, polls ten times a second, and waits for a request
that never comes for as long as its sender likes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import dataclass

import structlog
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from minilog.addresses import address_text
from minilog_broker.failure import CommandFailed
from minilog_broker.server.http.places import MOST_SERVED, MOST_WAITING, ConnectionPlaces

MAX_HEAD_BYTES = 8 << 10
LIFE_S = 10.0  # Prometheus gives a scrape 10 s
_HANDSHAKE_S = 5.0

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The most connections (places.py), and the lifetime of each. The defaults are a broker's."""

    most_waiting: int = MOST_WAITING
    most_served: int = MOST_SERVED
    life_s: float = LIFE_S


class _ToStructlog(logging.Handler):
    """What uvicorn says: a request that is none is its sender's matter, an exception of ours is not."""

    def emit(self, record: logging.LogRecord) -> None:
        message, of = record.getMessage(), record.exc_info
        if record.levelno >= logging.ERROR:
            logger.error("an HTTP request failed", message=message, exc_info=of)
        else:
            logger.debug("http", message=message)


def _route_logs() -> None:
    for name in ("uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        log.propagate, log.handlers = False, [_ToStructlog()] if name == "uvicorn.error" else []


class HttpListener:
    """A bounded HTTP listener for one ASGI application.

    The constructor binds the port, and raises CommandFailed where it cannot. `option`: the option that gave the
    address, for that error. `tls`: the context of a server, None for plaintext.
    """

    def __init__(
        self,
        host: str,
        port: int,
        app: ASGIApp,
        *,
        option: str = "--http",
        limits: ListenerLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = _bound(host, port, option)
        self._limits = limits or ListenerLimits()
        self._tls = tls
        self._state = ServerState()
        self._state.tasks = _Tasks()
        self._state.default_headers = [(b"connection", b"close"), (b"x-content-type-options", b"nosniff")]
        _route_logs()
        self._config = Config(
            app, lifespan="off", ws="none", http="h11", log_config=None, h11_max_incomplete_event_size=MAX_HEAD_BYTES
        )
        self._config.load()
        self._places = ConnectionPlaces[_BoundedProtocol](self._limits.most_waiting, self._limits.most_served)
        self._server: asyncio.Server | None = None

    def protocol(self) -> _BoundedProtocol:
        """Of one more connection. On the event loop."""
        return _BoundedProtocol(self._config, self._state, self._places, self._limits)

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self.protocol,
            sock=self._socket,
            backlog=self._limits.most_waiting,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
        )

    async def stop(self) -> None:
        """Cut what is open: whoever asked is told nothing more."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()


class _Tasks(set["asyncio.Task[None]"]):
    """Of requests. An error in one is told here: left to the loop, it would end the broker."""

    def add(self, task: asyncio.Task[None]) -> None:
        super().add(task)
        task.add_done_callback(_tell_failure)


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("an HTTP request failed", exc_info=error)


class _BoundedProtocol(H11Protocol):
    """One connection."""

    def __init__(
        self, config: Config, state: ServerState, places: ConnectionPlaces[_BoundedProtocol], limits: ListenerLimits
    ) -> None:
        super().__init__(config, state, {}, _loop=asyncio.get_running_loop())
        self._limits = limits
        self.app = self._serve
        self._places = places
        self._is_served = False
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # that have come, while the request is not there as a whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if (oldest := self._places.come(self)) is not None:
            oldest.transport.abort()
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self._limits.life_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        try:
            if not self.cycle:
                self._head_received(data)
            else:
                super().data_received(data)
        except Exception as error:  # left to the loop, what somebody sent to HTTP would end the broker
            logger.error("an HTTP request failed", exc_info=error)
            self.transport.abort()

    def _head_received(self, data: bytes) -> None:
        """uvicorn bounds what comes in pieces, but not a head that comes in one: it is given no more than the bound."""
        if self.transport.is_closing():
            return
        room = MAX_HEAD_BYTES - self._head_bytes
        self._head_bytes += len(data)
        if room > 0:
            super().data_received(data[:room])
        if self.cycle:
            self._is_served = self._places.asks(self, self.scope["path"])
            if rest := data[room:]:  # nothing at all would mean the end to h11
                super().data_received(rest)
        elif len(data) > room and not self.transport.is_closing():
            self.send_400_response(f"the request's line and headers have more than {MAX_HEAD_BYTES} bytes\n")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_served:
            await self.config.loaded_app(scope, receive, send)
            return
        text = f"{self._limits.most_served} requests are under way, the most at a time: ask again\n"
        await PlainTextResponse(text, 503)(scope, receive, send)

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.gone(self)
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


def _bound(host: str, port: int, option: str) -> socket.socket:
    """A socket of the address alone: a port that is taken is an error, not shared."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound: socket.socket = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
            bound.setblocking(False)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise CommandFailed(
            f"{option} cannot listen on {address_text((host, port))} ({error.strerror}): stop the process that "
            "listens there, or choose another port"
        ) from None
    return bound
