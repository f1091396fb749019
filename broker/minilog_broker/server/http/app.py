"""What is answered over HTTP: plain text, by three paths. What is told of this broker comes in as callables.

GET /livez      200 while the broker lives; else 503
GET /readyz     200 when it is ready; else 503, with a line of why each
GET /metrics    Prometheus' text, or OpenMetrics where that is asked for
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from minilog.errors import InvalidArgument
from minilog_broker.printable import printable
from minilog_broker.server.health import Look, not_alive, not_ready
from minilog_broker.server.metrics.broker_metrics import Exposition

MAX_QUERY_CHARACTERS = 4_096


Metrics = Callable[[list[str], str], Awaitable[Exposition]]
"""The metrics of this moment: of the named topics besides, in the form that an Accept header asks for. InvalidArgument
where there are too many."""


def http_app(look: Look, metrics: Metrics) -> Starlette:
    """The application of one broker."""

    async def livez(request: Request) -> Response:
        return _told(not_alive(look()), "alive")

    async def readyz(request: Request) -> Response:
        return _told(not_ready(look()), "ready")

    async def scrape(request: Request) -> Response:
        query = request.query_params.getlist("topics")
        if sum(map(len, query)) > MAX_QUERY_CHARACTERS:
            return PlainTextResponse(f"topics= has more than {MAX_QUERY_CHARACTERS} characters\n", status_code=400)
        topics = [name for part in query for name in part.split(",") if name]
        try:
            told = await metrics(topics, request.headers.get("accept", ""))
        except InvalidArgument as error:
            return PlainTextResponse(printable(error) + "\n", status_code=400)
        return Response(told.content, headers={"content-type": told.content_type})

    return Starlette(routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", scrape)])


def _told(reasons: list[str], good: str) -> Response:
    lines = "".join(printable(reason) + "\n" for reason in reasons)
    return PlainTextResponse(lines or good + "\n", status_code=503 if reasons else 200)
