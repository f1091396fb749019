"""Unary calls as rows of a table: a service names for each what its core is asked, and errors become answers here.

    KeepAlive = _call(coordinator_pb2.KeepAliveResponse, TransactionCoordinator.keep_alive)

mypy holds each row to the generated servicer: its request, its response, and that no call is without a row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message

from minilog.errors import MinilogError, wire_error
from minilog.v1 import coordinator_pb2
from minilog_broker.controller.controller import Controller
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.server.shells.controller_shell import ControllerShell, Decision
from minilog_broker.server.shells.coordinator_shell import CoordinatorShell
from minilog_broker.server.shells.coordinators import Coordinators

Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response", bound=Message)
Core = TypeVar("Core", bound=Coordinator[Any, Any])
_Listing = TypeVar("_Listing", coordinator_pb2.ListTransactionsResponse, coordinator_pb2.ListGroupsResponse)
_Asked = TypeVar("_Asked", contravariant=True)
_Answered = TypeVar("_Answered", bound=Message, covariant=True)


class UnaryCall(Protocol[_Asked, _Answered]):
    """A call as its service has it, with the names that the generated servicers give its arguments."""

    def __call__(self, request: _Asked, context: object) -> Awaitable[_Answered]: ...


def unary(answer: Callable[[Service, Request], Awaitable[Response]]) -> UnaryCall[Request, Response]:
    """A method of a service, of what its instance answers to a request."""

    async def call(service: Service, request: Request, context: object) -> Response:
        return await answer(service, request)

    return cast("UnaryCall[Request, Response]", call)  # the class binds the service


class HasController(Protocol):
    """A service whose calls the active controller answers."""

    @property
    def controller(self) -> ControllerShell: ...


def controller_call(
    kind: type[Response], ask: Callable[[Controller, object, Request], None]
) -> UnaryCall[Request, Response]:
    """Answered when what the controller decided is committed."""

    async def answer(service: HasController, request: Request) -> Response:
        return await service.controller.ask(kind, lambda core, ticket: ask(core, ticket, request))

    return unary(answer)


def decision(kind: type[Decision], ask: Callable[[Controller, object, Request], None]) -> UnaryCall[Request, Decision]:
    """The same for a client, who is told where the metadata log ends behind it."""

    async def answer(service: HasController, request: Request) -> Decision:
        return await service.controller.decide(kind, lambda core, ticket: ask(core, ticket, request))

    return unary(answer)


class HasCoordinators(Protocol):
    """A service whose calls coordinators answer."""

    @property
    def coordinators(self) -> Coordinators: ...


Ask = Callable[[Core, object, Request, Moment], None]
"""A call of a core: the ticket that is answered, the request, and now."""


def untimed(ask: Callable[[Core, object, Request], None]) -> Ask[Core, Request]:
    """Of a call of a core that asks for no clock."""
    return lambda core, ticket, request, now: ask(core, ticket, request)


def coordinator_call(
    find: Callable[[Coordinators, Request], CoordinatorShell[Core]],
    kind: type[Response],
    ask: Ask[Core, Request],
    check: Callable[[Request], None],
) -> UnaryCall[Request, Response]:
    """What the coordinator answers; or why it is not asked: what `check` and `find` raise."""

    async def answer(service: HasCoordinators, request: Request) -> Response:
        coordinators = service.coordinators
        try:
            check(request)
            shell = find(coordinators, request)
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: ask(shell.core, ticket, request, coordinators.moment()))

    return unary(answer)


def listing(
    find: Callable[[Coordinators], Iterable[CoordinatorShell[Core]]],
    kind: type[_Listing],
    ask: Callable[[Core, object, Request], None],
) -> UnaryCall[Request, _Listing]:
    """What all coordinators here answer, in one; or the first error among them."""

    async def told(shell: CoordinatorShell[Core], request: Request) -> _Listing:
        return await shell.ask(kind, lambda ticket: ask(shell.core, ticket, request))

    async def answer(service: HasCoordinators, request: Request) -> _Listing:
        whole = kind()
        for shell in find(service.coordinators):
            found = await told(shell, request)
            if found.error.code:
                return kind(error=found.error)
            whole.MergeFrom(found)
        return whole

    return unary(answer)
