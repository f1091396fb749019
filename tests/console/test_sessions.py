"""Sessions in a browser before a cluster with users: the login, and the end of a user."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from selenium.webdriver.common.keys import Keys

from minilog import Admin, NewTopic
from minilog.admin.security import UserDeletion, UserUpsertion
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from tests.console.browser import DESK, PHONE, Browser
from tests.console.visiting import RunningConsole, running_console
from tests.secured import SecuredCluster, running_secured_cluster

PASSWORD = "correct horse battery staple"
TOPIC = "flights"


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


def test_the_page_of_a_user_that_is_deleted_becomes_the_login_by_itself(browser: Browser, scene: Scene) -> None:
    scene.add("carol")
    browser.look(*DESK)
    log_in(browser, scene, "carol", PASSWORD, "/topics")
    browser.wait(lambda: TOPIC in browser.text(), "the topic is there")
    with Admin(scene.cluster.client) as admin:
        admin.alter_users([UserDeletion("carol")])
    browser.wait(lambda: browser.heading() == "Log in", "the viewer is logged out", within_s=40)
    assert TOPIC not in browser.text()
