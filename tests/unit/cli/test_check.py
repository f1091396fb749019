"""`minilog check`: its exit codes, what people read and what machines read, on a real disk."""

from __future__ import annotations

import json
import os
import pathlib
import re

import pytest

from minilog_broker.cli.app import run
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.files import OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.logs import fill, open_log

FILES = OsFileSystem()
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

    monkeypatch.setattr("minilog_broker.cli.check.look_into", fails)
    assert "unexpected AssertionError: nobody expects this: this is a bug in minilog" in refused(capsys, data)
