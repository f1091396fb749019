"""Each page on a desktop and on a phone, light and dark, with a keyboard alone, and with hostile records."""

from __future__ import annotations

import pathlib
import time
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys

from tests.cluster import Cluster
from tests.console.browser import DESK, PHONE, Browser
from tests.console.content import ATTACKED, DELAYS, FLIGHTS, GROUP, HOSTILE, QUEUE, produce
from tests.console.visiting import RunningConsole
from tests.rules import proves

PAGES = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics",
    "topics-none": "/topics?q=nothing-has-this",
    "topic": f"/topic?name={FLIGHTS}",
    "topic-typed": f"/topic?name={DELAYS}",
    "records": f"/records?topic={FLIGHTS}&count=5",
    "records-json": f"/records?topic={FLIGHTS}&count=2&form=json",
    "records-hex": f"/records?topic={FLIGHTS}&count=2&form=hex",
    "records-hostile": f"/records?topic={ATTACKED}",
    "records-rows": f"/records?topic={DELAYS}&where=delay+%3E+60",
    "records-wrong": f"/records?topic={DELAYS}&where=%3E",
    "groups": "/groups",
    "group": f"/group?id={GROUP}",
    "group-hostile": f"/group?id={quote(HOSTILE[:200])}",
    "queues": "/queues",
    "queue": f"/queue?name={QUEUE}",
    "queue-hostile": f"/queue?name={quote(HOSTILE[:200])}",
    "transactions": "/transactions",
    "transaction": "/transaction?id=bookings-writer",
    "users": "/users",
    "quotas": "/quotas",
    "elect": f"/elect?topic={FLIGHTS}",
    "trim-asks": f"/trim?topic={FLIGHTS}&partition=0",
    "trim": f"/trim?topic={FLIGHTS}&partition=0&to=1",
    "cordon": "/cordon?broker=2",
    "not-there": "/topic?name=none",
}
THEMES = ("light", "dark")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_used_by_everybody(
    browser: Browser, console: RunningConsole, page: str, size: tuple[int, int], theme: str
) -> None:
    browser.look(*size, theme)
    browser.open(console.url + PAGES[page])
    assert browser.violations() == []
    assert not browser.is_wider_than_screen()
    refused = [line for line in browser.said_to_console() if "the server responded with a status of" not in line]
    assert refused == []
    assert browser.run("return window.caught") is None


def test_a_page_lives_without_being_loaded_anew(browser: Browser, cluster: Cluster, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/topic?name={FLIGHTS}")
    browser.run("window.isTheSame = true; document.querySelector('summary, .scroll').focus()")
    before = browser.run(
        "return document.querySelector('tbody td.n').innerText + document.querySelector('main').innerText"
    )
    produce(cluster.client, 50, first=10_000)
    browser.wait(
        lambda: browser.run("return document.querySelector('.chart canvas') !== null"), "a line is drawn by itself"
    )
    browser.wait(
        lambda: (
            browser.run(
                "return document.querySelector('tbody td.n').innerText + document.querySelector('main').innerText"
            )
            != before
        ),
        "the numbers are new",
    )
    assert browser.run("return window.isTheSame")
    assert browser.run("return document.activeElement !== document.body"), "the focus has stayed"
    assert browser.find("#pulse").text == "live"


def test_a_page_asks_nothing_while_it_is_paused(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(console.url + "/topics")
    browser.run(
        "window.asked = 0; const real = window.fetch;"
        "window.fetch = (...all) => { window.asked += 1; return real(...all); }"
    )
    browser.press("p")
    assert browser.find("#pulse").text == "paused"
    time.sleep(6)
    assert browser.run("return window.asked") == 0
    browser.press("p")
    browser.wait(lambda: browser.run("return window.asked") > 0, "it goes on")


def test_a_keyboard_is_enough(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(console.url + "/")
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.className") == "skip"
    browser.press(Keys.ENTER)
    assert browser.run("return document.activeElement.id") == "main"
    for keys, path in (
        ("gb", "/brokers"),
        ("gt", "/topics"),
        ("gg", "/groups"),
        ("gw", "/queues"),
        ("gx", "/transactions"),
        ("gt", "/topics"),
    ):
        browser.press(keys)
        browser.wait(lambda path=path: browser.run("return location.pathname") == path, f"{keys} leads to {path}")  # type: ignore[misc]
    browser.press("/")
    browser.press(f"{FLIGHTS}{Keys.ENTER}")
    browser.wait(lambda: "q=flights" in browser.run("return location.search"), "the filter is asked")
    browser.press("j")
    browser.press(Keys.ENTER)
    browser.wait(lambda: browser.run("return location.pathname") == "/topic", "the row is opened")
    assert browser.find("h1").text == FLIGHTS
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    browser.press(Keys.ESCAPE)
    assert not browser.run("return document.getElementById('help').open")


def test_whatever_has_the_focus_is_seen(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/records?topic={FLIGHTS}")
    seen = set()
    for _ in range(30):
        browser.press(Keys.TAB)
        focused = browser.run(
            "const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.tagName + '.' + (e.name || e.textContent.trim().slice(0, 20)), s.outlineStyle]"
        )
        seen.add(focused[0])
        assert focused[1] != "none", f"{focused[0]} has the focus, and nobody sees it"
    assert {"SELECT.partition", "INPUT.key"} <= seen


def test_the_theme_is_kept(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK, "light")
    browser.open(console.url + "/")
    browser.press("d")
    dark = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.open(console.url + "/topics")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == dark
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    browser.run("localStorage.clear()")


@proves("CON.3")
def test_a_record_that_is_hostile_in_each_field_is_text(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(f"{console.url}/records?topic={ATTACKED}")
    shown = '<script>window.caught = true</script><img src=x onerror="window.caught = true">\\x1b[31m\\u202e\'&'
    assert browser.text().count(shown) >= 3
    assert browser.run("return window.caught") is None
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0


@proves("CON.3")
def test_the_policy_holds_even_where_markup_came_in(browser: Browser, console: RunningConsole) -> None:
    browser.look(*DESK)
    browser.open(console.url + "/")
    browser.said_to_console()
    browser.run(
        "const d = document.createElement('div'); d.innerHTML = '<img src=x onerror=\"window.caught = true\">';"
        "document.body.append(d); const s = document.createElement('script'); s.textContent = 'window.caught = true';"
        "document.body.append(s); d.remove();"
    )
    browser.wait(lambda: any("Content Security Policy" in line for line in browser.said_to_console()), "it is refused")
    assert browser.run("return window.caught") is None


def test_when_the_brokers_are_gone_the_page_says_so_and_comes_back(
    browser: Browser, tmp_path: pathlib.Path, cluster: Cluster, console: RunningConsole
) -> None:
    browser.look(*DESK)
    browser.open(console.url + "/brokers")
    cluster.pause(*cluster.ports)
    try:
        browser.wait(lambda: "No answer" in browser.text() or "no active controller" in browser.text(), "it says so")
        assert browser.find("#pulse").text != ""
    finally:
        cluster.resume(*cluster.ports)
    cluster.wait_running()
    is_back = lambda: "running" in browser.text() and "No answer" not in browser.text()  # noqa: E731
    browser.wait(is_back, "it comes back", within_s=60)
