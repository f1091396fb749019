"""Conditions as Python writes them: `minilog.col("delay") > 10`. Pure, and without Arrow.

An expression is the words of a `where`, made piece by piece: it has the same algebra, limits and meaning, since
where.py alone reads it. Names stand in backquotes, texts are escaped, and nothing of a number is lost.

    ==  !=  <  <=  >  >=    is_in    between    starts_with    is_null    is_not_null
    &  |  ~                 and, or, not: put each comparison in parentheses
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

from minilog.errors import InvalidArgument

Constant: TypeAlias = bool | int | float | decimal.Decimal | str | bytes | datetime.date | datetime.datetime
"""What a column is compared with. A time stamp with a zone is for columns of instants, one without for local ones."""
_DECIMAL_DIGITS = 38
_ESCAPES = {"\\": "\\\\", "'": "\\'"}


class Condition:
    """A condition on the columns of a row. `str` gives its words."""

    __slots__ = ("_joined_by", "_parts")

    def __init__(self, *parts: str, joined_by: str = "") -> None:
        self._parts = parts
        self._joined_by = joined_by

    def __and__(self, other: Condition) -> Condition:
        return self._joined("and", other)

    def __or__(self, other: Condition) -> Condition:
        return self._joined("or", other)

    def _joined(self, word: str, other: object) -> Condition:
        """A chain of the same word stays flat: a where may have many terms, and not many levels."""
        if not isinstance(other, Condition):
            raise TypeError(f"{other!r} is no condition: put each comparison in parentheses, as (col('a') > 1) & ...")
        operands = (operand._parts if operand._joined_by == word else (str(operand),) for operand in (self, other))
        return Condition(*itertools.chain.from_iterable(operands), joined_by=word)

    def __invert__(self) -> Condition:
        return Condition(f"(not {self})")

    def __bool__(self) -> NoReturn:
        raise TypeError("a condition has no truth value: join conditions by &, | and ~, each in parentheses")

    def __str__(self) -> str:
        joined = f" {self._joined_by} ".join(self._parts)
        return f"({joined})" if self._joined_by else joined

    def __repr__(self) -> str:
        return f"<Condition {self}>"


class Column(Condition):
    """A column by its name; see the module's text. A column of booleans is a condition by itself."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{name!r} is no name of a column: give text")
        super().__init__("`" + name.replace("`", "``") + "`")

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compared("=", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compared("<>", value)

    def __lt__(self, value: Constant) -> Condition:
        return self._compared("<", value)

    def __le__(self, value: Constant) -> Condition:
        return self._compared("<=", value)

    def __gt__(self, value: Constant) -> Condition:
        return self._compared(">", value)

    def __ge__(self, value: Constant) -> Condition:
        return self._compared(">=", value)

    __hash__ = None  # type: ignore[assignment]  # an equality that is no truth value

    def is_in(self, values: Iterable[Constant]) -> Condition:
        """One of the values, of which there is at least one."""
        words = [constant_words(value) for value in values]
        if not words:
            raise InvalidArgument(f"{self} is in no values: give at least one")
        return Condition(f"({self} in ({', '.join(words)}))")

    def between(self, low: Constant, high: Constant) -> Condition:
        """Both ends included."""
        return Condition(f"({self} between {constant_words(low)} and {constant_words(high)})")

    def starts_with(self, prefix: str) -> Condition:
        """Of text."""
        pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        return Condition(f"({self} like {constant_words(pattern)})")

    def is_null(self) -> Condition:
        return Condition(f"({self} is null)")

    def is_not_null(self) -> Condition:
        return Condition(f"({self} is not null)")

    def _compared(self, sign: str, value: object) -> Condition:
        return Condition(f"({self} {sign} {constant_words(value)})")


def col(name: str) -> Column:
    """A column of a topic, for the `where` of a scan. Raises InvalidArgument for what is no name."""
    return Column(name)


def constant_words(value: Any) -> str:
    """A constant as a `where` has it. Raises InvalidArgument for what none can be."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _float_words(value)
        case decimal.Decimal() if value.is_finite():
            return f"{value:f}BD"
        case str():
            return "'" + "".join(_ESCAPES.get(sign, sign) for sign in value) + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
            return f"{kind} '{value.isoformat()}'"
        case datetime.date():
            return f"date '{value.isoformat()}'"
        case _ if hasattr(value, "item"):  # a number of numpy
            return constant_words(value.item())
    remedy = "use is_null()" if value is None else "give a number, text, bytes, a bool, a date or a datetime"
    raise InvalidArgument(f"{value!r} cannot be compared with a column: {remedy}")


def _float_words(value: float) -> str:
    """With all its digits, since columns of integers and decimals are compared with these; with an exponent where there
    are more digits than a decimal has."""
    if not math.isfinite(value):
        raise InvalidArgument(f"{value!r} cannot be compared with a column: a where has no word for it")
    exact = decimal.Decimal(repr(float(value)))
    digits = f"{exact:f}"
    return digits if len(digits.lstrip("-").replace(".", "")) <= _DECIMAL_DIGITS else f"{float(value)!r}D"
