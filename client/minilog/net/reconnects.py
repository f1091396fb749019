"""When a client tries a broker again after it lost the stream to that broker. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterable

from minilog.client_config import ClientConfig
from minilog.net.backoff import ExponentialBackoff


class Reconnects:
    """The pauses of one client's streams, by broker. They grow while a broker lets no stream be opened."""

    def __init__(self, config: ClientConfig, chance: random.Random) -> None:
        self._config, self._chance = config, chance
        self._backoffs: dict[int, ExponentialBackoff] = {}
        self._due_ms: dict[int, float] = {}

    def lost(self, broker_id: int, now_ms: float) -> None:
        """The stream is lost, or was never there: try again after a pause."""
        config = self._config
        if broker_id not in self._backoffs:
            backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._chance)
            self._backoffs[broker_id] = backoff
        self._due_ms[broker_id] = now_ms + self._backoffs[broker_id].next()

    def opened(self, broker_id: int) -> None:
        """There is a stream to it."""
        self._backoffs.pop(broker_id, None)
        self._due_ms.pop(broker_id, None)

    def is_due(self, broker_id: int, now_ms: float) -> bool:
        """Whether the client may open a stream to this broker."""
        return now_ms >= self._due_ms.get(broker_id, 0.0)

    def due_times_ms(self) -> Iterable[float]:
        """Of the brokers to which there is no stream now; some may be over."""
        return self._due_ms.values()
