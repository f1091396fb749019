"""The parts of a broker that metrics read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.cleaner import Cleaner
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.server.shells.scrub import Scrub
from minilog_broker.storage.reserve import Reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of a broker whose state becomes metrics. A scrape reads them, and changes nothing."""

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
    scrub: Scrub
    cleaner: Cleaner


Parts = Callable[[], BrokerParts | None]
