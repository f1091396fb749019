"""gRPC's asyncio calls on the simulated network: generated stubs and servicers, and traffic.py, work on them unchanged.

A call is two pipes and a task of the server's process. How it ends:

    the handler returns, or aborts       the client is told behind all that was written
    the client cancels, or its time is over    the handler is cancelled, a message later
    the connection breaks                the handler is cancelled, the client gets UNAVAILABLE, each when it hears of it
    the server is stopped                the same, at once
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc

from minilog.security.channel_security import ChannelSecurity
from tests.simulation.machines.network import SimulatedConnection, SimulatedNetwork, SimulatedPipe
from tests.world.loop import PROCESS, Process

EOF = grpc.aio.EOF
CONNECT_TIMEOUT_S = 2.0
RECONNECT_S = 0.05
_log = logging.getLogger(__name__)
Codec = Callable[[Any], Any]
Metadata = tuple[tuple[str, bytes], ...]


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def _here() -> Process:
    process = PROCESS.get()
    assert process is not None, "only a process calls or serves"
    return process


class Context:
    """What a handler is given."""

    def __init__(self, call: SimulatedCall) -> None:
        self._call = call

    def peer(self) -> str:
        return self._call.peer

    def invocation_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return self._call.metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        certificate = self._call.certificate
        return {} if certificate is None else {"x509_common_name": [certificate.encode()]}

    async def read(self) -> Any:
        message = await self._call.up.get()
        self._call.wire.arrived(self._call, False)
        return message

    async def write(self, message: bytes) -> None:
        self._call.wire.answered(self._call, self._call.decode, message)
        await self._call.down.put(message, len(message))

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise rpc_error(code, details)


class Server:
    """A grpc.aio.Server as Port uses it. Listens when started, until it is stopped or its process is gone.

    `name`: what its certificate for other brokers says; its own listener for those is the secured one without users."""

    def __init__(self, network: SimulatedNetwork, name: str = "") -> None:
        self._network = network
        self.name = name
        self.is_secured = False
        self.process = _here()
        self.methods: dict[str, Any] = {}
        self._address = ("", 0)
        self._tasks: dict[asyncio.Task[None], None] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers come by name as well."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.methods |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_insecure_port(self, address: str) -> int:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        return 0 if self._address in self._network.listening else int(port)

    def add_secure_port(self, address: str, credentials: object) -> int:
        self.is_secured = True
        return self.add_insecure_port(address)

    async def start(self) -> None:
        self._network.listening[self._address] = self

    async def stop(self, grace: float | None) -> None:
        if self._network.listening.get(self._address) is self:
            del self._network.listening[self._address]
        if self._tasks and grace:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def serve(self, call: SimulatedCall) -> None:
        """A call has come."""
        task = self._network.loop.spawn(self.process, self._answer(call))
        call.task = task
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    async def _answer(self, call: SimulatedCall) -> None:
        handler, down = self.methods.get(call.method), call.down
        context = Context(call)
        try:
            if handler is None:
                raise rpc_error(grpc.StatusCode.UNIMPLEMENTED, call.method)
            if handler.unary_unary is not None:
                answer = await handler.unary_unary(await context.read(), context)
                await context.write(answer)
            elif handler.unary_stream is not None:
                await handler.unary_stream(await context.read(), context)
            else:
                await handler.stream_stream(None, context)
            down.send(EOF)
        except asyncio.CancelledError:
            down.send(rpc_error(grpc.StatusCode.UNAVAILABLE, "the server has ended the call"))
        except grpc.aio.AioRpcError as error:
            down.send(error)
        except Exception as error:
            _log.debug("the handler of %s failed", call.method, exc_info=error)
            down.send(rpc_error(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}"))


class SimulatedCall:
    """One call, as its client has it: a grpc.aio.StreamStreamCall or UnaryStreamCall."""

    def __init__(
        self,
        connection: SimulatedConnection,
        method: str,
        encode: Codec,
        decode: Codec,
        metadata: tuple[tuple[str, bytes], ...],
        certificate: str | None,
    ) -> None:
        network, client, host = connection.network, connection.client, connection.host
        self.method = method
        self.metadata, self.certificate = metadata, certificate
        self.peer = f"ipv4:{client.name}:{connection.number}"
        self.up, self.down = SimulatedPipe(network, client.name, host), SimulatedPipe(network, host, client.name)
        self.task: asyncio.Task[None] | None = None
        self.client, self.host, self.wire = client.name, host, network.wire
        self._connection = connection
        self._encode, self.decode = encode, decode
        self._status: BaseException | None = None
        self._ended = False
        connection.calls[self] = None

    async def write(self, message: Any) -> None:
        if self._ended:
            raise asyncio.InvalidStateError("the call has ended")
        self.wire.asked(self, message)
        content = self._encode(message)
        await self.up.put(content, len(content))

    async def done_writing(self) -> None:
        self.up.send(EOF)

    async def read(self) -> Any:
        if self._ended:
            if self._status is not None:
                raise self._status
            return EOF
        try:
            item = await self.down.get()
        except grpc.aio.AioRpcError as error:
            item = error
        if item is EOF or isinstance(item, grpc.aio.AioRpcError):
            self._end(item if isinstance(item, grpc.aio.AioRpcError) else None)
            return await self.read()
        self.wire.arrived(self, True)
        return self.decode(item)

    def _end(self, status: BaseException | None) -> None:
        self._ended, self._status = True, status
        self._connection.calls.pop(self, None)

    def cancel(self) -> bool:
        if self._ended:
            return False
        self._end(asyncio.CancelledError())
        self._tell_server()
        return True

    def _tell_server(self) -> None:
        network, task = self._connection.network, self.task
        source, target = self._connection.client.name, self._connection.host
        if task is not None:
            network.carry(source, target, lambda: _cancel(network, task), network.delay_s(source, target))

    def connection_lost(self) -> None:
        """Both ends hear of it at once; who is dead does not."""
        self._connection.calls.pop(self, None)
        self.wire.arrived(self, None)
        error = rpc_error(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        self.down.fail(error)
        self.up.fail(error)
        if self.task is not None:
            _cancel(self._connection.network, self.task)

    async def code(self) -> grpc.StatusCode:
        status = self._status
        if isinstance(status, grpc.aio.AioRpcError):
            return status.code()
        return grpc.StatusCode.OK if status is None else grpc.StatusCode.CANCELLED

    async def details(self) -> str:
        return str(self._status or "")

    def done(self) -> bool:
        return self._ended

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not EOF:
            yield message


def _cancel(network: SimulatedNetwork, task: asyncio.Task[None]) -> None:
    network.loop.call_soon(task.cancel)


class _Unary:
    """A call for one answer, as `await stub.Method(request, timeout=...)` makes it."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, Any]:
        return self._task.__await__()

    def cancel(self) -> bool:
        return self._task.cancel()


