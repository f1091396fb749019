"""`minilog console` before real brokers without users: its pages, what it forbids browsers, its limits.

Contents of records are hostile here: the source of the pages has what a producer may write as text.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import signal
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import psutil
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, QueueConsumer, TopicPartition, schema_from_ddl
from minilog.transactions.messages import Attempt
from minilog_tools.console.browser_rules import CONTENT_SECURITY_POLICY
from tests import programs
from tests.cluster import HOST, Cluster
from tests.console.visiting import RunningConsole, Visitor, running_console
from tests.pool import THREE, shared_cluster
from tests.rules import proves

pytestmark = proves("CON.1", "CON.3", "CON.6", "CON.7")

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\"'&"
INLINE = re.compile(r"<script(?![^>]*\bsrc=\"/static/)|<style|<[a-z][^>]*\s(?:style|on[a-z]+)=|<[^>]*javascript:")
LARGE_BYTES = 60 * 1024 * 1024
PAGES = ("/", "/brokers", "/topics", "/groups", "/queues", "/transactions", "/users", "/quotas")


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin(shared.client) as admin:
        admin.create_topics(
            [
                NewTopic("flights", num_partitions=2, replication_factor=3),
                NewTopic("large", num_partitions=1, configs={"max.message.bytes": str(64 << 20)}),
                NewTopic("delays", num_partitions=1, schema=schema_from_ddl("carrier STRING NOT NULL, delay INT", [])),
                NewTopic("seats", schema=schema_from_ddl("id INT NOT NULL, row STRING NOT NULL", ["id"])),
            ]
        )
    settings = {**shared.client, "acks": "all"}
    with Producer(settings) as producer:
        for number in range(50):
            value = json.dumps({"number": number}).encode()
            producer.send("flights", key=b"%d" % (number % 5), value=value, partition=number % 2)
        producer.send(
            "flights",
            key=HOSTILE.encode(),
            value=HOSTILE.encode(),
            headers=[(HOSTILE, HOSTILE.encode())],
            partition=0,
        )
        for number in range(20):
            producer.send("delays", {"carrier": HOSTILE, "delay": number})
        producer.send("seats", {"id": 77, "row": "F"})
        producer.delete("seats", {"id": 77})
        producer.flush()
    with Consumer({**shared.client, "group.id": HOSTILE, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("flights", 0)])
        consumer.poll(5.0)
        consumer.commit({TopicPartition("flights", 0): 10})
    with QueueConsumer({**shared.client, "queue": HOSTILE, "max.poll.records": 5}) as worker:
        worker.subscribe(["flights"])
        first, second, third, *_ = worker.poll(10.0)
        first.accept()
        second.release(delay=600.0)
        third.reject()
        worker.flush()
    return shared


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    with running_console(tmp_path_factory.mktemp("process"), "-b", cluster.bootstrap_servers, "--actions") as running:
        yield running


@pytest.fixture
def visitor(console: RunningConsole) -> Visitor:
    return Visitor(console.port)


def test_each_page_answers_with_its_security_headers(visitor: Visitor) -> None:
    for target in (*PAGES, "/topic?name=flights", "/topic?name=delays", "/records?topic=flights"):
        page = visitor.get(target)
        assert page.status == 200, (target, page.text)
        assert "</html>" in page.text
        assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-store"
        assert INLINE.search(page.text) is None
        part = visitor.get(target, {"x-minilog-part": "1"})
        assert part.status == 200
        assert "<html" not in part.text
        assert "<h1>" in part.text


def test_hostile_content_is_text_in_rows_and_groups(visitor: Visitor) -> None:
    for target in (
        "/records?topic=flights&partition=0&start=earliest&count=100",
        "/records?topic=flights&partition=0&start=earliest&count=100&form=json",
        "/records?topic=delays",
        "/groups",
        "/queues",
        f"/queue?{urlencode({'name': HOSTILE})}",
        "/",
    ):
        text = visitor.get(target).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e&#34;&#39;&amp;" in text, target
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_the_overview_has_the_health_and_links_to_topics(visitor: Visitor) -> None:
    text = visitor.get("/").text
    assert "<strong>Healthy.</strong>" in text
    assert 'href="/topic?name=flights"' in text


def test_a_queue_has_its_ranges_with_their_workers(cluster: Cluster, visitor: Visitor) -> None:
    assert visitor.get("/queue?name=no-such-queue").status == 404
    settings = {**cluster.client, "queue": "boarding", "max.poll.records": 3, "client.id": "gate-17"}
    with QueueConsumer(settings) as worker:
        worker.subscribe(["flights"])
        message, *_ = worker.poll(10.0)
        message.release(delay=600.0)
        worker.flush()
        text = visitor.get("/queue?name=boarding").text
        assert ">gate-17-" in text
        assert '<span class="state good">leased</span>' in text
        assert '<span class="state warn">ready</span>' in text


def test_records_are_found_by_offset_time_and_key(visitor: Visitor) -> None:
    at = visitor.get("/records?topic=flights&partition=1&start=offset&at=20&count=2").text
    assert "1 : 20" in at
    assert "1 : 21" in at
    assert "1 : 22" not in at
    by_key = visitor.get("/records?topic=flights&partition=1&start=earliest&key=1&count=3").text
    assert "3 shown" in by_key
    assert ">1</pre>" in by_key
    assert "No records here" in visitor.get("/records?topic=flights&start=time&at=2090-01-01T00:00").text
    assert "51 shown" in visitor.get("/records?topic=flights&start=time&at=2020-01-01T00:00&count=100").text
    hexadecimal = visitor.get("/records?topic=flights&partition=1&start=earliest&form=hex&count=1").text
    assert "7b 22 6e 75" in hexadecimal


def test_rows_have_columns_and_a_condition(visitor: Visitor) -> None:
    text = visitor.get("/records?topic=delays&start=earliest&columns=delay&where=delay+%3E+17").text
    assert "2 shown" in text
    assert ">18</td>" in text
    assert ">carrier</th>" not in text
    wrong = visitor.get("/records?topic=delays&where=nothing+%3E+17")
    assert wrong.status == 200
    assert "Nothing was read." in wrong.text


def test_a_row_that_deletes_its_key_is_marked(visitor: Visitor) -> None:
    text = visitor.get("/records?topic=seats&start=earliest").text
    assert "2 shown" in text
    assert text.count(">77</td>") == 2
    assert text.count(">deletes</span>") == text.count(">null</span>") == 1
    assert "1 shown" in visitor.get("/records?topic=seats&start=earliest&where=row+%3D+%27F%27").text


@proves("CON.8")
def test_of_a_record_of_60_mb_the_beginning_is_shown_and_memory_has_a_bound(
    cluster: Cluster, console: RunningConsole, visitor: Visitor
) -> None:
    settings = {**cluster.client, "buffer.memory": str(256 << 20)}
    with Producer(settings) as producer:
        producer.send("large", value=b"<b>" + b"x" * LARGE_BYTES).result(60)
    visitor.get("/records?topic=flights")
    page = visitor.get("/records?topic=large&start=earliest")
    assert page.status == 200
    assert "the beginning of 60.0 MiB" in page.text
    assert len(page.text) < 50_000
    assert psutil.Process(console.process.pid).memory_info().rss < 700 << 20


def test_an_action_says_what_it_does_and_is_done_by_a_form_alone(cluster: Cluster, visitor: Visitor) -> None:
    assert "10 offsets of partition 1" in visitor.get("/trim?topic=flights&partition=1&to=10").text
    fields = {"topic": "flights", "partition": "1", "to": "10"}
    assert visitor.send("/trim", {**fields, "sure": "yes"}, token="0" * 64).status == 403
    assert visitor.send("/trim", fields).status == 400, "it is not sure"
    assert visitor.send("/trim", {**fields, "sure": "yes"}, headers={"sec-fetch-site": "cross-site"}).status == 403
    token = visitor.form_token("/trim?" + urlencode(fields))
    assert Visitor(visitor.port).send("/trim", {**fields, "sure": "yes"}, token=token).status == 403, "no cookie"
    with Admin(cluster.client) as admin:
        assert admin.list_offsets({TopicPartition("flights", 1): "earliest"}) == {TopicPartition("flights", 1): 0}
        assert "starts at 10" in visitor.send("/trim", {**fields, "sure": "yes"}).text
        assert admin.list_offsets({TopicPartition("flights", 1): "earliest"}) == {TopicPartition("flights", 1): 10}
        seek = {"group": HOSTILE, "topic": "flights", "partition": "0", "to": "earliest"}
        assert "goes on at 0" in visitor.send("/seek", seek).text
        assert [offset.offset for offset in admin.describe_group(HOSTILE).offsets] == [0]
        assert "2 partitions of flights" in visitor.send("/elect", {"topic": "flights"}).text
        assert "gets no new replica" in visitor.send("/cordon", {"broker": "3"}).text
        assert [broker.cordoned for broker in admin.describe_cluster().brokers if broker.id == 3] == [True]
        assert "Uncordon" in visitor.get("/brokers").text
        assert "takes new replicas" in visitor.send("/cordon", {"broker": "3", "off": "yes"}).text


def test_an_open_transaction_is_aborted_by_a_form(cluster: Cluster, visitor: Visitor) -> None:
    name = "forgotten-writer"
    with Producer({**cluster.client, "transactional.id": name}) as producer:
        part = producer.participation()
        part.begin(Attempt(name, 0, b"attempt", b"run"))
        producer.send("flights", value=b"never read").result(timeout=30)
        part.leave()
    assert f"1 writers of {name}" in visitor.get(f"/abort?id={name}").text
    assert f"1 writers of {name} are aborted." in visitor.send("/abort", {"id": name, "sure": "yes"}).text
    with Admin(cluster.client) as admin:
        assert admin.describe_transaction(name).listing.state == "idle"


@pytest.mark.long
@proves("CON.8")
def test_200_browsers_that_never_read_keep_nobody_out(console: RunningConsole, visitor: Visitor) -> None:
    before = psutil.Process(console.process.pid).memory_info().rss
    request = f"GET /static/uplot/uPlot.iife.min.js HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            browser = stack.enter_context(socket.socket())
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            browser.connect((HOST, console.port))
            browser.sendall(request)
        deadline_s = time.monotonic() + 45
        while visitor.get("/").status != 200:
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        assert psutil.Process(console.process.pid).memory_info().rss - before < 100 << 20


def test_a_console_ends_cleanly_by_its_signal(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    with running_console(tmp_path, "-b", cluster.bootstrap_servers) as console:
        assert "Read-only" in Visitor(console.port).get("/").text
        console.process.send_signal(signal.SIGTERM)
        assert console.process.wait(10) == 0
        assert "Traceback" not in console.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "0.0.0.0:9644"), "plaintext"),
        (("-b", "no-port"), "no-port"),
    ],
)
def test_a_start_that_is_wrong_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    ended = programs.run("console", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
