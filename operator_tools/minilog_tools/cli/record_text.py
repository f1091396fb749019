"""A record as bytes for stdout, for each verb that prints records: its value, JSON, or a format of the user.

The format is that of `minilog consume -f`, in kcat's letters:

    %t topic   %p partition   %o offset   %T timestamp, ms since 1970   %k key   %s value   %h headers, k=v,k=v
    %K and %S: the lengths of key and value in bytes, -1 where it is null   %%: %
    \\n \\t \\r \\0 \\\\ and \\xHH: that byte

The command adds nothing behind such a record, so a format for lines ends with \\n. It prints nothing for a null.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import typer

from minilog.types import Record
from minilog_broker.printable import printable
from minilog_tools.cli.common import attributes


def chosen_text(record_format: str | None, *, as_json: bool) -> RecordText | None:
    """The text for -f or --json, None where neither is given. Raises BadParameter."""
    if record_format is not None:
        return parse_format(record_format, for_terminal if sys.stdout.isatty() else bytes)
    return json_line if as_json else None


def value_line(record: Record) -> bytes:
    """The value as a line."""
    return line(record.value or b"")


def json_line(record: Record, **more: object) -> bytes:
    """A line of JSON: the record's document, and `more`."""
    return json.dumps({**record_document(record), **more}, ensure_ascii=False).encode() + b"\n"


def record_document(record: Record) -> dict[str, Any]:
    """A record in the form of commands.md § JSON. Bytes are text where they are UTF-8, else base64 under another
    name."""
    return {
        **attributes(record, "topic", "partition", "offset", "timestamp"),
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"key": name, **_text("value", value)} for name, value in record.headers or ()],
    }


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def line(value: bytes) -> bytes:
    """A line with the value as it is. On a terminal it has escapes in the place of control characters."""
    return (for_terminal(value) if sys.stdout.isatty() else value) + b"\n"


def for_terminal(value: bytes) -> bytes:
    """A value with escapes in the place of control characters, which a terminal would obey."""
    return printable(value.decode(errors="backslashreplace")).encode(errors="backslashreplace")


# -- formats of users

_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
RecordText = Callable[[Record], bytes]
"""A function that makes a record's bytes, or those for one part of a format."""
Shown = Callable[[bytes], bytes]
"""A function that makes a key, value or header fit for its output: unchanged, or without control characters."""


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers or ())


def _length(content: bytes | None) -> bytes:
    return b"%d" % (-1 if content is None else len(content))


_FIELDS: dict[str, RecordText] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
}
_CONTENTS: dict[str, RecordText] = {
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
}


def parse_format(text: str, shown: Shown) -> RecordText:
    """A function that makes a record's bytes by this format. Raises BadParameter."""
    pieces: list[RecordText] = []
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(_literal(text[at : match.start()].encode(errors="surrogateescape")))
        field, escape = match.groups()
        pieces.append(_literal(_escaped(escape)) if field is None else _field(field, shown))
        at = match.end()
    pieces.append(_literal(text[at:].encode(errors="surrogateescape")))
    return lambda record: b"".join(piece(record) for piece in pieces)


def _literal(content: bytes) -> RecordText:
    return lambda record: content


def _field(letter: str, shown: Shown) -> RecordText:
    if letter == "%":
        return _literal(b"%")
    if letter in _CONTENTS:
        content = _CONTENTS[letter]
        return lambda record: shown(content(record))
    if letter not in _FIELDS:
        letters = " ".join(f"%{name}" for name in (*_FIELDS, *_CONTENTS, "%"))
        raise typer.BadParameter(f"%{letter} is none of {letters}", param_hint="-f")
    return _FIELDS[letter]


def _escaped(text: str) -> bytes:
    if text.startswith("x") and len(text) == 3:
        return bytes.fromhex(text[1:])
    if text not in _ESCAPES:
        raise typer.BadParameter(rf"\{text} is none of \n \t \r \0 \\ \xHH", param_hint="-f")
    return _ESCAPES[text]
