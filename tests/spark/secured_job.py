"""A driver program for test_secured.py: a job on a secured cluster, and all that Spark shows of it, in files.

    python -m tests.spark.secured_job MASTER PLAN DIRECTORY

PLAN: a JSON file, see `Plan`. Below DIRECTORY: `events` (event log), `checkpoint`, `pages` (Spark's UI and its REST
API), `plans.txt`, `progress.json`, `processes.txt`, and `refusals.json`, what Spark says of each thing that is refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.cluster import free_ports

_WAIT_S = 90
_ROWS = 20
_PAGES = (
    "jobs/",
    "stages/",
    "storage/",
    "environment/",
    "executors/",
    "SQL/",
    "SQL/execution/?id=0",
    "SQL/execution/?id=1",
    "StreamingQuery/",
    "api/v1/applications",
)
_OF_APPLICATION = ("environment", "sql?details=true&planDescription=true&length=1000", "jobs", "stages?details=true")


@dataclass(frozen=True, slots=True)
class Plan:
    """`options`: how the job says who it is; `refused`: options by name, of those who may not do what they try."""

    options: dict[str, str]
    refused: dict[str, dict[str, str]]
    source: str
    target: str
    hidden: str


def session(master: str, directory: pathlib.Path) -> SparkSession:
    """One that shows all it can."""
    events = directory / "events"
    events.mkdir()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_ports(1)[0]),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.logBlockUpdates.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    builder = SparkSession.builder.master(master).appName("secured")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Job:
    """What is done, as whoever the options say."""

    def __init__(self, spark: SparkSession, plan: Plan, directory: pathlib.Path) -> None:
        self.spark = spark
        self.plan = plan
        self.directory = directory

    def read(self, options: dict[str, str], topic: str) -> DataFrame:
        return self.spark.read.format("minilog").options(**options, subscribe=topic).load()

    def write(self, options: dict[str, str], **more: str) -> None:
        rows = self.spark.range(_ROWS).selectExpr("string(id) AS value")
        rows.write.format("minilog").mode("append").options(**options, topic=self.plan.target, **more).save()

    def copy(self, options: dict[str, str], checkpoint: str, **more: str) -> StreamingQuery:
        """Topic to topic, to its end."""
        source = {"subscribe": self.plan.source, "startingOffsets": "earliest", **more}
        stream = self.spark.readStream.format("minilog").options(**options, **source)
        writer = stream.load().select("key", "value").writeStream.format("minilog")
        writer = writer.options(**options, topic=self.plan.target).queryName("copy")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        if not query.awaitTermination(_WAIT_S):
            raise TimeoutError("the query does not end")
        return query

    def create_table(self, options: dict[str, str]) -> None:
        said = ", ".join(f"`{name}` '{value}'" for name, value in (options | {"subscribe": self.plan.source}).items())
        self.spark.sql(f"CREATE TABLE kept USING minilog OPTIONS ({said})")

    def refusals(self) -> dict[str, str]:
        """What Spark says, by what was tried."""
        refused, hidden = self.plan.refused, self.plan.hidden
        poor, checkpoint = refused["poor"], str(self.directory / "refused")
        tried: dict[str, Callable[[], object]] = {
            "secret in a batch": lambda: self.read(refused["option"], self.plan.source),
            "secret in a stream": lambda: self.copy(refused["option"], checkpoint + "-1"),
            "secret in a sink": lambda: self.write(refused["option"]),
            "secret in a table": lambda: self.create_table(refused["option"]),
            "wrong password": lambda: self.read(refused["wrong"], self.plan.source).collect(),
            "wrong password of a sink": lambda: self.write(refused["wrong"]),
            "topic that is not to be seen": lambda: self.read(self.plan.options, hidden).collect(),
            "reading": lambda: self.read(poor, self.plan.source).collect(),
            "reading a stream": lambda: self.copy(poor, checkpoint + "-2"),
            "writing": lambda: self.write(poor),
            "writing without a transaction": lambda: self.write(poor, exactlyOnce="false"),
            "group": lambda: self.copy(
                poor, checkpoint + "-3", **{"minilog.group.id": "report", "startingOffsets": "group"}
            ),
        }
        return {name: _refusal(work) for name, work in tried.items()}


def _refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return "nothing was refused"


def plan_text(frame: DataFrame) -> str:
    """All that explain shows."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode=mode)
    return shown.getvalue() + str(frame._jdf.queryExecution().logical()) + repr(frame)


def keep_pages(spark: SparkSession, run_id: str, folder: pathlib.Path) -> None:
    """What the UI shows, page by page."""
    folder.mkdir()
    base = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    pages = [*_PAGES, f"StreamingQuery/statistics/?id={run_id}"]
    pages += [f"api/v1/applications/{application}/{each}" for each in _OF_APPLICATION]
    for number, page in enumerate(pages):
        with urllib.request.urlopen(f"{base}/{page}", timeout=_WAIT_S) as answer:
            content = answer.read()
        (folder / f"{number}.txt").write_bytes(page.encode() + b"\n" + content)


def main() -> None:
    """Do the job."""
    master, plan_file, place = sys.argv[1:]
    directory, plan = pathlib.Path(place), Plan(**json.loads(pathlib.Path(plan_file).read_text()))
    spark = session(master, directory)
    job = Job(spark, plan, directory)
    query_name = directory.parent.name  # another one in each run: what is committed under a name is not written again
    frame = job.read(plan.options, plan.source)
    found = sorted(bytes(row.value).decode() for row in frame.collect())
    (directory / "plans.txt").write_text(plan_text(frame))
    job.write(plan.options, transactionalId=f"spark-{query_name}", transactionVersion="1")
    query = job.copy(plan.options, str(directory / "checkpoint"), **{"minilog.group.id": "report"})
    progress = [json.loads(each.json) for each in query.recentProgress]
    (directory / "progress.json").write_text(json.dumps([*progress, query.status, repr(query)]))
    (directory / "refusals.json").write_text(json.dumps(job.refusals(), indent=1))
    processes = subprocess.run(["ps", "-efww"], capture_output=True, text=True, check=True)
    (directory / "processes.txt").write_text(processes.stdout)
    keep_pages(spark, str(query.runId), directory / "pages")
    application = spark.sparkContext.applicationId
    spark.stop()
    print(json.dumps({"read": found, "application": application}), flush=True)


if __name__ == "__main__":
    main()
