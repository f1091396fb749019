"""Where HTTP is on, what watches a broker; where it is off, nothing: the libraries for it are not even imported."""

from __future__ import annotations

from typing import Protocol

from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.health import Look
from minilog_broker.server.metrics.broker_parts import Parts
from minilog_broker.server.runtime.observer import UNOBSERVED, Observer


class Http(Protocol):
    """What listens, from the start of a broker to its end."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def observer_of(options: BrokerOptions) -> Observer:
    """What the broker's shells tell of what they do."""
    if options.http is None:
        return UNOBSERVED
    from minilog_broker.server.metrics.observations import Observations

    return Observations(options.broker_id)


def open_http(options: BrokerOptions, observer: Observer, look: Look, parts: Parts) -> Http | None:
    """Bound, and not started; None where nobody asked for it. CommandFailed where the address cannot be had."""
    if options.http is None:
        return None
    from minilog_broker.server.http.broker_http import BrokerHttp

    return BrokerHttp(options.http, observer, look, parts)
