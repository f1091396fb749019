"""Columns cut out of a payload: the same values as of the whole, for any schema, and no faith in what the bytes say."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage
from minilog.record_batch.header import Buffer
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.projection import Projection
from minilog.typed.schema.topic_schema import first_version

SCHEMA = first_version(
    parse_ddl(
        "id long NOT NULL, name string, flag boolean, raw binary, fare decimal(9,2), day date, at timestamp, "
        "tags array<string>, place struct<x: double, y: struct<z: int, w: string>>, counts map<string, array<long>>"
    )
).arrow_schema
CODECS = ("none", "lz4", "zstd")


def rows(count: int, seed: int) -> pa.RecordBatch:
    chance = random.Random(seed)

    def maybe(value: object) -> object:
        return None if chance.random() < 0.3 else value

    words = ["", "a", "bc" * 40, "é"]
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": chance.randrange(2**40),
                "name": maybe(chance.choice(words)),
                "flag": maybe(chance.random() < 0.5),
                "raw": maybe(chance.randbytes(chance.randrange(9))),
                "fare": maybe(chance.randrange(1000)),
                "day": maybe(chance.randrange(10_000)),
                "at": maybe(chance.randrange(2**45)),
                "tags": maybe([maybe(chance.choice(words)) for _ in range(chance.randrange(3))]),
                "place": maybe({"x": chance.random(), "y": maybe({"z": 1, "w": maybe("w")})}),
                "counts": maybe([(word, maybe([1, None])) for word in words[: chance.randrange(4)]]),
            }
            for _ in range(count)
        ],
        SCHEMA,
    )


def payload(batch: pa.RecordBatch, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    pa.ipc.new_stream(sink, batch.schema, options=options).write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written[batch.schema.serialize().size :]


def read(pieces: list[Buffer], schema: pa.Schema) -> pa.RecordBatch:
    found = pa.ipc.read_record_batch(pa.py_buffer(b"".join(pieces)), schema)
    found.validate(full=True)
    return found


@given(st.integers(0, 40), st.integers(), st.sampled_from(CODECS), st.sets(st.integers(0, len(SCHEMA) - 1), min_size=1))
def test_a_projection_has_the_values_of_the_whole(count: int, seed: int, codec: str, chosen: set[int]) -> None:
    batch, columns = rows(count, seed), sorted(chosen)
    projection = Projection(SCHEMA, columns)
    assert read(projection.cut(payload(batch, codec)), projection.schema).equals(batch.select(columns))


@pytest.mark.parametrize("codec", CODECS)
def test_a_slice_of_a_batch_is_projected_like_a_whole_one(codec: str) -> None:
    batch = rows(50, 1).slice(7, 31)
    projection = Projection(SCHEMA, [1, 7, 9])
    assert read(projection.cut(payload(batch, codec)), projection.schema).equals(batch.select([1, 7, 9]))


def test_no_buffer_is_copied_and_few_bytes_are_sent() -> None:
    stored = payload(rows(5_000, 2), "none")
    metadata, *pieces = Projection(SCHEMA, [0, 2]).cut(stored)
    assert all(piece.obj is stored for piece in pieces if isinstance(piece, memoryview))
    assert sum(map(len, pieces)) < 5_000 * (8 + 2)
    assert len(metadata) < 600


def test_columns_side_by_side_are_one_piece() -> None:
    pieces = Projection(SCHEMA, [3, 4, 5]).cut(payload(rows(100, 3), "none"))
    assert len([piece for piece in pieces[1:] if len(piece) >= 8]) == 1


def test_a_payload_of_another_schema_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="its schema"):
        Projection(SCHEMA, [0]).cut(payload(rows(3, 4).select([0, 1]), "none"))


@given(st.sampled_from(CODECS), st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_the_bytes_are_it_is_cut_or_refused(codec: str, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(payload(rows(20, 5), codec))
    for place, value in changes:
        damaged[place % len(damaged)] = value
    projection = Projection(SCHEMA, [1, 8])
    try:
        pieces = projection.cut(bytes(damaged))
    except CorruptMessage:
        return
    assert sum(map(len, pieces)) <= len(damaged) + 600
    try:
        read(pieces, projection.schema)
    except (pa.ArrowException, OSError):
        return
