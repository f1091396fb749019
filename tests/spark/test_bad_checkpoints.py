"""A checkpoint that cannot be gone on from, or that two queries write under: refused clearly, and nothing written."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tests.rules import proves
from tests.spark.kit import WAIT_S, Kit, edit_checkpoint, values
from tests.spark.standalone import ENVIRONMENT


def copy(kit: Kit, source: str, sink: str, checkpoint: pathlib.Path, **options: object) -> StreamingQuery:
    """A query from topic to topic that goes on until it is stopped."""
    frame = kit.read_stream(**{"subscribe": source, "startingOffsets": "earliest", **options}).select("value")
    writer = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", sink)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def copy_available(kit: Kit, source: str, sink: str, checkpoint: pathlib.Path, **options: object) -> None:
    """The same to the end of what is there; raises what the query raises."""
    query = copy(kit, source, sink, checkpoint, **options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def end_of(kit: Kit, topic: str) -> int | None:
    """Behind all that ever was written to it, committed or not."""
    return kit.admin.describe_topics([topic])[0].partitions[0].log_end_offset


def refused(kit: Kit, source: str, sink: str, checkpoint: pathlib.Path, **options: object) -> str:
    """What the query says when it is refused; it has written nothing."""
    before = end_of(kit, sink)
    with pytest.raises(StreamingQueryException) as refusal:
        copy_available(kit, source, sink, checkpoint, **options)
    assert end_of(kit, sink) == before
    return str(refusal.value)


@pytest.fixture
def begun(kit: Kit, tmp_path: pathlib.Path) -> tuple[str, str, pathlib.Path]:
    """Source, sink and checkpoint of a query that has copied one record, and has another one to copy."""
    source, sink, checkpoint = kit.topic(), kit.topic(), tmp_path / "checkpoint"
    kit.send(source, ["a"])
    copy_available(kit, source, sink, checkpoint)
    kit.send(source, ["b"])
    return source, sink, checkpoint


@proves("SPX.1")
def test_a_start_at_offsets_of_another_topic_is_refused(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a"])
    message = refused(kit, source, sink, tmp_path, startingOffsets='{"other":{"0":0}}')
    assert f"it leaves out {source}-0 and it names other-0, which this query does not read" in message


@proves("SPX.3")
def test_a_checkpoint_of_another_topic_is_refused(kit: Kit, begun: tuple[str, str, pathlib.Path]) -> None:
    source, sink, checkpoint = begun
    other = kit.topic()
    kit.send(other, ["x", "y"])
    message = refused(kit, other, sink, checkpoint)
    assert f"partition {source}-0, read to offset 1, is in the checkpoint, but the query does not ask for it" in message


@proves("SPX.2")
def test_a_topic_that_was_taken_out_is_let_go_by_one_run_that_says_so(
    kit: Kit, begun: tuple[str, str, pathlib.Path]
) -> None:
    source, sink, checkpoint = begun
    other = kit.topic()
    copy_available(kit, f"{source},{other}", sink, checkpoint)
    kit.send(source, ["c"])
    assert "set failOnDataLoss to false for one run" in refused(kit, other, sink, checkpoint)
    copy_available(kit, other, sink, checkpoint, failOnDataLoss="false")  # with nothing else to read
    kit.send(other, ["x"])
    copy_available(kit, other, sink, checkpoint)
    assert values(kit.read(subscribe=sink)) == ["a", "b", "x"]
    copy_available(kit, f"{source},{other}", sink, checkpoint)  # it goes on where it was
    assert values(kit.read(subscribe=sink)) == ["a", "b", "c", "x"]


@proves("SPX.3")
def test_a_checkpoint_of_another_source_is_refused(kit: Kit, begun: tuple[str, str, pathlib.Path]) -> None:
    source, sink, checkpoint = begun
    edit_checkpoint(checkpoint, {"logOffset": 4})
    message = refused(kit, source, sink, checkpoint)
    assert "another source wrote it. Start the query with a new checkpointLocation" in message


@proves("SPX.4")
def test_a_checkpoint_of_a_newer_version_is_refused(kit: Kit, begun: tuple[str, str, pathlib.Path]) -> None:
    source, sink, checkpoint = begun
    edit_checkpoint(checkpoint, {"__epochs": {source: {"0": 7}}})
    message = refused(kit, source, sink, checkpoint)
    assert "a newer version of minilog wrote it. Upgrade pyspark-minilog where this query runs" in message


@proves("SPX.5")
def test_a_checkpoint_whose_topic_is_gone_is_refused(kit: Kit, begun: tuple[str, str, pathlib.Path]) -> None:
    source, sink, checkpoint = begun
    kit.delete(source)
    message = refused(kit, source, sink, checkpoint)
    assert f"partition {source}-0, read to offset 1, is not there any more" in message
    assert (
        "Remedy: set failOnDataLoss to false to go on with the records that are left, or start a new query" in message
    )


@proves("SPX.5")
def test_a_checkpoint_whose_topic_was_created_again_is_refused(kit: Kit, begun: tuple[str, str, pathlib.Path]) -> None:
    source, sink, checkpoint = begun
    kit.delete(source)
    kit.topic(name=source)
    kit.send(source, ["x", "y", "z"])
    assert f"topic '{source}' was deleted and created again" in refused(kit, source, sink, checkpoint)


def run_elsewhere(kit: Kit, source: str, sink: str, checkpoint: pathlib.Path) -> None:
    """The same query in a driver of its own, to the end of what is there."""
    program = [sys.executable, "-m", "tests.spark.copying", "local[1]", kit.servers, source, sink, str(checkpoint)]
    done = subprocess.run(program, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["records"]


def ends_with(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as failure:
        query.awaitTermination(int(WAIT_S))
    return str(failure.value)


@proves("SPX.6")
@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("one", "CONCURRENT_STREAM_LOG_UPDATE"),
        ("a-copy", "its run was superseded by another, which goes on in its place"),
    ],
)
def test_of_two_queries_under_one_checkpoint_the_former_is_refused(
    kit: Kit, tmp_path: pathlib.Path, folder: str, message: str
) -> None:
    """Under the very directory Spark itself sees it, under a copy of it the coordinator does."""
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["0"])
    former = copy(kit, source, sink, tmp_path / "one", minOffsetsPerTrigger=2)
    former.processAllAvailable()
    if folder != "one":
        shutil.copytree(tmp_path / "one", tmp_path / folder)
    kit.send(source, ["1"])  # the former waits for more
    run_elsewhere(kit, source, sink, tmp_path / folder)
    before = end_of(kit, sink)
    kit.send(source, ["2"])
    assert message in ends_with(former)
    assert end_of(kit, sink) == before, "nothing was written, committed or not"
    assert values(kit.read(subscribe=sink)) == ["0", "1"]
