"""The Python code of the documents, run: one cluster for each document, whose blocks are run in their order.

What differs from what a reader types are addresses, folders and what ends a block that would go on for ever. Names
that a document takes for granted (`frame`) are given.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from minilog import Admin, NewTopic, Producer, schema_from_ddl
from tests import documents, programs
from tests.cluster import Cluster, running_cluster
from tests.rules import proves
from tests.spark.conftest import BROKER_SETTINGS

pytestmark = proves("DOC.8")

WAIT_S = 40.0
TYPED = "carrier string NOT NULL, flight int, delay int, distance double, scheduled timestamp"
FOLDERS = ("/tmp/", "/data/", "/etc/minilog/")
ENDS = {"while True:": "for _ in range(5):"}

SPARK_PAGES = (
    "docs/guides/spark.md",
    "docs/guides/spark-reading.md",
    "docs/guides/spark-writing.md",
    "docs/guides/spark-operating.md",
)


@dataclass(frozen=True)
class Reader:
    """A reader that types the code of a document, with a cluster and a folder of its own."""

    spark: SparkSession
    cluster: Cluster
    admin: Admin
    folder: pathlib.Path
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    def topic(self, *topics: str) -> None:
        self.admin.create_topics([NewTopic(topic, num_partitions=3) for topic in topics])

    def send(self, topic: str, **values: str) -> None:
        """One record for each key."""
        with Producer({"bootstrap.servers": self.servers}) as producer:
            for key, value in values.items():
                producer.send(topic, value.encode(), key=key.encode()).result(timeout=WAIT_S)

    def read(self, topic: str) -> list[str]:
        """The values of a topic."""
        reader = self.spark.read.format("minilog").option("bootstrap.servers", self.servers).option("subscribe", topic)
        return sorted(row.text for row in reader.load().selectExpr("string(value) AS text").collect())

    def runs(self, document: str, changes: Mapping[str, str] | None = None) -> Iterator[documents.Block]:
        """Run the blocks of a document, one at each step, and give each that was run."""
        places = {"127.0.0.1:9092": self.servers, **dict.fromkeys(FOLDERS, f"{self.folder}/")}
        for block in documents.blocks(document):
            if block.language != "python" or block.reason:
                continue
            code = block.code
            for shown, ours in {**(changes or {}), **places}.items():
                code = code.replace(shown, ours)
            exec(compile(code, block.place, "exec"), self.names)
            yield block

    def types(self, step: documents.Step) -> None:
        """Run a command, and compare its output with the document: lines in any order, with no others unless the
        document has `...`."""
        ended = programs.run(*step.words, stdin=step.stdin, environment={"MINILOG_BOOTSTRAP_SERVERS": self.servers})
        printed = [re.sub(r"\d{13}", "TIME", line) for line in (ended.stdout + ended.stderr).splitlines()]
        shown = [re.sub(r"\d{13}", "TIME", line) for line in step.shown if line != "..."]
        assert ended.returncode == 0, ended.stderr
        assert set(shown) <= set(printed)
        assert "..." in step.shown or sorted(shown) == sorted(printed)

    def finish_queries(self) -> None:
        """Let a query of a block read all records, and end it."""
        for query in self.spark.streams.active:
            query.processAllAvailable()
            query.stop()

    def runs_all(self, document: str, changes: Mapping[str, str] | None = None) -> int:
        return sum(1 for _ in self.runs(document, changes))


@pytest.fixture
def reader(spark: SparkSession, tmp_path: pathlib.Path) -> Iterator[Reader]:
    with (
        running_cluster(tmp_path / "brokers", brokers=3, settings=BROKER_SETTINGS) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
    ):
        yield Reader(spark, cluster, admin, tmp_path)
        for query in spark.streams.active:
            query.stop()
        spark.sql("DROP TABLE IF EXISTS flights")


def test_the_readme(reader: Reader) -> None:
    reader.topic("flights", "late")
    reader.send("flights", UA="late", AA="on time", DL="late")
    assert reader.runs_all("README.md") == 1
    assert reader.read("late") == ["late", "late"]


def test_five_minutes(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    commands = iter(documents.steps("docs/start.md"))
    assert next(commands).words[0] == "up"
    for _ in range(6):
        reader.types(next(commands))
    steps = reader.runs("docs/start.md")
    next(steps)
    assert "RecordMetadata(topic='flights', partition=0, offset=1, timestamp=" in capfd.readouterr().out
    next(steps)
    read = capfd.readouterr().out.splitlines()
    assert sorted(read) == sorted(
        ["1 0 b'UA' b'late'", "0 0 b'AA' b'on time'", "0 1 b'B6' b'late'", "2 0 b'DL' b'late'"]
    )
    reader.types(next(commands))
    next(steps)
    shown = capfd.readouterr().out
    assert shown.startswith("+---+-----+\n|key|value|\n+---+-----+\n")
    assert sorted(line for line in shown.splitlines()[3:] if line.startswith("| ")) == [
        "| B6| late|",
        "| DL| late|",
        "| UA| late|",
    ]
    assert next(steps, None) is None
    reader.types(next(commands))
    reader.cluster.kill(1)
    after_the_kill, health = commands
    reader.types(dataclasses.replace(after_the_kill, words=after_the_kill.words[:-2]))  # without its addresses
    assert health.words[:2] == ["cluster", "health"]


def test_groups(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    reader.topic("flights")
    reader.send("flights", UA="late")
    assert reader.runs_all("docs/guides/groups.md", ENDS) == 2
    assert capfd.readouterr().out.split()[-1] == "b'late'"
    assert sum(place.offset for place in reader.admin.describe_group("report").offsets) == 1


def test_queues(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    reader.topic("orders", "parcels")
    reader.send("orders", A="tea", B="bread")
    reader.names["spark"] = reader.spark
    assert reader.runs_all("docs/guides/queues.md", ENDS) == 2
    reader.finish_queries()
    assert reader.read("parcels") == ["BREAD", "TEA"]
    printed = [line.split() for line in capfd.readouterr().out.splitlines() if line.endswith(" 1")]
    assert sorted(value for _, value, _ in printed) == ["b'bread'", "b'tea'"]
    for queue in ("shipping", "packing"):
        places = reader.admin.describe_queue(queue).partitions
        assert all(place.backlog == 0 and not place.ranges for place in places)


def test_transactions(reader: Reader) -> None:
    reader.topic("flights", "copies", "totals")
    reader.send("flights", UA="late", AA="on time")
    assert reader.runs_all("docs/guides/transactions.md", ENDS) == 1
    assert reader.read("copies") == ["late", "on time"]
    assert sum(map(int, reader.read("totals"))) == 2
    assert sum(place.offset for place in reader.admin.describe_group("copier").offsets) == 2
    assert reader.runs_all("docs/guides/transactions.md", ENDS) == 1
    assert reader.read("copies") == ["late", "on time"]


def test_typed_topics(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    schema = schema_from_ddl(TYPED, key_columns=["carrier"], timestamp_column="scheduled")
    reader.admin.create_topics([NewTopic("flights", num_partitions=3, schema=schema)])
    assert reader.runs_all("docs/guides/typed.md") == 5
    shown = capfd.readouterr().out
    assert "{'carrier': 'EV', 'delay': 47}" in shown
    assert "|     EV|   47|" in shown
    assert "|     EV|        47|" in shown


def test_reading_rows_in_a_notebook(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    assert reader.runs_all("docs/guides/reading.md") == 8
    shown = capfd.readouterr().out
    assert "scan of the newest row of each key of topic 'accounts'" in shown
    assert "[500 rows x 1 columns]" in shown
    said = (documents.ROOT / "docs/guides/reading.md").read_text().partition("    scan of topic")[2].splitlines()
    for line in said[1:6]:  # what the explanation of the page says, but for ids and bytes
        assert line.strip() in [each.strip() for each in shown.splitlines()]
    assert "1 of them were left out, with 90 offsets" in shown
    assert shown.splitlines()[0] == "72"
    assert "│ UA      │      36 │   267 │" in shown


def test_spark(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    reader.topic("flights", "late", "copies", "totals")
    reader.admin.create_topics([NewTopic("typed-flights", schema=schema_from_ddl("carrier string, delay int"))])
    accounts = schema_from_ddl("id int, balance double", ["id"])
    reader.admin.create_topics([NewTopic("accounts", schema=accounts)])
    with Producer({"bootstrap.servers": reader.servers}) as producer:
        producer.send("typed-flights", {"carrier": "AA", "delay": 33}).result(timeout=WAIT_S)
        for balance in (9.0, -5.0):
            producer.send("accounts", {"id": 1, "balance": balance}).result(timeout=WAIT_S)
    reader.send("flights", UA="late", AA="on time")
    secret_file = reader.folder / "job.properties"
    secret_file.write_text("client.id=job\n")
    then: dict[str, Callable[[], object]] = {
        "late = pyspark_minilog.read(": lambda: equal(reader.names["late"].collect(), [("AA", 33)]),
        "accounts = pyspark_minilog.read(": lambda: equal(reader.names["accounts"].collect(), [(1, -5.0)]),
        '"/data/checkpoints/copies"': reader.finish_queries,
        "def write(": lambda: reader.names["write"](reader.spark.sql("SELECT 'again' AS value"), 0),
        "def split(": reader.finish_queries,
        "pyspark_minilog.observe(": lambda: reader.names["observation"].stop(),
        "def in_a_thread(": lambda: in_a_thread(reader),
        'secured = {"bootstrap.servers"': lambda: equal(reader.names["flights"].columns[:2], ["key", "value"]),
    }
    changes = {'spark, "flights", columns': 'spark, "typed-flights", columns'}
    ran = []
    for page in SPARK_PAGES:
        for block in reader.runs(page, changes):
            for beginning, step in then.items():
                if beginning in block.code:
                    step()
                    ran.append(beginning)
    assert ran == list(then)
    words = capfd.readouterr().out.replace(" ", "")
    assert "|late|1|" in words  # what the SQL shows
    assert "|ontime|1|" in words
    assert reader.read("late") == ["by a thread", "late"]
    assert reader.read("copies") == ["again", "late", "late", "on time", "on time"]
    assert reader.read("totals") == ["2"]
    assert sum(place.offset for place in reader.admin.describe_group("split").offsets) == 2


def equal(value: object, expected: object) -> None:
    assert value == expected


def in_a_thread(reader: Reader) -> None:
    reader.names["frame"] = reader.spark.sql("SELECT 'by a thread' AS value")
    thread = threading.Thread(target=reader.names["in_a_thread"])
    thread.start()
    thread.join(WAIT_S)


def test_moving_from_kafka(reader: Reader, capfd: pytest.CaptureFixture[str]) -> None:
    """Kafka's own source is not here: minilog's has the same options and columns, and reads another topic."""
    reader.topic("flights", "flights-in-kafka")
    reader.send("flights-in-kafka", DL="on time")
    changes = {
        'format("kafka")': 'format("minilog")',
        "127.0.0.1:29092": reader.servers,
        "query.awaitTermination()": "query.processAllAvailable(); query.stop()",
    }
    assert reader.runs_all("docs/guides/from-kafka.md", changes) == 2
    assert capfd.readouterr().out.splitlines()[:2] == ["0", "b'UA' b'late'"]
    assert reader.read("flights") == ["late", "on time"]
    for _, words in documents.commands("docs/guides/from-kafka.md"):
        if words[0] == "group":
            reader.types(documents.Step(["group", "seek", "of-kafka", *words[3:]], stdin="", shown=["..."]))
    places = {place.partition: place.offset for place in reader.admin.describe_group("of-kafka").offsets}
    assert places == {0: 0, 1: 0, 2: 0}


def test_every_document_with_python_is_run_by_a_test_here() -> None:
    text = pathlib.Path(__file__).read_text()
    with_code = {block.document for block in documents.all_blocks("python") if not block.reason}
    assert len(with_code) > 6
    assert not [document for document in with_code if f'"{document}"' not in text]
