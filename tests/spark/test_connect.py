"""Spark Connect tells no task which query it is of. A write of foreachBatch is a replay only if its rows are the same
ones, or if the option checkpointLocation says whose it is."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import free_ports
from tests.spark import connect_job
from tests.spark.kit import Kit, forget_from, values
from tests.spark.standalone import ENVIRONMENT, daemon

_PATIENCE_S = 150
Run = Callable[..., str]

pytestmark = [pytest.mark.long, pytest.mark.timeout(580)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    (port,) = free_ports(1)
    server = (
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"),
    )
    with daemon(tmp_path_factory.mktemp("connect"), "connect", "Spark Connect server started", *server):
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture
def run(kit: Kit, url: str) -> Run:
    def run(source: str, sink: str, checkpoint: pathlib.Path, way: str = "write", *options: str) -> str:
        command = [connect_job.__file__, url, kit.servers, source, sink, str(checkpoint), way, *options]
        done = subprocess.run(
            [sys.executable, *command], env=ENVIRONMENT, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        return done.stdout.strip()

    return run


@pytest.mark.parametrize("way", ["write", "block"])
def test_a_replay_is_known_by_its_rows_and_a_new_query_under_the_old_name_by_others(
    kit: Kit, run: Run, tmp_path: pathlib.Path, way: str
) -> None:
    first, second, sink = kit.topic(), kit.topic(), kit.topic()
    kit.send(first, ["a", "b"])
    kit.send(second, ["c", "d"])
    assert run(first, sink, tmp_path / "first", way) == "done"
    forget_from(tmp_path / "first", "commits", 0)
    assert run(first, sink, tmp_path / "first", way) == "done"
    refusal = run(second, sink, tmp_path / "second", way)
    assert "the 2 committed rows have other values than the rows of this write" in refusal
    assert "give its writes the option checkpointLocation" in refusal
    assert values(kit.read(subscribe=sink)) == ["a", "b"]


def test_with_the_option_the_checkpoint_says_whose_the_rows_are(kit: Kit, run: Run, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "b"])
    places = {name: tmp_path / name for name in ("first", "second")}
    option = {name: f"checkpointLocation={place}" for name, place in places.items()}
    assert run(source, sink, places["first"], "write", option["first"]) == "done"
    forget_from(places["first"], "commits", 0)
    assert run(source, sink, places["first"], "write", option["first"]) == "done"
    assert "belong to another query" in run(source, sink, places["second"], "write", option["second"])
    assert "nothing shows that it has the offsets" in run(source, sink, places["second"])
    assert values(kit.read(subscribe=sink)) == ["a", "b"]


def test_a_block_that_leaves_its_writes_out_must_know_its_offsets(kit: Kit, run: Run, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "b"])
    option = f"checkpointLocation={tmp_path / 'second'}"
    assert run(source, sink, tmp_path / "first", "skip") == "done"
    assert "nothing shows that this block" in run(source, sink, tmp_path / "second", "skip")
    sink = kit.topic()
    for _ in range(2):
        assert run(source, sink, tmp_path / "second", "skip", option) == "done"
        forget_from(tmp_path / "second", "commits", 0)
    assert values(kit.read(subscribe=sink)) == ["a", "b"]
