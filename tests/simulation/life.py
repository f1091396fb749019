"""One process of a broker: the real cores, joined as server/broker.py joins them. Being written.

starting    logs are recovered, quorum runs, the port is open, not registered
registered  leads and follows, serves clients
stopping    wants_stop is told with heartbeats; ends when the controller says so, or at the time-out
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from minilog_broker.controller.controller import Controller
from minilog_broker.controller.image import MetadataImage
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.state import PartitionKey
from minilog_broker.storage.log import Log
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.node import Node


class Stage(enum.Enum):
    """See the module's text."""

    STARTING = enum.auto()
    REGISTERED = enum.auto()
    STOPPING = enum.auto()


class Life:
    """See the module's text. All of it ends with the process; a judge must not keep it beyond `ended`."""

    node: Node
    number: int  # 1, 2, ... on this node
    process: Process
    stage: Stage
    broker_epoch: int | None  # None: not registered yet
    manager: ReplicaManager
    quorum: QuorumNode
    image: MetadataImage  # this life's replay of the committed metadata
    controller: Controller  # `is_active` where it is the active one
    logs: dict[PartitionKey, Log]  # the data logs; the metadata log is not among them
    metadata_log: Log
    offline: dict[PartitionKey, str]  # replicas out of service, and why

    @property
    def now_ms(self) -> float:
        """The monotonic clock of this process: what its cores are told."""
        return self.process.now_ms
