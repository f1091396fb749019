"""The peers, as published artifacts of fixed versions: fetched once into a directory, and never part of the product.

    Kafka              Maven Central      with its own perf tools; needs java and mvn
    spark-sql-kafka    Maven Central      needs mvn
    NATS JetStream     Go module proxy    the server, and the command line's bench; needs go

What cannot be had is an `Unavailable` with the reason and the remedy. Then our side is measured alone, which is said.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Sequence

KAFKA_VERSION = "4.4.0"
SPARK_KAFKA_VERSION = "4.2.0"  # the newest that is published: 4.3.0 is not
NATS_SERVER_VERSION = "v2.15.2"
NATS_CLI_VERSION = "v0.5.1"
FETCH_WITHIN_S = 900.0

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>benchmarks</groupId><artifactId>{name}</artifactId><version>1</version><dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}</dependency>"
_WITHOUT_SPARK = (  # the session has these; another Scala library beside its own does harm
    "<exclusions><exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>"
    "<exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>"
    "<exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class Unavailable(Exception):
    """A peer cannot be had here; the text says why, and what to do."""


def kafka_jars(directory: pathlib.Path) -> pathlib.Path:
    """A folder of jars: the broker, its clients and its tools. Raises Unavailable."""
    _require("java", "install Java 17 or newer")
    wanted = [
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, ""),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION, ""),
        ("org.slf4j", "slf4j-nop", "1.7.36", ""),
    ]
    return _maven(directory / f"kafka-{KAFKA_VERSION}", "kafka", wanted)


def spark_kafka_jars(directory: pathlib.Path) -> list[pathlib.Path]:
    """What a Spark session needs besides its own jars to read and write Kafka. Raises Unavailable."""
    wanted = [("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_KAFKA_VERSION, _WITHOUT_SPARK)]
    return sorted(_maven(directory / f"spark-sql-kafka-{SPARK_KAFKA_VERSION}", "spark-kafka", wanted).glob("*.jar"))


def nats_programs(directory: pathlib.Path) -> pathlib.Path:
    """A folder with the programs nats-server and nats. Raises Unavailable."""
    _require("go", "install Go")
    folder = directory / f"nats-{NATS_SERVER_VERSION}-{NATS_CLI_VERSION}"
    if not (folder / ".complete").exists():
        for module in (
            f"github.com/nats-io/nats-server/v2@{NATS_SERVER_VERSION}",
            f"github.com/nats-io/natscli/nats@{NATS_CLI_VERSION}",
        ):
            _run(["env", f"GOBIN={folder}", "go", "install", module], "the Go module proxy")
        (folder / ".complete").touch()
    return folder


def _maven(folder: pathlib.Path, name: str, wanted: Sequence[tuple[str, str, str, str]]) -> pathlib.Path:
    _require("mvn", "install Maven")
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        dependencies = "".join(_DEPENDENCY.format(*each) for each in wanted)
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(name=name, dependencies=dependencies))
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={folder}"], "Maven Central")
        (folder / ".complete").touch()
    return folder


def _require(program: str, remedy: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(f"there is no {program}: {remedy}")


def _run(command: list[str], source: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{source} did not answer within {FETCH_WITHIN_S:.0f} s: {' '.join(command)}") from None
    except subprocess.CalledProcessError as error:
        words = (error.stderr or error.stdout).strip().splitlines()[-3:]
        raise Unavailable(f"{source}: {' '.join(command)} failed: {' / '.join(words)}") from None
