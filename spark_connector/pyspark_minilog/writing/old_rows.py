"""Rows that are older than their topic keeps rows. Brokers delete them soon, so the driver warns.

The column `timestamp` has the time of a row. Kafka's sink ignores a column of that name, so a job that came from Kafka
may have an old column of that name. The write goes on, because a restored archive has such rows, too.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_minilog.writing.sink import Payload

_TOPICS_OWN_MS = 604_800_000  # the default of retention.ms: docs/reference/settings.md
NEW_MS = 60_000  # rows of the last minute need no check: a topic that deletes them keeps next to nothing


def oldest_us(payload: Payload) -> int | None:
    """The time of the oldest row, in microseconds since 1970, or None if no row has a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = "timestamp" if payload.schema is None else payload.schema.timestamp_column
    if name is None or name not in payload.columns.schema.names:
        return None
    column = payload.columns.column(name)
    if not pa.types.is_timestamp(column.type):
        return None
    lowest_us = pc.min(column).cast(pa.timestamp("us", column.type.tz)).value
    return None if lowest_us is None else int(lowest_us)


def older(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The older time of both, by topic."""
    oldest = dict(one)
    for topic, at_us in other.items():
        oldest[topic] = min(at_us, oldest.get(topic, at_us))
    return oldest


def too_old(oldest: Mapping[str, int], retention_ms: Mapping[str, int], now_ms: int) -> Iterable[str]:
    """A sentence for each topic whose oldest row is older than the topic keeps rows."""
    for topic, at_us in sorted(oldest.items()):
        kept_ms = retention_ms.get(topic, _TOPICS_OWN_MS)
        if kept_ms >= 0 and at_us // 1000 < now_ms - kept_ms:
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=at_us)
            yield (
                f"rows as old as {moment.isoformat(timespec='seconds')}Z were written to topic '{topic}', which keeps "
                f"rows for {kept_ms} ms (retention.ms), so brokers delete them soon: raise retention.ms of the topic. "
                "If the column of time stamps is not the time of the row, drop or rename the column"
            )
