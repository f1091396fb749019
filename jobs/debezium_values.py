"""Values as Debezium writes them into a change event, as values of a typed topic's columns.

| column | JSON |
|---|---|
| boolean, byte, short, int, long, float, double | a boolean, an integer, a number |
| string | a text (also of enum, uuid, json, inet) |
| binary | a text: base64, base64-url-safe or hex (`binary.handling.mode`) |
| date | days since 1970, or `2024-05-01` |
| timestamp | `2024-05-01T12:00:00Z` with any zone (ZonedTimestamp), or a number as below |
| timestamp_ntz | microseconds since 1970, or milliseconds where the event or the options say so; or ISO 8601 |
| decimal | base64 of the unscaled number, {"scale", "value"}, a number, or a text (`decimal.handling.mode`) |
| array of these | an array |

`converted` gives null for a value that does not fit, and `unfit` tells it from a null. Nothing is rounded, cut off or
guessed. These are expressions of Spark: no value passes through Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from minilog.typed.fields import Array, Decimal, Field, FieldType, Primitive

PRECISE = "precise"
DECIMAL_MODES = (PRECISE, "string", "double")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
MILLISECONDS = "io.debezium.time.Timestamp"
_MILLISECONDS = (MILLISECONDS, "org.apache.kafka.connect.data.Timestamp")
_NANOSECONDS = "io.debezium.time.NanoTimestamp"
_AS_THEY_ARE = ("boolean", "byte", "short", "int", "long", "double")
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6}0*)?"  # a seventh digit would be lost
_WHOLE_NUMBER = r"^-?\d+$"
_DIGITS, _COMPLEMENT = "0123456789ABCDEF", "FEDCBA9876543210"
_NEGATIVE = "8"  # the highest bit of the first digit and up, as text
_HALF = 16  # hexadecimal digits of 64 bits; two halves hold every decimal of 38 digits
_SCALES = (-38, 76)  # beyond them no decimal of 38 digits has a value but 0


@dataclass(frozen=True, slots=True)
class Encoding:
    """The settings of the connector that change how it writes a value, with its defaults."""

    decimals: str = PRECISE
    binary: str = "bytes"
    milliseconds: frozenset[str] = frozenset()  # columns whose times are milliseconds, where no event says so
    unavailable: str = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of one column beside its type: the name that Debezium gives to its meaning, its scale."""

    encoding: Encoding
    semantic: Column
    scale: Column


def wire_type(field: Field) -> str:
    """The type that Spark reads this column as, from JSON. Raises ValueError for a struct or a map."""
    return _wire(field.type, field.name)


def _wire(kind: FieldType, name: str) -> str:
    match kind:
        case Primitive(known) if known in _AS_THEY_ARE:
            return known
        case Primitive("float"):
            return "double"
        case Primitive():
            return "string"
        case Decimal():
            return "variant"  # which tells a number from a text
        case Array(element):
            return f"array<{_wire(element.type, name)}>"
    raise ValueError(f"column {name!r} is {kind}: this job fills columns of simple types, and arrays of them")


def decimal_scale(kind: FieldType) -> int | None:
    """The digits behind the point, of a decimal or of arrays of decimals."""
    inner = _innermost(kind)
    return inner.scale if isinstance(inner, Decimal) else None


def is_time(kind: FieldType) -> bool:
    """Whether its numbers may be microseconds, milliseconds or nanoseconds."""
    return _innermost(kind) in (Primitive("timestamp"), Primitive("timestamp_ntz"))


def _innermost(kind: FieldType) -> FieldType:
    return _innermost(kind.element.type) if isinstance(kind, Array) else kind


def converted(raw: Column, given: t.DataType, kind: FieldType, hints: Hints) -> Column:
    """`raw`, which Spark has read as `given`, as a value of `kind`; null where it does not fit."""
    match kind:
        case Array(element):
            inner = given.elementType if isinstance(given, t.ArrayType) else given
            return f.transform(raw, lambda one: converted(one, inner, element.type, hints))
        case Decimal():
            return _decimal(raw, given, kind, hints)
        case Primitive("string"):
            return f.lit(None).cast("string") if isinstance(given, t.BinaryType) else raw.cast("string")
        case Primitive("binary"):
            return raw if isinstance(given, t.BinaryType) else _binary(raw.cast("string"), hints.encoding.binary)
        case Primitive("date" | "timestamp" | "timestamp_ntz" as name):
            if isinstance(given, t.DateType | t.TimestampType | t.TimestampNTZType):
                return _uncut(raw, given, name)
            text = raw.cast("string")
            return _date(text) if name == "date" else _time(text, name, hints.semantic)
        case Primitive("float"):
            cast = raw.try_cast("float")  # the nearest float, but no infinity for a number
            return f.when(_is_infinite(cast).eqNullSafe(_is_infinite(raw.try_cast("double"))), cast)
        case _:
            return _uncut(raw, given, str(kind))


def unfit(raw: Column, cast: Column, given: t.DataType, kind: FieldType, hints: Hints) -> Column:
    """Whether there is a value that does not fit, at any depth of arrays. `cast`: what `converted` gives."""
    if isinstance(kind, Array) and isinstance(given, t.ArrayType):
        inner, element = given.elementType, kind.element.type
        return f.exists(raw, lambda one: unfit(one, converted(one, inner, element, hints), inner, element, hints))
    there = raw.isNotNull()
    if isinstance(given, t.VariantType):
        there = there & ~f.is_variant_null(raw)
    return there & cast.isNull()


