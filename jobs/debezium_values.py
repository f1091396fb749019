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
guessed. Both are expressions in Spark's SQL, as text: no value passes through Python, and a wide table costs the driver
one call for each column, where expressions made of pyspark's functions cost thousands.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as t

from minilog.typed.schema.fields import Array, Decimal, Field, FieldType, Primitive

PRECISE = "precise"
DECIMAL_MODES = (PRECISE, "string", "double")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
MILLISECONDS = "io.debezium.time.Timestamp"
_MILLISECONDS = (MILLISECONDS, "org.apache.kafka.connect.data.Timestamp")
_NANOSECONDS = "io.debezium.time.NanoTimestamp"
_AS_THEY_ARE = ("boolean", "byte", "short", "int", "long", "double")
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6}0*)?"  # a seventh digit would be lost
_HALF = 16  # hexadecimal digits of 64 bits; two halves hold every decimal of 38 digits
_SCALES = "BETWEEN -38 AND 76"  # beyond them no decimal of 38 digits has a value but 0


@dataclass(frozen=True, slots=True)
class Encoding:
    """The settings of the connector that change how it writes a value, with its defaults."""

    decimals: str = PRECISE
    binary: str = "bytes"
    milliseconds: frozenset[str] = frozenset()  # columns whose times are milliseconds, where no event says so
    unavailable: str = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of one column beside its type, as expressions: the name that Debezium gives to its meaning, its
    scale."""

    encoding: Encoding
    semantic: str
    scale: str


def literal(text: str) -> str:
    """A text as SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


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


def converted(raw: str, given: t.DataType, kind: FieldType, hints: Hints) -> str:
    """`raw`, which Spark has read as `given`, as a value of `kind`; null where it does not fit."""
    match kind:
        case Array(element):
            inner = given.elementType if isinstance(given, t.ArrayType) else given
            one = _element(raw)
            return f"transform({raw}, {one} -> {converted(one, inner, element.type, hints)})"
        case Decimal():
            return _decimal(raw, given, kind, hints)
        case Primitive("string"):
            return "CAST(NULL AS string)" if isinstance(given, t.BinaryType) else f"CAST({raw} AS string)"
        case Primitive("binary"):
            return raw if isinstance(given, t.BinaryType) else _binary(f"CAST({raw} AS string)", hints.encoding.binary)
        case Primitive("date" | "timestamp" | "timestamp_ntz" as name):
            if isinstance(given, t.DateType | t.TimestampType | t.TimestampNTZType):
                return _uncut(raw, given, name)
            text = f"CAST({raw} AS string)"
            return _date(text) if name == "date" else _time(text, name, hints.semantic)
        case Primitive("float"):  # the nearest float, but no infinity for a number
            cast = f"TRY_CAST({raw} AS float)"
            return f"IF({_is_infinite(cast)} <=> {_is_infinite(f'TRY_CAST({raw} AS double)')}, {cast}, NULL)"
        case _:
            return _uncut(raw, given, str(kind))


def unfit(raw: str, cast: str, given: t.DataType, kind: FieldType, hints: Hints) -> str:
    """Whether there is a value that does not fit, at any depth of arrays. `cast`: what `converted` gives."""
    if isinstance(kind, Array) and isinstance(given, t.ArrayType):
        inner, element, one = given.elementType, kind.element.type, _element(raw)
        return f"exists({raw}, {one} -> {unfit(one, converted(one, inner, element, hints), inner, element, hints)})"
    is_null = f"is_variant_null({raw})" if isinstance(given, t.VariantType) else "false"
    return f"({raw} IS NOT NULL AND NOT {is_null} AND {cast} IS NULL)"


def unavailable(value: str, kind: FieldType, encoding: Encoding) -> str | None:
    """Whether a converted value is the text that Debezium writes for a value which the database did not send. None
    for a type that such a text does not fit."""
    match kind:
        case Primitive("string" | "binary" as name):
            return f"{value} = CAST({literal(encoding.unavailable)} AS {name})"
        case Array(element):
            one = _element(value)
            of_one = unavailable(one, element.type, encoding)
            return of_one and f"exists({value}, {one} -> {of_one})"
        case _:
            return None


def _element(raw: str) -> str:
    """The name of an element of `raw`, another one at each depth."""
    return f"{raw}_inner" if raw.isidentifier() else "element"


def _uncut(raw: str, given: t.DataType, kind: str) -> str:
    """Null for what is another value when it is cast back."""
    if t.DataType.fromDDL(kind).simpleString() == given.simpleString():
        return raw
    cast = f"TRY_CAST({raw} AS {kind})"
    return f"IF(TRY_CAST({cast} AS {given.simpleString()}) <=> {raw}, {cast}, NULL)"


def _is_infinite(value: str) -> str:
    return f"(abs({value}) = double('Infinity'))"


def _binary(text: str, mode: str) -> str:
    if mode == "hex":
        return f"try_to_binary({text}, 'hex')"
    if mode == "base64-url-safe":
        text = f"translate({text}, '-_', '+/')"
    return f"try_to_binary({text}, 'base64')"


