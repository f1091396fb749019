"""The batches that take the place of stored ones, without the records that go (removals.py). Pure.

Each offset stays in exactly one batch:

    stored                              written
    a batch that does not change        itself, byte for byte
    a batch that keeps some records     a batch with gaps
    a batch that keeps none             a gap batch; if it had a transaction or markers, one that names no producer
    adjacent gap batches                one gap batch for those of one leader epoch

A gap batch of a transaction names no producer, because the transaction's marker may go. Else a replica that reads the
log again would take the transaction for an open one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from minilog.partition_key import PartitionKey
from minilog.record_batch.compaction import compacted_batch
from minilog.record_batch.gaps import gap_batch, joined_gap_batch
from minilog.record_batch.header import BatchHeader, Buffer, decode_header
from minilog.typed.rows.compaction import compacted_typed_batch
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction.removals import Removals
from minilog_broker.storage.compaction.stored_batches import Order, StoredBatch, are_joinable, check_batch, is_gap


def rewritten_batches(reader: KeyReader, batches: Iterable[StoredBatch], removals: Removals) -> Iterator[StoredBatch]:
    """Yield the batches that take the place of `batches`. The caller gives the batches of one part of a search, and the
    answer to that part.

    Raises CorruptMessage, ResourceExhausted, UnknownSchemaVersion."""
    gap: StoredBatch | None = None
    order: Order | None = None
    for header, batch in batches:
        order = order or Order(header.base_offset)
        order.follow(header)
        check_batch(reader.key, header, batch)
        rewritten = header, batch
        if header.base_offset in removals:
            rewritten = _without(reader, header, batch, removals[header.base_offset])
        if gap is not None and is_gap(rewritten[0]) and are_joinable(gap[0], rewritten[0]):
            gap = _joined(reader.key, gap[0], rewritten[0])
            continue
        if gap is not None:
            yield gap
        gap = rewritten if is_gap(rewritten[0]) else None
        if gap is None:
            yield rewritten
    if gap is not None:
        yield gap


def _without(reader: KeyReader, header: BatchHeader, batch: Buffer, is_kept: pa.BooleanArray | None) -> StoredBatch:
    if is_kept is None:
        return _as_gap(reader.key, header)
    if header.is_typed:
        content = compacted_typed_batch(*reader.key, batch, header, is_kept, reader.schemas)
    else:
        content = compacted_batch(*reader.key, batch, header, is_kept)
    return decode_header(content), content


def _as_gap(key: PartitionKey, header: BatchHeader) -> StoredBatch:
    names_producer = not header.is_transactional and not header.is_control
    content = gap_batch(*key, header) if names_producer else joined_gap_batch(*key, header, header)
    return decode_header(content), content


def _joined(key: PartitionKey, first: BatchHeader, last: BatchHeader) -> StoredBatch:
    content = joined_gap_batch(*key, first, last)
    return decode_header(content), content
