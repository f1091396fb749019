"""A secured cluster with the real Spark: a job with just the rules that it needs, what those are told who have not got
them, and that no password is in anything that Spark or a broker shows.

The job runs twice, in a driver process of its own (secured_job.py): as its configuration file says, and as the
environment does, with executors that are processes of their own.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, properties_file
from minilog.admin.security import UserUpsertion
from minilog.config import parse_config
from minilog.errors import AuthenticationFailed
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.security.secret import Secret
from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.table import parse_sink_options, parse_source_options
from tests.rules import proves
from tests.secured import SecuredCluster, running_secured_cluster
from tests.spark.forked_workers import python_of_workers
from tests.spark.secured_job import Plan
from tests.spark.standalone import ENVIRONMENT, run_job

pytestmark = pytest.mark.timeout(290)

MARK = "planted"
PASSWORD, WRONG, IN_OPTION = (f"{MARK}-{name}-{secrets.token_hex(6)}" for name in ("right", "wrong", "option"))
SOURCE, TARGET, HIDDEN = "flights", "copy", "salaries"
RECORDS = [f"record {number}" for number in range(30)]
WRITTEN = 20
WAYS = ["file", pytest.param("environment", marks=pytest.mark.long)]


def rule(name: str, operation: Operation, kind: ResourceKind, resource: str, pattern: Pattern) -> AccessRule:
    return AccessRule(f"User:{name}", "*", operation, kind, resource, pattern, Permission.ALLOW)


# As docs/guides/security.md says that a job needs them.
OF_THE_JOB = [
    rule("job", Operation.READ, ResourceKind.TOPIC, SOURCE, Pattern.LITERAL),
    rule("job", Operation.WRITE, ResourceKind.TOPIC, TARGET, Pattern.LITERAL),
    rule("job", Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, "spark-", Pattern.PREFIXED),
    rule("job", Operation.READ, ResourceKind.GROUP, "report", Pattern.LITERAL),
]
OF_THE_POOR = [
    rule("poor", Operation.DESCRIBE, ResourceKind.TOPIC, topic, Pattern.LITERAL) for topic in (SOURCE, TARGET)
]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    settings = {"flush.policy": "os"}
    with running_secured_cluster(tmp_path_factory.mktemp("secured"), 1, settings) as cluster:
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(each, num_partitions=2, replication_factor=1) for each in (SOURCE, HIDDEN)])
            admin.alter_users([UserUpsertion(each, PASSWORD) for each in ("job", "poor")])
            admin.create_access_rules([*OF_THE_JOB, *OF_THE_POOR])
        with Producer(cluster.client) as producer:
            for each in RECORDS:
                producer.send(SOURCE, each.encode())
        yield cluster


@dataclass(frozen=True)
class Shown:
    """What one run of the job has left: below `directory`, and in `told`, what its driver and executors have logged."""

    directory: pathlib.Path
    told: str
    read: list[str]
    copied: list[str]

    def text(self, name: str) -> str:
        """A file, or all that are below a folder."""
        place = self.directory / name
        files = [place] if place.is_file() else sorted(each for each in place.rglob("*") if each.is_file())
        assert files, f"{place} is empty"
        return "\n".join(each.read_text(errors="replace") for each in files)

    @property
    def refusals(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.text("refusals.json"))
        return found


@pytest.fixture(scope="module", params=WAYS)
def shown(request: pytest.FixtureRequest, secured: SecuredCluster, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    directory = tmp_path_factory.mktemp(request.param)
    environment = dict(ENVIRONMENT)
    truststore = str(secured.folder / "clients.pem")
    if request.param == "file":
        master = "local[2]"
        options = {"minilog.config.file": str(client_file(secured, directory, "job", PASSWORD))}
    else:
        master = "local-cluster[1,1,1024]"
        environment |= {"MINILOG_SASL_USERNAME": "job", "MINILOG_SASL_PASSWORD": PASSWORD}
        options = {
            "kafka.bootstrap.servers": secured.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": truststore,
        }
    refused = {
        "poor": {"minilog.config.file": str(client_file(secured, directory, "poor", PASSWORD))},
        "wrong": {"minilog.config.file": str(client_file(secured, directory, "job", WRONG))},
        "option": {
            "bootstrap.servers": secured.bootstrap_servers,
            "minilog.security.protocol": "SASL_SSL",
            "minilog.sasl.username": "job",
            "kafka.sasl.password": IN_OPTION,
        },
    }
    plan = directory / "plan.json"
    descriptor = os.open(plan, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(Plan(options, refused, SOURCE, TARGET, HIDDEN)), file)
    return run(secured, master, plan, environment)


def client_file(cluster: SecuredCluster, directory: pathlib.Path, name: str, password: str) -> pathlib.Path:
    """As a user of Kafka has it."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file = directory / f"{name}-{secrets.token_hex(2)}.properties"
    file.touch(0o600)
    file.write_text(
        f"bootstrap.servers={cluster.bootstrap_servers}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{name}" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={cluster.folder / 'clients.pem'}\n"
    )
    return file


def run(cluster: SecuredCluster, master: str, plan: pathlib.Path, environment: dict[str, str]) -> Shown:
    """The job, in a driver of its own, to a target that is empty."""
    with Admin(cluster.client) as admin:
        if TARGET in admin.list_topics():
            admin.delete_topics([TARGET])
        deadline = time.monotonic() + 30
        while TARGET in admin.list_topics():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.create_topics([NewTopic(TARGET, num_partitions=2, replication_factor=1)])
    directory = plan.parent / "shown"
    directory.mkdir()
    command = ("tests.spark.secured_job", master, str(plan), str(directory))
    with python_of_workers(plan.parent) as python:
        if master.startswith("local["):
            environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        told, logs = run_job(plan.parent, *command, environment=environment, executors=int("cluster" in master))
    return Shown(directory, logs, told["read"], values(cluster, TARGET))


