"""The constants of a `where`, read as Spark 4's own lexer reads them in ANSI mode. Pure.

The parser behind this module knows many dialects and is lenient in all of them. So it never sees a constant: each is
replaced by its number in quotes, and the table of `Lexed` has the value. A sign that no condition needs is refused
here, comments among them.

    'it''s'  "it's"  'it' '\\'s'  r'\\d'    text; neighbours are one text            X'0a'   bytes
    1  1L  1S  1Y                         integers                                1.5  1BD   decimals, 38 digits at most
    1e3  1D                               doubles                                 1F         floats
    date '2013-01-31'    timestamp '2013-01-31T12:00:00Z'    timestamp_ntz '2013-01-31T12:00:00'
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import struct
from dataclasses import dataclass
from typing import TypeAlias

from minilog.errors import InvalidArgument

MAX_DIGITS = 38
"""Of a decimal in Spark."""
_SHOWN_CHARACTERS = 60
_MOST_OFFSET_MINUTES = 18 * 60  # of a zone in Java
_SUFFIX_LETTERS = "bBdDfFlLsSyY"
_SUFFIXED_BITS = {"Y": 8, "S": 16, "L": 64}
_FLOAT, _DOUBLE_BITS = struct.Struct("<f"), struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_LEAST_NORMAL_FLOAT = 2.0**-126
_BEHIND_A_FLOAT, _HALF = (1 << 29) - 1, 1 << 28  # the bits of a double that a float lacks
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_DATE_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME_FORM = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T]{_TIME}(?:Z|([+-])([0-9]{{2}}):([0-5][0-9]))?")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<hex>[xX]'[^']*')
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[lLsSyYfFdD])?(?![A-Za-z0-9_.]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<name>`(?:[^`]|``)+`)
    |(?P<sign><=>|<>|!=|<=|>=|==|[-=<>(),.])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPED |= {sign: sign for sign in "\\'\""}

Token: TypeAlias = tuple[str, str]
"""Its kind, a group of `_TOKEN`, and its words."""
Value: TypeAlias = bool | int | decimal.Decimal | float | str | bytes | datetime.date | datetime.datetime | None


@dataclass(frozen=True, slots=True)
class Literal:
    """One constant, and how it was written, with the minus before it."""

    words: str
    value: Value


@dataclass(frozen=True, slots=True)
class Lexed:
    """`text`: the condition with a number in quotes for each constant, which is its place in `literals`."""

    text: str
    literals: tuple[Literal, ...]

    def shown(self, words: str) -> str:
        """Words of the parser, with the constants as they were written."""
        return re.sub(r"'([0-9]+)'", lambda match: self.literals[int(match[1])].words, words)


def shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def lexed(text: str) -> Lexed:
    """Raises InvalidArgument, with the place, where Spark would read something else, or where that is not sure."""
    tokens, pieces, literals, at = _tokens(text), list[str](), list[Literal](), 0
    _check_neighbours(text, tokens)
    while at < len(tokens):
        if not (taken := _tokens_of_constant(tokens, at)):
            pieces.append(tokens[at][1])
            at += 1
            continue
        sign = ""
        if tokens[at][0] == "number" and pieces and pieces[-1] == "-":
            # Spark reads a minus before a number as a part of it, whatever stands before the minus
            sign = pieces.pop()
            if pieces and not _may_come_before_a_number(pieces[-1]):
                raise InvalidArgument(f"the where {shown(text)} has arithmetic: compare columns with constants")
        pieces.append(f"'{len(literals)}'")
        literals.append(_literal(sign, tokens[at : at + taken]))
        at += taken
    return Lexed(" ".join(pieces), tuple(literals))


def _tokens_of_constant(tokens: list[Token], at: int) -> int:
    """How many tokens make the constant that begins there. 0: none begins there."""
    kind, words = tokens[at]
    if kind in ("hex", "number"):
        return 1
    if kind == "word" and words.lower() in _TYPED and at + 1 < len(tokens) and tokens[at + 1][0] == "text":
        return 2
    behind = at
    while behind < len(tokens) and tokens[behind][0] in ("raw", "text"):
        behind += 1
    return behind - at


def _literal(sign: str, tokens: list[Token]) -> Literal:
    words = sign + " ".join(text for _, text in tokens)
    match tokens:
        case [("hex", digits)]:
            return Literal(words, _bytes(digits))
        case [("number", digits)]:
            return Literal(words, _number(sign, digits))
        case [("word", kind), quoted]:
            return Literal(words, _TYPED[kind.lower()](_text(*quoted)))
        case _:
            return Literal(words, "".join(_text(*token) for token in tokens))


def _may_come_before_a_number(piece: str) -> bool:
    return piece in ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "(", ",") or piece.lower() in _BEFORE_NUMBERS


_BEFORE_NUMBERS = {"and", "or", "not", "between", "from"}


def _tokens(text: str) -> list[Token]:
    tokens, at = list[Token](), 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if text.startswith("--", at):
            raise InvalidArgument(f"the where has a comment, {shown(text[at:])}: take it out")
        if token is None or token.lastgroup is None:
            raise InvalidArgument(
                f"the where cannot be read from {shown(text[at:])} on: it has columns, constants, comparisons, and, "
                "or, not; write a name with other signs than a to z, 0 to 9 and _ in `backquotes`"
            )
        if token.lastgroup != "space":
            tokens.append((token.lastgroup, token[0]))
        at = token.end()
    return tokens


def _check_neighbours(text: str, tokens: list[Token]) -> None:
    """Raises InvalidArgument for what the parser behind this module reads and Spark does not."""
    ends: list[Token] = [("", "")]
    for before, (kind, words), (_, behind) in zip(ends + tokens, tokens, tokens[1:] + ends, strict=False):
        if words == "," and (before[1] in ("(", ",") or behind in (")", ",")):
            raise InvalidArgument(f"the where {shown(text)} has a comma with nothing beside it: take it out")
        if kind == "word" and words.lower() in _WORDS_OF_OTHERS:
            raise InvalidArgument(
                f"the where {shown(text)} has the word {words}: write is null or is not null, or `{words}` for a column"
            )
        if words.lower() in ("and", "or") and not _is_operand(*before) and before[1] != "-":
            raise InvalidArgument(
                f"the where {shown(text)} has an {words} with nothing before it: write a condition there"
            )
        if words.lower() == "not" and _is_operand(*before) and behind.lower() not in ("in", "between", "like"):
            raise InvalidArgument(
                f"the where {shown(text)} has a not behind {before[1]!r}: write it before the condition"
            )


_WORDS_OF_OTHERS = {"isnull", "notnull", "unknown"}
_WORDS_OF_CONDITIONS = {"and", "or", "not", "is", "between", "in", "like", "distinct", "from"}


def _is_operand(kind: str, words: str) -> bool:
    """Whether a column, a constant or a condition ends with this token."""
    if kind == "word":
        return words.lower() not in _WORDS_OF_CONDITIONS
    return kind not in ("", "sign") or words == ")"


# -- text and bytes


def _text(kind: str, words: str) -> str:
    if kind == "raw":
        return words[2:-1]
    quote, inner = words[0], words[1:-1]
    parts = inner.split(quote * 2) if "\\" not in inner else _split_at_doubled(inner, quote)
    return quote.join(_unescaped(part, words) for part in parts)


def _split_at_doubled(inner: str, quote: str) -> list[str]:
    """At quotes that stand twice, but not at one behind a backslash."""
    parts, start, at = list[str](), 0, 0
    while at < len(inner):
        if inner[at] == "\\":
            at += 2
        elif inner[at] == quote:
            parts.append(inner[start:at])
            at = start = at + 2
        else:
            at += 1
    return [*parts, inner[start:]]


def _unescaped(inner: str, words: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        short, long, octal, sign = match.groups()
        if sign is not None:
            if sign not in _ESCAPED:
                raise InvalidArgument(f"{shown(words)} has the escape {match[0]!r}: write \\\\ for a backslash")
            return _ESCAPED[sign]
        code = int(octal, 8) if octal is not None else int(short or long, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise InvalidArgument(f"{shown(words)} has the escape {match[0]!r}, which is no sign of Unicode")
        return chr(code)

    return _ESCAPE.sub(replaced, inner)


def _bytes(words: str) -> bytes:
    digits = words[2:-1]
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", digits):
        raise InvalidArgument(f"{shown(words)} is no row of bytes: write two digits of 0 to f for each")
    return bytes.fromhex(digits)


# -- numbers


def _number(sign: str, words: str) -> Value:
    """With its sign: the negative of a decimal would be rounded to a context of the caller's."""
    digits = words.rstrip(_SUFFIX_LETTERS)
    suffix, has_exponent = words[len(digits) :].upper(), "e" in digits.lower()
    if suffix in _SUFFIXED_BITS:
        return _suffixed(sign, words, digits, _SUFFIXED_BITS[suffix])
    if suffix in ("D", "F") or (has_exponent and not suffix):
        return _floating(sign + digits, sign + words, is_narrow=suffix == "F")
    if has_exponent:
        raise InvalidArgument(f"{shown(words)} is a decimal with an exponent: write its digits")
    value = decimal.Decimal(sign + digits)
    whole, scale = decimal_digits(value)
    if whole + scale > MAX_DIGITS:
        raise InvalidArgument(f"{shown(words)} has more than {MAX_DIGITS} digits, the most that Spark's decimals have")
    return value if "." in digits or suffix else int(value)


