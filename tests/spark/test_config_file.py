"""The option minilog.config.file with the real Spark: source and sink, driver and tasks; and how Java reads a file."""

from __future__ import annotations

import pathlib
import random

import pytest
from pyspark.sql import DataFrame

from minilog.errors import InvalidConfig
from minilog.properties import parse_properties
from tests.rules import proves
from tests.spark.kit import Kit, finish, values


def plan_of(frame: DataFrame) -> str:
    execution = frame._jdf.queryExecution()
    return str(execution.toString()) + str(execution.logical())


@proves("SPF.19")
def test_source_and_sink_need_nothing_but_the_file(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic, other = kit.topic(2), kit.topic(2)
    file = tmp_path / "client.properties"
    file.write_text(f"# Kafka's format\nbootstrap.servers={kit.servers}\nclient.id = by-file\nmax.poll.bytes=100000\n")
    file.chmod(0o600)
    options = {"minilog.config.file": str(file)}
    kit.spark.createDataFrame([("a",), ("b",)], "value string").write.format("minilog").mode("append").options(
        **options, topic=topic
    ).save()
    read = kit.spark.read.format("minilog").options(**options, subscribe=topic).load()
    assert values(read) == ["a", "b"]
    assert "by-file" not in plan_of(read)
    assert kit.servers not in plan_of(read)
    stream = kit.spark.readStream.format("minilog").options(**options, subscribe=topic, startingOffsets="earliest")
    writer = stream.load().select("value").writeStream.format("minilog").options(**options, topic=other)
    finish(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())
    assert values(kit.read(subscribe=other)) == ["a", "b"]


def test_a_file_that_others_can_read_is_told_in_the_first_line(kit: Kit, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={kit.servers}\nsasl.password=hidden\n")
    file.chmod(0o644)
    with pytest.raises(Exception, match="other users may read it: chmod 600") as refused:
        kit.spark.read.format("minilog").options(subscribe="t").option("minilog.config.file", str(file)).load()
    assert "hidden" not in str(refused.value)
    assert "chmod 600" in str(refused.value).split("\n", 1)[0]


PIECES = [
    "a",
    "b",
    "=",
    ":",
    " ",
    "\t",
    "\f",
    "\\",
    "\\",
    "\n",
    "\r",
    "\r\n",
    "#",
    "!",
    "u",
    "u0041",
    "\u00e9",
    "\\u00e9",
]


@pytest.mark.long
def test_a_properties_file_means_what_java_reads_of_it(kit: Kit) -> None:
    """But for the white space around values, which Kafka takes off, and an empty key of which Java has none: where a
    file ends in a lone backslash."""
    jvm = kit.spark._jvm
    drawn = random.Random(20240501)
    for _ in range(300):
        text = "".join(drawn.choice(PIECES) for _ in range(drawn.randrange(30))) + "\nend=1"
        properties = jvm.java.util.Properties()  # type: ignore[union-attr]
        try:
            properties.load(jvm.java.io.StringReader(text))  # type: ignore[union-attr]
        except Exception as error:
            assert "Malformed" in str(error)  # noqa: PT017 - Java's own word, not an error of ours
            with pytest.raises(InvalidConfig, match="hexadecimal"):
                parse_properties(text)
            continue
        expected = {str(key): str(properties.getProperty(key)).strip() for key in properties.stringPropertyNames()}
        assert parse_properties(text) == expected, repr(text)