def unavailable(value: Column, kind: FieldType, encoding: Encoding) -> Column:
    """Whether a converted value is the text that Debezium writes for a value which the database did not send."""
    match kind:
        case Primitive("string"):
            return value == encoding.unavailable
        case Primitive("binary"):
            return value == f.lit(encoding.unavailable).cast("binary")
        case Array(element):
            return f.exists(value, lambda one: unavailable(one, element.type, encoding))
        case _:
            return f.lit(False)


def _uncut(raw: Column, given: t.DataType, kind: str) -> Column:
    """Null for what is another value when it is cast back."""
    if t.DataType.fromDDL(kind).simpleString() == given.simpleString():
        return raw
    cast = raw.try_cast(kind)
    return f.when(cast.try_cast(given).eqNullSafe(raw), cast)


def _is_infinite(value: Column) -> Column:
    return f.abs(value) == float("inf")


def _binary(text: Column, mode: str) -> Column:
    if mode == "hex":
        return f.try_to_binary(text, f.lit("hex"))
    if mode == "base64-url-safe":
        text = f.translate(text, "-_", "+/")
    return f.try_to_binary(text, f.lit("base64"))


def _date(text: Column) -> Column:
    days = f.when(text.rlike(_WHOLE_NUMBER), text.try_cast("int"))
    written = f.when(text.rlike(r"^\d{4}-\d\d-\d\dZ?$"), f.substring(text, 1, 10).try_cast("date"))
    return f.coalesce(f.date_from_unix_date(days), written)


def _time(text: Column, kind: str, semantic: Column) -> Column:
    """The zone of Spark's session is UTC. A time with a zone is an instant, and one without a zone is none."""
    number = f.when(text.rlike(_WHOLE_NUMBER), text.try_cast("bigint"))
    micros = (
        f.when(semantic.isin(*_MILLISECONDS), f.try_multiply(number, f.lit(1000)))
        .when(semantic == _NANOSECONDS, f.when(number % 1000 == 0, f.call_function("div", number, f.lit(1000))))
        .otherwise(number)
    )
    zone = r"(Z|[+-]\d\d:\d\d)" if kind == "timestamp" else ""
    written = f.when(text.rlike(f"^{_TIME}{zone}$"), text.try_cast(kind))
    return f.coalesce(f.timestamp_micros(micros).cast(kind), written)


def _decimal(raw: Column, given: t.DataType, kind: Decimal, hints: Hints) -> Column:
    if isinstance(given, t.DecimalType):
        return _uncut(raw, given, str(kind))
    if isinstance(given, t.StructType):  # VariableScaleDecimal, in Avro
        return _exact(_plain(raw["value"], raw["scale"]), kind)
    if not isinstance(given, t.VariantType):
        return _exact(raw.cast("string"), kind)
    form, text = f.schema_of_variant(raw), f.try_variant_get(raw, "$", "string")
    is_struct = form.startswith("OBJECT")
    encoded = f.when(is_struct, f.try_variant_get(raw, "$.value", "string")).otherwise(text)
    scale = f.when(is_struct, f.try_variant_get(raw, "$.scale", "int")).otherwise(hints.scale)
    is_encoded = is_struct | (form == "STRING") if hints.encoding.decimals == PRECISE else is_struct
    return _exact(f.when(is_encoded, _plain(_binary(encoded, "base64"), scale)).otherwise(text), kind)


def _exact(text: Column, kind: Decimal) -> Column:
    """A number in digits as a decimal, null where digits would be cut off."""

    def cast(digits: Column) -> Column:
        number = digits.try_cast(str(kind))
        in_digits = digits.rlike(rf"^[+-]?\d+(\.\d{{0,{kind.scale}}}0*)?$")
        with_exponent = digits.rlike("[eE]") & (number.cast("double") == digits.try_cast("double"))
        return f.when(in_digits | with_exponent, number)

    return _once(text, cast)


def _once(value: Column, expression: Callable[[Column], Column]) -> Column:
    """An expression in which `value` stands several times, and is computed once."""
    return f.transform(f.array(value), expression)[0]


def _plain(unscaled: Column, scale: Column) -> Column:
    """The bytes of Java's BigInteger (two's complement, highest byte first) and a scale as digits with a point."""
    parts = f.struct(f.hex(unscaled).alias("hex"), scale.alias("scale"))
    return _once(parts, lambda known: _once(_whole(known["hex"]), lambda number: _with_point(number, known)))


def _whole(digits: Column) -> Column:
    """The number without its sign. Null where it has more than 128 bits."""
    negative = digits >= _NEGATIVE
    # Of a negative number -n this is the complement of n - 1: so no intermediate result is larger than the number.
    magnitude = f.when(negative, f.translate(digits, _DIGITS, _COMPLEMENT)).otherwise(digits)
    magnitude = f.lpad(f.when(f.length(digits).between(1, 2 * _HALF), magnitude), 2 * _HALF, "0")
    high, low = (f.conv(f.substring(magnitude, at, _HALF), 16, 10).try_cast("decimal(20,0)") for at in (1, _HALF + 1))
    number = f.try_add(f.try_multiply(high, f.lit(str(2**64)).cast("decimal(20,0)")), low)
    return f.try_add(number, negative.cast("int").cast("decimal(1,0)")).cast("string")


def _with_point(number: Column, known: Column) -> Column:
    scale = f.when(known["scale"].between(*_SCALES), known["scale"])
    digits = f.concat(number, f.repeat(f.lit("0"), -scale))
    digits = f.lpad(digits, f.greatest(f.length(digits), scale + 1), f.lit("0"))
    sign = f.when(known["hex"] >= _NEGATIVE, "-").otherwise("")
    behind = f.when(scale > 0, f.concat(f.lit("."), f.right(digits, scale))).otherwise("")
    return f.concat(sign, f.left(digits, f.length(digits) - f.greatest(scale, f.lit(0))), behind)
