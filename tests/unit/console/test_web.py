"""The application without a cluster: strangers, headers, hosts, forms, and the pause after a failed login."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import ASGIApp

from minilog_tools.console.actions import ACTIONS
from minilog_tools.console.browser_rules import CONTENT_SECURITY_POLICY
from minilog_tools.console.forms import MAX_FORM_BYTES
from minilog_tools.console.sessions import form_token
from minilog_tools.console.settings import console_settings
from minilog_tools.console.web import MAX_QUERY_CHARACTERS, PAGES, Console
from tests.rules import proves
from tests.unit.console.asking import Answer, ask

pytestmark = proves("CON.3", "CON.6")

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "300"}
CLOSED = {**NOBODY, "security.protocol": "SASL_SSL"}
KEY = b"a key of a test"
ROUTES = [*(page.path for page in PAGES), *(action.path for action in ACTIONS)]


def run(
    test: Callable[[ASGIApp], Awaitable[None]],
    client: dict[str, str],
    *,
    has_actions: bool = True,
    has_tls: bool = False,
) -> None:
    async def body() -> None:
        console = Console(console_settings(client, has_actions=has_actions, has_tls=has_tls), key=KEY)
        try:
            await test(console.app)
        finally:
            await console.stop()

    asyncio.run(body())


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def form_token_of(answer: Answer) -> str:
    match = re.search(r'name="form_token" value="([0-9a-f]+)"', answer.text)
    assert match is not None
    return match[1]


@proves("CON.1")
def test_a_stranger_gets_the_login_on_each_route_and_nothing_else() -> None:
    async def test(app: ASGIApp) -> None:
        for route in [*ROUTES, "/nothing-there"]:
            answer = await ask(app, f"{route}?name=flights&topic=flights&id=report")
            assert answer.status == 303, route
            assert answer.headers["location"].startswith("/login?next=")
            assert answer.body == b""
            forged = await ask(app, route, headers={"cookie": "minilog=made-up"})
            assert forged.status == 303, route
            live = await ask(app, route, headers={"x-minilog-part": "1"})
            assert (live.status, live.text) == (401, "log in\n")

    run(test, CLOSED)


def test_a_stranger_changes_nothing() -> None:
    async def test(app: ASGIApp) -> None:
        for action in ACTIONS:
            answer = await ask(app, action.path, form={"topic": "flights", "partition": "0", "to": "1"})
            assert answer.status == 303
            assert answer.headers["location"].startswith("/login")

    run(test, CLOSED)


def test_each_answer_tells_the_browser_what_it_must_not_do() -> None:
    async def test(app: ASGIApp) -> None:
        for target in ("/login", "/", "/nothing", "/static/console.js", "/static/none", "/users"):
            answer = await ask(app, target)
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY, target
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert ("cache-control" in answer.headers) != target.startswith("/static")

    run(test, CLOSED)


def test_no_page_has_a_script_or_a_style_of_its_own() -> None:
    async def test(app: ASGIApp) -> None:
        for target in ("/login", "/"):
            text = (await ask(app, target)).text
            assert re.search(r"<script(?![^>]*\bsrc=\"/static/)", text) is None
            assert re.search(r"<style|\bstyle=|\son[a-z]+=|javascript:", text) is None

    run(test, CLOSED)


def test_without_tls_only_names_of_loopback_are_answered() -> None:
    async def test(app: ASGIApp) -> None:
        for host, status in (
            ("localhost:9644", 200),
            ("127.0.0.1", 200),
            ("[::1]:9644", 200),
            ("console.example.com", 403),
            ("127.0.0.1.example.com", 403),
            ("", 403),
        ):
            assert (await ask(app, "/login", headers={"host": host})).status == status, host

    run(test, CLOSED)


def test_with_tls_the_cookie_is_for_this_host_and_never_in_the_clear() -> None:
    async def test(app: ASGIApp) -> None:
        answer = await ask(app, "/login", headers={"host": "console.example.com"})
        assert answer.status == 200
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-minilog=")
        for attribute in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
            assert attribute in cookie

    run(test, CLOSED, has_tls=True)


def test_a_form_of_another_site_is_refused() -> None:
    async def test(app: ASGIApp) -> None:
        page = await ask(app, "/login")
        form = {"user": "alice", "password": "secret", "form_token": form_token_of(page)}
        for site in ("cross-site", "same-site"):
            headers = {"cookie": cookie_of(page), "sec-fetch-site": site}
            assert (await ask(app, "/login", form=form, headers=headers)).status == 403
        for wrong in ({"form_token": ""}, {"form_token": "0" * 64}):
            answer = await ask(app, "/login", form={**form, **wrong}, headers={"cookie": cookie_of(page)})
            assert answer.status == 403
        assert (await ask(app, "/login", form=form, headers={"cookie": "minilog=another"})).status == 403
        assert (await ask(app, "/logout", form=form)).status == 403

    run(test, CLOSED)


def test_an_action_is_refused_without_the_token_of_this_browser() -> None:
    async def test(app: ASGIApp) -> None:
        cookie = cookie_of(await ask(app, "/"))
        fields = {"topic": "flights", "partition": "0", "to": "1", "sure": "yes"}
        for action in ACTIONS:
            for forged in ({}, {"form_token": ""}, {"form_token": "0" * 64}):
                answer = await ask(app, action.path, form={**fields, **forged}, headers={"cookie": cookie})
                assert answer.status == 403, action.path

    run(test, NOBODY)


def test_an_action_that_is_final_needs_a_tick() -> None:
    async def test(app: ASGIApp) -> None:
        page = await ask(app, "/trim?topic=flights&partition=0")  # nobody answers, and the browser has its cookie
        headers = {"cookie": cookie_of(page)}
        token = form_token(KEY, headers["cookie"].partition("=")[2])
        fields = {"topic": "flights", "partition": "0", "to": "1", "sure": "yes", "form_token": token}
        unsure = await ask(app, "/trim", form={**fields, "sure": ""}, headers=headers)
        assert unsure.status == 400
        assert "tick the box" in unsure.text
        sure = await ask(app, "/trim", form=fields, headers=headers)
        assert sure.status == 503, "the form is taken, and no broker answers"

    run(test, NOBODY)


def test_a_console_that_was_started_without_actions_has_none() -> None:
    async def test(app: ASGIApp) -> None:
        for action in ACTIONS:
            assert (await ask(app, action.path)).status == 404
            assert (await ask(app, action.path, form={"topic": "flights"})).status == 404

    run(test, NOBODY, has_actions=False)


@proves("CON.8")
@pytest.mark.parametrize(
    "body", [b"x" * (MAX_FORM_BYTES + 1), b"\xff=1", b"&".join(b"a%d=1" % number for number in range(60))]
)
def test_a_form_that_no_browser_sends_is_refused(body: bytes) -> None:
    async def test(app: ASGIApp) -> None:
        assert (await ask(app, "/login", body=body)).status == 400
        assert (await ask(app, "/logout", body=body)).status == 400

    run(test, CLOSED)


def test_a_form_of_another_kind_is_refused() -> None:
    async def test(app: ASGIApp) -> None:
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert (await ask(app, "/login", body=b"--x--", headers=headers)).status == 400

    run(test, CLOSED)


def test_where_no_broker_answers_each_page_says_what_to_do_and_asks_again() -> None:
    async def test(app: ASGIApp) -> None:
        answer = await ask(app, "/")
        assert answer.status == 503
        assert "minilog cluster health" in answer.text
        assert 'data-live="yes"' in answer.text

    run(test, NOBODY)


def test_wrong_fields_are_an_error_of_whoever_asks() -> None:
    async def test(app: ASGIApp) -> None:
        assert (await ask(app, "/topic")).status == 400
        assert (await ask(app, "/group?id=")).status == 400
        assert (await ask(app, "/queue?name=")).status == 400
        assert (await ask(app, "/?q=" + "a" * MAX_QUERY_CHARACTERS)).status == 400
        assert (await ask(app, "/nothing")).status == 404

    run(test, NOBODY)


def test_a_login_leads_to_pages_of_this_console_alone() -> None:
    async def test(app: ASGIApp) -> None:
        for given, kept in (
            ("/topic?name=flights", "/topic?name=flights"),
            ("//evil.example", "/"),
            ("https://evil.example/", "/"),
            ("/\\evil.example", "/"),
            ("/login", "/"),
        ):
            text = (await ask(app, "/login?next=" + given.replace("?", "%3F"))).text
            assert f'name="next" value="{kept}"' in text

    run(test, CLOSED)


def test_typed_text_comes_back_escaped() -> None:
    async def test(app: ASGIApp) -> None:
        page = await ask(app, "/login")
        form = {"user": '"><script>alert(1)</script>', "password": "", "form_token": form_token_of(page)}
        answer = await ask(app, "/login", form=form, headers={"cookie": cookie_of(page)})
        assert answer.status == 400
        assert "<script>alert" not in answer.text
        assert "&#34;&gt;&lt;script&gt;" in answer.text

    run(test, CLOSED)


def test_static_files_are_those_of_the_folder() -> None:
    async def test(app: ASGIApp) -> None:
        assert (await ask(app, "/static/uplot/LICENSE")).text.startswith("The MIT License")
        for target in ("/static/../web.py", "/static/%2e%2e/web.py", "/static//etc/passwd"):
            assert (await ask(app, target)).status in (303, 404)

    run(test, CLOSED)
