"""`minilog check`: its exit codes, what people read and what machines read, on a real disk."""

from __future__ import annotations

import json
import os
import pathlib
import re

import pytest

from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import METADATA_KEY, place
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.files import OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from minilog_tools.cli.app import run
from tests.unit.storage.logs import fill, open_log

FILES = OsFileSystem()
LATE = PartitionKey(bytes(range(1, 17)), 0)
INDEX = f"flights-3/{0:020d}.index"


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """What a broker left that stopped cleanly."""
    path = tmp_path / "data"
    directory = DataDirectory.open(FILES, str(path), 1, None)
    directory.set_cluster("c-1", [1])
    write_durable_file(FILES, f"{path}/quorum-vote", json.dumps({"epoch": VoteState().epoch}).encode())
    log = open_log(FILES, directory=f"{path}/flights-3", settings=LogSettings())
    fill(log, 100)
    log.close(clean=True)
    metadata = f"{path}/__cluster_metadata-0"
    Log.open(FILES, metadata, METADATA_KEY, "m", LogSettings(), unclean=True, create=True).close(clean=True)
    directory.write_clean_stop(5)
    directory.close()
    return path


def flip(path: pathlib.Path, position: int = 20) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_sound_directory_is_told_in_one_line(data: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in data.rglob("*")}
    assert run(["check", str(data)]) == 0
    told = capsys.readouterr()
    assert told.out == "checked 2 logs, 2 segments, 7,200 bytes of batches of broker 1: all is sound\n"
    assert told.err == ""
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in data.rglob("*")} == before


def test_the_records_of_a_stopped_copy_are_printed_also_those_behind_damage(
    data: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log.open(FILES, f"{data}/late-0", LATE, "late", LogSettings(), unclean=True, create=True)
    for number in range(5):
        columns = records_to_columns([b"value %d" % number, None], [b"k", b"\xff"])
        log.append(place(build_batch(*LATE, columns, timestamp_us=1_000_000), 2 * number, 0))
    log.close(clean=True)
    assert run(["check", str(data), "--print", "late", "0"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["offset"] for record in printed] == list(range(10))
    assert (printed[0]["key"], printed[0]["value"], printed[0]["timestamp"]) == ("k", "value 0", 1000)
    assert (printed[1]["key_base64"], printed[1]["value"]) == ("/w==", None)
    segment = data / f"late-0/{0:020d}.log"
    size = segment.stat().st_size // 5
    flip(segment, size + 100)
    assert run(["check", str(data), "--print", "late", "0"]) == 1
    told = capsys.readouterr()
    assert [json.loads(line)["offset"] for line in told.out.splitlines()] == [0, 1, 4, 5, 6, 7, 8, 9]
    assert f"{size} bytes from position {size} on are no batch" in told.err
    assert run(["check", str(data), "--print", "early", "0"]) == 2
    assert "there is no log of early 0: this directory has flights 3, late 0" in capsys.readouterr().err


def test_damage_is_named_with_what_to_do(data: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = data / f"flights-3/{0:020d}.log"
    flip(segment, 500)
    assert run(["check", str(data)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.match(rf"{segment}: damaged: .* offset 6;", first)
    assert second.startswith(f"    what to do: set {data}/flights-3 aside")
    assert last.endswith(": 1 damaged")


def test_an_index_is_a_cache_and_repaired_where_that_is_asked_for(
    data: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = (data / INDEX).read_bytes()
    flip(data / INDEX)
    assert run(["check", str(data), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["broker_id"], document["cluster_id"], document["worst"]) == (1, "c-1", "cache")
    finding = document["findings"][0]
    assert (finding["path"], finding["verdict"], finding["repaired"]) == (str(data / INDEX), "cache", False)
    assert (data / INDEX).read_bytes() != sound

    assert run(["check", str(data), "--repair-indexes"]) == 0
    assert "done: the check has written it again" in capsys.readouterr().out
    assert (data / INDEX).read_bytes() == sound
    assert run(["check", str(data)]) == 0
    assert "all is sound" in capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run(["check", *map(str, arguments)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


class TestRefusals:
    @pytest.mark.parametrize("options", [[], ["--repair-indexes"]])
    def test_a_directory_in_use(
        self, data: pathlib.Path, capsys: pytest.CaptureFixture[str], options: list[str]
    ) -> None:
        directory = DataDirectory.open(FILES, str(data), 1, "c-1")
        assert f"is in use by process {os.getpid()}: stop that broker" in refused(capsys, data, *options)
        directory.close()

    def test_a_foreign_directory(self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "has no broker.json" in refused(capsys, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_no_directory_at_all(self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "No such file" in refused(capsys, tmp_path / "none")
        file = tmp_path / "file"
        file.touch()
        assert "Not a directory" in refused(capsys, file)

    def test_a_later_version(self, data: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_durable_file(FILES, f"{data}/broker.json", b'{"level": 99}')
        assert "is at level 99" in refused(capsys, data)


@pytest.mark.parametrize("seed", range(8))
def test_rot_anywhere_is_no_traceback(data: pathlib.Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    for path in sorted(each for each in data.rglob("*") if each.is_file() and each.stat().st_size):
        flip(path, seed * 9 % path.stat().st_size)
    assert run(["check", str(data)]) in (1, 2)
    assert "bug" not in capsys.readouterr().err


def test_an_error_of_our_own_is_no_damage(
    data: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("nobody expects this")

    monkeypatch.setattr("minilog_tools.cli.check.look_into", fails)
    assert "unexpected AssertionError: nobody expects this: this is a bug in minilog" in refused(capsys, data)
