"""The small model's controller: the production's elections and its judgement of ISR proposals on a committed state."""

from __future__ import annotations

from collections.abc import Callable

from minilog_broker.controller.election import Departure
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import ProposeInSyncReplicas
from tests.unit.replication.small_model_state import KEY, AskedProposal, Life, Partitions
from tests.world.controller import Decisions, Lives


class SmallController:
    """Decides at once: what it answers is committed. Equal cases are decided once."""

    def __init__(self, partitions: Partitions, min_in_sync: int) -> None:
        self._partitions = partitions
        self._decisions = Decisions(TopicConfig(min_in_sync, 1 << 20, 1 << 30, 1 << 30, True, -1, -1, False))
        self._decided: dict[tuple[object, ...], int] = {}

    def _decide(
        self,
        partition: int,
        lives: tuple[Life, ...],
        case: tuple[object, ...],
        decision: Callable[[PartitionState, Lives], PartitionState],
    ) -> int:
        case = (partition, lives, *case)
        if case not in self._decided:
            brokers = {
                number: BrokerIncarnation(number, epoch, "", 0, fenced, False)
                for number, (epoch, fenced) in enumerate(lives)
            }
            self._decided[case] = self._partitions.number(decision(self._partitions[partition], brokers))
        return self._decided[case]

    def depart(self, partition: int, lives: tuple[Life, ...], broker_id: int, departure: Departure) -> int:
        """The state after `departure` befell a broker, whose life is `lives`' already."""
        return self._decide(
            partition,
            lives,
            (broker_id, departure),
            lambda state, brokers: self._decisions.depart(state, brokers, broker_id, departure),
        )

    def reconsider(self, partition: int, lives: tuple[Life, ...]) -> int:
        """The state after a broker came back."""
        return self._decide(partition, lives, (), self._decisions.reconsider)

    def judge(
        self, partition: int, lives: tuple[Life, ...], leader_id: int, leader_life: int, asked: AskedProposal
    ) -> int:
        """The state after a proposal was judged: the same where it was refused for what may pass."""
        proposal = ProposeInSyncReplicas(KEY, *asked)
        return self._decide(
            partition,
            lives,
            (leader_id, leader_life, asked),
            lambda state, brokers: self._decisions.propose(state, brokers, (leader_id, leader_life), proposal)[0],
        )
