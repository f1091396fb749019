"""Arrow has several layouts for the same values: here they become those that can be compared and cast. Pure.

A dictionary becomes its values, a view or a list of a fixed size the usual form, half a float a float. Nothing is lost.
"""

from __future__ import annotations

import re

import pyarrow as pa

from minilog import compute as pc

_PLACES = re.compile(r"__index_level_\d+__")


def places_of_pandas(arrow: pa.Schema) -> list[str]:
    """The columns that pandas adds after a filter or a sort, of the places that rows had before: no one named them."""
    is_of_pandas = arrow.metadata is not None and b"pandas" in arrow.metadata
    return [name for name in arrow.names if _PLACES.fullmatch(name)] if is_of_pandas else []


def plain_layout(values: pa.Array) -> pa.Array:
    """The same values; what is in lists, structs and maps has its own layout still."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return plain_layout(values.dictionary).take(values.indices)
    if pa.types.is_string_view(kind):
        return pc.cast(values, pa.large_string())
    if pa.types.is_binary_view(kind):
        return pc.cast(values, pa.large_binary())
    if pa.types.is_float16(kind):
        return pc.cast(values, pa.float32())
    if pa.types.is_fixed_size_list(kind):
        return pc.cast(values, pa.large_list(kind.value_field))
    return values


def has_text(kind: pa.DataType) -> bool:
    """Whether there is any in it."""
    return pa.types.is_string(kind) or any(has_text(kind.field(place).type) for place in range(kind.num_fields))
