"""The first record at or after a timestamp, exactly: a query begins where one of Spark's Kafka connector would."""

from __future__ import annotations

from collections.abc import Mapping

from minilog import Consumer, TopicPartition
from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.offsets import Partition, Positions


def first_since(client: Mapping[str, str], wanted_ms: Positions, latest: Positions) -> dict[Partition, int | None]:
    """The offset of the first record at or after each timestamp, or None if all records are older.

    A record behind `latest` counts as being at `latest`. Raises MinilogError.
    """
    with lend(Consumer, client) as consumer:
        offsets = consumer.offsets_for_times(
            {TopicPartition(*partition): at_ms for partition, at_ms in wanted_ms.items()}
        )
    return {
        partition: None if (offset := offsets[TopicPartition(*partition)]) is None else min(offset, latest[partition])
        for partition in wanted_ms
    }
