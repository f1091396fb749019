"""From the words of a `where` to a Predicate: a SQL boolean over the columns of one schema. Pure.

where_literals.py reads the constants, sqlglot the words around them. What it finds is taken over piece by piece, and
whatever is not named here is refused: functions, arithmetic, subqueries, other tables. Nothing is evaluated as code.
What is not surely the meaning that Spark 4 gives it in ANSI mode is refused, too; tests/spark/conditions.py compares.

    and, or, not, parentheses      =, ==, <>, !=, <, <=, >, >=, <=>, between, in      is [not] null, is [not] true
    column like 'prefix%'          true, false, null, a boolean column by itself

One side of a comparison is a column, the other a constant: a number, text, true, false, null, X'0a', date '2013-01-01',
timestamp '2013-01-01T00:00:00Z'. A constant is brought to the column's type without a loss: `delay < 1.5` of an integer
is `delay <= 1`, and what no value of the type can be is known to be false. A float is compared as a double. Text is a
date or a time stamp where the column is one; a time stamp has to say its zone, since a reader does not know that of the
session.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable

import pyarrow as pa
import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from minilog.errors import InvalidArgument, InvalidSchema
from minilog.typed.conditions.predicate import (
    And,
    Constant,
    Equal,
    IsNull,
    Known,
    Less,
    Not,
    Or,
    Predicate,
    StartsWith,
    either,
)
from minilog.typed.conditions.where_literals import (
    MAX_DIGITS,
    Lexed,
    Value,
    date_of,
    decimal_digits,
    lexed,
    shown,
    time_of,
)
from minilog.typed.schema.fields import Decimal, Field, Primitive, arrow_type
from minilog.typed.schema.topic_schema import METADATA_COLUMNS, TopicSchema

MAX_WHERE_CHARACTERS = 1 << 16
MAX_TERMS = 1_000
_MAX_DEPTH = 40  # what predicate_wire.py can tell a replica, and a little less
_EXACT = decimal.Context(prec=200)  # of 38 digits, brought to a scale of 38 at most
_INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_INTEGERS = tuple(map(Primitive, _INTEGER_BITS))
_MIRRORED: dict[type[sql.Expr], type[sql.Expr]] = {sql.LT: sql.GT, sql.LTE: sql.GTE, sql.GT: sql.LT, sql.GTE: sql.LTE}
_COMPARISONS = (sql.EQ, sql.NEQ, sql.NullSafeEQ, sql.LT, sql.LTE, sql.GT, sql.GTE)
_INTEGER_DIGITS = {"byte": 3, "short": 5, "int": 10, "long": 20}  # of the decimals that Spark compares them as


def parse_where(text: str, schema: TopicSchema) -> Predicate:
    """What `text` asks of the rows of `schema`. Raises InvalidArgument, naming the piece that is not understood."""
    if len(text) > MAX_WHERE_CHARACTERS:
        raise InvalidArgument(f"the where takes {len(text)} characters, the most is {MAX_WHERE_CHARACTERS}")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InvalidArgument(f"the where {shown(text)} has half of a character, and is no text in UTF-8")
    try:
        read = lexed(text)
        tree = sqlglot.parse_one(read.text, dialect="spark", into=sql.Condition)
        return _Binding(schema, read).predicate(tree, 0)
    except (SqlglotError, RecursionError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise InvalidArgument(f"the where {shown(text)} cannot be read ({reason}): write a SQL condition") from None


class _Binding:
    """One walk over the tree."""

    def __init__(self, schema: TopicSchema, read: Lexed) -> None:
        self._schema = schema
        self._read = read
        self._terms = 0

    def _words(self, node: sql.Expr) -> str:
        return shown(self._read.shown(node.sql(dialect="spark")))

    def predicate(self, node: sql.Expr, depth: int) -> Predicate:
        self._terms += 1
        if self._terms > MAX_TERMS or depth > _MAX_DEPTH:
            raise InvalidArgument(f"the where has more than {MAX_TERMS} terms, or {_MAX_DEPTH} levels: make it shorter")
        match node:
            case sql.Paren():
                return self.predicate(node.this, depth + 1)
            case sql.Not():
                return Not(self.predicate(node.this, depth + 1))
            case sql.And() | sql.Or():
                parts = tuple(self.predicate(part, depth + 1) for part in _flat(node))
                return And(parts) if isinstance(node, sql.And) else Or(parts)
            case sql.Boolean() | sql.Null():
                return Constant(self._constant(node))  # type: ignore[arg-type]
            case sql.Column():
                return _equal(self._column(node), True, self._words(node))
            case _ if node.args.get("negate"):
                return Not(self._condition(node))
            case _:
                return self._condition(node)

    def _condition(self, node: sql.Expr) -> Predicate:
        match node:
            case sql.Is():
                return self._is(node)
            case sql.In() if node.args.get("query") is None and node.expressions:
                field, words = self._column(node.this), self._words(node)
                self._terms += len(node.expressions)
                values = [self._constant(expression) for expression in node.expressions]
                _check_common_type(field, values, words)
                return either([_equal(field, value, words) for value in values])
            case sql.Between() if node.args.get("symmetric") is None:  # False: asymmetric
                field = self._column(node.this)
                low, high = (self._constant(node.args[name]) for name in ("low", "high"))
                words = self._words(node)
                return And((Not(_less(field, low, words)), _less(field, high, words, or_equal=True)))
            case sql.Like() if not isinstance(node.expression, sql.Any):
                return self._like(node)
            case _ if isinstance(node, _COMPARISONS):
                return self._comparison(node)
            case _:
                forms = "comparisons, in, between, like 'prefix%', is null, and, or and not"
                raise InvalidArgument(f"a where has {forms}; {self._words(node)} is none")

    def _constant(self, node: sql.Expr) -> Value:
        """Raises InvalidArgument for what is no constant."""
        match node:
            case sql.Paren():
                return self._constant(node.this)
            case sql.Null():
                return None
            case sql.Boolean():
                return bool(node.this)
            case sql.Literal():
                return self._read.literals[int(node.this)].value
        raise InvalidArgument(f"a where compares columns with constants; {self._words(node)} is none")

    def _column(self, node: sql.Expr) -> Field:
        if not isinstance(node, sql.Column):
            raise InvalidArgument(f"a where compares columns with constants; {self._words(node)} is no column")
        if node.args.get("table") is not None:
            raise InvalidArgument(f"a where sees columns, not the fields of structs: {self._words(node)} is none")
        if node.name.lower() in METADATA_COLUMNS and node.name not in self._schema.names:
            raise InvalidSchema(
                f"{node.name!r} is no column of the topic, and a where compares columns alone: choose partitions and "
                "offsets where the read begins, or filter the rows that it returns"
            )
        return self._schema.column_as_spark(node.name)

    def _is(self, node: sql.Is) -> Predicate:
        field = self._column(node.this)
        if isinstance(node.expression, sql.Null):
            return IsNull(field.id)
        if isinstance(node.expression, sql.Boolean):
            return And((_equal(field, self._constant(node.expression), self._words(node)), Not(IsNull(field.id))))
        raise InvalidArgument(f"a where understands is null, is true and is false; {self._words(node)} is none")

    def _like(self, node: sql.Like) -> Predicate:
        field, pattern = self._column(node.this), self._constant(node.expression)
        if field.type != Primitive("string") or not isinstance(pattern, str | None):
            raise InvalidArgument(f"like is for columns of text and a text: {self._words(node)} has something else")
        if pattern is None:
            return Constant(None)
        prefix, is_whole = _prefix(pattern, self._words(node))
        return Equal(field.id, pa.scalar(prefix)) if is_whole else StartsWith(field.id, prefix)

    def _comparison(self, node: sql.Expr) -> Predicate:
        kind: type[sql.Expr] = type(node)
        left, right = node.this, node.expression
        if isinstance(right, sql.Column) and not isinstance(left, sql.Column):
            kind, left, right = _MIRRORED.get(kind, kind), right, left
        field, value = self._column(left), self._constant(right)
        match kind:
            case sql.EQ:
                return _equal(field, value, self._words(node))
            case sql.NEQ:
                return Not(_equal(field, value, self._words(node)))
            case sql.NullSafeEQ:
                if value is None:
                    return IsNull(field.id)
                return And((_equal(field, value, self._words(node)), Not(IsNull(field.id))))
            case sql.LT | sql.LTE:
                return _less(field, value, self._words(node), or_equal=kind is sql.LTE)
            case _:
                return Not(_less(field, value, self._words(node), or_equal=kind is sql.GT))


def _flat(node: sql.Expr) -> list[sql.Expr]:
    """The parts of a chain of the same connector, however long: it leans to the left."""
    kind, parts = type(node), list[sql.Expr]()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is kind:
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _prefix(pattern: str, words: str) -> tuple[str, bool]:
    """The text that a pattern of LIKE begins with, and whether that is all of it."""
    parts, at = list[str](), 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\" and pattern[at + 1 : at + 2] in ("\\", "%", "_"):
            sign, at = pattern[at + 1], at + 1
        elif sign == "%" and not pattern[at:].strip("%"):
            return "".join(parts), False
        elif sign in "%_\\":
            raise InvalidArgument(f"a where understands like 'prefix%' only: {words} has another pattern")
        parts.append(sign)
        at += 1
    return "".join(parts), True


# -- a column against a constant, in the column's type


def _check_common_type(field: Field, values: list[Value], words: str) -> None:
    """Spark brings both sides to one type first: it has to have room for all of both. Raises InvalidArgument."""
    match field.type:
        case Decimal(precision, scale):
            whole = precision - scale
        case Primitive(name):
            whole, scale = _INTEGER_DIGITS.get(name, 0), 0
        case _:
            raise InvalidArgument(f"column {field.name!r} is {field.type}, which a where cannot compare: {words}")
    numbers = [value for value in values if isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)]
    are_integers = all(isinstance(number, int) for number in numbers)
    if whole + scale == 0 or (are_integers and not isinstance(field.type, Decimal)):
        return
    for number in numbers:
        before, behind = decimal_digits(number)
        whole, scale = max(whole, before), max(scale, behind)
    if whole + scale > MAX_DIGITS:
        raise InvalidArgument(
            f"column {field.name!r} is {field.type}: with the digits of {words} it takes {whole + scale} of them, and "
            f"Spark compares {MAX_DIGITS} at most: write fewer digits"
        )


def _equal(field: Field, value: Value, words: str) -> Predicate:
    _check_common_type(field, [value], words)
    if value is None:
        return Constant(None)
    below, is_exact = _brought(field, value, words)
    return Equal(field.id, below) if is_exact and below is not None else Known(field.id, False)


def _less(field: Field, value: Value, words: str, *, or_equal: bool = False) -> Predicate:
    _check_common_type(field, [value], words)
    if value is None:
        return Constant(None)
    below, is_exact = _brought(field, value, words)
    if field.type in _INTEGERS and isinstance(value, int | decimal.Decimal) and not -(2**63) <= value <= 2**63 - 1:
        raise InvalidArgument(
            f"column {field.name!r} is {field.type}: {words} has a number of more than 64 bits, which Spark "
            "takes to be above or below null, too: write is null or is not null"
        )
    if below is None:
        return Known(field.id, is_exact)
    return Less(field.id, below, or_equal or not is_exact)


def _brought(field: Field, value: Value, words: str) -> tuple[pa.Scalar | None, bool]:
    """The highest value of the column's type that is not above `value`, and whether it is equal. None where all values
    of the type are below it (True) or above it (False)."""
    kind = field.type
    match kind:
        case Decimal(precision, scale):
            return _brought_number(field, value, words, scale, 10**precision - 1)
        case Primitive(name) if name in _INTEGER_BITS:
            return _brought_number(field, value, words, 0, 2 ** (_INTEGER_BITS[name] - 1) - 1)
        case Primitive(name):
            return _BRINGERS[name](field, value, words), True
        case _:
            raise InvalidArgument(f"column {field.name!r} is {kind}, which a where cannot compare: {words}")


def _brought_number(field: Field, value: Value, words: str, scale: int, most: int) -> tuple[pa.Scalar | None, bool]:
    """Of an integer, or a decimal with `scale` digits behind the point; `most` in units of the last digit."""
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        raise _other_type(field, words, "a number without an exponent")
    scaled = _EXACT.scaleb(decimal.Decimal(value), scale)
    below = math.floor(scaled)
    least = -most if isinstance(field.type, Decimal) else -most - 1
    if not least <= below <= most:
        return None, below > most
    number = _EXACT.scaleb(decimal.Decimal(below), -scale) if isinstance(field.type, Decimal) else below
    return pa.scalar(number, arrow_type(field.type)), scaled == below


def _other_type(field: Field, words: str, wanted: str) -> InvalidArgument:
    return InvalidArgument(f"column {field.name!r} is {field.type}: compare it with {wanted}, not as in {words}")


def _bring_float(field: Field, value: Value, words: str) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _other_type(field, words, "a number")
    try:
        return pa.scalar(float(value), pa.float64())
    except OverflowError:
        raise _other_type(field, words, "a number of less than 309 digits") from None


def _bring_text(field: Field, value: Value, words: str) -> pa.Scalar:
    if not isinstance(value, str):
        raise _other_type(field, words, "text in quotes")
    return pa.scalar(value, pa.string())


def _bring_bytes(field: Field, value: Value, words: str) -> pa.Scalar:
    if not isinstance(value, bytes):
        raise _other_type(field, words, "bytes, as X'0a'")
    return pa.scalar(value, pa.binary())


def _bring_bool(field: Field, value: Value, words: str) -> pa.Scalar:
    if not isinstance(value, bool):
        raise _other_type(field, words, "true or false")
    return pa.scalar(value, pa.bool_())


def _bring_date(field: Field, value: Value, words: str) -> pa.Scalar:
    date = date_of(value) if isinstance(value, str) else value
    if not isinstance(date, datetime.date) or isinstance(date, datetime.datetime):
        raise _other_type(field, words, "a date, as '2013-01-31'")
    return pa.scalar(date, pa.date32())


def _bring_time(field: Field, value: Value, words: str) -> pa.Scalar:
    time = time_of(value) if isinstance(value, str) else value
    with_zone = field.type == Primitive("timestamp")
    if not isinstance(time, datetime.datetime) or (time.tzinfo is not None) != with_zone:
        zone = "with its zone, as '2013-01-31T12:00:00Z'" if with_zone else "without a zone, as '2013-01-31T12:00:00'"
        raise _other_type(field, words, f"a time stamp {zone}")
    return pa.scalar(time, arrow_type(field.type))


_BRINGERS: dict[str, Callable[[Field, Value, str], pa.Scalar]] = {
    "float": _bring_float,
    "double": _bring_float,
    "string": _bring_text,
    "binary": _bring_bytes,
    "boolean": _bring_bool,
    "date": _bring_date,
    "timestamp": _bring_time,
    "timestamp_ntz": _bring_time,
}
