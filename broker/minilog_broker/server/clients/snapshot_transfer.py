"""Snapshots of the metadata image: the newest whole one, and their way between brokers. A snapshot travels as pieces of
a file, and is checked before the file gets its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from minilog.errors import BrokerNotAvailable, CorruptMessage
from minilog.v1 import peer_pb2
from minilog_broker.controller.snapshot import check_snapshot
from minilog_broker.storage.snapshot_files import SnapshotFiles, SnapshotReceiver
from minilog_broker.storage.snapshot_id import SnapshotId

PIECE_BYTES = 1 << 20


def newest_snapshot(snapshots: SnapshotFiles) -> SnapshotId | None:
    """The newest whole snapshot on disk, with which a QuorumNode starts. Damaged ones are skipped. Raises
    UnsupportedVersion where a later version wrote it."""
    for snapshot_id in snapshots.list():
        try:
            check_snapshot(snapshots.read(snapshot_id), snapshot_id)
        except CorruptMessage:
            continue
        return snapshot_id
    return None


async def pieces(snapshots: SnapshotFiles, snapshot_id: SnapshotId) -> AsyncIterator[peer_pb2.FetchSnapshotResponse]:
    """The pieces of a snapshot's file. Raises BrokerNotAvailable where a newer one has taken its place."""
    position, total_bytes = 0, 1
    while position < total_bytes:
        try:
            content, total_bytes = await asyncio.to_thread(snapshots.read_chunk, snapshot_id, position, PIECE_BYTES)
        except FileNotFoundError:
            content = b""
        if not content:
            raise BrokerNotAvailable(
                f"this broker no longer has the snapshot at offset {snapshot_id.end_offset}: ask for a newer one"
            )
        yield peer_pb2.FetchSnapshotResponse(position=position, content=content, total_bytes=total_bytes)
        position += len(content)


async def receive_snapshot(
    snapshots: SnapshotFiles, snapshot_id: SnapshotId, incoming: AsyncIterator[peer_pb2.FetchSnapshotResponse]
) -> bytes:
    """Write an incoming snapshot to disk, and give the content of its file. On return it is whole, checked and durable.

    Raises CorruptMessage or ValueError where it is not that snapshot, the errors of `incoming`, and OSError.
    """
    receiver = snapshots.receive(snapshot_id)
    try:
        async for piece in incoming:
            await asyncio.to_thread(receiver.write, piece.position, piece.content)
        return await asyncio.to_thread(_check_and_finish, receiver, snapshot_id)
    finally:
        receiver.abandon()


def _check_and_finish(receiver: SnapshotReceiver, snapshot_id: SnapshotId) -> bytes:
    content = receiver.content()
    check_snapshot(content, snapshot_id)
    receiver.finish()
    return content
