"""HTTP of one broker: its listener, and what it answers from."""

from __future__ import annotations

from collections.abc import Callable

from minilog_broker.server.health import ConsoleCondition, Look
from minilog_broker.server.http.app import http_app
from minilog_broker.server.http.listener import HttpListener
from minilog_broker.server.metrics.broker_metrics import BrokerMetrics
from minilog_broker.server.metrics.broker_parts import Parts
from minilog_broker.server.metrics.broker_state import BrokerState
from minilog_broker.server.metrics.observations import Observations
from minilog_broker.server.runtime.observer import BrokerObserver


class BrokerHttp:
    """Bound when it is made: CommandFailed where the address cannot be had."""

    def __init__(
        self,
        address: tuple[str, int],
        observer: BrokerObserver,
        look: Look,
        parts: Parts,
        console: Callable[[], ConsoleCondition],
    ) -> None:
        assert isinstance(observer, Observations)
        self._metrics = BrokerMetrics(observer, BrokerState(look, parts))
        self._listener = HttpListener(*address, http_app(look, self._metrics.expose, console))

    async def start(self) -> None:
        """Answer, and watch the loop."""
        self._metrics.start()
        await self._listener.start()

    async def stop(self) -> None:
        await self._listener.stop()
        self._metrics.stop()
