"""The console beside real brokers: its pages, its logins, the loss of a viewer's right, and its limits."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import signal
import socket
import ssl
import time
from collections.abc import Iterator

import psutil
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, schema_from_ddl
from minilog.admin.security import QuotaAlteration, UserDeletion, UserUpsertion
from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog_broker.console.sessions import MOST
from tests import programs
from tests.cluster import HOST, Cluster, running_cluster
from tests.console.visiting import RunningConsole, Visitor, running_console
from tests.integration.moving import wait_until
from tests.secured import SecuredCluster, running_secured_cluster

PASSWORD = "correct horse battery staple"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\"'&"
LARGE_BYTES = 60 * 1024 * 1024
PAGES = ("/", "/brokers", "/topics", "/groups", "/transactions", "/users", "/quotas")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("console")) as running:
        with Admin(running.client) as admin:
            admin.create_topics(
                [
                    NewTopic("flights", num_partitions=2, replication_factor=3),
                    NewTopic("large", num_partitions=1, configs={"max.message.bytes": str(64 << 20)}),
                    NewTopic(
                        "delays", num_partitions=1, schema=schema_from_ddl("carrier STRING NOT NULL, delay INT", [])
                    ),
                ]
            )
        settings = {**running.client, "acks": "all"}
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
            producer.flush()
        with Consumer({**running.client, "group.id": HOSTILE, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            consumer.poll(5.0)
            consumer.commit({TopicPartition("flights", 0): 10})
        yield running


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    with running_console(tmp_path_factory.mktemp("process"), "-b", cluster.bootstrap_servers, "--actions") as running:
        yield running


@pytest.fixture
def visitor(console: RunningConsole) -> Visitor:
    return Visitor(console.port)


def test_each_page_is_there(visitor: Visitor) -> None:
    for target in (*PAGES, "/topic?name=flights", "/topic?name=delays", "/records?topic=flights"):
        page = visitor.get(target)
        assert page.status == 200, (target, page.text)
        assert "</html>" in page.text
        part = visitor.get(target, {"x-minilog-part": "1"})
        assert part.status == 200
        assert "<html" not in part.text
        assert "<h1>" in part.text


def test_what_is_hostile_is_text_in_rows_and_groups_too(visitor: Visitor) -> None:
    for target in (
        "/records?topic=flights&partition=0&start=earliest&count=100",
        "/records?topic=flights&partition=0&start=earliest&count=100&form=json",
        "/records?topic=delays",
        "/groups",
        "/",
    ):
        text = visitor.get(target).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e&#34;&#39;&amp;" in text, target
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text


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


def test_what_a_form_has_wrong_is_told_beside_it(visitor: Visitor) -> None:
    for fields in ("start=offset&at=-1", "start=offset", "partition=9", "start=time&at=soon", "where=a+%3D+1"):
        page = visitor.get(f"/records?topic=flights&{fields}")
        assert page.status == 200
        assert "Nothing was read." in page.text
    assert visitor.get("/records?topic=none").status == 404
    assert visitor.get("/topic?name=none").status == 404


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


def test_one_viewer_costs_less_than_2_percent_of_a_core_and_nobody_nothing(
    console: RunningConsole, visitor: Visitor
) -> None:
    process = psutil.Process(console.process.pid)

    def cpu_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    for target in PAGES:
        visitor.get(target)
    began_s = cpu_s()
    for _ in range(4):  # as a browser that looks at the overview
        visitor.get("/", {"x-minilog-part": "1"})
        time.sleep(5)
    assert cpu_s() - began_s < 20 * 0.02
    quiet_s = cpu_s()
    time.sleep(5)
    assert cpu_s() - quiet_s < 0.05


def test_it_ends_cleanly_when_it_is_told_to(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    with running_console(tmp_path, "-b", cluster.bootstrap_servers) as console:
        assert "Read-only" in Visitor(console.port).get("/").text
        console.process.send_signal(signal.SIGTERM)
        assert console.process.wait(10) == 0
        assert "Traceback" not in console.log.read_text()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with running_secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(name, num_partitions=1) for name in ("open", "unseen-topic")])
            admin.alter_quotas([QuotaAlteration("User:alice", "connections", 50)])
        yield running


@pytest.fixture(scope="module")
def closed(secured: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    arguments = ("--command-config", str(secured.security.client_properties), "-b", secured.bootstrap_servers)
    with running_console(tmp_path_factory.mktemp("closed"), *arguments, "--actions") as running:
        yield running


def viewer(secured: SecuredCluster, closed: RunningConsole, name: str, *operations: Operation) -> Visitor:
    """A visitor after its login, with rights for these operations on the topic `open`."""
    rules = [
        AccessRule(f"User:{name}", "*", operation, ResourceKind.TOPIC, "open", Pattern.LITERAL, Permission.ALLOW)
        for operation in operations
    ]
    with Admin(secured.client) as admin:
        admin.alter_users([UserUpsertion(name, PASSWORD, iterations=4_096)])
        admin.create_access_rules(rules)
    visitor = Visitor(closed.port)
    wait_until(lambda: visitor.log_in(name, PASSWORD).status == 303)
    return visitor


def test_the_password_of_the_file_lets_nobody_in(closed: RunningConsole) -> None:
    stranger = Visitor(closed.port)
    for target in (*PAGES, "/records?topic=open", "/trim?topic=open&partition=0&to=1"):
        page = stranger.get(target)
        assert (page.status, page.text) == (303, ""), target


def test_a_wrong_password_is_refused_and_the_next_attempt_waits(closed: RunningConsole) -> None:
    stranger = Visitor(closed.port)
    assert stranger.log_in("admin", "wrong").status == 403
    assert stranger.log_in("admin", "wrong").status == 429
    assert stranger.get("/").status == 303
    time.sleep(1.2)


def test_a_viewer_sees_what_its_rules_allow(secured: SecuredCluster, closed: RunningConsole) -> None:
    alice = viewer(secured, closed, "alice", Operation.DESCRIBE)
    topics = alice.get("/topics").text
    assert ">open<" in topics
    assert "unseen-topic" not in topics
    assert alice.get("/topic?name=unseen-topic").status in (403, 404)
    assert alice.get("/users").status == 403
    refused = alice.send("/trim", {"topic": "open", "partition": "0", "to": "0", "sure": "yes"})
    assert refused.status == 403
    assert "minilog acl add" in refused.text


def test_a_right_that_is_lost_is_lost_in_a_session_that_goes_on(
    secured: SecuredCluster, closed: RunningConsole
) -> None:
    bob = viewer(secured, closed, "bob", Operation.READ)
    assert bob.get("/topic?name=open").status == 200
    with Admin(secured.client) as admin:
        admin.delete_access_rules([AccessRuleFilter(principal="User:bob")])
    wait_until(lambda: bob.get("/topic?name=open").status in (403, 404))
    assert ">open<" not in bob.get("/topics").text


def test_a_user_that_is_deleted_is_logged_out(secured: SecuredCluster, closed: RunningConsole) -> None:
    carol = viewer(secured, closed, "carol", Operation.READ)
    assert carol.get("/topics").status == 200
    with Admin(secured.client) as admin:
        admin.alter_users([UserDeletion("carol")])
    wait_until(lambda: carol.get("/topics").status == 303)
    assert carol.get("/topics", {"x-minilog-part": "1"}).status == 401
    assert carol.log_in("carol", PASSWORD).status in (403, 429)
    time.sleep(2.5)


def test_a_delegation_token_lets_its_owner_in_and_a_logout_ends_it(
    secured: SecuredCluster, closed: RunningConsole
) -> None:
    with Admin(secured.client) as admin:
        token = admin.create_delegation_token()
    visitor = Visitor(closed.port)
    page = visitor.log_in(token.information.token_id, token.hmac.reveal(), "token", "/users")
    assert (page.status, page.headers["location"]) == (303, "/users")
    assert "alice" in visitor.get("/users").text
    assert "connections" in visitor.get("/quotas").text
    cookies = dict(visitor.cookies)
    assert visitor.send("/logout", {}).status == 303
    visitor.cookies = cookies
    assert visitor.get("/users").status == 303


def test_sessions_have_a_bound(secured: SecuredCluster, closed: RunningConsole) -> None:
    first = viewer(secured, closed, "dave", Operation.DESCRIBE)
    for _ in range(MOST):
        assert Visitor(closed.port).log_in("dave", PASSWORD).status == 303
    assert first.get("/topics").status == 303


def test_browsers_come_by_tls(secured: SecuredCluster, tmp_path: pathlib.Path) -> None:
    arguments = ("--command-config", str(secured.security.client_properties), "-b", secured.bootstrap_servers)
    keystore = secured.folder / "server.pem"
    context = ssl.create_default_context(cafile=str(secured.folder / "clients.pem"))
    with running_console(tmp_path, *arguments, "--ssl-keystore", str(keystore)) as console:
        visitor = Visitor(console.port, context)
        assert visitor.log_in("admin", secured.client["sasl.password"]).status == 303
        assert "__Host-minilog" in visitor.cookies
        assert visitor.get("/users").status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            Visitor(console.port).get("/")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "0.0.0.0:9644"), "plaintext"),
        (("--listen", "nowhere"), "HOST:PORT"),
        (("--ssl-keystore", "/dev/null"), "is not PEM"),
        (("-b", "no-port"), "no-port"),
    ],
)
def test_a_start_that_is_wrong_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    ended = programs.run("console", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
