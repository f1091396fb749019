"""Some columns of a stored payload, cut out of it without a look at a value. Pure.

A payload is one Arrow message: metadata, then the buffers of all columns, each compressed alone. A projection writes
the metadata of a message that has some of the columns only, and names the pieces of the stored body that are its
buffers; nothing is decoded or compressed, and no buffer is copied. What the metadata of any batch of the projected
schema looks like is written by Arrow itself, once; per batch two numbers and two tables of it are filled in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.record_batch.arrow_metadata import ArrowMessage, ArrowPlaces, find_arrow_places, read_arrow_metadata
from minilog.record_batch.header import Buffer

_I64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")
_ALIGNMENT = 8
_PADDING = tuple(bytes(count) for count in range(_ALIGNMENT))
_CODECS = ("none", "lz4", "zstd")


class Projection:
    """Of one schema to some of its top-level columns, by their places in it, ascending and at least one."""

    def __init__(self, schema: pa.Schema, columns: Sequence[int]) -> None:
        shapes = [shape_of(field.type) for field in schema]
        self._counts = sum(nodes for nodes, _ in shapes), sum(buffers for _, buffers in shapes)
        self._nodes = _ranges([nodes for nodes, _ in shapes], columns)
        self._buffers = _ranges([buffers for _, buffers in shapes], columns)
        self.schema = pa.schema([schema.field(place) for place in columns])
        self._templates = {codec: _template(self.schema, codec) for codec in _CODECS}

    @property
    def whole_shape(self) -> tuple[int, int]:
        """How many nodes and buffers a payload of the whole schema has."""
        return self._counts

    def cut(self, payload: Buffer) -> list[Buffer]:
        """The message of the chosen columns: its metadata, and views of `payload` with padding between them.

        Raises CorruptMessage where the payload is not one of the whole schema."""
        return self.cut_message(read_arrow_metadata(payload, max_buffers=self._counts[1]))

    def cut_message(self, message: ArrowMessage) -> list[Buffer]:
        """The same of a payload whose metadata was read."""
        if (message.node_count, message.buffer_count) != self._counts:
            counts = (message.node_count, message.buffer_count)
            raise CorruptMessage(f"the payload has {counts} Arrow columns and buffers, its schema {self._counts}")
        nodes = [message.nodes[place] for place in self._nodes]
        places, pieces, body_bytes = _gathered(message, self._buffers)
        template, at = self._templates[message.codec]
        metadata = bytearray(template)
        _I64.pack_into(metadata, at.body_bytes, body_bytes)
        _I64.pack_into(metadata, at.row_count, message.row_count)
        for number, node in enumerate(nodes):
            _PAIR.pack_into(metadata, at.nodes + number * _PAIR.size, *node)
        for number, place in enumerate(places):
            _PAIR.pack_into(metadata, at.buffers + number * _PAIR.size, *place)
        return [metadata, *pieces]


def check_order(buffers: Iterable[tuple[int, int]]) -> None:
    """Whether the buffers of a payload lie one behind the other, as Arrow writes them: then any of its columns can be
    cut out. Raises CorruptMessage."""
    stop = 0
    for offset, length in buffers:
        if offset < stop:
            raise _overlap(offset, stop)
        stop = offset + length


def _overlap(offset: int, stop: int) -> CorruptMessage:
    return CorruptMessage(f"an Arrow buffer at {offset} lies in the one before it, which ends at {stop}")


def shape_of(kind: pa.DataType) -> tuple[int, int]:
    """How many nodes and buffers a column of this type has, with what is nested in it (Arrow's columnar format)."""
    if pa.types.is_struct(kind):
        inner, own = [shape_of(child.type) for child in kind], 1
    elif pa.types.is_map(kind):
        inner, own = [(1, 1), shape_of(kind.key_type), shape_of(kind.item_type)], 2
    elif pa.types.is_list(kind):
        inner, own = [shape_of(kind.value_type)], 2
    else:
        inner, own = [], 3 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 2
    return 1 + sum(nodes for nodes, _ in inner), own + sum(buffers for _, buffers in inner)


def _ranges(counts: Sequence[int], columns: Sequence[int]) -> list[int]:
    """The places of all that the chosen columns have, in a table of all columns' parts."""
    starts = [0, *accumulate(counts)]
    return [place for column in columns for place in range(starts[column], starts[column + 1])]


def _gathered(message: ArrowMessage, chosen: Sequence[int]) -> tuple[list[tuple[int, int]], list[Buffer], int]:
    """Where the chosen buffers lie in the new body, the pieces of it, and its bytes."""
    places, pieces, end = list[tuple[int, int]](), list[Buffer](), 0
    for start, stop, parts in _neighbours(message, chosen):
        places += [(end + offset - start, length) for offset, length in parts]
        pieces.append(message.body[start:stop])
        end += stop - start
        if padding := -end % _ALIGNMENT:
            pieces.append(_PADDING[padding])
            end += padding
    return places, pieces, end


def _neighbours(message: ArrowMessage, chosen: Sequence[int]) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """The chosen buffers in runs that lie behind each other in the stored body: start, end, and the buffers. None lies
    in another: a small payload cannot ask for a large answer."""
    start = stop = 0
    parts = list[tuple[int, int]]()
    for place in chosen:
        offset, length = message.buffers[place]
        if offset < stop:
            raise _overlap(offset, stop)
        if parts and offset >= stop + _ALIGNMENT:
            yield start, stop, parts
            parts = []
        if not parts:
            start = offset
        parts.append((offset, length))
        stop = offset + length
    if parts:
        yield start, stop, parts


def _template(schema: pa.Schema, codec: str) -> tuple[bytes, ArrowPlaces]:
    """The metadata of a message of this schema and codec as Arrow writes it, and the places to fill in."""
    row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], names=schema.names)
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, row.schema, options=options).write_batch(row)
    message = memoryview(sink.getvalue())[row.schema.serialize().size :]
    places = find_arrow_places(message)
    body_bytes: int = _I64.unpack_from(message, places.body_bytes)[0]
    return bytes(message[: len(message) - body_bytes]), places
