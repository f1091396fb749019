"""Protobuf messages as no peer of ours would send them: any field missing, twice, negative, as large as it can be, or of
another size than it should have; and often enough right, so that a core looks at the rest.

`messages(kind, plausible)` draws one; `plausible` names values by field name that are right now and then.
`LONG` is the profile of a longer search: pytest --hypothesis-profile=long tests/unit/fuzz
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st

Plausible: TypeAlias = Mapping[str, Sequence[Any]]
_Kind = TypeVar("_Kind", bound=Message)

settings.register_profile("long", max_examples=20_000, deadline=None)
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


def _built(message: _Kind, fields: Mapping[str, Any]) -> _Kind:
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated and field.message_type:
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


def _fields(descriptor: Descriptor, plausible: Plausible, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        field.name: _repeated(field, plausible, depth) if field.is_repeated else _value(field, plausible, depth)
        for field in descriptor.fields
        if depth or not field.message_type
    }
    return st.fixed_dictionaries({}, optional=fields)


def _repeated(field: FieldDescriptor, plausible: Plausible, depth: int) -> st.SearchStrategy[list[Any]]:
    """Up to three values, the first of them twice now and then."""
    lists = st.lists(_value(field, plausible, depth), max_size=3)
    return st.tuples(lists, st.booleans()).map(lambda drawn: drawn[0] + (drawn[0][:1] if drawn[1] else []))


def _value(field: FieldDescriptor, plausible: Plausible, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type:
        return _fields(field.message_type, plausible, depth - 1)
    right = [st.sampled_from(list(plausible[field.name]))] * 3 if field.name in plausible else []
    if field.cpp_type in _BITS:
        low, high = _BITS[field.cpp_type]
        numbers = [each for each in (-1, 0, 1, 2, 3, low, high, high - 1, 2**31) if low <= each <= high]
        return st.one_of(*right, st.sampled_from(numbers))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.one_of(*right, st.binary(max_size=20))
    assert field.type == FieldDescriptor.TYPE_STRING, field.full_name
    return st.one_of(*right, st.sampled_from(["", "a", "../..", "x" * 300, "\0", "é"]))
