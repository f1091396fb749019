"""The observers of a broker: HTTP, and the process of a console. Where they are off, not even their libraries are
imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.health import ConsoleCondition, Look
from minilog_broker.server.metrics.broker_parts import Parts
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver


class Http(Protocol):
    """The HTTP listener, from the start of a broker to its end."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class ServedConsole(Protocol):
    """The console that a broker serves."""

    def condition(self) -> ConsoleCondition: ...

    async def run(self) -> None: ...

    def end(self) -> None: ...


class _NoConsole:
    """Of a broker that serves none."""

    def condition(self) -> ConsoleCondition:
        return ConsoleCondition()

    async def run(self) -> None:
        return

    def end(self) -> None:
        return


def observer_of(options: BrokerOptions) -> BrokerObserver:
    """The observer of the broker's shells."""
    if options.http is None:
        return UNOBSERVED
    from minilog_broker.server.metrics.observations import Observations

    return Observations(options.broker_id)


def console_of(options: BrokerOptions) -> ServedConsole:
    """The broker's console, which `run` begins."""
    served = options.console()
    if served is None:
        return _NoConsole()
    from minilog_broker.server.console_process import ConsoleProcess

    return ConsoleProcess(served)


def open_http(
    options: BrokerOptions, observer: BrokerObserver, look: Look, parts: Parts, console: Callable[[], ConsoleCondition]
) -> Http | None:
    """The bound listener, not started; None without an HTTP address. Raises CommandFailed where it cannot listen."""
    if options.http is None:
        return None
    from minilog_broker.server.http.broker_http import BrokerHttp

    return BrokerHttp(options.http, observer, look, parts, console)
