"""Conditions as messages, and back. Pure.

What comes from a peer is bounded before it is believed: by its bytes and its depth, and each field and value has to
be one of the schema that the condition was made for. A condition is held against each batch that is read: so its terms
are bounded, wherever they stand in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from itertools import islice

from minilog.errors import CorruptMessage, InvalidArgument
from minilog.limits import MAX_CONDITION_BYTES, MAX_CONDITION_TERMS
from minilog.typed.conditions.bounds import add_values, compared_type, scalar_of, set_bound, values_fit, values_of
from minilog.typed.conditions.predicate import (
    And,
    Constant,
    Equal,
    IsNull,
    Known,
    Less,
    Not,
    OneOf,
    Or,
    Predicate,
    StartsWith,
    in_order,
    plain_value,
)
from minilog.typed.schema.fields import Field, Primitive
from minilog.v1 import typed_pb2

MAX_LEVELS = 44  # each is two messages at most, and protobuf reads no more than 100 in each other
_TRUTHS = {None: typed_pb2.TRUTH_NONE, True: typed_pb2.TRUTH_TRUE, False: typed_pb2.TRUTH_FALSE}
_VALUES = {number: value for value, number in _TRUTHS.items()}


def predicate_to_wire(predicate: Predicate) -> typed_pb2.Predicate:
    """A condition that a replica can be told. Raises InvalidArgument where it is too long or too deep."""
    message = typed_pb2.Predicate()
    _fill(message, predicate, 1)
    if (size_bytes := message.ByteSize()) > MAX_CONDITION_BYTES:
        raise InvalidArgument(f"the where takes {size_bytes} bytes, the most is {MAX_CONDITION_BYTES}: shorten it")
    if (terms := terms_of(message)) > MAX_CONDITION_TERMS:
        raise InvalidArgument(
            f"the where becomes {terms} terms, the most is {MAX_CONDITION_TERMS}: shorten it, with in for many values"
        )
    return message


def terms_of(message: typed_pb2.Predicate) -> int:
    """Of how many conditions a condition is made, itself included. It is counted to a little above
    MAX_CONDITION_TERMS."""
    waiting, count = [message], 0
    while waiting and count <= MAX_CONDITION_TERMS:
        predicate = waiting.pop()
        count += 1
        match predicate.WhichOneof("condition"):
            case "negated":
                waiting.append(predicate.negated)
            case "all_of":
                waiting += predicate.all_of.parts
            case "any_of":
                waiting += predicate.any_of.parts
    return count


def _fill(message: typed_pb2.Predicate, predicate: Predicate, level: int) -> None:
    if level > MAX_LEVELS:
        raise InvalidArgument(f"the where has more than {MAX_LEVELS} levels: make it shorter")
    match predicate:
        case Constant(truth):
            message.constant = _TRUTHS[truth]
        case Known(field_id, is_known):
            message.known.CopyFrom(typed_pb2.KnownCondition(field_id=field_id, value=is_known))
        case Equal(field_id, value):
            message.equal.field_id = field_id
            set_bound(message.equal.value, plain_value(value))
        case OneOf(field_id, values):
            message.one_of.field_id = field_id
            add_values(message.one_of, values)
        case Less(field_id, value, or_equal):
            comparison = message.less_or_equal if or_equal else message.less
            comparison.field_id = field_id
            set_bound(comparison.value, plain_value(value))
        case StartsWith(field_id, prefix):
            message.starts_with.CopyFrom(typed_pb2.PrefixCondition(field_id=field_id, prefix=prefix))
        case IsNull(field_id):
            message.is_null = field_id
        case Not(part):
            _fill(message.negated, part, level + 1)
        case And(parts):
            _fill_all(message.all_of, parts, level + 1)
        case Or(parts):
            _fill_all(message.any_of, parts, level + 1)


def _fill_all(message: typed_pb2.Predicates, parts: Iterable[Predicate], level: int) -> None:
    for part in parts:
        _fill(message.parts.add(), part, level)


def predicate_from_wire(message: typed_pb2.Predicate, field: Callable[[int], Field | None]) -> Predicate:
    """A condition on the fields that `field` gives by their ids. Raises CorruptMessage."""
    if message.ByteSize() > MAX_CONDITION_BYTES:
        raise CorruptMessage(f"a condition of {message.ByteSize()} bytes came, the most is {MAX_CONDITION_BYTES}")
    if (terms := terms_of(message)) > MAX_CONDITION_TERMS:
        raise CorruptMessage(f"a condition of {terms} terms or more came, the most is {MAX_CONDITION_TERMS}")
    return _Reading(field).predicate(message, 1)


class _Reading:
    def __init__(self, field: Callable[[int], Field | None]) -> None:
        self._field = field

    def predicate(self, message: typed_pb2.Predicate, level: int) -> Predicate:
        if level > MAX_LEVELS:
            raise CorruptMessage(f"a condition has more than {MAX_LEVELS} levels")
        match message.WhichOneof("condition"):
            case "constant" if message.constant in _VALUES:
                return Constant(_VALUES[message.constant])
            case "known":
                return Known(self._field_of(message.known.field_id).id, message.known.value)
            case "equal":
                at = self._field_of(message.equal.field_id)
                return Equal(at.id, scalar_of(message.equal.value, at))
            case "one_of":
                return self._one_of(message.one_of)
            case "less":
                return self._less(message.less, or_equal=False)
            case "less_or_equal":
                return self._less(message.less_or_equal, or_equal=True)
            case "starts_with":
                return self._starts_with(message.starts_with)
            case "is_null":
                return IsNull(self._field_of(message.is_null).id)
            case "negated":
                return Not(self.predicate(message.negated, level + 1))
            case "all_of":
                return And(self._parts(message.all_of, level + 1))
            case "any_of":
                return Or(self._parts(message.any_of, level + 1))
            case _:
                raise CorruptMessage("a condition has no form that this version knows")

    def _one_of(self, message: typed_pb2.SetCondition) -> Predicate:
        at = self._field_of(message.field_id)
        values = values_of(message, at)
        keys = list(map(in_order, values)) if isinstance(values[0], float) else values
        if not all(map(operator.lt, keys, islice(keys, 1, None))):
            raise CorruptMessage(f"a set of values of column {at.name!r} is not ascending")
        with values_fit(at):
            return OneOf.ascending(at.id, values, compared_type(at))

    def _less(self, message: typed_pb2.Comparison, *, or_equal: bool) -> Predicate:
        at = self._field_of(message.field_id)
        return Less(at.id, scalar_of(message.value, at), or_equal)

    def _starts_with(self, message: typed_pb2.PrefixCondition) -> Predicate:
        at = self._field_of(message.field_id)
        if at.type != Primitive("string"):
            raise CorruptMessage(f"a condition asks for the beginning of column {at.name!r}, which is {at.type}")
        return StartsWith(at.id, message.prefix)

    def _parts(self, message: typed_pb2.Predicates, level: int) -> tuple[Predicate, ...]:
        if not message.parts:
            raise CorruptMessage("a condition joins nothing")
        return tuple(self.predicate(part, level) for part in message.parts)

    def _field_of(self, field_id: int) -> Field:
        field = self._field(field_id)
        if field is None:
            raise CorruptMessage(f"a condition is on field {field_id}, which the schema does not have")
        return field
