"""What is answered over HTTP: plain text, by four paths. What is told of this broker comes in as callables.

GET /livez      200 while the broker lives; else 503
GET /readyz     200 when it is ready; else 503, with a line of why each
GET /metrics    Prometheus' text, or OpenMetrics where that is asked for
GET /console    the way to the console that this broker serves; where it serves none, how to switch it on
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from minilog.addresses import address_text, host_of, is_loopback
from minilog.errors import InvalidArgument
from minilog_broker.printable import printable
from minilog_broker.server.health import ConsoleCondition, Look, not_alive, not_ready
from minilog_broker.server.metrics.broker_metrics import Exposition

MAX_QUERY_CHARACTERS = 4_096
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}")


Metrics = Callable[[list[str], str], Awaitable[Exposition]]
"""The metrics of this moment: of the named topics besides, in the form that an Accept header asks for. InvalidArgument
where there are too many."""


def http_app(look: Look, metrics: Metrics, console: Callable[[], ConsoleCondition]) -> Starlette:
    """The application of one broker."""

    async def livez(request: Request) -> Response:
        return _probe_answer(not_alive(look()), "alive")

    async def readyz(request: Request) -> Response:
        return _probe_answer(not_ready(look()), "ready")

    async def scrape(request: Request) -> Response:
        query = request.query_params.getlist("topics")
        if sum(map(len, query)) > MAX_QUERY_CHARACTERS:
            return PlainTextResponse(f"topics= has more than {MAX_QUERY_CHARACTERS} characters\n", status_code=400)
        topics = [name for part in query for name in part.split(",") if name]
        try:
            exposition = await metrics(topics, request.headers.get("accept", ""))
        except InvalidArgument as error:
            return PlainTextResponse(printable(error) + "\n", status_code=400)
        return Response(exposition.content, headers={"content-type": exposition.content_type})

    async def to_console(request: Request) -> Response:
        return console_answer(console(), request.headers.get("host", ""))

    routes = [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", scrape)]
    return Starlette(routes=[*routes, Route("/console", to_console)])


def console_answer(console: ConsoleCondition, host_header: str) -> Response:
    """A redirect to the console, or the reason why there is none, with what to do."""
    if console.address is None:
        return _no_console(
            404,
            "this broker serves no console: start it with --console 127.0.0.1:9644, or run minilog console "
            "(docs/guides/console.md)",
        )
    where, came_to = address_text(console.address), host_of(host_header)
    if not console.is_answering:
        return _no_console(503, f"the console on {where} does not answer yet: ask again, and see the broker's log")
    if is_loopback(console.address[0]) and not is_loopback(came_to):
        return _no_console(
            403,
            f"the console listens on {where}, which only the broker's machine reaches: open it there, come by "
            f"ssh -L {console.address[1]}:{where}, or give --console another address, and a certificate",
        )
    host, port = console.address
    if _is_every_address(host) and _HOST.fullmatch(came_to):
        host = came_to
    scheme = "https" if console.has_tls else "http"
    return RedirectResponse(f"{scheme}://{address_text((host, port))}/", 307, {"cache-control": "no-store"})


def _no_console(status: int, reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", status, {"cache-control": "no-store"})


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _probe_answer(reasons: list[str], good: str) -> Response:
    lines = "".join(printable(reason) + "\n" for reason in reasons)
    return PlainTextResponse(lines or good + "\n", status_code=503 if reasons else 200)
