"""Columns as text in the form of Spark's SQL: `carrier string NOT NULL, delay int, tags array<string>`. Pure.

The text may come from any client. So its length and its nesting are bounded, and the parser reads it once from left to
right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minilog.errors import InvalidSchema
from minilog.typed.schema.fields import PRIMITIVE_NAMES, Array, Decimal, Field, FieldType, Map, Primitive, Struct
from minilog.typed.schema.topic_schema import MAX_DEPTH, TopicSchema, first_version

MAX_DDL_CHARACTERS = 1 << 18
_SYNONYMS = {
    "bool": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|([^\W\d]\w*|\d+)|([<>(),:]))")

_ESCAPED, _ESCAPES = re.compile(r"\\(.)", re.DOTALL), {"n": "\n", "t": "\t", "r": "\r"}


def collation_refused(name: str) -> str:
    """The end of a sentence whose subject is a column."""
    return (
        f"collation {name} is none that a topic keeps, so comparisons would find other rows: leave it out (in Spark: "
        "COLLATE UTF8_BINARY)"
    )


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "name" (quoted), "text", "word", "sign", "end"
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def parse_ddl(text: str) -> tuple[Field, ...]:
    """The columns in `text`, without ids. Raises InvalidSchema, which names the place."""
    if len(text) > MAX_DDL_CHARACTERS:
        raise InvalidSchema(f"the columns take {len(text)} characters, the most is {MAX_DDL_CHARACTERS}")
    return _Parser(text).columns()


def schema_from_ddl(text: str, key_columns: Sequence[str] = (), timestamp_column: str | None = None) -> TopicSchema:
    """The schema of a new topic from columns as text. Raises InvalidSchema, which names the place."""
    return first_version(parse_ddl(text), key_columns, timestamp_column)


def parse_type(text: str) -> FieldType:
    """One type from text, such as `decimal(10,2)` or `array<struct<a: int>>`. Raises InvalidSchema."""
    if len(text) > MAX_DDL_CHARACTERS:
        raise InvalidSchema(f"a type takes {len(text)} characters, the most is {MAX_DDL_CHARACTERS}")
    return _Parser(text).whole_type()


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, at, "a name or a type")
        kind = ("name", "text", "word", "sign")[(match.lastindex or 1) - 1]
        token = match.group(match.lastindex or 1)
        yield _Token(kind, token.replace("``", "`") if kind == "name" else token, match.start(match.lastindex or 1))
        at = match.end()
    yield _Token("end", "the end", end)


def _unreadable(text: str, at: int, wanted: str) -> InvalidSchema:
    return InvalidSchema(
        f"cannot read columns at {text[at : at + 20].strip()!r} (character {at + 1}): {wanted} is missing"
    )


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._depth = 0

    def columns(self) -> tuple[Field, ...]:
        fields = self._fields()
        self._end()
        return fields

    def whole_type(self) -> FieldType:
        kind = self._type()
        self._end()
        return kind

    def _end(self) -> None:
        if self._next.kind != "end":
            raise self._missing("a comma or the end")

    def _missing(self, wanted: str) -> InvalidSchema:
        return _unreadable(self._text, self._next.at, wanted)

    def _take(self) -> _Token:
        token, self._next = self._next, next(self._tokens, self._next)
        return token

    def _takes(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._take()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._missing(repr(sign))

    def _fields(self) -> tuple[Field, ...]:
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> Field:
        if self._next.kind not in ("name", "word"):
            raise self._missing("the name of a column")
        name = self._take().text
        self._takes(":")
        kind, nullable, comment = self._type(), True, ""
        if self._next.is_word("not"):
            self._take()
            if not self._next.is_word("null"):
                raise self._missing("NULL behind NOT")
            self._take()
            nullable = False
        if self._next.is_word("comment"):
            self._take()
            if self._next.kind != "text":
                raise self._missing("a comment in quotes")
            comment = _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), self._take().text)
        return Field(name, kind, nullable, comment=comment)

    def _type(self) -> FieldType:
        if self._next.kind != "word":
            raise self._missing("a type")
        token = self._take()
        word = token.text.lower()
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word in ("array", "struct", "map"):
            return self._nested(word)
        name = _SYNONYMS.get(word, word)
        if name not in PRIMITIVE_NAMES:
            names = ", ".join([*sorted(PRIMITIVE_NAMES), "decimal(p,s)", "array<>", "struct<>", "map<,>"])
            raise InvalidSchema(f"there is no type {token.text!r} (character {token.at + 1}): use {names}")
        if self._next.is_word("collate"):
            self._take()
            raise InvalidSchema(collation_refused(self._take().text))
        return Primitive(name)

    def _decimal(self) -> Decimal:
        if not self._takes("("):
            return Decimal(10, 0)  # Spark's
        precision, scale = self._number(), 0
        if self._takes(","):
            scale = self._number()
        self._expect(")")
        return Decimal(precision, scale)

    def _number(self) -> int:
        if self._next.kind != "word" or not self._next.text.isdecimal() or len(self._next.text) > 3:
            raise self._missing("a number of at most three digits")
        return int(self._take().text)

    def _nested(self, word: str) -> FieldType:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSchema(f"columns are nested deeper than {MAX_DEPTH} levels: flatten them")
        self._expect("<")
        kind: FieldType
        if word == "array":
            kind = Array(Field("element", self._type()))
        elif word == "struct":
            kind = Struct(self._fields())
        else:
            key = self._type()
            self._expect(",")
            kind = Map(Field("key", key, nullable=False), Field("value", self._type()))
        self._expect(">")
        self._depth -= 1
        return kind
