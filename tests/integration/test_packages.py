"""The wheel and the sdist, in clean environments: their files, their dependencies, and a run of each.

Each Python of this machine from 3.11 to 3.13 gets an environment: in `make test` the one that runs the tests, in `make
soak` the others. The id of a test is the version. Packages are installed as users install them, in the versions of
constraints.txt.
"""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser

import pytest
from _pytest.mark import ParameterSet

from minilog_tools.extras import BROKER_EXTRA

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORTED = ((3, 11), (3, 12), (3, 13))
LARGEST_WHEEL_BYTES = 2_000_000
CLIENT = {"google-crc32c", "grpcio", "protobuf", "pyarrow", "sqlglot", "uvloop"}
_INSTALLS_WITHIN_S = 500.0
_RUNS_WITHIN_S = 60.0
_VERSION = "import sys; print(*sys.version_info[:2])"
_CLIENT_ONLY = """
import sys
from minilog import Admin, Consumer, Producer
from minilog.typed.conditions.where import parse_where
import minilog.aio
print(sys.version_info[:2], Producer.__module__)
"""
_ONE_RECORD = """
from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.testing import running_cluster
with running_cluster() as cluster, Admin(cluster.settings) as admin:
    admin.create_topics([NewTopic("flights")])
    with Producer(cluster.settings) as producer, Consumer(cluster.settings) as consumer:
        producer.send("flights", b"late").result(timeout=30)
        consumer.assign([TopicPartition("flights", 0, 0, 1)])
        while not consumer.finished():
            print([record.value for record in consumer.poll(timeout=1.0)])
"""


@dataclass(frozen=True, slots=True)
class Built:
    """The wheel and the sdist, as a registry gets them."""

    wheel: pathlib.Path
    sdist: pathlib.Path


def _candidates() -> Iterator[pathlib.Path]:
    yield pathlib.Path(sys.executable)
    folders = [pathlib.Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted((pathlib.Path.home() / ".pyenv" / "versions").glob("*/bin"))
    for folder, (major, minor) in itertools.product(folders, SUPPORTED):
        yield folder / f"python{major}.{minor}"


@functools.cache
def interpreters() -> dict[str, pathlib.Path]:
    """The first working interpreter of each version. A name on the PATH may be a shim with nothing behind it."""
    paths: dict[str, pathlib.Path] = {}
    for path in _candidates():
        wanted = path.name.removeprefix("python")
        if wanted in paths or not path.exists():
            continue
        answer = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            paths.setdefault(answer.stdout.strip().replace(" ", "."), path)
    return paths


def versions() -> list[ParameterSet]:
    """One parameter for each interpreter. `make test` takes only that of the tests, since an environment costs half a
    minute of two cores."""
    own = "{}.{}".format(*sys.version_info)
    return [pytest.param(version, marks=() if version == own else pytest.mark.long) for version in interpreters()]


def _run(*command: str | pathlib.Path, within_s: float = _INSTALLS_WITHIN_S) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=within_s, env=environment, cwd="/"
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both, of this tree: the sdist from the tree, and the wheel from the sdist, as a registry's users build it."""
    folder = tmp_path_factory.mktemp("dist")
    build = ("-m", "hatchling", "build", "-d", str(folder))
    subprocess.run([sys.executable, *build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    [sdist] = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", folder], check=True)
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([sys.executable, *build, "-t", "wheel"], cwd=source, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return Built(wheel, sdist)


def _metadata(wheel: pathlib.Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(metadata).decode())


def _required(metadata: Message, extra: str | None) -> set[str]:
    ends = f"; extra == '{extra}'"
    lines = metadata.get_all("Requires-Dist") or []
    if extra is None:
        lines = [line for line in lines if "extra ==" not in line]
    else:
        lines = [line for line in lines if line.endswith(ends)]
    return {line.split(">=")[0].split("==")[0].lower() for line in lines}


def test_a_client_requires_no_web_server(built: Built) -> None:
    metadata = _metadata(built.wheel)
    assert _required(metadata, None) == CLIENT
    assert _required(metadata, "broker") == set(BROKER_EXTRA.values())


def test_the_wheel_is_small_and_holds_what_the_tree_has(built: Built) -> None:
    assert built.wheel.stat().st_size < LARGEST_WHEEL_BYTES
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    homes = ("client", "broker", "operator_tools", "spark_connector")
    tree = {
        str(path.relative_to(ROOT / home))
        for home in homes
        for path in (ROOT / home).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == tree | {"minilog_tools/demo/delays_job.py"}


@pytest.mark.dear("it builds and installs packages")
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("version", versions())
def test_a_package_runs_in_a_clean_environment(built: Built, tmp_path: pathlib.Path, version: str) -> None:
    home = tmp_path / "environment"
    _run(interpreters()[version], "-m", "venv", home)
    python, minilog = home / "bin" / "python", home / "bin" / "minilog"
    install = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")

    _run(*install, built.wheel)
    assert "minilog.sync.producer" in _run(python, "-I", "-c", _CLIENT_ONLY)
    listed = _run(python, "-m", "pip", "list", "--format", "freeze")
    there = {line.split("==")[0].lower() for line in listed.split()}
    assert not there & {"starlette", "uvicorn", "typer", "structlog", "cryptography", "prometheus-client"}
    assert _run(minilog, "--version").startswith("minilog 0.")
    refused = subprocess.run([minilog, "topic", "list"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert "pip install 'pyspark-minilog[broker]'" in refused.stderr

    _run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "pyspark-minilog")
    _run(*install, f"{built.sdist}[broker]")
    assert "Usage: minilog" in _run(minilog, "--help", within_s=_RUNS_WITHIN_S)
    assert "late" in _run(python, "-I", "-c", _ONE_RECORD, within_s=_RUNS_WITHIN_S)
