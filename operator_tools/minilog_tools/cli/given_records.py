"""The records that `minilog produce` writes: from lines or whole files, with one key, one timestamp and the same
headers.

It reads files of options. The command reads those before it writes anything.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from minilog_broker.failure import CommandFailed

GivenRecord = tuple[bytes | None, bytes]
"""Key and value."""


@dataclass(frozen=True, slots=True)
class OfAll:
    """The timestamp and headers of all records of one command. `options`: the options that the user gave."""

    timestamp: int | None = None  # ms since 1970
    headers: tuple[tuple[str, bytes], ...] = ()
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for Producer.send."""
        return {"timestamp": self.timestamp, "headers": list(self.headers) or None}


def parse_headers(pairs: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
    """The headers, each from `KEY=VALUE` after -H. A key may come twice, as in a record. Raises BadParameter."""
    headers = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{pair!r} is not valid: expected key=value", param_hint="--header")
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


def key_of(key: str | None, key_file: pathlib.Path | None, key_delimiter: str | None) -> bytes | None:
    """The key of every record: the text of --key, or all bytes of a file. Raises BadParameter where the options give
    two keys, and OSError."""
    given = [
        name
        for name, value in (("--key", key), ("--key-file", key_file), ("--key-delimiter", key_delimiter))
        if value is not None
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"give either {given[0]} or {given[1]}", param_hint=given[0])
    if key_delimiter == "":
        raise typer.BadParameter("'' is not valid: expected one or more characters", param_hint="--key-delimiter")
    if key_file is not None:
        return key_file.read_bytes()
    return None if key is None else key.encode(errors="surrogateescape")


def of_files(files: Iterable[pathlib.Path], key: bytes | None) -> list[GivenRecord]:
    """One record for each file. Its value is all of the file's bytes. Raises OSError."""
    return [(key, path.read_bytes()) for path in files]


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
