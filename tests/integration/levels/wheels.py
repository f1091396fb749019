"""Wheels: of this tree, of a later version that knows one more level, and of earlier ones that know fewer. Those are
made from a copy of it.

The later version brings what HACKING.md says a level brings: a metadata record, which its controller writes with each
topic, and a batch attribute, which its producers set; each asks the cluster's level first. An edit whose place is gone
fails with the words it looked for.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minilog_broker.levels import SUPPORTED_LEVELS

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = ("client", "broker", "operator_tools", "spark_connector", "jobs", "proto", "tools")
FILES = ("pyproject.toml", "README.md", "LICENSE")
LATER_VERSION = "99.0.0"
EARLIER_VERSION = "0.0.9"
_THIS_VERSION = 'version = "0.2.0"'
HIGHEST_LEVEL = SUPPORTED_LEVELS.highest  # of this version
LATER_LEVEL = HIGHEST_LEVEL + 1
_SUPPORTED = "SUPPORTED_LEVELS = VersionRange(1, {})"

_BUILDER = """

def of_later_level(batch: Buffer, topic_id: bytes, partition: int) -> bytes:
    header = decode_header(batch)
    marked = replace(header, attributes=header.attributes | 1 << 30)
    rest = memoryview(batch)[HEADER_BYTES:]
    summed = replace(marked, crc=crc_of_parts(topic_id, partition, encode_header(marked), rest))
    return encode_header(summed) + bytes(rest)
"""
_ENCODE = "batch.encode(compression, identity.producer, sequence, timestamp_us, transactional=transactional)\n"

_CLUSTER_ROW = '    RecordKind("cluster", cluster_records.apply_cluster, cluster_records.cluster_of),\n'
_LATER_KIND = """
def _apply_later(image: MetadataImage, offset: int, record: records_pb2.LaterLevelRecord) -> None:
    image.said = record.said


def _later_of(image: MetadataImage) -> Iterator[records_pb2.MetadataRecord]:
    if image.said:
        yield records_pb2.MetadataRecord(later_level=records_pb2.LaterLevelRecord(said=image.said))


"""

EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "pyproject.toml": ((_THIS_VERSION, f'version = "{LATER_VERSION}"'),),
    "broker/minilog_broker/levels.py": ((_SUPPORTED.format(HIGHEST_LEVEL), _SUPPORTED.format(LATER_LEVEL)),),
    "proto/minilog/v1/records.proto": (
        (
            "    ClusterLevelRecord cluster_level = 10;\n",
            "    ClusterLevelRecord cluster_level = 10;\n    LaterLevelRecord later_level = 31;\n",
        ),
        (
            "message ClusterLevelRecord {",
            "message LaterLevelRecord {\n  string said = 1;\n}\n\nmessage ClusterLevelRecord {",
        ),
    ),
    "broker/minilog_broker/controller/image.py": (
        ("        self.next_producer_id = 0\n", '        self.next_producer_id = 0\n        self.said = ""\n'),
        ("_CONTENT = (\n", '_CONTENT = (\n    "said",\n'),
    ),
    "broker/minilog_broker/controller/record_kinds.py": (
        ("_KINDS = (\n", _LATER_KIND + "_KINDS = (\n"),
        (_CLUSTER_ROW, _CLUSTER_ROW + f'    RecordKind("later_level", _apply_later, _later_of, {LATER_LEVEL}),\n'),
    ),
    "broker/minilog_broker/controller/topics.py": (
        (
            "        self._write_configs(plan.topic_id, plan.configs)\n",
            f"        if self._ledger.image.level >= {LATER_LEVEL}:\n"
            "            said = records_pb2.LaterLevelRecord(said=request.name)\n"
            "            self._ledger.write(records_pb2.MetadataRecord(later_level=said))\n"
            "        self._write_configs(plan.topic_id, plan.configs)\n",
        ),
    ),
    "client/minilog/record_batch/header.py": (
        ("_KNOWN_ATTRIBUTES = sum(", f"_BROUGHT_BY_LEVEL[{LATER_LEVEL}] = 1 << 30\n_KNOWN_ATTRIBUTES = sum("),
    ),
    "client/minilog/producer/sender.py": (
        (
            _ENCODE,
            _ENCODE + f"                if self._cache.level >= {LATER_LEVEL}:\n"
            "                    batch.encoded = of_later_level(batch.encoded, *batch.key)\n",
        ),
        ("\n\nclass ", "\nfrom minilog.record_batch.builder import of_later_level\n\n\nclass "),
    ),
}
"""By file: (what stands there once, or the first of several, and what stands there instead)."""


def _earlier(highest_level: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """The same, of an earlier one."""
    return {
        "pyproject.toml": ((_THIS_VERSION, f'version = "{EARLIER_VERSION}"'),),
        "broker/minilog_broker/levels.py": ((_SUPPORTED.format(HIGHEST_LEVEL), _SUPPORTED.format(highest_level)),),
    }


@dataclass(frozen=True, slots=True)
class Wheel:
    """A version, installed in a folder of its own."""

    version: str
    folder: pathlib.Path

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to run it, whatever else is installed."""
        return {"PYTHONPATH": str(self.folder)}


def this_version(into: pathlib.Path) -> Wheel:
    """The wheel of this tree."""
    return _installed(_copy(into), into)


def earlier_version(into: pathlib.Path, highest_level: int = 1) -> Wheel:
    """The wheel of one that knows no level above."""
    return _installed(_edited(into, _earlier(highest_level)), into)


def later_version(into: pathlib.Path) -> Wheel:
    """The wheel of one that knows LATER_LEVEL."""
    source = _edited(into, EDITS)
    builder = source / "client/minilog/record_batch/builder.py"
    builder.write_text(builder.read_text() + _BUILDER)
    _run(sys.executable, str(source / "tools/generate_stubs.py"))
    return _installed(source, into)


def _edited(into: pathlib.Path, edits_of: Mapping[str, Iterable[tuple[str, str]]]) -> pathlib.Path:
    source = _copy(into)
    for name, edits in edits_of.items():
        path = source / name
        text = path.read_text()
        for before, after in edits:
            assert before in text, f"{name} has no {before!r} any more: mend the edits of the other version"
            text = text.replace(before, after, 1)
        path.write_text(text)
    return source


def _copy(into: pathlib.Path) -> pathlib.Path:
    source = into / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    return source


def _installed(source: pathlib.Path, into: pathlib.Path) -> Wheel:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(into), str(source))
    [wheel] = into.glob("*.whl")
    folder = into / "installed"
    _run(*pip, "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    return Wheel(wheel.name.split("-")[1], folder)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
