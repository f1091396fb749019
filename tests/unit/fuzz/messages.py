"""Protobuf messages as no peer of ours would send them: any field missing, twice, negative, as large as it can be, or
of another size than it should have; and often enough right, so that a core looks at the rest.

`messages(kind, plausible)` draws one; `plausible` names values by field name that are right now and then.
A longer search, at random: pytest --hypothesis-profile=long tests/unit/fuzz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st

from minilog.stream_messages import StreamMessage

if TYPE_CHECKING:
    from google._upb import _message

Plausible: TypeAlias = Mapping[str, Sequence[Any]]
AnyDescriptor: TypeAlias = "Descriptor | _message.Descriptor"
AnyField: TypeAlias = "FieldDescriptor | _message.FieldDescriptor"
_Kind = TypeVar("_Kind", bound=Message)

_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_DEPTH = 4


def fuzzing(max_examples: int) -> settings:
    """So many examples, the same every time, or as many as a profile that was asked for says."""
    if settings.get_current_profile_name() == "long":
        return settings.get_profile("long")
    return settings(max_examples=max_examples, deadline=None, derandomize=True)


def messages(kind: type[_Kind], plausible: Plausible) -> st.SearchStrategy[_Kind]:
    """Messages of this kind."""
    return _fields(kind.DESCRIPTOR, plausible, _DEPTH).map(lambda fields: _built(kind(), fields))


def with_payloads(
    kind: type[_Kind], owners: str, plausible: Plausible, payloads: Sequence[bytes]
) -> st.SearchStrategy[StreamMessage[_Kind]]:
    """Messages of this kind with as many payloads as a frame that is taken has: right ones now and then, or noise."""

    def given(message: _Kind) -> st.SearchStrategy[StreamMessage[_Kind]]:
        count = len(getattr(message, owners))
        each = st.one_of(st.sampled_from(payloads), st.binary(max_size=100))
        return st.lists(each, min_size=count, max_size=count).map(lambda drawn: StreamMessage(message, drawn))

    return messages(kind, plausible).flatmap(given)


def _built(message: _Kind, fields: Mapping[str, Any]) -> _Kind:
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            for each in value:
                getattr(message, name)[each.get("key", "")] = each.get("value", "")
        elif field.is_repeated and field.message_type:
            for each in value:
                _built(getattr(message, name).add(), each)
        elif field.is_repeated:
            getattr(message, name).extend(value)
        elif field.message_type:
            getattr(message, name).SetInParent()
            _built(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


def _fields(descriptor: AnyDescriptor, plausible: Plausible, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Fields that have a plausible value or hold messages are mostly there: else a core never looks further."""
    wanted: dict[str, st.SearchStrategy[Any]] = {}
    others: dict[str, st.SearchStrategy[Any]] = {}
    for field in descriptor.fields:
        if field.message_type and not depth:
            continue
        one = _repeated(field, plausible, depth) if field.is_repeated else _value(field, plausible, depth)
        mostly = field.containing_oneof is None and (field.message_type or field.name in plausible)
        (wanted if mostly else others)[field.name] = one
    everything = st.fixed_dictionaries(wanted, optional=others)
    if descriptor.oneofs and any(len(oneof.fields) > 1 for oneof in descriptor.oneofs):
        return everything
    something = st.fixed_dictionaries({}, optional={**wanted, **others})
    return st.sampled_from([everything] * 5 + [something]).flatmap(lambda drawn: drawn)


def _repeated(field: AnyField, plausible: Plausible, depth: int) -> st.SearchStrategy[list[Any]]:
    """Up to three values, the first of them twice now and then."""
    lists = st.lists(_value(field, plausible, depth), min_size=1, max_size=3)
    again = st.tuples(lists, st.booleans()).map(lambda drawn: drawn[0] + (drawn[0][:1] if drawn[1] else []))
    return st.sampled_from([again] * 4 + [st.just([])]).flatmap(lambda drawn: drawn)


def _value(field: AnyField, plausible: Plausible, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type:
        return _fields(field.message_type, plausible, depth - 1)
    wrong = _wrong(field)
    right = [each for each in plausible.get(field.name, ()) if type(each) in {type(one) for one in wrong}]
    return st.sampled_from(right * (4 * len(wrong) // len(right)) + wrong if right else wrong)


def _wrong(field: AnyField) -> list[Any]:
    if field.cpp_type in _BITS:
        low, high = _BITS[field.cpp_type]
        return [each for each in (-1, 0, 1, 2, 3, low, high, high - 1, 2**31) if low <= each <= high]
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return [False, True]
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return [0.0, -0.0, 0.5, -1e300, float("inf")]  # not NaN, which is not equal to itself
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return [value.number for value in field.enum_type.values]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return [b"", b"x", b"x" * 15, b"x" * 16, b"x" * 100, bytes(range(256))]
    assert field.type == FieldDescriptor.TYPE_STRING, field.full_name
    return ["", "a", "../..", "x" * 300, "\0", "é"]
