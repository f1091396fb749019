"""Rows above batch.size: where to cut is not what is too large, which is said by the topic's max.message.bytes."""

from __future__ import annotations

import hashlib
import importlib
import os
import pathlib

import pytest
from pyspark.sql import DataFrame

from minilog import NewTopic
from tests.rules import proves
from tests.spark.kit import Collected, Kit, finish, run_available

pytestmark = proves("SPF.34")

MIB = 1 << 20
SIZES = [10, 2 * MIB, 50 * MIB, 20]


def large_topic(kit: Kit, name: str, partitions: int = 1) -> str:
    topic = f"{kit.topic()}-{name}"
    kit.admin.create_topics([NewTopic(topic, num_partitions=partitions, configs={"max.message.bytes": str(64 * MIB)})])
    return topic


def large_rows(kit: Kit, directory: pathlib.Path) -> DataFrame:
    """Of bytes that do not compress, from files, as a job would have them."""
    for number, size in enumerate(SIZES):
        (directory / str(number)).write_bytes(os.urandom(size))
    return kit.spark.read.format("binaryFile").load(str(directory)).selectExpr("content AS value")


def digests(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("sha2(value, 256)").collect())


def write(kit: Kit, frame: DataFrame, topic: str) -> None:
    options = {"bootstrap.servers": kit.servers, "topic": topic}
    frame.write.format("minilog").mode("append").options(**options).save()


@pytest.mark.long
def test_rows_of_2_and_of_50_mib_are_written_read_and_mirrored(
    kit: Kit, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sink = large_topic(kit, "source"), large_topic(kit, "sink")
    (tmp_path / "rows").mkdir()
    rows = large_rows(kit, tmp_path / "rows")
    expected = sorted(hashlib.sha256(each.read_bytes()).hexdigest() for each in (tmp_path / "rows").iterdir())
    write(kit, rows, source)
    assert digests(kit.read(subscribe=source)) == expected
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "jobs"))
    job = importlib.import_module("mirror")
    options = job.MirrorOptions(kit.servers, kit.servers, source, str(tmp_path / "checkpoint"), to_topic=sink)
    finish(job.mirror(kit.spark, options).trigger(availableNow=True).start())
    assert digests(kit.read(subscribe=sink)) == expected


def test_a_stream_reads_one_above_its_bytes_per_trigger(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic, collected = large_topic(kit, "limited"), Collected()
    rows = kit.spark.range(3).selectExpr(f"CAST(repeat(CAST(id AS STRING), {2 * MIB}) AS BINARY) AS value")
    write(kit, rows, topic)
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=1000)
    run_available(frame, collected, tmp_path)
    assert sorted(len(value) for value in collected.values) == [2 * MIB] * 3


def test_a_row_that_is_too_large_is_refused_with_its_setting(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()  # of the default, 8 MiB
    (tmp_path / "one").write_bytes(os.urandom(20 * MIB))
    rows = kit.spark.read.format("binaryFile").load(str(tmp_path)).selectExpr("content AS value")
    with pytest.raises(Exception, match=r"max\.message\.bytes") as refused:
        write(kit, rows, topic)
    assert "batch.size" not in str(refused.value)
    assert kit.read(subscribe=topic).count() == 0
