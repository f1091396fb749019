"""What real brokers tell over HTTP and by grpc.health.v1 in each state, and how little clients can ask of that port."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from minilog import Consumer, Producer
from minilog_broker.server.http.listener import LIFE_S, MAX_HEAD_BYTES
from minilog_broker.server.http.places import MOST_WAITING
from minilog_broker.server.metrics import names
from tests import programs
from tests.cluster import HOST, Cluster, free_ports, running_program
from tests.rules import proves

WITHIN_S = 40.0
TOPIC = "flights"
# A disk that hangs: each sync of the process waits while the file is there.
HANGING_SYNCS = """
import os, time
def hanging(real):
    def call(descriptor):
        while os.path.exists({file!r}):
            time.sleep(0.05)
        return real(descriptor)
    return call
os.fdatasync = hanging(os.fdatasync)
"""


def told(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=15)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def scraped(port: int, query: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, text = told(port, "/metrics" + query)
    assert status == 200, text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


def value(samples: dict[tuple[str, tuple[tuple[str, str], ...]], float], metric: names.Metric, **labels: str) -> float:
    return samples[metric.name, tuple(sorted(labels.items()))]


def wait_until(condition: Callable[[], bool], what: object = "") -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(OSError, grpc.RpcError):
            if condition():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class HttpCluster:
    """Three brokers that tell over HTTP, one of which has a disk that can be hung."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
        arguments = {each: ("--http", f"{HOST}:{port}") for each, port in self.ports.items()}
        self.cluster = Cluster(directory, 3, {"replica.lag.time.max.ms": "1000"}, arguments=arguments)
        self.hung = directory / "hung"
        site = directory / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(HANGING_SYNCS.format(file=str(self.hung)))
        self.cluster.environments[3] = {"PYTHONPATH": os.pathsep.join((str(site), os.environ.get("PYTHONPATH", "")))}

    def health(self, broker_id: int, service: str = "minilog") -> int:
        with grpc.insecure_channel(f"{HOST}:{self.cluster.ports[broker_id]}") as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    scene = HttpCluster(tmp_path_factory.mktemp("http"))
    try:
        scene.cluster.start()
        scene.cluster.wait_running()
        with Producer({"bootstrap.servers": scene.cluster.bootstrap_servers}) as producer:
            admin = [*programs.MINILOG, "topic", "create", TOPIC, "-b", scene.cluster.bootstrap_servers, "-p", "1"]
            subprocess.run(admin, check=True, capture_output=True)
            for number in range(100):
                producer.send(TOPIC, value=b"%d" % number)
            producer.flush()
        yield scene
    finally:
        scene.cluster.end()


def test_a_broker_that_waits_for_a_majority_lives_and_is_not_ready(tmp_path: pathlib.Path) -> None:
    scene = HttpCluster(tmp_path)
    try:
        scene.cluster.start(1)
        wait_until(lambda: told(scene.ports[1], "/livez") == (200, "alive\n"))
        status, why = told(scene.ports[1], "/readyz")
        assert (status, why.count("\n")) == (503, 1)
        assert "not registered yet" in why
        wait_until(lambda: (names.BROKER_READY.name, ()) in scraped(scene.ports[1]))
        assert value(scraped(scene.ports[1]), names.BROKER_READY) == 0
        wait_until(lambda: scene.health(1) == health_pb2.HealthCheckResponse.NOT_SERVING)
    finally:
        scene.cluster.end()


@proves("CON.4")
def test_a_broker_without_a_console_says_how_to_switch_it_on(scene: HttpCluster) -> None:
    status, text = told(scene.ports[1], "/console")
    assert (status, "--console" in text) == (404, True)
    assert psutil.Process(scene.cluster.processes[1].pid).children() == []