def values(cluster: SecuredCluster, topic: str) -> list[str]:
    """All that is committed there, sorted."""
    with Admin(cluster.client) as admin:
        partitions = admin.describe_topics([topic])[0].partitions
    ends = sum(each.last_stable_offset or 0 for each in partitions)
    found: list[str] = []
    with Consumer({**cluster.client, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 20
        while sum(consumer.position(each) or 0 for each in consumer.assignment()) < ends:
            assert time.monotonic() < deadline
            found += [each.value.decode() for each in consumer.poll(0.5) if each.value is not None]
    return sorted(found)


@proves("SPF.21")
def test_a_job_reads_and_writes_with_just_these_rules(shown: Shown) -> None:
    assert shown.read == sorted(RECORDS)
    assert shown.copied == sorted([*RECORDS, *map(str, range(WRITTEN))])


@proves("SPF.20")
@pytest.mark.parametrize("tried", ["secret in a batch", "secret in a stream", "secret in a sink"])
def test_a_secret_in_an_option_is_refused(shown: Shown, tried: str) -> None:
    said = first_line(shown.refusals[tried])
    assert "option 'kafka.sasl.password' holds a secret, and options travel with Spark's plans" in said
    assert "minilog.config.file" in said
    assert "MINILOG_SASL_PASSWORD" in said


@proves("SPF.20")
def test_a_table_never_holds_a_secret(shown: Shown) -> None:
    said = first_line(shown.refusals["secret in a table"])
    assert "option 'kafka.sasl.password' holds a secret, and the catalog keeps the options of a table" in said


@proves("SPF.21")
@pytest.mark.parametrize(
    ("tried", "told"),
    [
        ("wrong password", "AuthenticationFailed"),
        ("wrong password of a sink", "AuthenticationFailed"),
        ("topic that is not to be seen", f"option 'subscribe' is '{HIDDEN}': {HIDDEN} does not exist"),
        ("reading", f"User:poor is not allowed to read topic '{SOURCE}': an administrator may allow it"),
        ("reading a stream", f"User:poor is not allowed to read topic '{SOURCE}'"),
        ("writing", "User:poor is not allowed to write transactional id 'spark-write-"),
        ("writing without a transaction", "User:poor is not allowed to idempotent_write cluster"),
        ("group", "User:poor is not allowed to describe group 'report'"),
    ],
)
def test_a_job_without_rights_is_refused_in_one_sentence(shown: Shown, tried: str, told: str) -> None:
    said = shown.refusals[tried]
    assert told in "\n".join(said.splitlines()[:2])
    assert "Traceback" not in said


PLACES = ["events", "checkpoint", "pages", "plans.txt", "progress.json", "processes.txt", "refusals.json", ""]


@proves("SPF.22")
@pytest.mark.parametrize("place", PLACES)
def test_no_password_is_in_what_spark_leaves(shown: Shown, place: str) -> None:
    assert_hidden(shown.text(place))


@proves("SPF.22")
def test_no_password_is_in_what_driver_executors_and_brokers_log(shown: Shown, secured: SecuredCluster) -> None:
    assert_hidden(shown.told)
    assert_hidden(secured.log_text(1))


def test_the_searched_places_show_what_is_no_secret(shown: Shown) -> None:
    """Else it would be searched in the wrong places."""
    assert "SparkListenerSQLExecutionStart" in shown.text("events")
    assert shown.text("checkpoint").count('"flights"')
    assert "StreamingQuery" in shown.text("pages")
    assert shown.text("progress.json").count('"numInputRows": 30')
    assert "tests.spark.secured_job" in shown.text("processes.txt")
    assert "INFO org.apache.spark" in shown.told


@proves("SPF.22")
def test_a_client_shows_no_password(secured: SecuredCluster, tmp_path: pathlib.Path) -> None:
    file = client_file(secured, tmp_path, "job", PASSWORD)
    settings = properties_file(file)
    source = {"subscribe": SOURCE, "minilog.config.file": str(file)}
    sink = {"topic": TARGET, "minilog.config.file": str(file)}
    shown_by = [parse_config(settings), Secret(PASSWORD), UserUpsertion("job", PASSWORD)]
    shown_by += [parse_source_options(source), parse_sink_options(sink)]
    with Admin(settings) as admin, Producer(settings) as producer, Consumer(settings) as consumer:
        assert_hidden(" ".join(f"{each!r} {each}" for each in (*shown_by, admin, producer, consumer)))
    wrong = properties_file(client_file(secured, tmp_path, "job", WRONG))
    with pytest.raises(AuthenticationFailed) as refused, Admin(wrong) as admin:
        admin.list_topics()
    assert_hidden(f"{refused.value!r} {refused.value} {refused.getrepr(showlocals=False)}")


def test_a_password_in_an_option_works_where_it_is_allowed(secured: SecuredCluster) -> None:
    given = {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(secured.folder / "clients.pem"),
        "kafka.sasl.username": "job",
        "kafka.sasl.password": PASSWORD,
        "allowSecretsInOptions": "true",
    }
    with lend(Admin, parse_source_options({**given, "subscribe": SOURCE}).client) as admin:
        assert set(admin.list_topics()) == {SOURCE, TARGET}


def first_line(text: str) -> str:
    return text.splitlines()[0]


def assert_hidden(text: str) -> None:
    """None of the passwords, nor what base64 makes of one."""
    at = text.find(f"{MARK}-")
    assert at < 0, text[max(at - 200, 0) : at + 50]
    for each in (PASSWORD, WRONG, IN_OPTION):
        assert base64.b64encode(each.encode()).decode().rstrip("=")[:-1] not in text
