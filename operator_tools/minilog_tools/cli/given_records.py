"""The records that `minilog produce` writes: from lines or whole files, with one key, one timestamp and the same
headers.

It reads files of options. The command reads those before it writes anything.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from minilog_broker.failure import CommandFailed

GivenRecord = tuple[bytes | None, bytes]
"""Key and value."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options that give the records, and what all of them have."""

    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None
    key_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="A file whose bytes are the key of every record.")
    ] = None
    headers: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", metavar="KEY=VALUE", help="A header of every record. Repeatable."),
    ] = None
    timestamp: Annotated[
        int | None, typer.Option(min=0, metavar="MS", help="The time of every record, since 1970. Default: now.")
    ] = None
    value_files: Annotated[
        list[pathlib.Path] | None,
        typer.Option("--file", metavar="FILE", help="A file whose bytes are one record's value. Repeatable. No stdin."),
    ] = None
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="The partition. Default: by key.")
    ] = None
    key_delimiter: Annotated[
        str | None, typer.Option(metavar="C", help="The text between key and value in each line.")
    ] = None

    def check_of_rows(self) -> None:
        """Raises BadParameter where the command writes rows, and an option is for records alone."""
        names = ("--key", "--key-file", "--key-delimiter", "--file", "--header", "--timestamp")
        values = (self.key, self.key_file, self.key_delimiter, self.value_files, self.headers, self.timestamp)
        for name, value in zip(names, values, strict=True):
            if value is not None and value != []:
                raise typer.BadParameter(f"rows have key and time in columns, and no headers: leave {name} out")

    def sent_with_each(self) -> dict[str, Any]:
        """The arguments for Producer.send that all records share. Raises BadParameter."""
        headers = parse_headers(self.headers or ())
        return {"timestamp": self.timestamp, "headers": list(headers) or None, "partition": self.partition}

    def fixed_key(self) -> bytes | None:
        """The key of all records: the text of --key, or all bytes of a file. Raises BadParameter where the options give
        two keys, and OSError."""
        if self.value_files and self.key_delimiter is not None:
            raise typer.BadParameter(
                "the delimiter splits lines of stdin: leave it out with --file", param_hint="--key-delimiter"
            )
        keys = (("--key", self.key), ("--key-file", self.key_file), ("--key-delimiter", self.key_delimiter))
        given = [name for name, value in keys if value is not None]
        if len(given) > 1:
            raise typer.BadParameter(f"give either {given[0]} or {given[1]}", param_hint=given[0])
        if self.key_delimiter == "":
            raise typer.BadParameter("'' is not valid: expected one or more characters", param_hint="--key-delimiter")
        if self.key_file is not None:
            return self.key_file.read_bytes()
        return None if self.key is None else self.key.encode(errors="surrogateescape")

    def records(self, key: bytes | None) -> Iterable[GivenRecord]:
        """One record for each file, whose value is all of its bytes. Without files, one for each line of stdin. Raises
        OSError."""
        if self.value_files:
            return [(key, path.read_bytes()) for path in self.value_files]
        return split_lines(sys.stdin.buffer, key, self.key_delimiter)


def parse_headers(pairs: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
    """The headers, each from `KEY=VALUE` after -H. A key may come twice, as in a record. Raises BadParameter."""
    headers = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{pair!r} is not valid: expected key=value", param_hint="--header")
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


def split_lines(lines: Iterable[bytes], key: bytes | None, key_delimiter: str | None) -> Iterator[GivenRecord]:
    """Key and value of each line. Raises CommandFailed, which names the line without a delimiter."""
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix(b"\n")
        if key_delimiter is None:
            yield key, content
            continue
        before, separator, after = content.partition(key_delimiter.encode())
        if not separator:
            raise CommandFailed(
                f"line {number} has no key delimiter {key_delimiter!r}, and the lines before it are written: "
                f"correct it, and write it and the lines behind it again"
            )
        yield before, after