def test_running_brokers_are_ready_and_tell_what_they_have(scene: HttpCluster) -> None:
    wait_until(lambda: all(told(port, "/readyz") == (200, "ready\n") for port in scene.ports.values()))
    found = [scraped(port, f"?topics={TOPIC},none") for port in scene.ports.values()]
    assert sum(value(each, names.ACTIVE_CONTROLLER) for each in found) == 1
    assert sum(value(each, names.PARTITIONS) for each in found) >= 1
    assert all(value(each, names.UNDER_REPLICATED_PARTITIONS) == 0 for each in found)
    assert all(value(each, names.DISK_FREE_BYTES) > 0 for each in found)
    (leader,) = [
        each
        for each in found
        if value(each, names.LEADER_PARTITIONS) and any(name == "minilog_partition_high_watermark" for name, _ in each)
    ]
    assert value(leader, names.PARTITION_HIGH_WATERMARK, topic=TOPIC, partition="0") == 100
    ends = [
        value(leader, names.REPLICA_LOG_END_OFFSET, topic=TOPIC, partition="0", replica=f"{each}") for each in (1, 2, 3)
    ]
    assert ends == [100, 100, 100]
    assert leader["minilog_request_duration_seconds_count", (("kind", "Produce"),)] >= 1
    assert sum(each["minilog_sync_duration_seconds_count", ()] for each in found) > 0
    assert [scene.health(each, "") for each in scene.ports] == [health_pb2.HealthCheckResponse.SERVING] * 3


@pytest.mark.dear("it kills brokers, and others take over")
def test_the_lag_of_a_group_is_told_by_its_coordinator_alone(scene: HttpCluster) -> None:
    group = 'odd "name"\nwith a line'
    settings = {"bootstrap.servers": scene.cluster.bootstrap_servers, "group.id": group}
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        wait_until(lambda: any(True for _ in consumer.poll(timeout=1.0)))
        (partition,) = consumer.assignment()
        consumer.commit({partition: 40})
    shown = group.replace("\n", "\\n")

    def lags() -> list[float]:
        key = (names.GROUP_LAG_RECORDS.name, (("group", shown),))
        return [each[key] for port in scene.ports.values() if key in (each := scraped(port))]

    wait_until(lambda: lags() == [60.0], lags)


