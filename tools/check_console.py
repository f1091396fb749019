"""`python -m tools.check_console [FOLDER]`: the console in a real headless Chromium, before a real broker.

Each page is opened on a phone and on a desk, dark and light. A page fails that is wider than its screen, that makes the
browser complain (the Content-Security-Policy among it), or that axe-core finds wrong by WCAG 2.2 A and AA. With FOLDER,
pictures of some pages are written there. Debian has both programs: apt-get install chromium chromium-driver.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from urllib.parse import urlencode

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.testing import RunningCluster, running_cluster
from minilog_broker.local_ports import HOST, free_ports
from tests.console.browser import DESK, PHONE, Browser, running_browser

TOPIC, GROUP = "flights", "delays"
SCREENS = {"phone": PHONE, "desk": DESK}
THEMES = ("light", "dark")
HOSTILE = ('<script>document.title = "owned"</script>', '"><img src=x onerror="document.title=1">', "\x1b]0;owned\x07")
PAGES = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics",
    "topic": "/topic?" + urlencode({"name": TOPIC}),
    "records": "/records?" + urlencode({"topic": TOPIC, "partition": 0, "start": "latest"}),
    "groups": "/groups",
    "group": "/group?" + urlencode({"id": GROUP}),
    "transactions": "/transactions",
    "users": "/users",
    "quotas": "/quotas",
    "no-topic": "/topic?name=nothing",
}
PICTURES = {("overview", "desk", "light"), ("topic", "desk", "dark"), ("records", "phone", "light")}
EXPECTED = "the server responded with a status of 404"  # of the page that there is not


def _fill(cluster: RunningCluster) -> None:
    with Admin(cluster.settings) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=3), NewTopic("airports", num_partitions=1)])
    with Producer(cluster.settings) as producer:
        for number in range(2_000):
            producer.send(TOPIC, b'{"carrier": "UA", "delay": %d}' % (number % 90), key=b"UA%d" % number)
        for text in HOSTILE:
            producer.send(TOPIC, text.encode(), key=text.encode(), partition=0, headers=[(text, text.encode())])
        producer.flush()
    with Consumer({**cluster.settings, "group.id": GROUP}) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        consumer.poll(timeout=10.0)
        consumer.commit()


def _troubles(browser: Browser, name: str) -> list[str]:
    complaints = [text for text in browser.said_to_console() if name != "no-topic" or EXPECTED not in text]
    if browser.is_wider_than_screen():
        complaints.append("it is wider than the screen")
    if browser.run("return document.title").startswith(("owned", "1")):
        complaints.append("a script of a record ran")
    return complaints + browser.violations()


def _check(browser: Browser, address: str, pictures: pathlib.Path | None) -> list[str]:
    found: list[str] = []
    for screen, size in SCREENS.items():
        for theme in THEMES:
            browser.look(*size, theme)
            for name, path in PAGES.items():
                browser.open(address + path)
                found += [f"{name}, {screen}, {theme}: {trouble}" for trouble in _troubles(browser, name)]
                if pictures is not None and (name, screen, theme) in PICTURES:
                    browser.picture(pictures / f"console-{name}.png")
    return found


def main(arguments: list[str]) -> int:
    """0: each page is as it should be; 1: what is not is printed."""
    pictures = pathlib.Path(arguments[0]) if arguments else None
    (port,) = free_ports(1)
    with running_cluster() as cluster:
        _fill(cluster)
        listen = ("-b", cluster.bootstrap_servers, "--listen", f"{HOST}:{port}", "--actions")
        command = (sys.executable, "-m", "minilog_broker.cli.main", "console", *listen)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console, running_browser() as browser:
            try:
                assert console.stdout is not None
                console.stdout.readline()  # it serves
                found = _check(browser, f"http://{HOST}:{port}", pictures)
            finally:
                console.terminate()
    print("\n".join(found) or f"{len(PAGES)} pages, {len(SCREENS)} screens, {len(THEMES)} themes: nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
