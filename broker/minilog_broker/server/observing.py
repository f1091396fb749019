"""Where HTTP is on, what watches a broker; where it is off, nothing: the libraries for it are not even imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from minilog_broker.server.access.broker_access import BrokerAccess
from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls
from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.health import Look
from minilog_broker.server.runtime.observer import UNOBSERVED, Observer
from minilog_broker.server.runtime.traffic import Flow
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.storage.reserve import Reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of a broker whose state is told as metrics. They are read only."""

    broker_id: int
    data_dir: str
    quorum: QuorumShell
    replicas: ReplicationShell
    controller: ControllerShell
    coordinators: Coordinators
    calls: CoordinatorCalls
    flow: Flow
    reserve: Reserve
    turns: Turns
    wall_us: Callable[[], int]
    access: BrokerAccess


Parts = Callable[[], BrokerParts | None]


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
