"""The application: its routes, the check of the viewer, and errors as pages that say what to do.

A request passes BrowserRules, then `_visited`, which finds the viewer by the cookie. Where viewers log in, a stranger
gets the login page on each route, and nothing else. The console logs a viewer out whose user the brokers refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from minilog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    GroupIdNotFound,
    InvalidArgument,
    MinilogError,
    ResourceNotFound,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from minilog_tools.console.actions import ACTIONS, Action
from minilog_tools.console.attempts import LoginAttempts
from minilog_tools.console.browser_rules import BrowserRules
from minilog_tools.console.cluster_view import ClusterView
from minilog_tools.console.forms import form_fields
from minilog_tools.console.pages import cluster, groups, queues, records, security, topics
from minilog_tools.console.pages.page import Page, Visit
from minilog_tools.console.record_reader import RecordReader
from minilog_tools.console.rendering import href, templates
from minilog_tools.console.sessions import Sessions, form_token, is_form_token
from minilog_tools.console.settings import ConsoleSettings, viewer_client

PAGES: tuple[Page, ...] = (
    *cluster.PAGES,
    *topics.PAGES,
    *records.PAGES,
    *groups.PAGES,
    *queues.PAGES,
    *security.PAGES,
)
MAX_QUERY_CHARACTERS = 8_192
_STATIC = pathlib.Path(__file__).parent / "static"
_SWEEP_EVERY_S = 10.0
_LOGINS_AT_A_TIME = 4  # each derives a key from the password: some 10 ms, and up to half a second
_PART = "x-minilog-part"
_NOT_FOUND = (UnknownTopicOrPartition, GroupIdNotFound, TransactionalIdNotFound, ResourceNotFound)

logger = structlog.get_logger()


class Console:
    """One console. `app`: the ASGI application for an HTTP server. `key`: the key of form tokens, by default one of
    this process alone."""

    def __init__(
        self,
        settings: ConsoleSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        key: bytes | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._key = key or secrets.token_bytes(32)
        self._sessions: Sessions[ClusterView] = Sessions()
        self._attempts = LoginAttempts()
        self._logins = asyncio.Semaphore(_LOGINS_AT_A_TIME)
        self._everybody = None if settings.has_logins else ClusterView(settings.client, clock)
        self._reader = RecordReader()
        self._templates = templates()
        self._sweeper: asyncio.Task[None] | None = None
        self._cookie = "__Host-minilog" if settings.has_tls else "minilog"
        routes = [Route(page.path, self._page(page)) for page in PAGES]
        routes += [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]
        if settings.has_actions:
            routes += [Route(action.path, self._action(action), methods=["GET", "POST"]) for action in ACTIONS]
        inner = Starlette(
            routes=[*routes, Mount("/static", StaticFiles(directory=_STATIC))],
            exception_handlers={404: self._no_page, 500: _failed},
        )
        self.app: ASGIApp = BrowserRules(inner, has_tls=settings.has_tls)

    def start(self) -> None:
        """Begin to close sessions and clients that are out of use."""
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_forever())

    async def stop(self) -> None:
        """Close all clients."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        views = self._sessions.views() + ([] if self._everybody is None else [self._everybody])
        await asyncio.gather(*(view.close() for view in views), return_exceptions=True)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            for view in self._sessions.expire(self._clock()):
                await self._close(view)
            for view in [*self._sessions.views(), *([] if self._everybody is None else [self._everybody])]:
                with contextlib.suppress(MinilogError):
                    await view.sleep()

    async def _close(self, view: ClusterView) -> None:
        try:
            await view.close()
        except MinilogError as error:
            logger.debug("a viewer's client did not close as it should", error=str(error))

    # -- the viewer

    def _token(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")

    def _view(self, request: Request) -> tuple[ClusterView | None, str]:
        """The viewer's view of the cluster, None for a stranger, and the user's name."""
        if self._everybody is not None:
            return self._everybody, ""
        session = self._sessions.use(self._token(request), self._clock())
        return (None, "") if session is None else (session.view, session.name)

    async def _end_session(self, request: Request) -> None:
        view = self._sessions.end(self._token(request))
        if view is not None:
            await self._close(view)

    async def _visited(
        self, request: Request, section: str, work: Callable[[ClusterView], Awaitable[Response]]
    ) -> Response:
        """The answer of `work` for this viewer, and an error as a page."""
        view, _ = self._view(request)
        if view is None:
            return self._to_login(request)
        if len(request.url.query) > MAX_QUERY_CHARACTERS:
            return self._error(request, section, 400, f"the address is longer than {MAX_QUERY_CHARACTERS} characters")
        try:
            return await work(view)
        except AuthenticationFailed as error:
            if self._everybody is None:
                logger.info("a viewer is logged out", reason=error.code)
                await self._end_session(request)
                return self._to_login(request, ended="1")
            return self._error(request, section, 502, str(error))
        except AuthorizationFailed as error:
            return self._error(request, section, 403, str(error))
        except _NOT_FOUND as error:
            return self._error(request, section, 404, str(error))
        except InvalidArgument as error:
            return self._error(request, section, 400, str(error))
        except MinilogError as error:
            return self._error(request, section, 503, str(error))

    # -- the answers

    def _render(
        self, request: Request, template: str, section: str, values: Mapping[str, Any], status: int = 200
    ) -> Response:
        is_part = request.headers.get(_PART) == "1"
        token = self._token(request) or secrets.token_urlsafe(32)
        _, user = self._view(request)
        content = self._templates.get_template(template).render(
            {
                "layout": "part.html" if is_part else "base.html",
                "section": section,
                "user": user,
                "has_logins": self._settings.has_logins,
                "has_actions": self._settings.has_actions,
                "form_token": form_token(self._key, token),
                "fields": dict(request.query_params),
                "path": request.url.path,
                "is_live": False,
                **values,
            }
        )
        response = HTMLResponse(content, status_code=status)
        if not self._token(request):
            self._set_cookie(response, token)
        return response

    def _set_cookie(self, response: Response, token: str) -> None:
        """Set it with SameSite=Lax: a link in a message leads to its page. With a form of another site the browser
        sends no cookie, and only a form changes anything."""
        response.set_cookie(self._cookie, token, httponly=True, secure=self._settings.has_tls, samesite="lax", path="/")

    def _error(self, request: Request, section: str, status: int, message: str) -> Response:
        values = {"status": status, "message": message, "is_live": status in (502, 503)}
        return self._render(request, "error.html", section, values, status)

    def _no_page(self, request: Request, _: Exception) -> Response:
        if self._view(request)[0] is None:
            return self._to_login(request)
        return self._error(request, "", 404, "there is no such page")

    def _to_login(self, request: Request, ended: str | None = None) -> Response:
        if request.headers.get(_PART) == "1":
            return PlainTextResponse("log in\n", 401)
        query = request.url.query
        came_for = request.url.path + (f"?{query}" if query else "") if request.method == "GET" else None
        return RedirectResponse(href("/login", next=came_for, ended=ended), 303)

    # -- the routes

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            async def work(view: ClusterView) -> Response:
                visit = Visit(view, dict(request.query_params), self._reader)
                values = {"is_live": page.is_live, **await page.build(visit)}
                return self._render(request, page.template, page.section, values)

            return await self._visited(request, page.section, work)

        return answer

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def explain(request: Request, view: ClusterView) -> Response:
            consequence = await action.explain(view, dict(request.query_params))
            return self._render(request, "action.html", "", {"action": action, "consequence": consequence})

        async def perform(request: Request, view: ClusterView) -> Response:
            fields = await form_fields(request)
            if not is_form_token(self._key, self._token(request), fields.get("form_token", "")):
                return self._error(
                    request, "", 403, "this form is not of a page of this browser's session: load the page again"
                )
            if action.is_final and fields.get("sure") != "yes":
                raise InvalidArgument("nothing can undo this: go back, tick the box, and send the form again")
            sentence = await view.act(lambda admin: action.perform(admin, fields))
            view.forget()
            return self._render(request, "done.html", "", {"action": action, "sentence": sentence})

        async def answer(request: Request) -> Response:
            step = perform if request.method == "POST" else explain
            return await self._visited(request, "", lambda view: step(request, view))

        return answer

    async def _login(self, request: Request) -> Response:
        if self._everybody is not None:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._render(request, "login.html", "", _login_values(dict(request.query_params)))
        try:
            fields = await form_fields(request)
        except InvalidArgument as error:
            return self._render(request, "login.html", "", _login_values({}, str(error)), 400)
        if not is_form_token(self._key, self._token(request), fields.get("form_token", "")):
            message = "this form is not of a page of this browser's session: try it again"
            return self._render(request, "login.html", "", _login_values(fields, message), 403)
        return await self._logged_in(request, fields)

    async def _logged_in(self, request: Request, fields: dict[str, str]) -> Response:
        address = request.client.host if request.client is not None else ""
        wait_s = self._attempts.wait_s(address, self._clock())
        if wait_s > 0:
            message = f"too many logins have failed from {address}: wait {wait_s:.0f} s, and try it again"
            return self._render(request, "login.html", "", _login_values(fields, message), 429)
        name, password = fields.get("user", "").strip(), fields.get("password", "")
        if not name or not password:
            return self._render(request, "login.html", "", _login_values(fields, "give a name and a password"), 400)
        wait_s = self._attempts.begin_guess(name, self._clock())
        if wait_s > 0:
            message = f"too many logins under this name have failed: wait {wait_s:.0f} s, and try it again"
            return self._render(request, "login.html", "", _login_values(fields, message), 429)
        client = viewer_client(self._settings, name, password, is_token=fields.get("kind") == "token")
        try:
            async with self._logins:
                view = await _proven(client, self._clock)
        except AuthenticationFailed:
            self._attempts.failed(address, self._clock())
            message = "the brokers do not take this name and password"
            return self._render(request, "login.html", "", _login_values(fields, message), 403)
        except MinilogError as error:
            return self._render(request, "login.html", "", _login_values(fields, str(error)), 503)
        self._attempts.succeeded(address, name, self._clock())
        await self._end_session(request)
        token = secrets.token_urlsafe(32)
        for ended in self._sessions.begin(token, name, view, self._clock()):
            await self._close(ended)
        response = RedirectResponse(_own_path(fields.get("next", "")), 303)
        self._set_cookie(response, token)
        return response

    async def _logout(self, request: Request) -> Response:
        try:
            fields = await form_fields(request)
        except InvalidArgument as error:
            return PlainTextResponse(f"{error}\n", 400)
        if not is_form_token(self._key, self._token(request), fields.get("form_token", "")):
            return PlainTextResponse("this form is not of a page of this browser's session: load the page again\n", 403)
        await self._end_session(request)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._cookie, path="/", secure=self._settings.has_tls, httponly=True, samesite="lax")
        return response


async def _proven(client: Mapping[str, str], clock: Callable[[], float]) -> ClusterView:
    """A view whose user has passed the brokers' authentication. Raises AuthenticationFailed, MinilogError."""
    view = ClusterView(client, clock)
    try:
        with contextlib.suppress(AuthorizationFailed):  # a user without rights has a right password all the same
            await view.act(lambda admin: admin.describe_cluster())
    except BaseException:
        await view.close()
        raise
    return view


def _login_values(fields: Mapping[str, str], message: str = "") -> dict[str, Any]:
    if not message and fields.get("ended"):
        message = "your session has ended: the brokers refuse this user now"
    return {
        "message": message,
        "name": fields.get("user", ""),
        "kind": fields.get("kind", "user"),
        "next": _own_path(fields.get("next", "")),
    }


def _own_path(text: str) -> str:
    """`text` where it is a page of this console, else the overview. No link to a login leads to another site."""
    path = text.partition("?")[0]
    return text if any(path == page.path for page in PAGES) and text.isascii() and text.isprintable() else "/"


async def _failed(request: Request, error: Exception) -> Response:
    return PlainTextResponse("the console failed, which is a bug in minilog: its log says more\n", 500)