class Channel:
    """A grpc.aio.Channel of one process to one address: one connection at a time. `security` None: in the clear, which
    a secured server does not take, nor the other way. `certificate`: the common name that it shows, if any."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: str,
        port: int,
        security: ChannelSecurity | None = None,
        certificate: str | None = None,
    ) -> None:
        self._network = network
        self._security, self._certificate = security, certificate
        self._process = _here()
        self._address = host, port
        self._connection: SimulatedConnection | None = None

    async def _connected(self) -> SimulatedConnection:
        """The connection; raises AioRpcError where nobody listens, and waits where nothing passes."""
        network, (host, port) = self._network, self._address
        known = self._connection
        if known is not None and known.server is not None and self._is_alive(known):
            return known
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self.knock(network, self._process, host, port)
        except OSError as error:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, f"no connection to {host}:{port}: {error!r}") from error
        server = network.listening[self._address]
        if server.is_secured != (self._security is not None):
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, f"{host}:{port}: one side speaks TLS, and the other does not")
        if self._security is not None and self._security.server_name not in (None, server.name):
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, f"{host}:{port} shows the certificate of {server.name!r}")
        connection = self._connection = network.connection(self._process, host)
        connection.server = server.process
        return connection

    def _is_alive(self, connection: SimulatedConnection) -> bool:
        server = self._network.listening.get(self._address)
        return connection.half_open or (server is not None and server.process is connection.server)

    @staticmethod
    async def knock(network: SimulatedNetwork, process: Process, host: str, port: int) -> None:
        """A connection is asked for: there and back. Raises ConnectionRefusedError where nobody listens; waits for ever
        where nothing passes."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered() -> None:
            if not asked.done():
                asked.set_result(None)

        def arrived() -> None:
            if host not in network.dark:
                network.carry(host, process.name, answered, network.delay_s(host, process.name))

        network.carry(process.name, host, arrived, network.delay_s(process.name, host))
        await asked
        if (host, port) not in network.listening or host in network.refusing:
            network.refused_s[process.name, host] = network.loop.now_s
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses connections")

    async def _begin(self, method: str, encode: Codec, decode: Codec, metadata: Metadata) -> SimulatedCall:
        connection = await self._connected()
        call = SimulatedCall(connection, method, encode, decode, metadata, self._certificate)
        server = self._network.listening.get(self._address)
        source, target = self._process.name, self._address[0]

        def arrived() -> None:
            if server is not None and not server.process.dead:
                server.serve(call)

        self._network.carry(source, target, arrived, self._network.delay_s(source, target))
        return call

    # -- what stubs ask for

    def unary_unary(self, method: str, request_serializer: Codec, response_deserializer: Codec, **_: Any) -> Any:
        async def ask(request: Any, within_s: float | None, metadata: Metadata) -> Any:
            call: SimulatedCall | None = None
            try:
                async with asyncio.timeout(within_s):
                    call = await self._begin(method, request_serializer, response_deserializer, metadata)
                    await call.write(request)
                    answer = await call.read()
                    if answer is EOF:
                        raise rpc_error(grpc.StatusCode.INTERNAL, "no answer")
                    call._end(None)
                    return answer
            except TimeoutError:
                raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, f"{method} after {within_s} s") from None
            finally:
                if call is not None:
                    call.cancel()

        def begin(request: Any, timeout: float | None = None, metadata: Metadata = ()) -> _Unary:
            return _Unary(asyncio.get_running_loop().create_task(ask(request, timeout, metadata)))

        return begin

    def stream_stream(self, method: str, request_serializer: Codec, response_deserializer: Codec, **_: Any) -> Any:
        def begin(metadata: Metadata = ()) -> _Begun:
            return _Begun(self._begin(method, request_serializer, response_deserializer, metadata), None)

        return begin

    def unary_stream(self, method: str, request_serializer: Codec, response_deserializer: Codec, **_: Any) -> Any:
        def begin(request: Any, timeout: float | None = None) -> _Begun:
            return _Begun(self._begin(method, request_serializer, response_deserializer, ()), request)

        return begin

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        """No call of ours is of that kind."""

    async def channel_ready(self) -> None:
        while True:
            try:
                await self._connected()
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(RECONNECT_S)

    async def close(self, grace: float | None = None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            for call in list(connection.calls):
                call.cancel()
            self._network.forget(connection)

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Begun:
    """A stream that is being opened: what is asked of it waits for that."""

    def __init__(self, opening: Any, first: Any) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._open(opening, first))
        self._call: SimulatedCall | None = None

    async def _open(self, opening: Any, first: Any) -> SimulatedCall:
        call: SimulatedCall = await opening
        self._call = call
        if first is not None:
            await call.write(first)
        return call

    async def _begun(self) -> SimulatedCall:
        return self._call if self._call is not None else await asyncio.shield(self._opening)

    async def write(self, message: Any) -> None:
        await (await self._begun()).write(message)

    async def read(self) -> Any:
        return await (await self._begun()).read()

    async def done_writing(self) -> None:
        await (await self._begun()).done_writing()

    def cancel(self) -> bool:
        if self._call is not None:
            return self._call.cancel()
        return self._opening.cancel()

    async def code(self) -> grpc.StatusCode:
        return await (await self._begun()).code()

    async def details(self) -> str:
        return await (await self._begun()).details()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not EOF:
            yield message