def decimal_digits(value: decimal.Decimal | int) -> tuple[int, int]:
    """How many digits a number has before its point, and behind it as it was written."""
    decimal_tuple = (value if isinstance(value, decimal.Decimal) else decimal.Decimal(value)).as_tuple()
    scale = max(0, -int(decimal_tuple.exponent))
    return (max(0, len(decimal_tuple.digits) - scale) if any(decimal_tuple.digits) else 0), scale


def _suffixed(sign: str, words: str, digits: str, bits: int) -> int:
    if not digits.isdigit() or not -(1 << (bits - 1)) <= int(sign + digits) < 1 << (bits - 1):
        raise InvalidArgument(f"{shown(sign + words)} is no integer of {bits} bits: leave its letter out")
    return int(sign + digits)


def _floating(digits: str, words: str, *, is_narrow: bool) -> float:
    value = float(digits)
    is_zero = not re.search(r"[1-9]", re.split("[eE]", digits)[0])
    is_lost = math.isinf(value) or (value == 0) != is_zero
    if is_narrow and not is_lost and not is_zero:
        try:
            narrow = float(_FLOAT.unpack(_FLOAT.pack(value))[0])
        except OverflowError:
            narrow = math.inf
        between_two = _DOUBLE_BITS.unpack(_DOUBLE.pack(value))[0] & _BEHIND_A_FLOAT == _HALF  # rounded twice, else
        is_lost, value = math.isinf(narrow) or abs(narrow) < _LEAST_NORMAL_FLOAT or between_two, narrow
    if is_lost:
        raise InvalidArgument(
            f"{shown(words)} is no {'float' if is_narrow else 'double'}: it is too large or too small"
        )
    return value


