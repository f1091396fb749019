"""Waiting at the brokers until a stream has something new to read, instead of asking again and again.

A consumer stands at the ends that are known. Brokers push what comes behind them, so news is there in milliseconds and
an idle query costs signs of life only. Its credit is one byte: of each broker it gets one batch, and then nothing more.
It is kept between calls, and stays where it is while nothing comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from pyspark_minilog.clients import lend
from pyspark_minilog.offsets import Positions

logger = logging.getLogger(__name__)

_SETTINGS = {"fetch.max.bytes": "1", "fetch.min.bytes": "1", "auto.offset.reset": "error"}
_PAUSE_S = 0.025  # what went wrong is looked at again, but not in a spin


def wait_for_news(client: Mapping[str, str], ends: Positions, timeout_s: float) -> bool:
    """Whether it is worth to look again: a record came at or behind one of `ends`, or something is wrong with one."""
    from minilog import Consumer, TopicPartition
    from minilog.errors import MinilogError

    if not ends:
        time.sleep(timeout_s)
        return False
    wanted = {TopicPartition(*partition): offset for partition, offset in ends.items()}
    try:
        with lend(Consumer, {**client, **_SETTINGS}) as consumer:
            if {each: consumer.position(each) for each in consumer.assignment()} != wanted:
                consumer.assign([TopicPartition(*partition, offset) for partition, offset in ends.items()])
            return bool(consumer.poll_arrow(timeout=timeout_s))
    except MinilogError as error:
        logger.debug("looking again: %s", error)
        time.sleep(_PAUSE_S)
        return True
