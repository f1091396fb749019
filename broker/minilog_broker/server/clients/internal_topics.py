"""The first use of an internal topic. A call that needs it has the controller create it.

The client gets COORDINATOR_LOAD_IN_PROGRESS, and tries again. For each topic there is one request to the controller at
a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from minilog.errors import CoordinatorLoadInProgress, LevelNotReached, MinilogError
from minilog.net.coordinators_of import INTERNAL_TOPIC_NAMES
from minilog_broker.levels import ClusterLevel, check_internal_topic

logger = structlog.get_logger()


class InternalTopics:
    """The creation of internal topics at their first use.

    `create(name)` asks the controller, and raises MinilogError where the topic could not be created.
    """

    def __init__(self, create: Callable[[str], Awaitable[None]], level: ClusterLevel) -> None:
        self._create = create
        self._level = level
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def first_use(self, name: str) -> CoordinatorLoadInProgress | LevelNotReached | None:
        """The answer to a call that needs an internal topic which the image does not have. None for any other name."""
        if name not in INTERNAL_TOPIC_NAMES:
            return None
        try:
            check_internal_topic(self._level.current, name)
        except LevelNotReached as error:
            return error
        if name not in self._under_way:
            self._under_way[name] = asyncio.get_running_loop().create_task(self._ask(name))
        return CoordinatorLoadInProgress(f"the controller creates {name} now, at its first use: retry")

    async def _ask(self, name: str) -> None:
        try:
            await self._create(name)
        except MinilogError as error:
            logger.debug("the controller has not created an internal topic yet", topic=name, error=str(error))
        finally:
            del self._under_way[name]

    def stop(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
