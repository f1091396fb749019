"""Take the documents' pictures of the console, with a real cluster under load.

    .venv/bin/python -m tools.console_pictures     needs `chromium` and `chromedriver`, writes docs/images/console-*.png

It takes about a minute and a half, since the lines of charts need looks.
"""

from __future__ import annotations

import math
import pathlib
import sys
import tempfile
import threading
import time

from tests.cluster import running_cluster
from tests.console.browser import Browser, running_browser
from tests.console.content import DELAYS, FLIGHTS, GROUP, commit, fill, produce
from tests.console.visiting import RunningConsole, Visitor, running_console

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "images"
LOAD_S = 75.0
_SIZE, _PHONE = (1200, 780), (360, 740)
PICTURES = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics",
    "topic": f"/topic?name={FLIGHTS}",
    "records": f"/records?topic={FLIGHTS}&count=3&form=json",
    "rows": f"/records?topic={DELAYS}&where=delay+%3E+60&count=12",
    "group": f"/group?id={GROUP}",
    "transactions": "/transactions",
    "quotas": "/quotas",
    "trim": f"/trim?topic={FLIGHTS}&partition=0&to=10",
}
_DARK = {"overview", "rows", "group"}


def _load(client: dict[str, str], ended: threading.Event) -> None:
    """Records, more and fewer of them, and a group that follows."""
    number = 1_000
    while not ended.is_set():
        count = int(120 + 80 * math.sin(time.monotonic() / 6))
        produce(client, count, first=number)
        number += count
        commit(client, number // 8)
        ended.wait(0.4)


def _looks(console: RunningConsole) -> None:
    visitor, end_s = Visitor(console.port), time.monotonic() + LOAD_S
    while time.monotonic() < end_s:
        for target in ("/", PICTURES["topic"], PICTURES["group"]):
            visitor.get(target)
        time.sleep(2.2)


def _take(browser: Browser, console: RunningConsole) -> None:
    for name, target in PICTURES.items():
        browser.look(*_SIZE, "dark" if name in _DARK else "light")
        browser.open(console.url + target)
        time.sleep(0.5)
        browser.picture(IMAGES / f"console-{name}.png")
    browser.look(*_PHONE, "light")
    browser.open(console.url + "/")
    time.sleep(0.5)
    browser.picture(IMAGES / "console-phone.png")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, running_cluster(pathlib.Path(folder) / "cluster") as cluster:
        fill(cluster.client)
        arguments = ("-b", cluster.bootstrap_servers, "--actions")
        ended = threading.Event()
        load = threading.Thread(target=_load, args=(cluster.client, ended))
        with running_console(pathlib.Path(folder) / "console", *arguments) as console, running_browser() as browser:
            load.start()
            try:
                _looks(console)
                _take(browser, console)
            finally:
                ended.set()
                load.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
