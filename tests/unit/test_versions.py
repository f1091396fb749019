"""The lowest versions that the package asks for (pyproject.toml) are those that its parts work with, and no higher."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pyarrow as pa
import pytest

from minilog import compute as pc

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUBS = sorted((ROOT / "client/minilog/v1").glob("*_pb2*.py"))
_PROTOBUF = re.compile(r"^# Protobuf Python Version: (\d+\.\d+)\.\d+$", re.MULTILINE)
_GRPC = re.compile(r"^GRPC_GENERATED_VERSION = '([\d.]+)'$", re.MULTILINE)


def lowest() -> dict[str, str]:
    """The lower bound of each package that the client and the connector need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    return dict(re.match(r"([\w-]+)>=([\d.]+)", each).groups() for each in wanted)  # type: ignore[union-attr, misc]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_a_stub_takes_the_lowest_protobuf_and_grpcio_of_the_package(stub: pathlib.Path) -> None:
    text, is_service = stub.read_text(), stub.stem.endswith("_grpc")
    [made_for] = (_GRPC if is_service else _PROTOBUF).findall(text)
    asked = lowest()["grpcio" if is_service else "protobuf"]
    assert _numbers(made_for) <= _numbers(asked)
    assert _numbers(made_for)[0] == _numbers(asked)[0]


def test_the_tools_that_make_the_stubs_are_versions_and_nothing_else() -> None:
    lines = (ROOT / "tools/stub_tools.txt").read_text().splitlines()
    assert not [line for line in lines if not line.startswith("#") and not re.fullmatch(r"[\w.-]+==[\w.]+", line)]


@pytest.mark.parametrize("stop", [-1, 0, 1, 5, 6, 7])
def test_numbers_and_joined_batches_of_an_old_arrow_are_those_of_a_new_one(
    monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    batches = [pa.record_batch({"a": [number, None], "b": ["x", "y"]}) for number in range(3)]
    new = pa.arange(0, stop, 3), pa.arange(-2, stop), pa.concat_batches(batches)
    monkeypatch.delattr(pa, "arange")
    monkeypatch.delattr(pa, "concat_batches")
    old = pc.arange(0, stop, 3), pc.arange(-2, stop), pc.concat_batches(batches)
    assert all(one.equals(other) for one, other in zip(old, new, strict=True))
