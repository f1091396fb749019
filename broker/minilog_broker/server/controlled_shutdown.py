"""A controlled shutdown: other brokers lead before this one stops.

the controller answers that nothing is led here any more     the broker stops
no controller answers for NO_CONTROLLER_MS                   the broker stops: leadership cannot move
controlled.shutdown.timeout.ms has passed                    the broker stops, and writes stop with it
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from minilog_broker.server.clients.controller_link import ControllerLink
from minilog_broker.server.runtime.timer import now_ms

logger = structlog.get_logger()

NO_CONTROLLER_MS = 2_000.0  # an election takes less, unless there is no majority
LOOK_S = 0.1


async def hand_over(link: ControllerLink, timeout_ms: float) -> None:
    """Ask the controller to move leadership away, and return when the broker may stop."""
    link.wants_stop = True
    link.beat_now()
    began_ms = now_ms()
    while now_ms() < began_ms + timeout_ms:
        if now_ms() > max(began_ms, link.answered_ms) + NO_CONTROLLER_MS:
            logger.warning("no controller answers: the broker stops and hands no leadership over")
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await link.should_stop.wait()
            return
    logger.warning(
        "the broker stops, and writes to some partitions stop with it: their other replicas did not come in sync "
        "within controlled.shutdown.timeout.ms",
        controlled_shutdown_timeout_ms=timeout_ms,
    )