def test_health_by_grpc_knows_its_names_and_tells_changes(scene: HttpCluster) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        scene.health(1, "somebody-else")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    with grpc.insecure_channel(f"{HOST}:{scene.cluster.ports[1]}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="minilog"), timeout=10)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=10)
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()
        assert list(stub.Watch(health_pb2.HealthCheckRequest(service="x" * 1000), timeout=10)) == []


def test_other_paths_and_methods_are_refused(scene: HttpCluster) -> None:
    assert told(scene.ports[1], "/")[0] == 404
    assert told(scene.ports[1], "/metrics", "POST")[0] == 405
    status, why = told(scene.ports[1], "/metrics?topics=" + ",".join(f"t{each}" for each in range(50)))
    assert (status, why) == (400, f"topics= names 50 topics: one scrape has at most {names.MAX_TOPICS}\n")


ODD = [
    b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 1000,
    b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n" + b"x" * 100_000,
    b"GET /%00%1b%ff%0a?topics=%00%1b%ff%0a,%0a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics?topics=%00%1b%ff%0a&topics=%zz HTTP/1.1\r\nHost: x\r\nAccept: \xff;q=x\r\n\r\n",
    b"GET http://[::1/readyz HTTP/1.1\r\nHost: [x\r\n\r\n",
    b"HEAD /metrics HTTP/1.0\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.long
def test_no_request_however_odd_ends_the_broker_or_is_its_fault(scene: HttpCluster) -> None:
    """What is left to its event loop ends a broker."""
    chance = random.Random(13)
    good = b"GET /metrics?topics=flights HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"
    spoiled = [bytearray(good) for _ in range(150)]
    for each in spoiled:
        for _ in range(chance.randrange(1, 6)):
            each[chance.randrange(len(each))] = chance.randrange(256)
    for sent in [*ODD, *map(bytes, spoiled)]:
        with contextlib.suppress(OSError), socket.create_connection((HOST, scene.ports[2]), timeout=0.3) as connection:
            connection.sendall(sent)
            connection.recv(1)
    assert told(scene.ports[2], "/livez") == (200, "alive\n")
    assert "Traceback" not in scene.cluster.log_text(2)


def answered(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            found += more
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\x1b[2J\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: " + b"y" * 10 * MAX_HEAD_BYTES,
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_noise_is_refused_and_ends_the_connection(scene: HttpCluster, sent: bytes) -> None:
    with socket.create_connection((HOST, scene.ports[2]), timeout=10) as connection:
        with contextlib.suppress(OSError, grpc.RpcError):
            connection.sendall(sent)
        assert answered(connection)[:10] in (b"HTTP/1.1 4", b"")  # reset, where more was sent than was read
    assert told(scene.ports[2], "/livez")[0] == 200


@pytest.mark.long
def test_requests_that_never_end_are_cut_and_keep_no_probe_out(scene: HttpCluster) -> None:
    """Once: 40 of them kept /livez dead, and 400 took a healthy broker for dead: the oldest make room."""
    address = (HOST, scene.ports[2])
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(address, timeout=2 * LIFE_S)) for _ in range(400)]
        for each in halves:
            with contextlib.suppress(OSError):
                each.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        for _ in range(10):
            assert told(scene.ports[2], "/livez")[0] == 200
            assert told(scene.ports[2], "/readyz")[0] == 200
        closed = 0
        for each in halves:
            each.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                closed += answered(each) == b""
        assert closed >= len(halves) - MOST_WAITING
        for each in halves:
            each.settimeout(2 * LIFE_S)
            assert answered(each) == b"", "or it is still open, which ends in TimeoutError"
    wait_until(lambda: told(scene.ports[2], "/livez")[0] == 200)


def test_a_port_that_is_taken_is_one_sentence(scene: HttpCluster, tmp_path: pathlib.Path) -> None:
    port = free_ports(1)[0]
    command = [*programs.MINILOG, "broker", "--id", "1", "--listen", f"{HOST}:{port}", "--voters", f"1@{HOST}:{port}"]
    command += ["--data-dir", str(tmp_path), "--http", f"{HOST}:{scene.ports[1]}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert f"--http cannot listen on {HOST}:{scene.ports[1]}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_up_fails_on_a_taken_port_that_was_asked_for_and_does_without_a_default_one(
    scene: HttpCluster, tmp_path: pathlib.Path
) -> None:
    command = [
        *programs.MINILOG,
        "up",
        "--brokers",
        "1",
        "--port",
        str(free_ports(1)[0]),
        "--data-dir",
        str(tmp_path / "up"),
    ]
    asked = subprocess.run([*command, "--http-port", str(scene.ports[1])], capture_output=True, text=True, timeout=60)
    assert (asked.returncode, asked.stderr.count("\n")) == (1, 1)
    assert f"port {scene.ports[1]} on {HOST} is taken" in asked.stderr
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else may have it, which is as good
            stack.enter_context(socket.create_server((HOST, 8080)))
        process = stack.enter_context(running_program(command))
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("minilog is ready: ")
        process.terminate()
        assert process.wait(WITHIN_S) == 0
        said = process.stderr.read()
    assert said == f"minilog: port 8080 on {HOST} is taken: broker 1 has no health and metrics. Choose --http-port\n"


def test_logs_are_json_where_nobody_looks(scene: HttpCluster) -> None:
    events = [json.loads(line) for line in scene.cluster.log_text(1).splitlines()]
    assert {"timestamp", "level", "event"} <= set.intersection(*(set(each) for each in events))
    assert [each["broker"] for each in events if each["event"] == "registered"] == [1]


# From here on brokers are spoiled: these stand last.


@pytest.mark.dear("it waits until a bad or full disk is noticed")
def test_a_disk_that_hangs_is_told_and_over_when_it_goes_on(scene: HttpCluster) -> None:
    scene.hung.touch()
    try:
        with Producer(
            {"bootstrap.servers": scene.cluster.bootstrap_servers, "delivery.timeout.ms": 60_000}
        ) as producer:
            sent = producer.send(TOPIC, value=b"hangs")
            wait_until(lambda: "a disk does not answer" in told(scene.ports[3], "/readyz")[1])
            assert told(scene.ports[3], "/livez")[0] == 200
            assert value(scraped(scene.ports[3]), names.DISK_ANSWER) == 2
            scene.hung.unlink()
            sent.result(timeout=60)
    finally:
        scene.hung.unlink(missing_ok=True)
    wait_until(lambda: told(scene.ports[3], "/readyz") == (200, "ready\n"))


@pytest.mark.dear("it kills brokers, and others take over")
def test_a_broker_that_no_controller_answers_is_not_ready(scene: HttpCluster) -> None:
    scene.cluster.kill(2, 3)
    wait_until(lambda: "no controller has answered for" in told(scene.ports[1], "/readyz")[1])
    assert told(scene.ports[1], "/livez")[0] == 200
    assert value(scraped(scene.ports[1]), names.BROKER_FENCED) == 1
