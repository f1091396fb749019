"""One poll of a reader's program."""

from __future__ import annotations

from minilog.aio import Consumer
from minilog.errors import OffsetOutOfRange
from minilog.types import Record
from tests.simulation.invariants.violation import Violation


async def polled(consumer: Consumer, timeout_s: float) -> list[Record]:
    """What it gives. Who is told that what was read is not in the log any more has found a loss: V14."""
    try:
        return await consumer.poll(timeout_s)
    except OffsetOutOfRange as error:
        raise Violation("V14", str(error)) from error
