"""Each action as a viewer does it in a browser: from the page of the object, by its consequence and its form, to the
change at the brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from selenium.webdriver.common.keys import Keys

from minilog import Admin, NewTopic, Producer, TopicPartition
from minilog.errors import MinilogError
from tests.cluster import Cluster
from tests.console.browser import DESK, PHONE, Browser
from tests.console.content import FLIGHTS, GROUP
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


@contextlib.contextmanager
def aborted() -> Iterator[None]:
    """A block that ends with an error of the client."""
    try:
        yield
    except MinilogError:
        return
    raise AssertionError("the transaction was committed")


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


def test_a_group_is_sought(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/group?id={GROUP}")
    follow(browser, "/seek")
    browser.wait(lambda: browser.run("return location.pathname") == "/seek", "the action is there")
    browser.find("input[name=to]").send_keys("earliest" + Keys.ENTER)
    send(browser, "go on at earliest")
    outcome(browser, f"{GROUP} goes on at 0 in partition 0 of {FLIGHTS}.")
    with Admin(cluster.client) as admin:
        offsets = {offset.partition: offset.offset for offset in admin.describe_group(GROUP).offsets}
    assert offsets[0] == 0


def test_preferred_leaders_are_elected(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    at = TopicPartition("elected", 0)
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(at.topic, num_partitions=1, replication_factor=3)])

        def leader_and_replicas() -> tuple[int | None, list[int]]:
            (topic,) = admin.describe_topics([at.topic])
            return topic.partitions[0].leader, topic.partitions[0].replicas

        leader, replicas = leader_and_replicas()
        others = [replica for replica in replicas if replica != leader]
        assert admin.alter_partition_reassignments({at: [*others, leader or 0]}) == {at: None}
        browser.wait(lambda: leader_and_replicas() == (leader, [*others, leader]), "another replica is preferred")
        browser.look(*DESK)
        browser.open(f"{console.url}/topic?name={at.topic}")
        follow(browser, "/elect")
        send(browser, "1 of 1 partitions of elected are not led by their first replica")
        outcome(browser, "1 partitions of elected are led by their first replica.")
        browser.wait(lambda: leader_and_replicas()[0] == others[0], "the preferred replica leads")


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


def test_a_transaction_is_aborted_after_a_tick(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    browser.look(*DESK)
    settings = {**cluster.client, "transactional.id": "forgotten-writer"}
    with Producer(settings) as producer, aborted(), producer.transaction():
        producer.send("bookings", value=b"never read").result(timeout=30)
        browser.open(f"{console.url}/transaction?id=forgotten-writer")
        follow(browser, "/abort")
        browser.wait(lambda: "1 writers of forgotten-writer" in browser.text(), "the consequence is shown")
        browser.find("button.danger").click()
        assert "outcome" not in browser.text(), "nothing is done without the tick"
        browser.find("input[name=sure]").click()
        browser.find("button.danger").click()
        outcome(browser, "1 writers of forgotten-writer are aborted.")
    with Admin(cluster.client) as admin:
        assert admin.describe_transaction("forgotten-writer").listing.state == "idle"


def test_an_action_that_is_left_changes_nothing(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/cordon?broker=2")
    browser.find("a.quiet").click()
    browser.wait(lambda: browser.run("return location.pathname") == "/brokers", "the viewer is back")
    with Admin(cluster.client) as admin:
        assert not any(broker.cordoned for broker in admin.describe_cluster().brokers)