def _date(text: str) -> str:
    days = f"IF({_is_number(text)}, TRY_CAST({text} AS int), NULL)"
    written = rf"IF({text} RLIKE r'^\d{{4}}-\d\d-\d\dZ?$', TRY_CAST(substring({text}, 1, 10) AS date), NULL)"
    return f"coalesce(date_from_unix_date({days}), {written})"


def _is_number(text: str) -> str:
    return rf"{text} RLIKE r'^-?\d+$'"


def _time(text: str, kind: str, semantic: str) -> str:
    """The zone of Spark's session is UTC. A time with a zone is an instant, and one without a zone is none."""
    number = f"IF({_is_number(text)}, TRY_CAST({text} AS bigint), NULL)"
    micros = (
        f"CASE WHEN {semantic} IN ({', '.join(map(literal, _MILLISECONDS))}) THEN try_multiply({number}, 1000L) "
        f"WHEN {semantic} = {literal(_NANOSECONDS)} THEN IF({number} % 1000 = 0, {number} DIV 1000, NULL) "
        f"ELSE {number} END"
    )
    zone = r"(Z|[+-]\d\d:\d\d)" if kind == "timestamp" else ""
    written = f"IF({text} RLIKE r'^{_TIME}{zone}$', TRY_CAST({text} AS {kind}), NULL)"
    return f"coalesce(CAST(timestamp_micros({micros}) AS {kind}), {written})"


def _decimal(raw: str, given: t.DataType, kind: Decimal, hints: Hints) -> str:
    if isinstance(given, t.DecimalType):
        return _uncut(raw, given, str(kind))
    if isinstance(given, t.StructType):  # VariableScaleDecimal, in Avro
        return _exact(_plain(f"{raw}.value", f"{raw}.scale"), kind)
    if not isinstance(given, t.VariantType):
        return _exact(f"CAST({raw} AS string)", kind)
    text, form = f"try_variant_get({raw}, '$', 'string')", f"schema_of_variant({raw})"
    is_struct = f"startswith({form}, 'OBJECT')"
    encoded = f"IF({is_struct}, try_variant_get({raw}, '$.value', 'string'), {text})"
    scale = f"IF({is_struct}, try_variant_get({raw}, '$.scale', 'int'), {hints.scale})"
    is_encoded = f"({is_struct} OR {form} = 'STRING')" if hints.encoding.decimals == PRECISE else is_struct
    return _exact(f"IF({is_encoded}, {_plain(_binary(encoded, 'base64'), scale)}, {text})", kind)


def _once(value: str, name: str, expression: str) -> str:
    """An expression in which `name` stands several times for `value`, which is computed once."""
    return f"transform(array({value}), {name} -> {expression})[0]"


def _exact(text: str, kind: Decimal) -> str:
    """A number in digits as a decimal, null where digits would be cut off."""
    cast = f"TRY_CAST(digits AS {kind})"
    in_digits = rf"digits RLIKE r'^[+-]?\d+(\.\d{{0,{kind.scale}}}0*)?$'"
    with_exponent = f"(digits RLIKE '[eE]' AND CAST({cast} AS double) = TRY_CAST(digits AS double))"
    return _once(text, "digits", f"IF({in_digits} OR {with_exponent}, {cast}, NULL)")


def _plain(unscaled: str, scale: str) -> str:
    """The bytes of Java's BigInteger (two's complement, highest byte first) and a scale as digits with a point."""
    negative = "(parts.hex >= '8')"  # its highest bit
    # Of a negative number -n the complement is n - 1: so no intermediate result is larger than the number.
    complement = f"IF({negative}, translate(parts.hex, '0123456789ABCDEF', 'FEDCBA9876543210'), parts.hex)"
    whole = f"lpad(IF(length(parts.hex) BETWEEN 1 AND {2 * _HALF}, {complement}, NULL), {2 * _HALF}, '0')"
    high, low = (f"TRY_CAST(conv(substring(whole, {at}, {_HALF}), 16, 10) AS decimal(20,0))" for at in (1, _HALF + 1))
    number = f"try_add(try_add(try_multiply({high}, {2**64}BD), {low}), IF({negative}, 1BD, 0BD))"
    digits = "concat(CAST(number AS string), repeat('0', -parts.scale))"
    digits = f"lpad({digits}, greatest(length({digits}), parts.scale + 1), '0')"
    behind = "greatest(parts.scale, 0)"
    pointed = (
        f"concat(left(plain, length(plain) - {behind}), IF({behind} > 0, concat('.', right(plain, {behind})), ''))"
    )
    signed = f"concat(IF({negative}, '-', ''), {_once(digits, 'plain', pointed)})"
    value = _once(_once(whole, "whole", number), "number", signed)
    return _once(
        f"struct(hex({unscaled}) AS hex, {scale} AS scale)", "parts", f"IF(parts.scale {_SCALES}, {value}, NULL)"
    )
