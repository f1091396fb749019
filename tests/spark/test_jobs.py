"""jobs/: what is archived comes back as it was; a mirror has each record once, in its partition, in its order; delays
are those that pyarrow makes of the same rows. jobs/typed.py has a file of its own: test_typed_job.py."""

from __future__ import annotations

import importlib
import json
import pathlib
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pyarrow as pa
import pytest

from minilog import Admin, NewTopic, Producer
from minilog_tools.demo.data import FLIGHTS_SCHEMA, WEATHER_SCHEMA, closing_events, load_flights, load_weather
from minilog_tools.demo.expected import expected_delays
from tests.cluster import running_cluster
from tests.rules import proves
from tests.spark.conftest import BROKER_SETTINGS
from tests.spark.kit import WAIT_S, Kit, finish
from tests.spark.typed_kit import send_rows, typed_topic

JOBS = pathlib.Path(__file__).parents[2] / "jobs"
PARTITIONS = 2
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The job of that name; its folder is on the path, as where a script is run."""
    monkeypatch.syspath_prepend(str(JOBS))
    return importlib.import_module(request.param)


def _at(number: int) -> datetime:
    return datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) + timedelta(hours=number)


def _send(servers: str, topic: str, numbers: range) -> None:
    """Records of all shapes: without key, value or headers too."""
    with Producer({"bootstrap.servers": servers}) as producer:
        futures = [
            producer.send(
                topic,
                None if number % 7 == 0 else f"value {number}".encode(),
                key=None if number % 3 == 0 else f"key {number % 5}".encode(),
                partition=number % PARTITIONS,
                headers=[("number", str(number).encode()), ("none", b"")] if number % 2 else None,
                timestamp=int(_at(number).timestamp() * 1000),
            )
            for number in numbers
        ]
        for future in futures:
            future.result(timeout=WAIT_S)


def _rows(kit: Kit, servers: str, topic: str) -> list[Row]:
    """What is in a topic, partition after partition, in the order of offsets, each of which comes once."""
    frame = kit.read(subscribe=topic, includeHeaders="true", bootstrap__servers=servers)
    read = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    assert len({(row.partition, row.offset) for row in read}) == len(read)
    return [
        (
            row.partition,
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            [(each.key, each.value and bytes(each.value)) for each in row.headers or []],
            int(row.timestamp.timestamp() * 1000),
        )
        for row in read
    ]


@pytest.mark.long
@pytest.mark.parametrize("job", ["archive"], indirect=True)
def test_an_archive_goes_on_where_it_was_and_comes_back_as_it_was(
    job: ModuleType, kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic, again = kit.topic(PARTITIONS), kit.topic(PARTITIONS)
    directory = str(tmp_path / "archive")
    for numbers in (range(40), range(40, 100)):
        _send(kit.servers, topic, numbers)
        finish(
            job.keep(kit.spark, job.ArchiveOptions(kit.servers, topic, directory)).trigger(availableNow=True).start()
        )
    archived = kit.spark.read.parquet(directory)
    assert archived.count() == 100
    assert {row.day for row in archived.collect()} == {_at(number).date() for number in range(100)}
    job.restore(kit.spark, job.ArchiveOptions(kit.servers, again, directory))
    assert _rows(kit, kit.servers, again) == _rows(kit, kit.servers, topic)


@pytest.mark.parametrize("job", ["mirror"], indirect=True)
def test_a_mirror_in_another_cluster_has_each_record_once(job: ModuleType, kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic(PARTITIONS)
    with running_cluster(tmp_path / "brokers", brokers=1, settings=BROKER_SETTINGS) as other:
        with Admin({"bootstrap.servers": other.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
        options = job.MirrorOptions(kit.servers, other.bootstrap_servers, topic, str(tmp_path / "checkpoint"))
        for numbers in (range(30), range(30, 80)):
            _send(kit.servers, topic, numbers)
            finish(job.mirror(kit.spark, options).trigger(availableNow=True).start())
        assert _rows(kit, other.bootstrap_servers, topic) == _rows(kit, kit.servers, topic)


@pytest.mark.long
@pytest.mark.parametrize("job", ["delays"], indirect=True)
def test_delays_of_typed_topics_go_on_where_they_were(job: ModuleType, kit: Kit, tmp_path: pathlib.Path) -> None:
    flights = load_flights(3_000)
    weather = load_weather(flights["time"][-1].as_py())
    names = [typed_topic(kit, schema) for schema in (FLIGHTS_SCHEMA, WEATHER_SCHEMA)]
    topic = kit.topic(PARTITIONS)
    options = job.DelaysOptions(kit.servers, str(tmp_path / "checkpoint"), *names, topic, trigger="0 seconds")
    assert job.read_topic(kit.spark, options, names[0], job.FLIGHTS_COLUMNS).columns == job.FLIGHTS_COLUMNS.split(",")
    closing = [pa.Table.from_batches([each]) for each in closing_events()]
    expected = expected_delays(flights, weather)
    assert len(expected) > 50
    for parts in ((flights[:1_700], weather[:100]), (flights[1_700:], weather[100:]), closing):
        for name, rows in zip(names, parts, strict=True):
            send_rows(kit, name, rows)
        query = job.build_query(kit.spark, options)
        query.processAllAvailable()
        query.stop()
    found = kit.read(subscribe=topic).collect()
    assert {bytes(each.key).decode(): json.loads(bytes(each.value)) for each in found} == expected
    assert len(found) == len(expected)


@proves("SPC.1")
def test_a_job_runs_by_spark_submit(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic(PARTITIONS)
    _send(kit.servers, topic, range(20))
    submit = [str(pathlib.Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
    verb = [str(JOBS / "archive.py"), "keep", "--bootstrap-servers", kit.servers, "--topic", topic]
    directory = str(tmp_path / "archive")
    done = subprocess.run([*submit, *verb, "--directory", directory], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert kit.spark.read.parquet(directory).count() == 20
