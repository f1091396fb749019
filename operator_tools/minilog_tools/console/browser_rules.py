"""The headers of every answer, which forbid things to the browser, and the check of a request's host and origin.

Contents of records are hostile. A page loads scripts and styles from this console alone, has none inline, may be in no
frame of another page, and sends forms and requests nowhere else. A console that has no TLS is on loopback, and answers
under loopback's names alone. Else a stranger's page could read it, under a name that turns to 127.0.0.1 (DNS
rebinding).
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minilog.addresses import host_of, is_loopback

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_STATIC = "/static/"
_SITES = frozenset(("same-origin", "none"))


class BrowserRules:
    """An ASGI application that adds the security headers to each answer, and refuses requests of other origins."""

    def __init__(self, app: ASGIApp, *, has_tls: bool) -> None:
        self._app = app
        self._has_tls = has_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith(_STATIC):
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else PlainTextResponse(refusal, 403)
        await app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        if not self._has_tls and not is_loopback(host_of(headers.get("host", ""))):
            return "this console is on loopback, and answers under the names localhost and 127.0.0.1 alone\n"
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") not in _SITES:
            return "this form was sent by a page of another site\n"
        return None
