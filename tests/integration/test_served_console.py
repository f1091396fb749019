"""A console that a broker serves: a process beside it, which lives and ends with it, and costs its stop no time."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import signal
import socket
import ssl
import time
from collections.abc import Iterator

import psutil
import pytest

from minilog.properties import properties_file
from minilog_broker.server.console_process import LONGEST_PAUSE_S
from tests import programs
from tests.cluster import HOST, Cluster, free_ports, running_program
from tests.console.visiting import Visitor, running_console
from tests.integration.moving import wait_until
from tests.rules import proves
from tests.secured import SecuredCluster

pytestmark = proves("CON.4", "CON.5")

STOPS_WITHIN_S = 5.0
ENDS_WITHIN_S = 10.0


class Scene:
    """A broker with a console and HTTP."""

    def __init__(self, cluster: Cluster, console_port: int, http_port: int) -> None:
        self.cluster = cluster
        self.console_port = console_port
        self.http_port = http_port

    def is_answering(self) -> bool:
        try:
            with socket.create_connection((HOST, self.console_port), timeout=5):
                return self.console_answer()[0] == 307
        except OSError:
            return False

    def process(self) -> psutil.Process:
        """The console's, which is the broker's only child."""
        (child,) = psutil.Process(self.cluster.processes[1].pid).children()
        return child

    def console_answer(self, host: str = HOST) -> tuple[int, str]:
        """The status of GET /console at --http, and where it leads, or what it says."""
        with contextlib.closing(http.client.HTTPConnection(HOST, self.http_port, timeout=15)) as connection:
            connection.request("GET", "/console", headers={"host": host})
            answer = connection.getresponse()
            return answer.status, answer.headers["location"] or answer.read().decode()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One of its own, which each test starts where it does not run, and may stop."""
    console_port, http_port = free_ports(2)
    options = ("--console", f"{HOST}:{console_port}", "--http", f"{HOST}:{http_port}")
    cluster = Cluster(tmp_path_factory.mktemp("served"), 1, arguments={1: options})
    try:
        yield Scene(cluster, console_port, http_port)
    finally:
        cluster.end()


def start(scene: Scene) -> psutil.Process:
    """The console's process, when it answers."""
    if not scene.cluster.processes:
        scene.cluster.start()
    scene.cluster.wait_running()
    wait_until(scene.is_answering)
    return scene.process()


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_http_leads_to_pages_about_the_broker(scene: Scene) -> None:
    process = start(scene)
    assert scene.console_answer() == (307, f"http://{HOST}:{scene.console_port}/")
    page = Visitor(scene.console_port).get("/")
    assert "<strong>Healthy.</strong>" in page.text
    assert "Read-only" in page.text
    assert scene.console_answer("broker.example")[0] == 403
    assert process.nice() > psutil.Process(scene.cluster.processes[1].pid).nice()
    assert pathlib.Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "500\n"


def test_a_console_that_dies_starts_again_and_the_broker_goes_on(scene: Scene) -> None:
    first = start(scene)
    first.kill()
    wait_until(lambda: is_gone(first))
    wait_until(lambda: "the console ended, and starts again" in scene.cluster.log_text(1))
    assert '"ending": "SIGKILL"' in scene.cluster.log_text(1)
    wait_until(scene.is_answering)
    assert scene.process().pid != first.pid
    assert scene.cluster.states() == {1: "running"}


def test_a_console_ends_with_its_broker_even_by_sigkill(scene: Scene) -> None:
    process = start(scene)
    scene.cluster.kill(1)
    process.wait(ENDS_WITHIN_S)
    assert start(scene).pid != process.pid


