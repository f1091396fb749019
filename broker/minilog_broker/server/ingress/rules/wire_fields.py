"""The count of the fields of a serialized message on all levels, before it is parsed.

Two bytes make an empty submessage, and protobuf takes a tenth of a microsecond and a hundred bytes of memory for each.
So a frame within its limit of bytes could hold the event loop for seconds and take gigabytes. Large messages are walked
first, up to the limit of their fields. protobuf refuses bytes that are no message at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor

from minilog.record_batch.header import Buffer

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MessageShape:
    """The fields of a message that are messages themselves."""

    nested: dict[int, MessageShape] = field(default_factory=dict)

    @classmethod
    def of(cls, descriptor: Descriptor) -> MessageShape:
        """The shape of a message type. A message that contains itself (a schema, a condition) has a shape that does."""
        return cls._made_once(descriptor, {})

    @classmethod
    def _made_once(cls, descriptor: Descriptor, shapes: dict[str, MessageShape]) -> MessageShape:
        if (shape := shapes.get(descriptor.full_name)) is None:
            shape = shapes[descriptor.full_name] = cls()
            parts = {field.number: field.message_type for field in descriptor.fields if field.message_type}
            shape.nested.update({number: cls._made_once(part, shapes) for number, part in parts.items()})
        return shape


def has_more_fields(message: Buffer, shape: MessageShape, most: int) -> bool:
    """Whether `message` has more than `most` fields. False where it ends too early."""
    try:
        return _exceeds(message, shape.nested, most)
    except (IndexError, ValueError):
        return False


def _exceeds(message: Buffer, nested: Mapping[int, MessageShape], most: int) -> bool:
    position, end, count = 0, len(message), 0
    outer: list[tuple[int, Mapping[int, MessageShape]]] = []
    while True:
        while position >= end:
            if not outer:
                return False
            end, nested = outer.pop()
        count += 1
        if count > most:
            return True
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _LENGTH:
            length, position = _varint(message, position)
            if (inner := nested.get(tag >> 3)) is None:
                position += length
            else:
                outer.append((end, nested))
                end, nested = position + length, inner.nested
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        # A group's begin or end (unknown to us) is a field by itself.


def _varint(message: Buffer, position: int) -> tuple[int, int]:
    """The number at `position`, and the position behind it."""
    byte = message[position]
    if byte < 0x80:
        return byte, position + 1
    number, shift = byte & 0x7F, 7
    for at in range(position + 1, position + _MAX_VARINT_BYTES):
        byte = message[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
    raise ValueError(f"byte {position} does not begin a number")
