"""Sessions in a browser before a cluster with users: the login, the end of a user, the loss of a right, strangers, and
200 browsers that never read."""

from __future__ import annotations

import contextlib
import pathlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from selenium.webdriver.common.keys import Keys

from minilog import Admin, NewTopic
from minilog.admin.security import UserDeletion, UserUpsertion
from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog_tools.console.actions import ACTIONS
from minilog_tools.console.web import PAGES
from tests.cluster import HOST
from tests.console.browser import DESK, PHONE, Browser
from tests.console.visiting import RunningConsole, Visitor, running_console
from tests.secured import SecuredCluster, running_secured_cluster

PASSWORD = "correct horse battery staple"
TOPIC = "flights"
ROUTES = ("/nowhere", *(page.path for page in PAGES), *(action.path for action in ACTIONS))
BROWSERS = 200


@dataclass(frozen=True)
class Scene:
    """A secured cluster, and a console with actions before it."""

    cluster: SecuredCluster
    console: RunningConsole

    def add(self, name: str) -> None:
        """A user that may look at the topic, and whom the brokers know by now."""
        rule = AccessRule(
            f"User:{name}", "*", Operation.DESCRIBE, ResourceKind.TOPIC, TOPIC, Pattern.LITERAL, Permission.ALLOW
        )
        with Admin(self.cluster.client) as admin:
            admin.alter_users([UserUpsertion(name, PASSWORD, iterations=4_096)])
            admin.create_access_rules([rule])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: pathlib.Path = tmp_path_factory.mktemp("sessions")
    with running_secured_cluster(directory / "cluster", 1) as cluster:
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        arguments = ("--command-config", str(cluster.security.client_properties), "-b", cluster.bootstrap_servers)
        with running_console(directory / "console", *arguments, "--actions") as console:
            yield Scene(cluster, console)


def log_in(browser: Browser, scene: Scene, name: str, password: str, to: str) -> None:
    browser.driver.delete_all_cookies()
    browser.open(scene.console.url + to)
    browser.find("input[name=user]").send_keys(name)
    browser.find("input[name=password]").send_keys(password + Keys.ENTER)
    browser.wait(lambda: browser.heading() != "Log in", "the viewer is logged in")


def test_a_login_is_by_the_page_alone(browser: Browser, scene: Scene) -> None:
    for size, theme in ((PHONE, "dark"), (DESK, "light")):
        browser.look(*size, theme)
        browser.open(scene.console.url + "/topics")
        assert browser.heading() == "Log in"
        assert browser.violations() == []
        assert not browser.is_wider_than_screen()
    log_in(browser, scene, "admin", scene.cluster.client["sasl.password"], "/topics")
    assert browser.heading() == "Topics", "the page that the viewer came for"
    assert browser.violations() == []
    assert "admin" in browser.text()
    assert browser.run("return document.cookie") == ""
    browser.find(".leave button").click()
    browser.wait(lambda: browser.heading() == "Log in", "the viewer is logged out")


def test_a_stranger_gets_the_login_on_each_route(browser: Browser, scene: Scene) -> None:
    browser.look(*DESK)
    browser.driver.delete_all_cookies()
    for route in ROUTES:
        browser.open(f"{scene.console.url}{route}?name={TOPIC}&topic={TOPIC}&partition=0&to=1&broker=1")
        assert browser.heading() == "Log in", route
        assert browser.run("return location.pathname") == "/login", route
        assert browser.run("return document.querySelectorAll('main form').length") == 1, route


def test_the_page_of_a_user_that_is_deleted_becomes_the_login_by_itself(browser: Browser, scene: Scene) -> None:
    scene.add("carol")
    browser.look(*DESK)
    log_in(browser, scene, "carol", PASSWORD, "/topics")
    browser.wait(lambda: TOPIC in browser.text(), "the topic is there")
    with Admin(scene.cluster.client) as admin:
        admin.alter_users([UserDeletion("carol")])
    browser.wait(lambda: browser.heading() == "Log in", "the viewer is logged out", within_s=40)
    assert TOPIC not in browser.text()


def test_a_right_that_is_lost_is_lost_on_the_open_page(browser: Browser, scene: Scene) -> None:
    scene.add("bob")
    browser.look(*PHONE)
    log_in(browser, scene, "bob", PASSWORD, f"/topic?name={TOPIC}")
    browser.wait(lambda: browser.heading() == TOPIC, "the topic is there")
    with Admin(scene.cluster.client) as admin:
        admin.delete_access_rules([AccessRuleFilter(principal="User:bob")])
    browser.wait(lambda: browser.heading() != TOPIC, "the topic is gone from the page", within_s=40)
    assert browser.heading() != "Log in", "the session goes on"
    browser.open(scene.console.url + "/topics")
    assert browser.run("return document.querySelectorAll('main tbody tr').length") == 0


def test_an_action_without_the_right_is_refused_with_what_to_do(browser: Browser, scene: Scene) -> None:
    scene.add("dave")
    browser.look(*DESK)
    log_in(browser, scene, "dave", PASSWORD, f"/trim?topic={TOPIC}&partition=0&to=0")
    browser.open(f"{scene.console.url}/trim?topic={TOPIC}&partition=0&to=0")
    browser.find("input[name=sure]").click()
    browser.find("button.danger").click()
    browser.wait(lambda: "minilog acl add" in browser.text(), "the page has the remedy")


def test_a_viewer_goes_on_beside_200_browsers_that_never_read(browser: Browser, scene: Scene) -> None:
    browser.look(*DESK)
    log_in(browser, scene, "admin", scene.cluster.client["sasl.password"], "/topics")
    request = f"GET /static/uplot/uPlot.iife.min.js HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(BROWSERS):
            stranger = stack.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.connect((HOST, scene.console.port))
            stranger.sendall(request)

        def is_shown() -> bool:
            browser.open(scene.console.url + "/brokers")
            return "Broker 1" in browser.text() and Visitor(scene.console.port).get("/login").status == 200

        browser.wait(is_shown, "the page is there", within_s=60)
