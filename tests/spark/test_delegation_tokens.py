"""delegationTokens=true with the real Spark: the driver has a password, its executors have none, and tokens that are
good for ten seconds are renewed and replaced while a stream runs for longer.

The file with the password is named relative to the driver's directory: an executor is a process in another one, and
finds no such file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from minilog import Admin, NewTopic, Producer
from minilog.admin.security import UserUpsertion
from minilog.security.access_rules import Operation, Pattern, ResourceKind
from tests.rules import proves
from tests.secured import SecuredCluster, running_secured_cluster
from tests.spark.standalone import ENVIRONMENT, run_job
from tests.spark.test_secured import rule, values
from tests.spark.token_job import SOURCE, TARGET, WRITTEN

pytestmark = [pytest.mark.timeout(290), pytest.mark.long, proves("SPF.23")]

PASSWORD = f"planted-{secrets.token_hex(8)}"
RECORDS = [f"record {number}" for number in range(20)]
EXPIRY_MS, MAX_MS, RUN_S = 10_000, 15_000, 13
FILE = "job.properties"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    settings = {
        "flush.policy": "os",
        "delegation.token.expiry.time.ms": str(EXPIRY_MS),
        "delegation.token.max.lifetime.ms": str(MAX_MS),
    }
    with running_secured_cluster(tmp_path_factory.mktemp("secured"), 1, settings) as cluster:
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(each, num_partitions=1, replication_factor=1) for each in (SOURCE, TARGET)])
            admin.alter_users([UserUpsertion("job", PASSWORD)])
            admin.create_access_rules(
                [
                    rule("job", Operation.READ, ResourceKind.TOPIC, SOURCE, Pattern.LITERAL),
                    rule("job", Operation.WRITE, ResourceKind.TOPIC, SOURCE, Pattern.LITERAL),
                    rule("job", Operation.WRITE, ResourceKind.TOPIC, TARGET, Pattern.LITERAL),
                    rule("job", Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, "spark-", Pattern.PREFIXED),
                ]
            )
        with Producer(cluster.client) as producer:
            for each in RECORDS:
                producer.send(SOURCE, each.encode())
        yield cluster


@dataclass(frozen=True)
class Shown:
    """What the job has left: below `directory`, in `logs`, and what it has told."""

    directory: pathlib.Path
    logs: str
    told: dict[str, Any]
    audit: list[dict[str, str]]

    @property
    def tokens(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "tokens").read_text().splitlines()]


@pytest.fixture(scope="module")
def shown(secured: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    home = tmp_path_factory.mktemp("driver")
    directory, temporary = home / "shown", home / "tmp"
    directory.mkdir()
    temporary.mkdir()
    file = home / FILE
    file.touch(0o600)
    file.write_text(
        f"bootstrap.servers={secured.bootstrap_servers}\nsecurity.protocol=SASL_SSL\n"
        f"sasl.username=job\nsasl.password={PASSWORD}\nssl.truststore.location={secured.folder / 'clients.pem'}\n"
    )
    environment = {
        **ENVIRONMENT,
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path.cwd()), ENVIRONMENT["PYTHONPATH"]]),
    }
    command = ("tests.spark.token_job", "local-cluster[1,2,1024]", FILE, str(directory), str(RUN_S))
    with news(secured):
        told, logs = run_job(home, *command, environment=environment, executors=1, cwd=home)
    return Shown(directory, logs, told, audited(secured.log_text(1)))


@contextlib.contextmanager
def news(cluster: SecuredCluster) -> Iterator[None]:
    """A record each second, so that there is always something for a task to do."""
    ended = threading.Event()

    def produce() -> None:
        with Producer(cluster.client) as producer:
            for number in itertools.count():
                producer.send(SOURCE, f"news {number}".encode())
                if ended.wait(1.0):
                    return

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def audited(log: str) -> list[dict[str, str]]:
    """The lines of the audit log, whatever stands around them."""
    found = []
    for line in log.splitlines():
        at = line.find('{"')
        if at >= 0 and "principal" in line:
            document = json.loads(line[at:])
            event = document.get("event")
            found.append(json.loads(event) if isinstance(event, str) and event.startswith("{") else document)
    return found


def test_a_job_reads_writes_and_streams_by_tokens(shown: Shown, secured: SecuredCluster) -> None:
    assert shown.told["read"] >= len(RECORDS)
    copied = values(secured, TARGET)
    assert set(copied) >= {*RECORDS, *map(str, range(WRITTEN))}
    assert sum(each.startswith("news") for each in copied) >= RUN_S // 2


def test_no_task_finds_the_password(shown: Shown) -> None:
    """So what the tasks have done they have done by a token."""
    assert f"{FILE} cannot be read" in shown.told["refused"]


def test_a_token_is_renewed_and_in_the_end_replaced(shown: Shown) -> None:
    names = [each["token_id"] for each in shown.tokens]
    assert len(set(names)) > 1, "none was replaced"
    assert len(names) > len(set(names)), "none was renewed"
    assert all(each["period_ms"] == EXPIRY_MS for each in shown.tokens)


def test_tasks_log_in_by_them(shown: Shown) -> None:
    proofs = {each.get("reason", "") for each in shown.audit if each.get("method") == "Authenticate"}
    used = {each["token_id"] for each in shown.tokens if f"the delegation token {each['token_id']} proves it" in proofs}
    assert len(used) > 1


@pytest.mark.parametrize("place", ["events", "checkpoint", "plans.txt", "progress.json"])
def test_neither_password_nor_token_is_in_what_spark_leaves(shown: Shown, place: str) -> None:
    root = shown.directory / place
    files = [root] if root.is_file() else [each for each in root.rglob("*") if each.is_file()]
    assert files
    for each in files:
        assert_hidden(shown, each.read_text(errors="replace"))


def test_neither_is_in_what_driver_executors_and_brokers_log(shown: Shown, secured: SecuredCluster) -> None:
    assert "INFO org.apache.spark" in shown.logs
    assert_hidden(shown, shown.logs)
    assert_hidden(shown, secured.log_text(1))


def assert_hidden(shown: Shown, text: str) -> None:
    for secret in (PASSWORD, *(each["hmac"] for each in shown.tokens)):
        at = text.find(secret)
        assert at < 0, text[max(at - 200, 0) : at]
