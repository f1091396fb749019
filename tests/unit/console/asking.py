"""Requests to an ASGI application by hand, as a server makes them of a browser's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message, Scope


@dataclass(frozen=True)
class Answer:
    """The answer to a request. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


async def ask(
    app: ASGIApp,
    target: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """GET the target, or POST the form to it."""
    path, _, query = target.partition("?")
    given = {"host": "127.0.0.1:9644", **(headers or {})}
    content = body if body is not None else b"" if form is None else urlencode(form).encode()
    if form is not None or body is not None:
        given.setdefault("content-type", "application/x-www-form-urlencoded")
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if form is None and body is None else "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("192.0.2.7", 4321),
        "server": ("127.0.0.1", 9644),
    }
    sent: list[Message] = []
    coming: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        if not coming:  # the browser stays until it has its answer
            await asyncio.Event().wait()
        return coming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    answer_headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(
        start["status"],
        answer_headers,
        b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body"),
    )
