"""Where a bit of a log may rot so that recovery can tell it from a torn tail."""

from __future__ import annotations

import random

from minilog.record_batch.header import HEADER_BYTES
from minilog_broker.storage.log import Log


def spot_below_the_recorded_mark(log: Log, rng: random.Random) -> tuple[str, int] | None:
    """(path, position) in a batch below the high watermark that the log has recorded; None where there is none."""
    recorded = log._checkpoint.recorded
    if recorded is None:
        return None
    spots = [
        (segment.path, position, header.length)
        for segment in log._segments
        for position, header in segment.headers(segment.base_offset)
        if header.next_offset <= recorded.high_watermark
    ]
    if not spots:
        return None
    path, position, length = rng.choice(spots)
    # Of the batch's body: judges compare headers. That rot is found in headers too, byte by byte: test_damaged_copies.
    return path, position + rng.randrange(HEADER_BYTES, length)
