"""The times at which a client opens a lost stream to a broker again. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterable

from minilog.client_config import ClientConfig
from minilog.net.backoff import ExponentialBackoff


class Reconnects:
    """The pauses of one client's streams, by broker. They grow while the client cannot open a stream to the broker."""

    def __init__(self, config: ClientConfig, chance: random.Random) -> None:
        self._config, self._chance = config, chance
        self._backoffs: dict[int, ExponentialBackoff] = {}
        self._due_ms: dict[int, float] = {}

    def lost(self, broker_id: int, now_ms: float) -> None:
        """Note that the stream is lost, or could not be opened. The client tries again after a pause."""
        config = self._config
        if broker_id not in self._backoffs:
            backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._chance)
            self._backoffs[broker_id] = backoff
        self._due_ms[broker_id] = now_ms + self._backoffs[broker_id].next()

    def opened(self, broker_id: int) -> None:
        """Note that there is a stream to this broker."""
        self._backoffs.pop(broker_id, None)
        self._due_ms.pop(broker_id, None)

    def is_due(self, broker_id: int, now_ms: float) -> bool:
        """Whether the client may open a stream to this broker."""
        return now_ms >= self._due_ms.get(broker_id, 0.0)

    def due_times_ms(self) -> Iterable[float]:
        """The times of the next attempts, for the brokers without a stream. A time may be in the past."""
        return self._due_ms.values()
