"""Bytes of records as a person reads them: text, JSON or hex. Pure.

A page shows at most SHOWN_BYTES of a value. It shows no character that a terminal would obey, or that would turn the
direction of a line.
"""

from __future__ import annotations

import codecs
import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_BYTES = 4096
JSON_BYTES = 64 * 1024  # a longer value is shown as text, and not as JSON
HEX_BYTES = 1024
_HEX_COLUMNS = 16
_LAYOUT = json.JSONEncoder(indent=2, ensure_ascii=False)
_KEPT = "\n\t"


class Form(enum.Enum):
    """How bytes are shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A value as a page shows it. `text` is None for null. `size_bytes`: of the whole value. `is_cut`: `text` is only
    the beginning of it. `note`: why the form is another one than the viewer's choice."""

    text: str | None
    size_bytes: int = 0
    is_cut: bool = False
    note: str = ""


def shown_text(text: str) -> str:
    """`text` with escapes in the place of control characters and marks of direction."""
    return "".join(
        character if character.isprintable() or character in _KEPT else ascii(character)[1:-1] for character in text
    )


def shown_bytes(content: bytes | None, form: Form) -> ShownBytes:
    if content is None:
        return ShownBytes(None)
    match form:
        case Form.HEX:
            return ShownBytes(_hex(content[:HEX_BYTES]), len(content), len(content) > HEX_BYTES)
        case Form.JSON:
            return _json(content)
        case Form.TEXT:
            return _text(content)


def _text(content: bytes, note: str = "") -> ShownBytes:
    is_cut = len(content) > SHOWN_BYTES
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(content[:SHOWN_BYTES], final=not is_cut)  # a character that is cut is left out
    return ShownBytes(shown_text(text), len(content), is_cut, note)


def _json(content: bytes) -> ShownBytes:
    if len(content) > JSON_BYTES:
        return _text(content, f"more than {JSON_BYTES} bytes: shown as text")
    try:
        laid_out, is_cut = _beginning(_LAYOUT.iterencode(json.loads(content)))
    except (ValueError, RecursionError):
        return _text(content, "no JSON: shown as text")
    return ShownBytes(shown_text(laid_out), len(content), is_cut)


def _beginning(pieces: Iterable[str]) -> tuple[str, bool]:
    """The first SHOWN_BYTES characters, and whether there are more. The rest is never made: the indents of a deep
    document have many times its own size."""
    taken, characters = list[str](), 0
    for piece in pieces:
        taken.append(piece)
        characters += len(piece)
        if characters > SHOWN_BYTES:
            return "".join(taken)[:SHOWN_BYTES], True
    return "".join(taken), False


def _hex(content: bytes) -> str:
    lines = []
    for start in range(0, len(content), _HEX_COLUMNS):
        part = content[start : start + _HEX_COLUMNS]
        numbers = " ".join(f"{byte:02x}" for byte in part)
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:04x}  {numbers:<{3 * _HEX_COLUMNS - 1}}  {letters}")
    return "\n".join(lines)
