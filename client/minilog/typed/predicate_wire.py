"""Conditions as messages, and back. Pure.

What comes from a peer is bounded before it is believed: by its bytes, protobuf bounds its depth, and each field and
value has to be one of the schema that the condition was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minilog.errors import CorruptMessage, InvalidArgument
from minilog.typed.bounds import scalar_of, set_bound
from minilog.typed.fields import Field, Primitive
from minilog.typed.predicate import (
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
    plain_value,
)
from minilog.v1 import typed_pb2

MAX_PREDICATE_BYTES = 64 << 10
_TRUTHS = {None: typed_pb2.TRUTH_NONE, True: typed_pb2.TRUTH_TRUE, False: typed_pb2.TRUTH_FALSE}
_VALUES = {number: value for value, number in _TRUTHS.items()}


def predicate_to_wire(predicate: Predicate) -> typed_pb2.Predicate:
    """A condition that a replica can be told. Raises InvalidArgument where it is too long."""
    told = typed_pb2.Predicate()
    _fill(told, predicate)
    if (size_bytes := told.ByteSize()) > MAX_PREDICATE_BYTES:
        raise InvalidArgument(f"the where takes {size_bytes} bytes, the most is {MAX_PREDICATE_BYTES}: shorten it")
    return told


def _fill(told: typed_pb2.Predicate, predicate: Predicate) -> None:
    match predicate:
        case Constant(truth):
            told.constant = _TRUTHS[truth]
        case Known(field_id, known):
            told.known.CopyFrom(typed_pb2.KnownCondition(field_id=field_id, value=known))
        case Equal(field_id, value):
            told.equal.field_id = field_id
            set_bound(told.equal.value, plain_value(value))
        case Less(field_id, value, or_equal):
            comparison = told.less_or_equal if or_equal else told.less
            comparison.field_id = field_id
            set_bound(comparison.value, plain_value(value))
        case StartsWith(field_id, prefix):
            told.starts_with.CopyFrom(typed_pb2.PrefixCondition(field_id=field_id, prefix=prefix))
        case IsNull(field_id):
            told.is_null = field_id
        case Not(part):
            _fill(told.negated, part)
        case And(parts):
            _fill_all(told.all_of, parts)
        case Or(parts):
            _fill_all(told.any_of, parts)


def _fill_all(told: typed_pb2.Predicates, parts: Iterable[Predicate]) -> None:
    for part in parts:
        _fill(told.parts.add(), part)


def predicate_from_wire(told: typed_pb2.Predicate, field: Callable[[int], Field | None]) -> Predicate:
    """A condition on the fields that `field` gives by their ids. Raises CorruptMessage."""
    if told.ByteSize() > MAX_PREDICATE_BYTES:
        raise CorruptMessage(f"a condition of {told.ByteSize()} bytes came, the most is {MAX_PREDICATE_BYTES}")
    return _Reading(field).predicate(told)


class _Reading:
    def __init__(self, field: Callable[[int], Field | None]) -> None:
        self._field = field

    def predicate(self, told: typed_pb2.Predicate) -> Predicate:
        match told.WhichOneof("condition"):
            case "constant":
                return Constant(_VALUES.get(told.constant))
            case "known":
                return Known(self._known(told.known.field_id).id, told.known.value)
            case "equal":
                at = self._known(told.equal.field_id)
                return Equal(at.id, scalar_of(told.equal.value, at))
            case "less":
                return self._less(told.less, or_equal=False)
            case "less_or_equal":
                return self._less(told.less_or_equal, or_equal=True)
            case "starts_with":
                return self._starts_with(told.starts_with)
            case "is_null":
                return IsNull(self._known(told.is_null).id)
            case "negated":
                return Not(self.predicate(told.negated))
            case "all_of":
                return And(self._parts(told.all_of))
            case "any_of":
                return Or(self._parts(told.any_of))
            case _:
                raise CorruptMessage("a condition says nothing that this version knows")

    def _less(self, told: typed_pb2.Comparison, *, or_equal: bool) -> Predicate:
        at = self._known(told.field_id)
        return Less(at.id, scalar_of(told.value, at), or_equal)

    def _starts_with(self, told: typed_pb2.PrefixCondition) -> Predicate:
        at = self._known(told.field_id)
        if at.type != Primitive("string"):
            raise CorruptMessage(f"a condition asks for the beginning of column {at.name!r}, which is {at.type}")
        return StartsWith(at.id, told.prefix)

    def _parts(self, told: typed_pb2.Predicates) -> tuple[Predicate, ...]:
        if not told.parts:
            raise CorruptMessage("a condition joins nothing")
        return tuple(self.predicate(each) for each in told.parts)

    def _known(self, field_id: int) -> Field:
        found = self._field(field_id)
        if found is None:
            raise CorruptMessage(f"a condition is on field {field_id}, which the schema does not have")
        return found
