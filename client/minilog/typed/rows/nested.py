"""Lists and maps taken apart, so that their values can be looked at or cast as one column. Pure."""

from __future__ import annotations

import pyarrow as pa

from minilog import compute as pc


def entries_of(values: pa.MapArray) -> pa.ListArray:
    """A map as the list that it is. Not by a cast, which refuses nulls in fields that are NOT NULL, also where the
    struct that they are in is null."""
    kind = values.type
    fields = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
    entries = pa.StructArray.from_arrays([values.keys, values.items], fields=fields)
    buffers = values.buffers()[:2]
    return pa.ListArray.from_buffers(
        pa.list_(pa.struct(fields)), len(values), buffers, values.null_count, values.offset, [entries]
    )


def offsets_of(values: pa.ListArray) -> pa.Array:
    """Of a list whose values were flattened: nulls and what lies before a slice have no values there."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