def test_a_console_that_hangs_delays_no_stop_of_the_broker(scene: Scene) -> None:
    process = start(scene)
    process.suspend()
    began_s = time.monotonic()
    assert scene.cluster.stop() == {1: 0}
    assert time.monotonic() - began_s < STOPS_WITHIN_S
    process.wait(ENDS_WITHIN_S)
    assert "the console ended" not in scene.cluster.said_in_this_life(1)


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_console_whose_port_is_taken_waits_for_it_and_keeps_no_broker_from_running(scene: Scene) -> None:
    if scene.cluster.processes:
        scene.cluster.stop()
    with socket.create_server((HOST, scene.console_port)):
        scene.cluster.start()
        scene.cluster.wait_running()
        wait_until(lambda: '"ending": "exit code 1"' in scene.cluster.log_text(1))
        assert f"console.listen cannot listen on {HOST}:{scene.console_port}" in scene.cluster.log_text(1)
        assert scene.console_answer()[0] == 503
    deadline_s = time.monotonic() + LONGEST_PAUSE_S
    while not scene.is_answering():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def shown_certificate(port: int) -> str:
    return ssl.get_server_certificate((HOST, port), timeout=10)


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_off_loopback_a_console_has_tls_by_the_brokers_certificate_and_users_log_in(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    cluster = SecuredCluster(tmp_path, 1)
    trust = f"console.ssl.truststore.location={cluster.folder / 'clients.pem'}"
    options = ("--console", f"0.0.0.0:{port}", "--set", trust, "--set", "console.actions.enable=true")
    cluster.arguments[1] = (*cluster.arguments[1], *options)
    keystore = cluster.folder / "server.pem"
    try:
        cluster.start()
        cluster.wait_running()
        wait_until(lambda: '"the console answers"' in cluster.log_text(1))
        visitor = Visitor(port, ssl.create_default_context(cafile=str(cluster.folder / "clients.pem")))
        assert visitor.get("/topics").status == 303
        assert visitor.log_in("admin", "wrong").status == 403
        time.sleep(1.2)
        assert visitor.log_in("admin", cluster.client["sasl.password"]).status == 303
        assert "Read-only" not in visitor.get("/topics").text
        assert visitor.get("/users").status == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            Visitor(port).get("/")
        before = shown_certificate(port)
        renew(cluster, keystore)
        wait_until(lambda: shown_certificate(port) != before)
        assert visitor.get("/users").status == 200
    finally:
        cluster.end()


def renew(cluster: SecuredCluster, keystore: pathlib.Path) -> None:
    """Another certificate of the same authority takes the place of the one that the broker shows."""
    authority = cluster.directory / "authority"
    authority.mkdir(mode=0o700)
    for name in ("pem", "key"):
        (authority / f"authority.{name}").write_bytes((cluster.folder / f"clients.{name}").read_bytes())
        (authority / f"authority.{name}").chmod(0o600)
    made = cluster.directory / "renewed"
    arguments = ("cert", "create", "server", "--authority", str(authority), "--host", HOST, "--out", str(made))
    ended = programs.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    os.replace(made / "keystore.pem", keystore)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--console", "0.0.0.0:9644"), "console.listen 0.0.0.0:9644 would be plaintext"),
        (("--console", "nowhere"), "HOST:PORT"),
        (
            ("--console", f"{HOST}:9644", "--set", "console.ssl.keystore.location=/dev/null"),
            "console.ssl.keystore.location=/dev/null is not PEM",
        ),
        (("--set", "console.actions.enable=true"), "console.listen is not"),
    ],
)
def test_a_broker_with_a_console_that_cannot_be_does_not_start(
    tmp_path: pathlib.Path, options: tuple[str, ...], words: str
) -> None:
    (port,) = free_ports(1)
    listen, voters = f"{HOST}:{port}", f"1@{HOST}:{port}"
    ended = programs.run(
        "broker", "--id", "1", "--listen", listen, "--data-dir", str(tmp_path / "d"), "--voters", voters, *options
    )
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (tmp_path / "d").exists()


def test_a_console_alone_ends_by_its_signal_and_not_by_its_input(tmp_path: pathlib.Path) -> None:
    """Only --of-broker watches the input: `minilog console < /dev/null` is a console of its own."""
    with running_console(tmp_path, "-b", f"{HOST}:{free_ports(1)[0]}") as console:
        assert Visitor(console.port).get("/login").status == 303
        console.process.send_signal(signal.SIGTERM)
        assert console.process.wait(10) == 0


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_secured_cluster_of_up_has_a_console_where_a_port_is_given(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    options = ("--brokers", "1", "--port", "0", "--data-dir", str(tmp_path), "--console-port", str(port), "--secure")
    with running_program((*programs.MINILOG, "up", *options)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("minilog is ready: ")
        assert process.stderr.readline()
        assert process.stderr.readline() == f"minilog: the console is at http://{HOST}:{port}/\n"
        wait_until(lambda: is_listening(port))
        visitor = Visitor(port)
        assert visitor.get("/topics").status == 303
        client = properties_file(str(tmp_path / "client.properties"))
        assert visitor.log_in(client["sasl.username"], client["sasl.password"]).status == 303
        assert visitor.get("/topics").status == 200
        process.terminate()
        assert process.wait(30) == 0
    assert not is_listening(port)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True
