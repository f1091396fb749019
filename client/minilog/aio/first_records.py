"""The first record at or after a time, exactly.

Brokers never look into batches, so they name only the batch. The client reads that batch, and seldom more, and so finds
the record.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from minilog import compute as pc
from minilog.aio.consumer_shell import ConsumerShell
from minilog.client_config import ClientConfig
from minilog.consumer.decode import decode_all, timestamps_of
from minilog.consumer.requests import name_of
from minilog.consumer.row_selection import RowSelection
from minilog.errors import InvalidArgument, OffsetNotAvailable, OffsetOutOfRange, TimedOut
from minilog.net.lookups import list_offsets
from minilog.net.network_client import NetworkClient
from minilog.types import TopicPartition

_POLL_S = 1.0


async def offsets_for_times(
    cluster: NetworkClient, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """The offset of the first record at or after the time, for each partition. None if all records are older.

    If that record is not readable yet, the offset is the end of the readable records. Raises MinilogError."""
    for partition, timestamp in timestamps_ms.items():
        _check_time(partition, timestamp)
    batches = await list_offsets(cluster, timestamps_ms)
    ends = await list_offsets(cluster, dict.fromkeys(timestamps_ms, "latest"))
    offsets = {partition: None if first is None else ends[partition] for partition, first in batches.items()}
    wanted = [
        TopicPartition(partition.topic, partition.partition, first, end)
        for partition, first in batches.items()
        if first is not None and (end := ends[partition]) is not None and first < end
    ]
    return {**offsets, **await _first_records(cluster, wanted, timestamps_ms)} if wanted else offsets


def _check_time(partition: TopicPartition, timestamp: object) -> None:
    if not isinstance(timestamp, int):
        raise InvalidArgument(f"{timestamp!r} for {name_of(partition)} is no time: give milliseconds since 1970")


async def _first_records(
    cluster: NetworkClient, wanted: list[TopicPartition], timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first record of each stretch at or after the time. A stretch without such a record is left out."""
    config = _one_by_one(cluster.config)
    shell, offsets = ConsumerShell(config, cluster.runtime), dict[TopicPartition, int]()
    try:
        await shell.change(lambda: shell.core.assign(wanted))
        async with asyncio.timeout(config.request_timeout_ms / 1000.0):
            while not shell.core.finished():
                await _look_into_next(
                    shell, timestamps_ms, offsets, {stretch: stretch.end_offset for stretch in wanted}
                )
    except TimeoutError:
        at = next(stretch for stretch in wanted if shell.core.position(stretch) != stretch.end_offset)
        raise TimedOut(f"{name_of(at)} gave no record from {at.offset} on within request.timeout.ms") from None
    except OffsetOutOfRange as error:  # retention just deleted it: the next question gets another offset
        raise OffsetNotAvailable(str(error)) from error
    finally:
        await shell.close()
    return offsets


def _one_by_one(config: ClientConfig) -> ClientConfig:
    """A configuration with one byte of credit: a broker sends one batch, and the next one after the client took it."""
    return dataclasses.replace(
        config, fetch_max_bytes=1, fetch_min_bytes=1, group_id="", auto_offset_reset="error", max_poll_bytes=1
    )


async def _look_into_next(
    shell: ConsumerShell,
    timestamps_ms: Mapping[TopicPartition, int],
    offsets: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int | None],
) -> None:
    number = shell.polls.begin()
    outcome = decode_all(await shell.take(_POLL_S, 1, RowSelection(timestamps=True), number), 1)
    await shell.report(outcome)
    shell.polls.returned = number
    if outcome.lack is not None:
        raise outcome.lack
    for run, every in outcome.good:
        for rows in every:
            index = _first_index(timestamps_of(run, rows), timestamps_ms[run.partition])
            if index >= 0 and run.partition not in offsets:
                offsets[run.partition] = rows.column(rows.num_columns - 1)[index].as_py()  # offsets are the last
                end = ends[run.partition] or 0
                await shell.change(lambda p=run.partition, at=end: shell.core.seek(p, at))  # type: ignore[misc]


def _first_index(timestamps: pa.Array, at_ms: int) -> int:
    """The index of the first row at or after this time. -1 if all rows are older."""
    since = pa.scalar(at_ms * 1000, pa.int64())
    return int(pc.index(pc.greater_equal(timestamps.cast(pa.int64()), since), True).as_py())