# -- days and times


def date_of(text: str) -> datetime.date:
    """Raises InvalidArgument for what is not written as 2013-01-31."""
    try:
        if _DATE_FORM.fullmatch(text):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass  # no day of a calendar
    raise InvalidArgument(f"{shown(text)} is no date: write it as 2013-01-31")


def time_of(text: str) -> datetime.datetime:
    """With its zone, where it says one. Raises InvalidArgument for another form than that of 2013-01-31T12:00:00Z."""
    match = _TIME_FORM.fullmatch(text)
    try:
        if match and (match[1] is None or int(match[2]) * 60 + int(match[3]) <= _MOST_OFFSET_MINUTES):
            return datetime.datetime.fromisoformat(text)
    except ValueError:
        pass  # no day of a calendar
    raise InvalidArgument(f"{shown(text)} is no time stamp: write it as 2013-01-31T12:00:00Z")


def _zoned(text: str) -> datetime.datetime:
    if (moment := time_of(text)).tzinfo is None:
        raise InvalidArgument(f"timestamp {shown(text)} has no zone, and a reader does not know the session's: add it")
    return moment


def _local(text: str) -> datetime.datetime:
    if (moment := time_of(text)).tzinfo is not None:
        raise InvalidArgument(f"timestamp_ntz {shown(text)} has a zone: leave it out")
    return moment


_TYPED = {"date": date_of, "timestamp": _zoned, "timestamp_ltz": _zoned, "timestamp_ntz": _local}
