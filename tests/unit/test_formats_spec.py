"""docs/spec/formats.md and commands.md say what the code has: the header's fields, the services, the verbs."""

from __future__ import annotations

import pathlib
import re
import struct
from collections.abc import Iterator
from typing import Any

import typer

from minilog.record_batch import header
from minilog.stream_messages import PRODUCE, StreamMessage
from minilog.v1 import (
    admin_pb2,
    coordinator_pb2,
    data_pb2,
    metadata_pb2,
    peer_pb2,
    queue_pb2,
    records_pb2,
    security_pb2,
)
from minilog_tools.cli.app import tree
from tests.rules import proves

pytestmark = proves("DOC.3")

DOCUMENTS = pathlib.Path(__file__).parents[2] / "docs"
FORMATS = (DOCUMENTS / "spec" / "formats.md").read_text()
COMMANDS = (DOCUMENTS / "reference" / "commands.md").read_text()
CODES = {"u32": "I", "i64": "q", "i32": "i", "i16": "h", "u16": "H"}
OF_ALL_VERBS = {"bootstrap_servers", "command_config", "as_json", "help"}


def test_the_header_of_a_record_batch() -> None:
    rows = _rows("## Record batch")
    at = 0
    for position, _, kind in rows:
        assert int(position) == at
        at += struct.calcsize(f"<{CODES[kind]}")
    assert f"<{''.join(CODES[kind] for _, _, kind in rows)}" == header._HEADER.format
    assert at == header.HEADER_BYTES
    fields = [name for _, name, _ in rows if name not in ("magic", "header_checksum")]
    assert sorted(fields) == sorted(header.BatchHeader.__dataclass_fields__)


def test_the_head_of_a_frame() -> None:
    """Two payloads of 1 and 9 bytes: what the table says stands where it says it."""
    rows = {name: (int(at), kind) for at, name, kind in _rows("### Streams")}
    message = data_pb2.ProduceRequest(entries=[data_pb2.ProduceEntry(), data_pb2.ProduceEntry()])
    frame = b"".join(PRODUCE.request.parts(StreamMessage(message, (b"a", b"b" * 9))))

    def number(name: str, index: int = 0) -> int:
        at, kind = rows[name]
        (found,) = struct.unpack_from(f"<{CODES[kind]}", frame, at + index * struct.calcsize(f"<{CODES[kind]}"))
        return int(found)

    size = message.ByteSize()
    assert (number("message_bytes"), number("payload_count")) == (size, 2)
    assert [number("payload_bytes", index) for index in range(2)] == [1, 9]
    first = -(-(8 + 4 * 2 + size) // 8) * 8
    assert frame[16 : 16 + size] == message.SerializeToString()
    assert (frame[first : first + 1], frame[first + 8 : first + 17], len(frame)) == (b"a", b"b" * 9, first + 24)


def _rows(heading: str) -> list[tuple[str, str, str]]:
    """Position, name and type of each field in the table below a heading."""
    section = FORMATS.split(f"\n{heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (\d+) \| (\w+) \| (\w+)(?: each)? \|", section, re.MULTILINE)


def test_the_attributes_of_a_record_batch() -> None:
    (line,) = re.findall(r"^Attributes: (.*?)\. Any\sother", FORMATS, re.MULTILINE | re.DOTALL)
    told = [int(found) for found in re.findall(r"(?:^|; ?\n?)(\d+) ", line)]
    assert told == [int(each) for each in header.Attributes]


def test_the_services_and_their_calls() -> None:
    files = (admin_pb2, coordinator_pb2, data_pb2, metadata_pb2, peer_pb2, queue_pb2, security_pb2)
    services = {name: each for file in files for name, each in file.DESCRIPTOR.services_by_name.items()}
    told = dict(re.findall(r"^\| (\w+Service) \| [^|]* \| ([^|]*) \|$", FORMATS, re.MULTILINE))
    assert told.keys() == services.keys()
    for name, calls in told.items():
        without_notes = re.sub(r"\([^)]*\)", "", calls).replace(" and ", ", ")
        assert [each.strip() for each in without_notes.split(",")] == [each.name for each in services[name].methods]


def test_the_records_of_the_metadata_log() -> None:
    behind = FORMATS.partition("## The metadata log")[2].partition("\n## ")[0]
    told = re.findall(r"^\| ([a-z_]+) \| (?!what)", behind, re.MULTILINE)
    kinds = records_pb2.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields
    assert [each for each in told if each != "record"] == [each.name for each in kinds]


def verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        if command.invoke_without_command and path:
            yield path, command
        for name, each in command.commands.items():
            yield from verbs(each, f"{path} {name}".strip())
    else:
        yield path, command


def test_every_verb_and_its_options_are_told() -> None:
    rows = re.findall(r"^\| (`minilog .*?) \|(.*)\|$", COMMANDS, re.MULTILINE)
    told: dict[str, str] = {}
    for names, options in rows:
        first, *others = re.findall(r"`(?:minilog )?([a-z -]+?)(?: [A-Z]+)*`", names)
        for name in (first, *(f"{first.rpartition(' ')[0]} {other}" for other in others)):
            told[name] = options
    found = dict(verbs(typer.main.get_command(tree()), ""))
    assert told.keys() == found.keys()
    for name, command in found.items():
        for each in command.params:
            if each.opts[0].startswith("-") and each.name not in OF_ALL_VERBS and not getattr(each, "hidden", False):
                assert any(re.search(rf"`{option}\b", told[name]) for option in each.opts), (name, each.opts)
