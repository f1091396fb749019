"""What the record batch tests share: a place a batch is meant for, columns to draw, and a forger.

`sealed` makes the sums of a forged batch right again, so that a test reaches the checks behind them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import google_crc32c
import pyarrow as pa
from hypothesis import strategies as st

from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import batch_crc, placement

TOPIC_ID = bytes(range(16))
PARTITION = 3
NOW_US = 1_700_000_000_000_000
_Entry = TypeVar("_Entry")

_blobs = st.none() | st.binary(max_size=40)
_headers = st.none() | st.lists(st.tuples(st.text(max_size=8), _blobs), max_size=3)
# What Python can show as a datetime; the batch itself holds any i64.
_timestamps = st.integers(min_value=-(2**55), max_value=2**55)


_pools: list[pa.MemoryPool] = []  # a buffer may outlive its test, and needs its pool until then


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """A pool that counts what Arrow allocates inside the block: `max_memory()` is the most there was at one time."""
    usual = pa.default_memory_pool()
    _pools.append(pa.proxy_memory_pool(usual))
    pa.set_memory_pool(_pools[-1])
    try:
        yield _pools[-1]
    finally:
        pa.set_memory_pool(usual)


@st.composite
def columns(draw: st.DrawFn, max_rows: int = 30) -> pa.RecordBatch:
    """Columns of a batch: any of key, timestamp and headers may be missing, and any entry but a timestamp null."""
    rows = draw(st.integers(min_value=1, max_value=max_rows))

    def entries(of: st.SearchStrategy[_Entry]) -> st.SearchStrategy[list[_Entry]]:
        return st.lists(of, min_size=rows, max_size=rows)

    return records_to_columns(
        draw(entries(_blobs)),
        draw(st.none() | entries(_blobs)),
        draw(st.none() | entries(_timestamps)),
        draw(st.none() | entries(_headers)),
    )


def full_columns(rows: int = 10) -> pa.RecordBatch:
    """All four columns, compressible."""
    return records_to_columns(
        [b"value-" * 20 + b"%d" % row for row in range(rows)],
        [b"key-%d" % row for row in range(rows)],
        [NOW_US + row for row in range(rows)],
        [[("source", b"nyc"), ("none", None)] for _ in range(rows)],
    )


def full_batch(rows: int = 10, **options: object) -> bytes:
    return build_batch(TOPIC_ID, PARTITION, full_columns(rows), **options)  # type: ignore[arg-type]


def patched(batch: bytes, position: int, form: str, *numbers: int) -> bytes:
    forged = bytearray(batch)
    struct.pack_into("<" + form, forged, position, *numbers)
    return bytes(forged)


def at_offset(batch: bytes, base_offset: int, epoch: int = 7) -> bytes:
    """`batch` as a leader places it."""
    return placement(batch, base_offset, epoch) + batch[24:]


def sealed(batch: bytes, topic_id: bytes = TOPIC_ID, partition: int = PARTITION) -> bytes:
    """`batch` with a length, header checksum and crc that fit the rest of it."""
    forged = bytearray(batch)
    struct.pack_into("<I", forged, 4, len(forged))
    struct.pack_into("<I", forged, 24, batch_crc(topic_id, partition, bytes(forged)))
    struct.pack_into("<I", forged, 20, google_crc32c.value(bytes(forged[:20] + forged[24:72])))
    return bytes(forged)


def of_a_later_version(batch: bytes, topic_id: bytes = TOPIC_ID, partition: int = PARTITION) -> bytes:
    """`batch`, whole, with an attribute that is not known here."""
    return sealed(patched(batch, 31, "B", 0x80), topic_id, partition)
