"""`minilog console` in a process of its own, before a real broker, as a browser asks it over HTTP.

Contents of records are hostile here: what a producer may write is looked at in the page's source.
"""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from minilog import Admin, NewTopic, Producer
from minilog_broker.console.browser_rules import CONTENT_SECURITY_POLICY
from minilog_broker.console.web import PAGES
from tests import programs
from tests.cluster import HOST, Cluster, free_ports, running_cluster, running_program

TOPIC = "flights"
SCRIPT = "<script>alert(1)</script>"
ENDS_MARKUP = '"></pre><img src=x onerror=alert(1)>'
INLINE = re.compile(r"<script(?![^>]*\bsrc=\"/static/)|<style|<[a-z][^>]*\s(?:style|on[a-z]+)=|<[^>]*javascript:")
OF_TERMINALS = "\x1b]0;owned\x07\x1b[2J\u202etxt"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    text: str


@dataclass(frozen=True)
class Scene:
    """A console that allows actions, and its cluster."""

    cluster: Cluster
    port: int

    def ask(self, target: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        """GET the target, or POST the form to it."""
        with contextlib.closing(http.client.HTTPConnection(HOST, self.port, timeout=15)) as connection:
            if form is None:
                connection.request("GET", target, headers=headers)
            else:
                kind = {"Content-Type": "application/x-www-form-urlencoded"}
                connection.request("POST", target, urlencode(form), {**kind, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())

    def log_start(self) -> int | None:
        """Of the topic's only partition."""
        with Admin(self.cluster.client) as admin:
            (topic,) = admin.describe_topics([TOPIC])
        return topic.partitions[0].log_start_offset


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: pathlib.Path = tmp_path_factory.mktemp("console")
    (port,) = free_ports(1)
    with running_cluster(directory, 1) as cluster:
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(TOPIC)])
        with Producer(cluster.client) as producer:
            for text in (SCRIPT, ENDS_MARKUP, OF_TERMINALS):
                content = text.encode()
                producer.send(TOPIC, content, key=content, headers=[(text, content)]).result(timeout=30)
        listen = ("--listen", f"{HOST}:{port}", "--actions")
        with running_program((*programs.MINILOG, "console", "-b", cluster.bootstrap_servers, *listen)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"minilog console: http://{HOST}:{port}/ (with actions)\n"
            yield Scene(cluster, port)
            process.terminate()
            assert process.wait(timeout=15) == 0
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.path not in ("/group", "/transaction")])
def test_each_page_is_shown_and_forbids_the_browser_what_is_not_its_own(scene: Scene, path: str) -> None:
    answer = scene.ask(f"{path}?" + urlencode({"name": TOPIC, "topic": TOPIC}))
    assert answer.status == 200, answer.text
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert INLINE.search(answer.text) is None


def test_the_overview_says_that_the_cluster_is_healthy_and_names_the_topic(scene: Scene) -> None:
    text = scene.ask("/").text
    assert "<strong>Healthy.</strong>" in text
    assert 'href="/topic?name=flights"' in text


def test_the_cookie_is_not_for_scripts_and_not_for_other_sites(scene: Scene) -> None:
    cookie = scene.ask("/").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; "))


@pytest.mark.parametrize("form", ["text", "json", "hex"])
def test_what_records_hold_is_text_in_the_page(scene: Scene, form: str) -> None:
    answer = scene.ask(f"/records?topic={TOPIC}&start=earliest&form={form}")
    assert answer.status == 200
    assert "3 shown, 3 looked at" in answer.text
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text
    assert all(letter.isprintable() or letter in "\n\t" for letter in answer.text)
    assert "<dt>&lt;script&gt;alert(1)&lt;/script&gt;</dt>" in answer.text
    assert r"<dt>\x1b]0;owned\x07\x1b[2J\u202etxt</dt>" in answer.text


def test_what_an_address_holds_is_text_in_the_page(scene: Scene) -> None:
    for path in ("/topics", "/groups", "/users"):
        text = scene.ask(f"{path}?" + urlencode({"q": ENDS_MARKUP})).text
        assert "<img src=x" not in text
    assert scene.ask("/topic?" + urlencode({"name": SCRIPT})).status in (400, 404)


def test_a_stranger_that_turned_a_name_to_this_address_is_refused(scene: Scene) -> None:
    assert scene.ask("/", Host="console.example.com").status == 403


def test_records_are_deleted_by_the_form_of_this_browser_alone_and_after_a_tick(scene: Scene) -> None:
    page = scene.ask(f"/trim?topic={TOPIC}&partition=0&to=1")
    assert "1 offsets of partition 0 of flights, from 0 to 0, are deleted for good" in page.text
    cookie = page.headers["set-cookie"].partition(";")[0]
    token = re.search(r'name="form_token" value="([0-9a-f]+)"', page.text)
    assert token is not None
    fields = {"topic": TOPIC, "partition": "0", "to": "1", "sure": "yes"}
    allowed = {**fields, "form_token": token[1]}
    assert scene.ask("/trim", fields, Cookie=cookie).status == 403
    assert scene.ask("/trim", allowed).status == 403
    assert scene.ask("/trim", allowed, **{"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}).status == 403
    assert scene.ask("/trim", {**allowed, "sure": ""}, Cookie=cookie).status == 400
    assert scene.log_start() == 0
    done = scene.ask("/trim", allowed, Cookie=cookie)
    assert (done.status, "Partition 0 of flights starts at 1." in done.text) == (200, True)
    assert scene.log_start() == 1
