"""Settings of running brokers: changes under a producer and over restarts, and the sentences of refusals."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from minilog import Admin, NewTopic, Producer
from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, Cluster, running_cluster
from tests.integration.commands import done, minilog
from tests.rules import proves

pytestmark = proves("MD.27")

SEEN_WITHIN_S = 20.0
LAG, LEVEL, RETENTION = "replica.lag.time.max.ms", "log.level", "retention.ms"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    arguments = {2: ("--set", f"{LAG}=7000")}
    with running_cluster(tmp_path_factory.mktemp("running"), arguments=arguments) as cluster:
        yield cluster


def running(cluster: Cluster, broker_id: int, name: str) -> tuple[str, str]:
    """The effective value of a running broker's setting, and its origin."""
    settings = json.loads(done(cluster, "config", "print", "broker", "--id", str(broker_id), "--json"))
    (setting,) = [entry for entry in settings if entry["name"] == name]
    return setting["value"], f"{setting['source']} {setting['where']}".strip()


def wait_until(what: Callable[[], object], wanted: object) -> None:
    deadline_s, seen = time.monotonic() + SEEN_WITHIN_S, None
    while time.monotonic() < deadline_s:
        if (seen := what()) == wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"{seen} is not {wanted}")


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_settings_count_at_once_while_a_producer_writes_and_survive_restarts(cluster: Cluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topics([NewTopic("before", num_partitions=1, replication_factor=3)])
        sent = []
        for number in range(300):
            sent.append(producer.send("before", value=b"%d" % number, partition=0))
            if number == 100:
                done(cluster, "broker", "alter", "--all", "-c", f"{LAG}=20000", "-c", f"{RETENTION}=123456789")
            if number == 200:
                done(cluster, "broker", "alter", "3", "-c", f"{LAG}=30000", "-c", f"{LEVEL}=debug")
        assert [record.result(timeout=60).offset for record in sent] == list(range(300))
        wait_until(lambda: running(cluster, 1, LAG), ("20000", "metadata all brokers"))
        wait_until(lambda: running(cluster, 2, LAG), ("20000", "metadata all brokers"))
        wait_until(lambda: running(cluster, 3, LAG), ("30000", "metadata broker 3"))
        assert running(cluster, 3, LEVEL) == ("debug", "metadata broker 3")
        assert running(cluster, 2, LEVEL)[0] == "info"
        admin.create_topics([NewTopic("later", num_partitions=1, replication_factor=3)])
        before, later = admin.describe_topics(["before", "later"])
        assert RETENTION not in before.configs
        assert later.configs[RETENTION] == "123456789"

    for broker_id in cluster.ports:
        cluster.stop(broker_id)
        cluster.start(broker_id)
        cluster.wait_running()
    assert [running(cluster, port, LAG)[0] for port in cluster.ports] == ["20000", "20000", "30000"]
    kept = json.loads(done(cluster, "broker", "settings", "--json"))
    assert [(setting["id"], setting["name"], setting["value"]) for setting in kept] == [
        (None, LAG, "20000"),
        (None, RETENTION, "123456789"),
        (3, LEVEL, "debug"),
        (3, LAG, "30000"),
    ]
    output = done(cluster, "broker", "alter", "3", "-d", LAG, "-d", LEVEL)
    assert "broker 3: log.level is deleted (before: debug)" in output
    done(cluster, "broker", "alter", "--all", "-d", LAG, "-d", RETENTION)
    wait_until(lambda: running(cluster, 2, LAG), ("7000", "option -c"))
    wait_until(lambda: running(cluster, 3, LAG), ("10000", "default"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--all", "-c", f"{LAG}=0"),
            f"{LAG}=0 (set while running) is not valid: expected a whole number of at least 1",
        ),
        (("--all", "-c", "replica.lag.time=1"), "unknown setting replica.lag.time (set while running): did you mean"),
        (("2", "-c", "advertised.address=a:1"), "advertised.address needs a restart: put it into the file or on the"),
        (("2", "-c", f"{LAG}=1", "-c", "session.keepalive.ms=5"), "session.keepalive.ms needs a restart"),
        (("9", "-c", f"{LAG}=1"), "broker 9 has never registered, and has no settings: the brokers are 1, 2, 3"),
    ],
)
def test_a_wrong_setting_is_refused_and_nothing_of_its_request_is_done(
    cluster: Cluster, arguments: tuple[str, ...], sentence: str
) -> None:
    before = done(cluster, "broker", "settings", "--json")
    result = minilog(cluster, "broker", "alter", *arguments)
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert sentence in result.stderr
    assert done(cluster, "broker", "settings", "--json") == before


def test_a_broker_speaks_for_itself_alone(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    result = minilog(cluster, "config", "print", "broker", "--id", "9")
    assert result.returncode == 1
    assert "broker 9 has never registered" in result.stderr
    with Admin({"bootstrap.servers": f"{HOST}:{cluster.ports[1]}"}) as admin:
        settings = {setting.name: setting.value for setting in admin.broker_config(2)}
    assert settings["stream.port.offset"] == "1000"
    with grpc.insecure_channel(f"{HOST}:{cluster.ports[1]}") as channel:
        request = metadata_pb2.GetBrokerConfigRequest(broker_id=2)
        answer = metadata_pb2_grpc.MetadataServiceStub(channel).GetBrokerConfig(request, timeout=10)
    assert not answer.settings
    assert answer.error.message == "this is broker 1, and only broker 2 knows its own settings: ask that broker"
