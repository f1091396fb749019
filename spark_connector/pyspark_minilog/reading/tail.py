"""Waiting at the brokers until a stream has new records to read, instead of asking again and again.

A consumer stands at the known ends of the partitions. Brokers push each new batch, so the news arrives in milliseconds,
and an idle query costs only signs of life. The consumer's credit is one byte, so each broker sends one batch and then
nothing more. The process keeps the consumer between calls, and the consumer stays in its place while nothing comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.offsets import Positions

logger = logging.getLogger(__name__)

_SETTINGS = {"fetch.max.bytes": "1", "fetch.min.bytes": "1", "auto.offset.reset": "error"}
_PAUSE_S = 0.025  # after an error the reader looks again, but not in a busy loop


def wait_for_news(client: Mapping[str, str], ends: Positions, timeout_s: float) -> bool:
    """Whether a new look is worthwhile: a record came at or behind one of `ends`, or one of them has an error."""
    from minilog import Consumer, TopicPartition
    from minilog.errors import MinilogError

    if not ends:
        time.sleep(timeout_s)
        return False
    wanted = {TopicPartition(*partition): offset for partition, offset in ends.items()}
    try:
        with lend(Consumer, {**client, **_SETTINGS}) as consumer:
            if {partition: consumer.position(partition) for partition in consumer.assignment()} != wanted:
                consumer.assign([TopicPartition(*partition, offset) for partition, offset in ends.items()])
            return bool(consumer.poll_arrow(timeout=timeout_s))
    except MinilogError as error:
        logger.debug("looking again: %s", error)
        time.sleep(_PAUSE_S)
        return True
