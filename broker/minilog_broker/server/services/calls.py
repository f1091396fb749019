"""Unary calls as rows of a table. A service names the method of its core for each call. Errors become answers here.

    KeepAlive = _call(coordinator_pb2.KeepAliveResponse, TransactionCoordinator.keep_alive)

mypy checks each row against the generated servicer: the request, the response, and that each call has a row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message

from minilog.errors import MinilogError, wire_error
from minilog.security.quota_keys import PRODUCER_BYTE_RATE
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.controller.controller import Controller
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.server.access.caller import Caller, has_quotas
from minilog_broker.server.shells.controller_shell import ControllerShell, Decision
from minilog_broker.server.shells.coordinator_shell import CoordinatorShell
from minilog_broker.server.shells.coordinators import Coordinators

Service = TypeVar("Service")
Request = TypeVar("Request")
Response = TypeVar("Response", bound=Message)
Core = TypeVar("Core", bound=Coordinator[Any, Any])
_Listing = TypeVar(
    "_Listing",
    coordinator_pb2.ListTransactionsResponse,
    coordinator_pb2.ListGroupsResponse,
    queue_pb2.ListQueuesResponse,
)
_Asked = TypeVar("_Asked", contravariant=True)
_Answered = TypeVar("_Answered", bound=Message, covariant=True)


class UnaryCall(Protocol[_Asked, _Answered]):
    """A call as its service has it. The argument names are those of the generated servicers."""

    def __call__(self, request: _Asked, context: object) -> Awaitable[_Answered]: ...


def unary(answer: Callable[[Service, Request], Awaitable[Response]]) -> UnaryCall[Request, Response]:
    """A method of a service, made of a function of its instance and a request."""

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
    """A call that is answered when the controller's decision is committed."""

    async def answer(service: HasController, request: Request) -> Response:
        return await service.controller.ask(kind, lambda core, ticket: ask(core, ticket, request))

    return unary(answer)


def decision(kind: type[Decision], ask: Callable[[Controller, object, Request], None]) -> UnaryCall[Request, Decision]:
    """The same for a client, which also gets the end of the metadata log behind the decision."""

    async def answer(service: HasController, request: Request) -> Decision:
        return await service.controller.decide(kind, lambda core, ticket: ask(core, ticket, request))

    return unary(answer)


class HasCoordinators(Protocol):
    """A service whose calls coordinators answer."""

    @property
    def coordinators(self) -> Coordinators: ...


Ask = Callable[[Core, object, Request, Moment], None]
"""A call of a core: the ticket for the answer, the request, and the time."""


def untimed(ask: Callable[[Core, object, Request], None]) -> Ask[Core, Request]:
    """A call of a core that needs no clock."""
    return lambda core, ticket, request, now: ask(core, ticket, request)


def coordinator_call(
    find: Callable[[Coordinators, Request], CoordinatorShell[Core]],
    kind: type[Response],
    ask: Ask[Core, Request],
    check: Callable[[Request], None],
) -> UnaryCall[Request, Response]:
    """A call that a coordinator answers. Errors of `check` and `find` become answers before."""

    async def answer(service: HasCoordinators, request: Request) -> Response:
        return await _answered(service, request, find, kind, ask, check)

    return unary(answer)


async def _answered(
    service: HasCoordinators,
    request: Request,
    find: Callable[[Coordinators, Request], CoordinatorShell[Core]],
    kind: type[Response],
    ask: Ask[Core, Request],
    check: Callable[[Request], None],
    charge: Callable[[int], None] | None = None,
) -> Response:
    coordinators = service.coordinators
    try:
        check(request)
        shell = find(coordinators, request)
    except MinilogError as error:
        return kind(error=wire_error(error))
    return await shell.ask(kind, lambda ticket: ask(shell.core, ticket, request, coordinators.moment()), charge)


def callers_call(
    find: Callable[[Coordinators, Request], CoordinatorShell[Core]],
    kind: type[Response],
    ask: Callable[[Core, object, Request, Moment, str], None],
    check: Callable[[Request], None],
) -> UnaryCall[Request, Response]:
    """The same, and the core hears whose call it is. The caller is charged for what is written for it."""

    async def call(service: HasCoordinators, request: Request, context: Caller) -> Response:
        principal = str(context.principal)

        def of_caller(core: Core, ticket: object, asked: Request, now: Moment) -> None:
            ask(core, ticket, asked, now, principal)

        def charge(count: int) -> None:
            if has_quotas(context):
                context.charge(PRODUCER_BYTE_RATE, count)

        return await _answered(service, request, find, kind, of_caller, check, charge)

    return cast("UnaryCall[Request, Response]", call)


def charged_call(
    find: Callable[[Coordinators, Request], CoordinatorShell[Core]],
    kind: type[Response],
    ask: Ask[Core, Request],
    check: Callable[[Request], None],
) -> UnaryCall[Request, Response]:
    """The same, and the core does not care whose call it is."""
    return callers_call(find, kind, lambda core, ticket, request, now, _: ask(core, ticket, request, now), check)


def listing(
    find: Callable[[Coordinators], Iterable[CoordinatorShell[Core]]],
    kind: type[_Listing],
    ask: Callable[[Core, object, Request], None],
) -> UnaryCall[Request, _Listing]:
    """A call that all coordinators here answer, in one response. The first error among them is the answer instead."""

    async def part_of(shell: CoordinatorShell[Core], request: Request) -> _Listing:
        return await shell.ask(kind, lambda ticket: ask(shell.core, ticket, request))

    async def answer(service: HasCoordinators, request: Request) -> _Listing:
        whole = kind()
        for shell in find(service.coordinators):
            part = await part_of(shell, request)
            if part.error.code:
                return kind(error=part.error)
            whole.MergeFrom(part)
        return whole

    return unary(answer)
