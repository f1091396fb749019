"""Brokers that go, by the committed log alone. Rule "retire" (docs/spec/quorum.md § Brokers that go).

No replica comes to a broker that is cordoned, or not registered. Who is forgotten has no replica, and is fenced. Of a
broker that is decommissioned at most 20 partitions are on their way, where nobody else moves any. When the faults are
over it loses all its replicas.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog.v1 import records_pb2
from tests.judges.violation import Violation
from tests.simulation.judge.metadata import LOG_NAME

if TYPE_CHECKING:
    from minilog_broker.quorum.records import CommittedBatch
    from tests.simulation.cluster import SimulatedCluster

MOST_MOVES = 20
EMPTY_WITHIN_S = 60.0
LOOK_S = 0.5


class Retirement:
    """The cordons, decommissions and unregistrations of the committed log, and the checks of their rules."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._cordons: dict[int, bool] = {}  # whether it is decommissioned
        self._fenced: dict[int, bool] = {}  # of brokers that are registered
        self._states: dict[PartitionKey, records_pb2.PartitionRecord] = {}
        self._others_move = "reassign" in cluster.plan.faults

    def committed(self, batch: CommittedBatch) -> None:
        for record in batch.records:
            self._apply(record)
        if not self._others_move:
            for broker_id in self._leaving():
                moving = sum(broker_id in state.removing_replicas for state in self._states.values())
                if moving > MOST_MOVES:
                    text = f"{moving} partitions of b{broker_id}, which is decommissioned, are on their way"
                    raise Violation("retire", text)

    def _apply(self, record: records_pb2.MetadataRecord) -> None:
        match record.WhichOneof("record"):
            case "broker_registration":
                self._fenced[record.broker_registration.broker_id] = True
            case "broker_state":
                self._fenced[record.broker_state.broker_id] = record.broker_state.fenced
            case "broker_cordon":
                cordon = record.broker_cordon
                self._cordons.pop(cordon.broker_id, None)
                if cordon.cordoned:
                    self._cordons[cordon.broker_id] = cordon.decommissioning
            case "unregister_broker":
                self._forgotten(record.unregister_broker.broker_id)
            case "topic_deletion":
                topic_id = record.topic_deletion.topic_id
                self._states = {key: state for key, state in self._states.items() if key.topic_id != topic_id}
            case "partition":
                self._placed(record.partition)

    def _placed(self, state: records_pb2.PartitionRecord) -> None:
        key = PartitionKey(state.topic_id, state.partition)
        former = self._states.get(key)
        self._states[key] = state
        for broker_id in set(state.replicas) - set(former.replicas if former is not None else ()):
            if broker_id in self._cordons:
                text = f"b{broker_id} is cordoned, and gets a replica"
                raise Violation("retire", text)
            if broker_id not in self._fenced:
                text = f"b{broker_id} is not registered, and gets a replica"
                raise Violation("retire", text)

    def _forgotten(self, broker_id: int) -> None:
        if left := self._replicas(broker_id):
            text = f"b{broker_id} is forgotten, and has replicas of {left} partitions"
            raise Violation("retire", text)
        if not self._fenced.pop(broker_id):
            raise Violation("retire", f"b{broker_id} is forgotten, and was not fenced")
        self._cordons.pop(broker_id, None)

    def _replicas(self, broker_id: int) -> int:
        return sum(broker_id in state.replicas for state in self._states.values())

    def _leaving(self) -> list[int]:
        return [broker_id for broker_id, decommissioned in self._cordons.items() if decommissioned]

    @property
    def cordoned(self) -> list[int]:
        """The brokers that are cordoned, and not decommissioned."""
        return [broker_id for broker_id, decommissioned in self._cordons.items() if not decommissioned]

    async def check_empty(self) -> None:
        """Behind the last fault, when all others take replicas: who is decommissioned has none before long. A throttle
        gives it the time that its bytes need."""
        until_s = self._cluster.now_s + EMPTY_WITHIN_S + self._throttled_s()
        while left := {broker_id: count for broker_id in self._leaving() if (count := self._replicas(broker_id))}:
            if self._cluster.now_s > until_s:
                text = f"{EMPTY_WITHIN_S} s behind the last fault brokers that are decommissioned have replicas: {left}"
                raise Violation("retire", text)
            await asyncio.sleep(LOOK_S)

    def _throttled_s(self) -> float:
        """The seconds that the lowest throttle needs for the copies that the leaving brokers still have."""
        throttles = [state.throttle_bytes_per_second for state in self._states.values()]
        disks = [self._cluster.hosts[broker_id].disk for broker_id in self._leaving()]
        size_bytes = sum(disk.size(name) for disk in disks for name in disk.names if _is_of_a_copy(name))
        return size_bytes / min((throttle for throttle in throttles if throttle), default=float("inf"))


def _is_of_a_copy(path: str) -> bool:
    """Whether this is a segment of a partition: no replica moves the metadata log, and a log that was set aside."""
    directory = path.rpartition("/")[0]
    return path.endswith(".log") and not directory.endswith((f"/{LOG_NAME}", "-delete"))
