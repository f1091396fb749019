"""From the words of a `where` to a Predicate: a SQL boolean over the columns of one schema. Pure.

sqlglot reads the words as Spark's SQL; what it finds is taken over piece by piece, and whatever is not named here is
refused: functions, arithmetic, subqueries, other tables. Nothing is ever evaluated as code.

    and, or, not, parentheses      =, ==, <>, !=, <, <=, >, >=, <=>, between, in      is [not] null, is [not] true
    column like 'prefix%'          true, false, null, a boolean column by itself

One side of a comparison is a column, the other a constant: a number, text, true, false, null, X'0a', date '2013-01-01',
timestamp '2013-01-01T00:00:00Z'. A constant is brought to the column's type without a loss: `delay < 1.5` of an integer
is `delay <= 1`, and what no value of the type can be is known to be false. Text is a date or a time stamp where the
column is one; a time stamp has to say its zone, since a reader does not know that of the session.
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

from minilog.errors import InvalidArgument
from minilog.typed.fields import Decimal, Field, Primitive, arrow_type
from minilog.typed.predicate import And, Constant, Equal, IsNull, Known, Less, Not, Or, Predicate, StartsWith, either
from minilog.typed.topic_schema import TopicSchema

MAX_WHERE_CHARACTERS = 1 << 16
MAX_TERMS = 1_000
_MAX_DEPTH = 40  # what predicate_wire.py can tell a replica, and a little less
_SHOWN_CHARACTERS = 60
_INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_MIRRORED: dict[type[sql.Expr], type[sql.Expr]] = {sql.LT: sql.GT, sql.LTE: sql.GTE, sql.GT: sql.LT, sql.GTE: sql.LTE}
_COMPARISONS = (sql.EQ, sql.NEQ, sql.NullSafeEQ, sql.LT, sql.LTE, sql.GT, sql.GTE)
_Value = bool | int | decimal.Decimal | float | str | bytes | datetime.date | datetime.datetime | None


def parse_where(text: str, schema: TopicSchema) -> Predicate:
    """What `text` asks of the rows of `schema`. Raises InvalidArgument, naming the piece that is not understood."""
    if len(text) > MAX_WHERE_CHARACTERS:
        raise InvalidArgument(f"the where takes {len(text)} characters, the most is {MAX_WHERE_CHARACTERS}")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InvalidArgument(f"the where {_shown(text)} has half of a sign in it, which is no text in UTF-8")
    try:
        tree = sqlglot.parse_one(text, dialect="spark", into=sql.Condition)
        return _Binding(schema).predicate(tree, 0)
    except (SqlglotError, RecursionError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise InvalidArgument(f"the where {_shown(text)} cannot be read ({reason}): write a SQL condition") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _words(node: sql.Expr) -> str:
    return _shown(node.sql(dialect="spark"))


class _Binding:
    """One walk over the tree."""

    def __init__(self, schema: TopicSchema) -> None:
        self._columns = {each.name.lower(): each for each in schema.fields}
        self._terms = 0

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
                parts = tuple(self.predicate(each, depth + 1) for each in _flat(node))
                return And(parts) if isinstance(node, sql.And) else Or(parts)
            case sql.Boolean() | sql.Null():
                return Constant(_constant(node))  # type: ignore[arg-type]
            case sql.Column():
                return _equal(self._column(node), True, node)
            case _ if node.args.get("negate"):
                return Not(self._condition(node))
            case _:
                return self._condition(node)

    def _condition(self, node: sql.Expr) -> Predicate:
        match node:
            case sql.Is():
                return self._is(node)
            case sql.In() if node.args.get("query") is None and node.expressions:
                field = self._column(node.this)
                self._terms += len(node.expressions)
                return either([_equal(field, _constant(each), node) for each in node.expressions])
            case sql.Between():
                field = self._column(node.this)
                low, high = (_constant(node.args[name]) for name in ("low", "high"))
                return And((Not(_less(field, low, node)), _less(field, high, node, or_equal=True)))
            case sql.Like() if not isinstance(node.expression, sql.Any):
                return self._like(node)
            case _ if isinstance(node, _COMPARISONS):
                return self._comparison(node)
            case _:
                known = "comparisons, in, between, like 'prefix%', is null, and, or and not"
                raise InvalidArgument(f"a where has {known}; {_words(node)} is none")

    def _column(self, node: sql.Expr) -> Field:
        if not isinstance(node, sql.Column):
            raise InvalidArgument(f"a where compares columns with constants; {_words(node)} is no column")
        if node.args.get("table") is not None:
            raise InvalidArgument(f"a where sees columns, not the fields of structs: {_words(node)} is none")
        found = self._columns.get(node.name.lower())
        if found is None:
            names = ", ".join(each.name for each in self._columns.values())
            raise InvalidArgument(f"the where names {node.name!r}, and there are the columns {names}")
        return found

    def _is(self, node: sql.Is) -> Predicate:
        field = self._column(node.this)
        if isinstance(node.expression, sql.Null):
            return IsNull(field.id)
        if isinstance(node.expression, sql.Boolean):
            return And((_equal(field, _constant(node.expression), node), Not(IsNull(field.id))))
        raise InvalidArgument(f"a where understands is null, is true and is false; {_words(node)} is none")

    def _like(self, node: sql.Like) -> Predicate:
        field, pattern = self._column(node.this), _constant(node.expression)
        if field.type != Primitive("string") or not isinstance(pattern, str | None):
            raise InvalidArgument(f"like is for columns of text and a text: {_words(node)} has something else")
        if pattern is None:
            return Constant(None)
        prefix, is_whole = _prefix(pattern, node)
        return Equal(field.id, pa.scalar(prefix)) if is_whole else StartsWith(field.id, prefix)

    def _comparison(self, node: sql.Expr) -> Predicate:
        kind: type[sql.Expr] = type(node)
        left, right = node.this, node.expression
        if isinstance(right, sql.Column) and not isinstance(left, sql.Column):
            kind, left, right = _MIRRORED.get(kind, kind), right, left
        field, value = self._column(left), _constant(right)
        match kind:
            case sql.EQ:
                return _equal(field, value, node)
            case sql.NEQ:
                return Not(_equal(field, value, node))
            case sql.NullSafeEQ:
                if value is None:
                    return IsNull(field.id)
                return And((_equal(field, value, node), Not(IsNull(field.id))))
            case sql.LT | sql.LTE:
                return _less(field, value, node, or_equal=kind is sql.LTE)
            case _:
                return Not(_less(field, value, node, or_equal=kind is sql.GT))


def _flat(node: sql.Expr) -> list[sql.Expr]:
    """The parts of a chain of the same connector, however long: it leans to the left."""
    kind, parts = type(node), list[sql.Expr]()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if type(each) is kind:
            waiting += [each.expression, each.this]
        else:
            parts.append(each)
    return parts


def _prefix(pattern: str, node: sql.Expr) -> tuple[str, bool]:
    """The text that a pattern of LIKE begins with, and whether that is all of it."""
    found, at = list[str](), 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\" and pattern[at + 1 : at + 2] in ("\\", "%", "_"):
            sign, at = pattern[at + 1], at + 1
        elif sign == "%" and not pattern[at:].strip("%"):
            return "".join(found), False
        elif sign in "%_\\":
            raise InvalidArgument(f"a where understands like 'prefix%' only: {_words(node)} has another pattern")
        found.append(sign)
        at += 1
    return "".join(found), True


def _constant(node: sql.Expr) -> _Value:
    """The value of a literal. Raises InvalidArgument for all else."""
    match node:
        case sql.Paren():
            return _constant(node.this)
        case sql.Null():
            return None
        case sql.Boolean():
            return bool(node.this)
        case sql.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case sql.Neg():
            value = _constant(node.this)
            if isinstance(value, int | decimal.Decimal | float) and not isinstance(value, bool):
                return -value
        case sql.HexString():
            return bytes.fromhex(node.this if len(node.this) % 2 == 0 else "0" + node.this)
        case sql.Concat() if all(isinstance(each, sql.Literal) and each.is_string for each in node.expressions):
            return "".join(each.this for each in node.expressions)  # 'it''s': Spark joins neighbours
        case sql.Cast() if isinstance(node.this, sql.Literal):
            return _typed(node)
    raise InvalidArgument(f"a where compares columns with constants; {_words(node)} is none")


def _number(text: str) -> _Value:
    if "e" in text.lower():
        return float(text)
    return decimal.Decimal(text) if "." in text else int(text)


def _typed(node: sql.Cast) -> _Value:
    """DATE '...', TIMESTAMP '...', and numbers with a letter behind them."""
    text, kind = str(node.this.this), node.to.this
    if node.this.is_string and kind in (sql.DataType.Type.DATE, sql.DataType.Type.DATE32):
        return _date(text, node)
    if node.this.is_string and kind in (
        sql.DataType.Type.TIMESTAMP,
        sql.DataType.Type.TIMESTAMPTZ,
        sql.DataType.Type.TIMESTAMPLTZ,
        sql.DataType.Type.TIMESTAMPNTZ,
    ):
        return _time(text, node)
    if not node.this.is_string and kind in (sql.DataType.Type.FLOAT, sql.DataType.Type.DOUBLE):
        return float(text)
    if not node.this.is_string and isinstance(node, sql.TryCast):  # 5L, 5S, 5Y
        return _number(text)
    raise InvalidArgument(f"a where compares columns with constants; {_words(node)} is none")


def _date(text: str, node: sql.Expr) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} in {_words(node)} is no date: write it as 2013-01-31") from None


def _time(text: str, node: sql.Expr) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} in {_words(node)} is no time stamp: write 2013-01-31T12:00:00Z") from None


# -- a column against a constant, in the column's type


def _equal(field: Field, value: _Value, node: sql.Expr) -> Predicate:
    if value is None:
        return Constant(None)
    below, is_exact = _brought(field, value, node)
    return Equal(field.id, below) if is_exact and below is not None else Known(field.id, False)


def _less(field: Field, value: _Value, node: sql.Expr, *, or_equal: bool = False) -> Predicate:
    if value is None:
        return Constant(None)
    below, is_exact = _brought(field, value, node)
    if below is None:
        return Known(field.id, is_exact)
    return Less(field.id, below, or_equal or not is_exact)


def _brought(field: Field, value: _Value, node: sql.Expr) -> tuple[pa.Scalar | None, bool]:
    """The highest value of the column's type that is not above `value`, and whether it is equal. None where all values
    of the type are below it (True) or above it (False)."""
    kind = field.type
    match kind:
        case Decimal(precision, scale):
            return _brought_number(field, value, node, scale, 10**precision - 1)
        case Primitive(name) if name in _INTEGER_BITS:
            return _brought_number(field, value, node, 0, 2 ** (_INTEGER_BITS[name] - 1) - 1)
        case Primitive(name):
            return _BRINGERS[name](field, value, node), True
        case _:
            raise InvalidArgument(f"column {field.name!r} is {kind}, which a where cannot compare: {_words(node)}")


def _brought_number(
    field: Field, value: _Value, node: sql.Expr, scale: int, most: int
) -> tuple[pa.Scalar | None, bool]:
    """Of an integer, or a decimal with `scale` digits behind the point; `most` in units of the last digit."""
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        raise _other_type(field, node, "a number without an exponent")
    with decimal.localcontext(prec=200):
        scaled = decimal.Decimal(value) * 10**scale
        below = math.floor(scaled)
        least = -most if isinstance(field.type, Decimal) else -most - 1
        if not least <= below <= most:
            return None, below > most
        number = decimal.Decimal(below).scaleb(-scale) if isinstance(field.type, Decimal) else below
        return pa.scalar(number, arrow_type(field.type)), scaled == below


def _other_type(field: Field, node: sql.Expr, wanted: str) -> InvalidArgument:
    return InvalidArgument(f"column {field.name!r} is {field.type}: compare it with {wanted}, not as in {_words(node)}")


def _bring_float(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _other_type(field, node, "a number")
    try:
        return pa.scalar(float(value), pa.float64())
    except OverflowError:
        raise _other_type(field, node, "a number of less than 309 digits") from None


def _bring_text(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    if not isinstance(value, str):
        raise _other_type(field, node, "text in quotes")
    return pa.scalar(value, pa.string())


def _bring_bytes(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    if not isinstance(value, bytes):
        raise _other_type(field, node, "bytes, as X'0a'")
    return pa.scalar(value, pa.binary())


def _bring_bool(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    if not isinstance(value, bool):
        raise _other_type(field, node, "true or false")
    return pa.scalar(value, pa.bool_())


def _bring_date(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    said = _date(value, node) if isinstance(value, str) else value
    if not isinstance(said, datetime.date) or isinstance(said, datetime.datetime):
        raise _other_type(field, node, "a date, as '2013-01-31'")
    return pa.scalar(said, pa.date32())


def _bring_time(field: Field, value: _Value, node: sql.Expr) -> pa.Scalar:
    said = _time(value, node) if isinstance(value, str) else value
    with_zone = field.type == Primitive("timestamp")
    if not isinstance(said, datetime.datetime) or (said.tzinfo is not None) != with_zone:
        zone = "with its zone, as '2013-01-31T12:00:00Z'" if with_zone else "without a zone, as '2013-01-31T12:00:00'"
        raise _other_type(field, node, f"a time stamp {zone}")
    return pa.scalar(said, arrow_type(field.type))


_BRINGERS: dict[str, Callable[[Field, _Value, sql.Expr], pa.Scalar]] = {
    "float": _bring_float,
    "double": _bring_float,
    "string": _bring_text,
    "binary": _bring_bytes,
    "boolean": _bring_bool,
    "date": _bring_date,
    "timestamp": _bring_time,
    "timestamp_ntz": _bring_time,
}
