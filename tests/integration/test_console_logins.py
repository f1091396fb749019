"""Logins of `minilog console` before a broker that has users: a viewer sees what the brokers' rules allow this user."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from minilog import Admin, NewTopic
from minilog.admin.security import UserUpsertion
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from tests import programs
from tests.cluster import HOST, free_ports, running_program
from tests.secured import SecuredCluster, running_secured_cluster

TOPIC, HIDDEN = "flights", "salaries"
PASSWORD = "correct horse battery staple"
READS = AccessRule("User:reader", "*", Operation.DESCRIBE, ResourceKind.TOPIC, TOPIC, Pattern.LITERAL, Permission.ALLOW)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with running_secured_cluster(tmp_path_factory.mktemp("logins"), 1) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(TOPIC), NewTopic(HIDDEN)])
            admin.create_access_rules([READS])
            admin.alter_users([UserUpsertion("reader", PASSWORD)])
        yield running


@pytest.fixture(scope="module")
def port(cluster: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a console that has the administrator's password in its file, and must not use it."""
    file: pathlib.Path = tmp_path_factory.mktemp("console") / "console.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in cluster.client.items()))
    file.chmod(0o600)
    (chosen,) = free_ports(1)
    arguments = ("--command-config", str(file), "--listen", f"{HOST}:{chosen}")
    with running_program((*programs.MINILOG, "console", *arguments)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("minilog console: ")
        yield chosen


def ask(port: int, target: str, cookie: str = "", form: dict[str, str] | None = None) -> tuple[int, str, str]:
    """The status, the new cookie, and the text."""
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=20)) as connection:
        connection.request("GET" if form is None else "POST", target, urlencode(form or {}), headers)
        answer = connection.getresponse()
        set_cookie = (answer.headers["set-cookie"] or "").partition(";")[0]
        return answer.status, set_cookie, answer.read().decode()


def form_token_of(text: str) -> str:
    match = re.search(r'name="form_token" value="([0-9a-f]+)"', text)
    assert match is not None
    return match[1]


def test_a_viewer_sees_what_the_rules_allow_and_no_more_until_the_logout(port: int) -> None:
    assert ask(port, "/topics")[0] == 303
    _, cookie, text = ask(port, "/login")
    login = {"user": "reader", "password": PASSWORD, "form_token": form_token_of(text)}
    status, session, _ = ask(port, "/login", cookie, login)
    assert status == 303
    assert session not in ("", cookie)
    status, _, text = ask(port, "/topics", session)
    assert (status, TOPIC in text, HIDDEN in text) == (200, True, False)
    assert ask(port, f"/topic?name={HIDDEN}", session)[0] in (403, 404)
    assert ask(port, "/users", session)[0] == 403
    assert ask(port, "/topics", cookie)[0] == 303
    assert ask(port, "/logout", session, {"form_token": form_token_of(text)})[0] == 303
    assert ask(port, "/topics", session)[0] == 303


def test_a_wrong_password_is_refused_and_makes_the_address_wait(port: int) -> None:
    _, cookie, text = ask(port, "/login")
    login = {"user": "reader", "password": "wrong", "form_token": form_token_of(text)}
    status, _, text = ask(port, "/login", cookie, login)
    assert (status, "do not take this name and password" in text) == (403, True)
    assert ask(port, "/login", cookie, login)[0] == 429
    assert ask(port, "/topics", cookie)[0] == 303
