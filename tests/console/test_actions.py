"""Two actions as a viewer does them in a browser: from the page of the object, by its consequence and its form, to the
change at the brokers. All actions: tests/integration/test_console.py."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from minilog import Admin, TopicPartition
from tests.cluster import Cluster
from tests.console.browser import DESK, PHONE, Browser
from tests.console.visiting import RunningConsole
from tests.rules import proves

pytestmark = proves("CON.6")


def follow(browser: Browser, link: str) -> None:
    """Click the first link whose address begins so."""
    browser.find(f"main a[href^='{link}']").click()


def send(browser: Browser, consequence: str) -> None:
    """Send the form of an action, as soon as the page shows this consequence."""
    browser.wait(lambda: consequence in browser.text(), f"the page shows {consequence!r}")
    assert browser.violations() == []
    browser.find("main form.act button").click()


def outcome(browser: Browser, sentence: str) -> None:
    browser.wait(lambda: sentence in browser.text(), f"the page shows {sentence!r}")
    assert browser.find("main .banner[role=status]").is_displayed()


def test_records_are_deleted_after_a_tick(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    at = TopicPartition("weather", 0)
    browser.look(*PHONE)
    browser.open(f"{console.url}/topic?name={at.topic}")
    follow(browser, "/trim")
    browser.find("input[name=to]").send_keys("1" + Keys.ENTER)
    send(browser, "deleted for good")
    assert browser.run("return document.querySelector('input[name=sure]').validity.valueMissing"), "it needs the tick"
    with Admin(cluster.client) as admin:
        assert admin.list_offsets({at: "earliest"}) == {at: 0}
        browser.find("input[name=sure]").click()
        browser.find("button.danger").click()
        outcome(browser, "Partition 0 of weather starts at 1.")
        assert admin.list_offsets({at: "earliest"}) == {at: 1}


def test_a_broker_is_cordoned_and_uncordoned(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    with Admin(cluster.client) as admin:

        def is_cordoned() -> bool:
            return next(broker.cordoned for broker in admin.describe_cluster().brokers if broker.id == 3)

        browser.look(*PHONE)
        for link, consequence, sentence, expected in (
            ("Cordon", "No new replica is placed on broker 3", "Broker 3 gets no new replica from now on.", True),
            ("Uncordon", "Broker 3 takes new replicas again", "Broker 3 takes new replicas again.", False),
        ):
            browser.open(f"{console.url}/brokers")
            assert browser.find("a[href^='/cordon?broker=3']").text.startswith(link)
            follow(browser, "/cordon?broker=3")
            browser.wait(lambda: browser.run("return location.pathname") == "/cordon", "the action is there")
            send(browser, consequence)
            outcome(browser, sentence)
            browser.wait(lambda expected=expected: is_cordoned() == expected, "the brokers know it")  # type: ignore[misc]


def test_an_action_that_is_left_changes_nothing(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/cordon?broker=2")
    browser.find("a.quiet").click()
    browser.wait(lambda: browser.run("return location.pathname") == "/brokers", "the viewer is back")
    with Admin(cluster.client) as admin:
        assert not any(broker.cordoned for broker in admin.describe_cluster().brokers)
