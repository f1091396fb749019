"""The observers of a broker where HTTP is on. Where it is off, even their libraries are not imported."""

from __future__ import annotations

from typing import Protocol

from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.health import Look
from minilog_broker.server.metrics.broker_parts import Parts
from minilog_broker.server.runtime.observer import UNOBSERVED, Observer


class Http(Protocol):
    """The HTTP listener, from the start of a broker to its end."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def observer_of(options: BrokerOptions) -> Observer:
    """The observer of the broker's shells."""
    if options.http is None:
        return UNOBSERVED
    from minilog_broker.server.metrics.observations import Observations

    return Observations(options.broker_id)


def open_http(options: BrokerOptions, observer: Observer, look: Look, parts: Parts) -> Http | None:
    """The bound listener, not started; None without an HTTP address. Raises CommandFailed where it cannot listen."""
    if options.http is None:
        return None
    from minilog_broker.server.http.broker_http import BrokerHttp

    return BrokerHttp(options.http, observer, look, parts)
