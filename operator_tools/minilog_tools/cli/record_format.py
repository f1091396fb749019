"""`minilog consume -f`: a format for each record, in kcat's letters.

    %t topic   %p partition   %o offset   %T timestamp, ms since 1970   %k key   %s value   %h headers, k=v,k=v
    %K and %S: the lengths of key and value in bytes, -1 where it is null   %%: %
    \\n \\t \\r \\0 \\\\ and \\xHH: that byte

The command adds nothing behind a record, so a format for lines ends with \\n. It prints nothing for a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import typer

from minilog.types import Record

_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
Piece = Callable[[Record], bytes]
"""A function that makes a record's bytes for one part of a format."""
Shown = Callable[[bytes], bytes]
"""A function that makes a key, value or header fit for its output: unchanged, or without control characters."""


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers or ())


def _length(content: bytes | None) -> bytes:
    return b"%d" % (-1 if content is None else len(content))


_FIELDS: dict[str, Piece] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
}
_CONTENTS: dict[str, Piece] = {
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
}


def parse_format(text: str, shown: Shown) -> Piece:
    """A function that makes a record's bytes by this format. Raises BadParameter."""
    pieces: list[Piece] = []
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(_literal(text[at : match.start()].encode(errors="surrogateescape")))
        field, escape = match.groups()
        pieces.append(_literal(_escaped(escape)) if field is None else _field(field, shown))
        at = match.end()
    pieces.append(_literal(text[at:].encode(errors="surrogateescape")))
    return lambda record: b"".join(piece(record) for piece in pieces)


def _literal(content: bytes) -> Piece:
    return lambda record: content


def _field(letter: str, shown: Shown) -> Piece:
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
